/*
 * tcpstore_ops.c - the operations of PyTorch's clients that never wait and that the native dialect
 * does not have: values compared by their bytes, lenient counting, many keys in one request. Their
 * odd cases are those that PyTorch's clients and tests rely on. Owns nothing.
 */
#include "error.h"
#include "kv_impl.h"

/* On success the client gets back the value that it wanted to set. If it expected a value and there
 * is no key, it gets back the value that it expected. */
ddp_status ddpi_kv_compare_set(struct ddpi_kv *kv, struct kv_call *call)
{
    const struct ddpi_message *request = call->request;
    const struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    struct ddpi_bytes current = entry != NULL ? ddpi_kv_value(entry) : ddpi_bytes_of(NULL, 0);
    if (!ddpi_bytes_equal(current, request->expected)) {
        call->reply.value = entry != NULL ? current : request->expected;
        return DDP_OK;
    }
    call->reply.value = request->value;
    if (entry != NULL && ddpi_bytes_equal(current, request->value))
        return DDP_OK; /* nothing changes, so no request is woken */
    return ddpi_kv_put(kv, call->key, request->value, &call->reply.version, &call->err);
}

ddp_status ddpi_kv_add_wrap(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_entry *entry;
    ddp_status status =
        ddpi_kv_count_up(kv, call, call->request->number, &call->reply.number, &entry);
    if (status == DDP_OK)
        ddpi_kv_written(kv, entry);
    return status;
}

ddp_status ddpi_kv_check(struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_keys keys = call->request->keys;
    for (;;) {
        struct ddpi_bytes key;
        bool more;
        ddp_status status = ddpi_kv_next_key(kv, call, &keys, &key, &more);
        if (status != DDP_OK || !more)
            return status;
        if (!ddpi_kv_present(ddpi_kv_seek(kv, key)))
            return ddpi_error_set(&call->err, DDP_E_NOT_FOUND, "there is no key '%.*s'",
                                  KV_QUOTE_SEEN(call->client, key));
    }
}

ddp_status ddpi_kv_append(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    if (entry == NULL)
        return ddpi_kv_put(kv, call->key, call->request->value, &call->reply.version, &call->err);
    ddp_status status = ddpi_kv_extend(kv, entry, call->request->value, &call->err);
    if (status == DDP_OK)
        ddpi_kv_written(kv, entry);
    return status;
}

ddp_status ddpi_kv_get_many(struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_keys keys = call->request->keys;
    struct ddpi_bytes key;
    for (;;) {
        bool more;
        ddp_status status = ddpi_kv_next_key(kv, call, &keys, &key, &more);
        if (status != DDP_OK)
            return status;
        if (!more)
            break;
        struct ddpi_message reply = {.status = DDP_OK};
        const struct kv_entry *entry = ddpi_kv_find_value(kv, key);
        if (entry != NULL)
            ddpi_kv_answer_value(&reply, entry);
        ddpi_kv_answer(kv, call->client, &reply, DDPI_OP_GET_MANY, call->request->id);
    }
    call->parked = true; /* all replies are given */
    return DDP_OK;
}

/* The next pair of @keys; *@ret_more is false at the end. */
static ddp_status next_pair(const struct ddpi_kv *kv, struct kv_call *call, struct ddpi_keys *keys,
                            struct ddpi_bytes *ret_key, struct ddpi_bytes *ret_value,
                            bool *ret_more)
{
    ddp_status status = ddpi_kv_next_key(kv, call, keys, ret_key, ret_more);
    if (status != DDP_OK || !*ret_more)
        return status;
    if (!ddpi_keys_next(keys, ret_value))
        return ddpi_error_set(&call->err, DDP_E_INVALID, "'%.*s' is given without a value",
                              KV_QUOTE_SEEN(call->client, *ret_key));
    uint32_t max = call->client->tcpstore ? kv->limits.tcpstore_value_len : kv->limits.value_len;
    if (ret_value->len > max)
        return ddpi_error_set(&call->err, DDP_E_LIMIT,
                              "a value of %zu bytes for '%.*s'; at most %u are allowed",
                              ret_value->len, KV_QUOTE_SEEN(call->client, *ret_key), max);
    return DDP_OK;
}

/* Whether there is room for all pairs, if none replaced an older value. */
static ddp_status check_pairs(struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_keys keys = call->request->keys;
    struct ddpi_bytes key, value;
    size_t fresh = 0, needed = 0;
    bool more;
    ddp_status status;
    while ((status = next_pair(kv, call, &keys, &key, &value, &more)) == DDP_OK && more) {
        const struct kv_entry *entry = ddpi_kv_find(kv, key);
        fresh += entry == NULL || entry->version == 0;
        needed += value.len + (entry == NULL ? ddpi_kv_entry_size(key.len) : 0);
    }
    if (status != DDP_OK)
        return status;
    return ddpi_kv_check_growth(kv, ddpi_kv_account_get(kv, call->key), fresh, needed, &call->err);
}

/* Sets all pairs or none, unless memory runs out half-way. */
ddp_status ddpi_kv_set_many(struct ddpi_kv *kv, struct kv_call *call)
{
    ddp_status status = check_pairs(kv, call);
    struct ddpi_keys keys = call->request->keys;
    struct ddpi_bytes key, value;
    bool more = true;
    while (status == DDP_OK) {
        status = next_pair(kv, call, &keys, &key, &value, &more);
        if (!more)
            break;
        if (status == DDP_OK)
            status = ddpi_kv_put(kv, key, value, &call->reply.version, &call->err);
    }
    return status;
}
