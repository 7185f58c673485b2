/*
 * http_library.c - loads libmicrohttpd by its soname, so that the dynamic linker searches the same
 * places as for a program that is linked to it. Owns nothing.
 */
#include "http_library.h"

#include "error.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libmicrohttpd.so.12"

static const struct {
    const char *name;
    size_t offset; /* of the member in struct http_library */
} rows[] = {
#define ROW(name) {#name, offsetof(struct http_library, name)},
    HTTP_LIBRARY_MAP(ROW)
#undef ROW
};

ddp_status http_library_load(struct http_library *ret, struct ddp_error *err)
{
    struct http_library fresh = {.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
    if (fresh.library == NULL)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                              "HTTP needs %s, which cannot be loaded (%s); install it (Debian: "
                              "libmicrohttpd12)",
                              LIBRARY, dlerror());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *symbol = dlsym(fresh.library, rows[i].name);
        if (symbol == NULL)
            return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                                  "HTTP needs a newer libmicrohttpd: the installed %s has no %s",
                                  LIBRARY, rows[i].name);
        memcpy((char *)&fresh + rows[i].offset, &symbol, sizeof symbol);
    }
    *ret = fresh;
    return DDP_OK;
}
