/*
 * owner.c - what the owner of a store may do with it beside its clients: keys of his own, and
 * looks at all keys. Owns nothing; the entries are kv.c's.
 */
#include "error.h"
#include "kv_impl.h"

#include <string.h>

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

void ddpi_kv_reserve(struct ddpi_kv *kv, const char *prefix)
{
    kv->reserved = prefix;
}

ddp_status ddpi_kv_check_owner(const struct ddpi_kv *kv, struct ddpi_bytes key,
                               struct ddp_error *err)
{
    size_t len = strlen(kv->reserved);
    if (len == 0 || !ddpi_kv_has_prefix(key, ddpi_bytes_of(kv->reserved, len)))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_DENIED, "keys that begin with '%s' are the server's to change",
                          kv->reserved);
}

size_t ddpi_kv_delete_prefix(struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    return ddpi_kv_delete_some(kv, prefix, SIZE_MAX);
}

size_t ddpi_kv_delete_some(struct ddpi_kv *kv, struct ddpi_bytes prefix, size_t most)
{
    size_t deleted = 0;
    struct kv_entry *next;
    for (struct kv_entry *entry = ddpi_kv_order_first(kv, prefix); entry != NULL && deleted < most;
         entry = next) {
        next = ddpi_kv_order_next(kv, entry, prefix);
        deleted += ddpi_kv_has_value(entry);
        ddpi_kv_queue_clear(kv, entry);
        if (entry->version != 0)
            ddpi_kv_drop(kv, entry);
        else
            ddpi_kv_entry_release(kv, entry);
    }
    return deleted;
}
