/*
 * etcd_none.c - replaces the other files in a build without libcurl: every request for a state in
 * etcd fails with an error that names the build option.
 */
#include "error.h"
#include "etcd_store.h"

ddp_status ddpi_etcd_store_open(uv_loop_t *loop, const struct ddpi_etcd_store_options *options,
                                struct ddpi_etcd_store **ret, struct ddp_error *err)
{
    (void)loop, (void)options, (void)ret;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                          "this ddprund was built without etcd; rebuild it with -Detcd=enabled, "
                          "which needs libcurl");
}

void ddpi_etcd_store_close(struct ddpi_etcd_store *store)
{
    (void)store;
}
