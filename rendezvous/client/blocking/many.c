/*
 * many.c - the blocking client's look at many keys at once: all requests leave before the
 * first answer is waited for, so that it takes one round trip and not one for each. Owns the values
 * until the last is there.
 */
#include "blocking_impl.h"
#include "error.h"
#include "mem.h"

struct look {
    struct call call;
    struct ddp_error why;
    char *key;
};

static ddp_status prepare(const ddp_store *store, const char *const *keys, size_t count,
                          struct look *looks, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++) {
        struct look *look = &looks[i];
        look->call =
            (struct call){CALL_MESSAGE(.op = DDPI_OP_TRY_GET), .take = ddpi_store_take_value,
                          .err = &look->why, .next = i + 1 < count ? &looks[i + 1].call : NULL};
        status = ddpi_target_key(&store->target, &store->limits, keys[i], &look->key,
                                 &look->call.request.message.key, err);
    }
    return status;
}

/* The first that has failed is told of. */
static ddp_status check(const ddp_store *store, const struct look *looks, size_t count,
                        struct ddp_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (looks[i].call.status != DDP_OK && looks[i].call.status != DDP_E_NOT_FOUND)
            return ddpi_store_tell(store, &looks[i].call, &looks[i].why, err);
    return DDP_OK;
}

/* One piece of memory: the array, then the values. */
static ddp_status gather(const struct look *looks, size_t count, struct ddp_store_value **ret,
                         struct ddp_error *err)
{
    size_t size = count * sizeof **ret; /* of at most DDP_STORE_MANY_MAX */
    for (size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(size, looks[i].call.ret_len + 1, &size))
            return ddpi_error_nomem(err, SIZE_MAX);
    struct ddp_store_value *values = ddpi_calloc(1, size);
    if (values == NULL)
        return ddpi_error_nomem(err, size);
    char *at = (char *)(values + count);
    for (size_t i = 0; i < count; i++) {
        const struct call *call = &looks[i].call;
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
        return ddpi_error_set(err, DDP_E_INVALID, "a look at %zu keys; 1 to %d are allowed", count,
                              DDP_STORE_MANY_MAX);
    struct look *looks = ddpi_calloc(count, sizeof *looks);
    if (looks == NULL)
        return ddpi_error_nomem(err, count * sizeof *looks);
    ddp_status status = prepare(store, keys, count, looks, err);
    if (status == DDP_OK) {
        ddpi_store_run_all(store, &looks[0].call, timeout_ms);
        status = check(store, looks, count, err);
    }
    if (status == DDP_OK)
        status = gather(looks, count, ret_values, err);
    for (size_t i = 0; i < count; i++) {
        ddpi_free(looks[i].call.ret);
        ddpi_free(looks[i].key);
    }
    ddpi_free(looks);
    return status;
}
