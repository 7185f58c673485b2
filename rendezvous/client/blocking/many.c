/*
 * many.c - the blocking client's lookup of many keys: all requests are sent before the first reply
 * is awaited, so that it takes one round trip instead of one per key. Owns the values until the
 * last one has come.
 */
#include "blocking_call.h"
#include "error.h"
#include "mem.h"

struct lookup {
    struct call call;
    struct ddp_error why;
    char *key;
};

static ddp_status prepare_lookups(const ddp_store *store, const char *const *keys, size_t count,
                                  struct lookup *lookups, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++) {
        struct lookup *lookup = &lookups[i];
        lookup->call =
            (struct call){CALL_MESSAGE(.op = DDPI_OP_TRY_GET), .take = ddpi_store_take_value,
                          .err = &lookup->why, .next = i + 1 < count ? &lookups[i + 1].call : NULL};
        status = ddpi_target_key(&store->target, &store->limits, keys[i], &lookup->key,
                                 &lookup->call.request.message.key, err);
    }
    return status;
}

/* The error of the first lookup that has failed. */
static ddp_status check_lookups(const ddp_store *store, const struct lookup *lookups, size_t count,
                                struct ddp_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (lookups[i].call.status != DDP_OK && lookups[i].call.status != DDP_E_NOT_FOUND)
            return ddpi_store_call_error(store, &lookups[i].call, &lookups[i].why, err);
    return DDP_OK;
}

/* One block of memory: the array, then the values. */
static ddp_status gather_values(const struct lookup *lookups, size_t count,
                                struct ddp_store_value **ret, struct ddp_error *err)
{
    size_t size = count * sizeof **ret; /* of at most DDP_STORE_MANY_MAX */
    for (size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(size, lookups[i].call.ret_len + 1, &size))
            return ddpi_error_nomem(err, SIZE_MAX);
    struct ddp_store_value *values = ddpi_calloc(1, size);
    if (values == NULL)
        return ddpi_error_nomem(err, size);
    char *at = (char *)(values + count);
    for (size_t i = 0; i < count; i++) {
        const struct call *call = &lookups[i].call;
        if (call->status != DDP_OK)
            continue;
        memcpy(at, call->ret, call->ret_len);
        values[i] = (struct ddp_store_value){call->version, at, call->ret_len};
        at += call->ret_len + 1;
    }
    *ret = values;
    return DDP_OK;
}

ddp_status ddp_store_try_get_many(ddp_store *store, const char *const *keys, size_t count,
                                  uint32_t timeout_ms, struct ddp_store_value **ret_values,
                                  struct ddp_error *err)
{
    if (count == 0 || count > DDP_STORE_MANY_MAX || keys == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "a lookup of %zu keys; 1 to %d are allowed",
                              count, DDP_STORE_MANY_MAX);
    struct lookup *lookups = ddpi_calloc(count, sizeof *lookups);
    if (lookups == NULL)
        return ddpi_error_nomem(err, count * sizeof *lookups);
    ddp_status status = prepare_lookups(store, keys, count, lookups, err);
    if (status == DDP_OK) {
        ddpi_store_run_all(store, &lookups[0].call, timeout_ms);
        status = check_lookups(store, lookups, count, err);
    }
    if (status == DDP_OK)
        status = gather_values(lookups, count, ret_values, err);
    for (size_t i = 0; i < count; i++) {
        ddpi_free(lookups[i].call.ret);
        ddpi_free(lookups[i].key);
    }
    ddpi_free(lookups);
    return status;
}
