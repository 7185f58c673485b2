/*
 * openssl.c - loads OpenSSL at run time, by its soname, so that the dynamic linker searches the
 * same places as for a program that is linked to it. Owns nothing.
 */
#include "openssl.h"

#include "error.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define TEXT_OF(number)   #number
#define SONAME_OF(number) "libssl.so." TEXT_OF(number)
#define LIBRARY           SONAME_OF(OPENSSL_SHLIB_VERSION)

static const struct {
    const char *name;
    size_t offset; /* of the member in struct ddpi_openssl */
} rows[] = {
#define ROW(name) {#name, offsetof(struct ddpi_openssl, name)},
    DDPI_OPENSSL_MAP(ROW)
#undef ROW
};

ddp_status ddpi_openssl_load(struct ddpi_openssl *ret, struct ddp_error *err)
{
    struct ddpi_openssl fresh = {.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
    if (fresh.library == NULL)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                              "TLS needs %s of OpenSSL 3, which cannot be loaded (%s); install it "
                              "(Debian: libssl3)",
                              LIBRARY, dlerror());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *symbol = dlsym(fresh.library, rows[i].name);
        if (symbol == NULL)
            return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                                  "TLS needs OpenSSL 3, but the installed %s has no %s", LIBRARY,
                                  rows[i].name);
        memcpy((char *)&fresh + rows[i].offset, &symbol, sizeof symbol);
    }
    /* No cleanup at exit: other threads may still use the library while the process exits. */
    if (fresh.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "OpenSSL fails to initialize");
    *ret = fresh;
    return DDP_OK;
}

/* The project's libraries have no global variables, so this looks the library up again by its name.
 * That takes some microseconds, once for each connection. */
void *ddpi_openssl_data_of(const SSL *ssl)
{
    __typeof__(&SSL_get_ex_data) get = NULL;
    void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return NULL;
    void *symbol = dlsym(library, "SSL_get_ex_data");
    memcpy(&get, &symbol, sizeof symbol);
    void *data = get != NULL ? get(ssl, 0) : NULL;
    dlclose(library);
    return data;
}
