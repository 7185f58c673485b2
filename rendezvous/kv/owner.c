/*
 * owner.c - what the owner of a store may do with single keys, past the limits and past the
 * reserved prefix. Owns nothing.
 */
#include "kv_impl.h"

struct ddpi_bytes ddpi_kv_peek(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    const struct kv_entry *entry = ddpi_kv_find_value(kv, key);
    return entry != NULL ? ddpi_kv_value(entry) : ddpi_bytes_of(NULL, 0);
}

ddp_status ddpi_kv_poke(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                        struct ddp_error *err)
{
    struct kv_change change;
    ddp_status status = ddpi_kv_prepare(kv, key, value, &change, err);
    if (status != DDP_OK)
        return status;
    ddpi_kv_commit(kv, &change);
    ddpi_kv_written(kv, change.entry);
    return DDP_OK;
}

void ddpi_kv_remove(struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = ddpi_kv_find_value(kv, key);
    if (entry != NULL)
        ddpi_kv_drop(kv, entry);
}

void ddpi_kv_each(const struct ddpi_kv *kv, struct ddpi_bytes prefix,
                  bool (*visit)(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value),
                  void *ctx)
{
    for (const struct kv_entry *entry = ddpi_kv_order_first(kv, prefix); entry != NULL;
         entry = ddpi_kv_order_next(kv, entry, prefix))
        if (ddpi_kv_has_value(entry) && !visit(ctx, ddpi_kv_name(entry), ddpi_kv_value(entry)))
            return;
}
