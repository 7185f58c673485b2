/*
 * store_version.c - the version of the library; meson.build gives it.
 */
#include <ddprun/store.h>

const char *ddp_store_version(void)
{
    return DDPI_PROJECT_VERSION;
}
