/*
 * etcd_library.c - loads libcurl by its soname, so that the dynamic linker searches the same places
 * as for a program that is linked to it. Owns nothing.
 */
#include "etcd_library.h"

#include "error.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libcurl.so.4"

static const struct {
    const char *name;
    size_t offset; /* of the member in struct ddpi_etcd_library */
} rows[] = {
#define ROW(name) {#name, offsetof(struct ddpi_etcd_library, name)},
    DDPI_ETCD_LIBRARY_MAP(ROW)
#undef ROW
};

ddp_status ddpi_etcd_library_load(struct ddpi_etcd_library *ret, struct ddp_error *err)
{
    struct ddpi_etcd_library fresh = {.library =
                                          dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
    if (fresh.library == NULL)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                              "a state in etcd needs %s, which cannot be loaded (%s); install it "
                              "(Debian: libcurl4)",
                              LIBRARY, dlerror());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *symbol = dlsym(fresh.library, rows[i].name);
        if (symbol == NULL)
            return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                                  "a state in etcd needs a newer libcurl: the installed %s has no "
                                  "%s",
                                  LIBRARY, rows[i].name);
        memcpy((char *)&fresh + rows[i].offset, &symbol, sizeof symbol);
    }
    if (fresh.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "%s cannot be set up", LIBRARY);
    *ret = fresh;
    return DDP_OK;
}
