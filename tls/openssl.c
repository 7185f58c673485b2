/*
 * openssl.c - loads OpenSSL at run time. Owns nothing.
 */
#include "openssl.h"

#include "error.h"
#include "library.h"

#include <dlfcn.h>
#include <string.h>

#define TEXT_OF(number)   #number
#define SONAME_OF(number) "libssl.so." TEXT_OF(number)
#define LIBRARY           SONAME_OF(OPENSSL_SHLIB_VERSION)

static const struct ddpi_symbol symbols[] = {
#define SYMBOL(name) {#name, offsetof(struct ddpi_openssl, name), false},
    DDPI_OPENSSL_MAP(SYMBOL)
#undef SYMBOL
};

ddp_status ddpi_openssl_load(struct ddpi_openssl *ret, struct ddp_error *err)
{
    static const struct ddpi_library library = {.soname = LIBRARY,
                                                .user = "TLS",
                                                .product = " of OpenSSL 3",
                                                .newer = "OpenSSL 3, but",
                                                .package = "libssl3"};
    ddp_status status =
        ddpi_library_load(&library, symbols, sizeof symbols / sizeof *symbols, ret, err);
    /* No cleanup at exit: other threads may still use the library while the process exits. */
    if (status == DDP_OK && ret->OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "OpenSSL fails to initialize");
    return status;
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
