/*
 * http_library.c - loads libmicrohttpd. Owns nothing.
 */
#include "http_library.h"

#include "library.h"

static const struct ddpi_symbol symbols[] = {
#define SYMBOL(name) {#name, offsetof(struct http_library, name), false},
    HTTP_LIBRARY_MAP(SYMBOL)
#undef SYMBOL
};

ddp_status http_library_load(struct http_library *ret, struct ddp_error *err)
{
    static const struct ddpi_library library = {.soname = "libmicrohttpd.so.12",
                                                .user = "HTTP",
                                                .product = "",
                                                .newer = "a newer libmicrohttpd:",
                                                .package = "libmicrohttpd12"};
    return ddpi_library_load(&library, symbols, sizeof symbols / sizeof *symbols, ret, err);
}
