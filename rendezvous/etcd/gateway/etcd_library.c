/*
 * etcd_library.c - loads libcurl. Owns nothing.
 */
#include "etcd_library.h"

#include "error.h"
#include "library.h"

static const struct ddpi_symbol symbols[] = {
#define SYMBOL(name) {#name, offsetof(struct ddpi_etcd_library, name), false},
    DDPI_ETCD_LIBRARY_MAP(SYMBOL)
#undef SYMBOL
};

ddp_status ddpi_etcd_library_load(struct ddpi_etcd_library *ret, struct ddp_error *err)
{
    static const struct ddpi_library library = {.soname = "libcurl.so.4",
                                                .user = "a state in etcd",
                                                .product = "",
                                                .newer = "a newer libcurl:",
                                                .package = "libcurl4"};
    ddp_status status =
        ddpi_library_load(&library, symbols, sizeof symbols / sizeof *symbols, ret, err);
    if (status == DDP_OK && ret->curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED, "%s cannot be set up", library.soname);
    return status;
}
