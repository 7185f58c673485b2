/*
 * keys.c - the blocking client's calls on keys.
 */
#include "blocking_call.h"
#include "error.h"

ddp_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t value_len,
                         uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_SET, .value = {value, value_len})};
    ddp_status status = ddpi_target_check_value(&store->limits, value, value_len, err);
    if (status == DDP_OK)
        status = ddpi_store_run_key(store, key, &call, timeout_ms, err);
    if (status == DDP_OK && ret_version != NULL)
        *ret_version = call.version;
    return status;
}

static ddp_status get_value(ddp_store *store, enum ddpi_op op, const char *key, uint32_t timeout_ms,
                            void **ret_value, size_t *ret_len, uint64_t *ret_version,
                            struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = op), .take = ddpi_store_take_value};
    ddp_status status = ddpi_store_run_key(store, key, &call, timeout_ms, err);
    if (status != DDP_OK)
        return status;
    *ret_value = call.ret;
    *ret_len = call.ret_len;
    if (ret_version != NULL)
        *ret_version = call.version;
    return DDP_OK;
}

ddp_status ddp_store_get(ddp_store *store, const char *key, uint32_t timeout_ms, void **ret_value,
                         size_t *ret_len, uint64_t *ret_version, struct ddp_error *err)
{
    return get_value(store, DDPI_OP_GET, key, timeout_ms, ret_value, ret_len, ret_version, err);
}

ddp_status ddp_store_try_get(ddp_store *store, const char *key, uint32_t timeout_ms,
                             void **ret_value, size_t *ret_len, uint64_t *ret_version,
                             struct ddp_error *err)
{
    return get_value(store, DDPI_OP_TRY_GET, key, timeout_ms, ret_value, ret_len, ret_version, err);
}

ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta, uint32_t timeout_ms,
                         int64_t *ret_sum, struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_ADD, .number = delta)};
    ddp_status status = ddpi_store_run_key(store, key, &call, timeout_ms, err);
    if (status == DDP_OK && ret_sum != NULL)
        *ret_sum = call.number;
    return status;
}

ddp_status ddp_store_compare_and_swap(ddp_store *store, const char *key, uint64_t expected_version,
                                      const void *value, size_t value_len, uint32_t timeout_ms,
                                      uint64_t *ret_version, struct ddp_error *err)
{
    struct call call = {
        CALL_MESSAGE(.op = DDPI_OP_CAS, .version = expected_version, .value = {value, value_len})};
    ddp_status status = ddpi_target_check_value(&store->limits, value, value_len, err);
    if (status == DDP_OK)
        status = ddpi_store_run_key(store, key, &call, timeout_ms, err);
    if ((status == DDP_OK || status == DDP_E_CONFLICT) && ret_version != NULL)
        *ret_version = call.version;
    return status;
}

ddp_status ddp_store_wait(ddp_store *store, const char *const *keys, size_t count,
                          uint32_t timeout_ms, struct ddp_error *err)
{
    struct ddpi_buf packed;
    ddp_status status =
        ddpi_target_pack_keys(&store->target, &store->limits, keys, count, &packed, err);
    if (status == DDP_OK) {
        struct call call = {
            CALL_MESSAGE(.op = DDPI_OP_WAIT, .keys = {.packed = ddpi_buf_head(&packed),
                                                      .packed_len = ddpi_buf_len(&packed),
                                                      .count = (uint32_t)count})};
        status = ddpi_store_run(store, &call, timeout_ms, err);
    }
    ddpi_buf_finish(&packed);
    return status;
}

ddp_status ddp_store_delete(ddp_store *store, const char *key, uint32_t timeout_ms,
                            struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_DELETE)};
    return ddpi_store_run_key(store, key, &call, timeout_ms, err);
}

static ddp_status take_keys(const ddp_store *store, struct call *call,
                            const struct ddpi_message *reply, struct ddp_error *err)
{
    char **keys;
    ddp_status status = ddpi_target_unpack(&store->target, reply->keys, &keys, &call->ret_len, err);
    if (status == DDP_OK)
        call->ret = keys;
    return status;
}

ddp_status ddp_store_list(ddp_store *store, const char *prefix, uint32_t timeout_ms,
                          char ***ret_keys, size_t *ret_count, struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_LIST), .take = take_keys};
    ddp_status status = ddpi_store_run_key(store, prefix, &call, timeout_ms, err);
    if (status != DDP_OK)
        return status;
    *ret_keys = call.ret;
    *ret_count = call.ret_len;
    return DDP_OK;
}

ddp_status ddp_store_barrier(ddp_store *store, const char *name, uint32_t count,
                             uint32_t timeout_ms, struct ddp_error *err)
{
    if (count == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "a barrier count of 0; it must be at least 1");
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_BARRIER, .count = count)};
    return ddpi_store_run_key(store, name, &call, timeout_ms, err);
}

ddp_status ddp_store_stats(ddp_store *store, uint32_t timeout_ms, char **ret_text,
                           struct ddp_error *err)
{
    struct call call = {CALL_MESSAGE(.op = DDPI_OP_STATS), .take = ddpi_store_take_value};
    ddp_status status = ddpi_store_run(store, &call, timeout_ms, err);
    if (status == DDP_OK)
        *ret_text = call.ret;
    return status;
}
