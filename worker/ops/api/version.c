/*
 * version.c - the version of the library. meson.build gives it, once as text and once in parts.
 */
#include <ddprun/comm.h>

const char *ddp_version(void)
{
    return DDPI_VERSION;
}

uint32_t ddp_version_number(void)
{
    return 10000 * DDPI_VERSION_MAJOR + 100 * DDPI_VERSION_MINOR + DDPI_VERSION_PATCH;
}
