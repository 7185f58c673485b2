/*
 * values.c - how keys get their values. Owns nothing; the entries are entries.c's.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <ctype.h>
#include <ddprun/store.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ddpi_kv_reserve(struct ddpi_kv *kv, const char *prefix)
{
    kv->reserved = prefix;
}

ddp_status ddpi_kv_check_owner(const struct ddpi_kv *kv, struct ddpi_bytes key,
                               struct ddp_error *err)
{
    size_t len = strlen(kv->reserved);
    if (len == 0 || !ddpi_bytes_has_prefix(key, ddpi_bytes_of(kv->reserved, len)))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_DENIED, "only the server changes keys that begin with '%s'",
                          kv->reserved);
}

static ddp_status value_check_room(struct ddpi_kv *kv, const struct kv_entry *entry,
                                   struct ddpi_bytes key, size_t value_len, struct ddp_error *err)
{
    bool fresh = entry == NULL || entry->version == 0;
    size_t held = fresh ? 0 : entry->value_len;
    size_t needed = value_len > held ? value_len - held : 0;
    if (entry != NULL)
        return ddpi_kv_check_growth(kv, entry->account, fresh, needed, err);
    return ddpi_kv_check_growth(kv, ddpi_kv_account_get(kv, key), fresh,
                                needed + ddpi_kv_entry_size(key.len), err);
}

ddp_status ddpi_kv_prepare(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                           struct kv_change *ret, struct ddp_error *err)
{
    struct kv_change change = {.entry = ddpi_kv_seek(kv, key), .bytes = value};
    if (change.entry != NULL && change.entry->version != 0 &&
        change.entry->value_len == value.len) {
        *ret = change;
        return DDP_OK;
    }
    change.value = ddpi_strndup(value.data, value.len);
    if (change.value == NULL)
        return ddpi_error_nomem(err, value.len);
    if (change.entry == NULL)
        change.entry = ddpi_kv_entry_make(kv, ddpi_kv_account_get(kv, key), key);
    if (change.entry == NULL) {
        ddpi_free(change.value);
        return ddpi_error_nomem(err, ddpi_kv_entry_size(key.len));
    }
    *ret = change;
    return DDP_OK;
}

static void entry_set_value(struct kv_entry *entry, const struct kv_change *change)
{
    if (change->value == NULL) {
        if (change->bytes.len > 0)
            memcpy(entry->value, change->bytes.data, change->bytes.len);
        return;
    }
    ddpi_free(entry->value);
    entry->value = change->value;
    entry->value_len = change->bytes.len;
}

void ddpi_kv_commit(struct ddpi_kv *kv, const struct kv_change *change)
{
    struct kv_entry *entry = change->entry;
    bool fresh = entry->version == 0;
    ddpi_kv_charge(kv, entry->account, KV_ROOM_BYTES, change->bytes.len);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, entry->value_len);
    ddpi_kv_charge(kv, entry->account, KV_ROOM_KEYS, fresh);
    if (fresh)
        ddpi_kv_scope_count(kv, ddpi_kv_name(entry), 1);
    ddpi_kv_untie(kv, entry);
    entry_set_value(entry, change);
    entry->version = ++kv->version;
    ddpi_kv_changed(kv, DDPI_CHANGE_SET, ddpi_kv_name(entry), ddpi_kv_value(entry));
    if (fresh)
        ddpi_kv_appeared(kv, entry);
}

void ddpi_kv_abandon(struct ddpi_kv *kv, const struct kv_change *change)
{
    ddpi_free(change->value);
    ddpi_kv_entry_release(kv, change->entry);
}

ddp_status ddpi_kv_store(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                         struct kv_entry **ret_entry, struct ddp_error *err)
{
    const struct kv_entry *entry = ddpi_kv_seek(kv, key);
    ddp_status status = ddpi_kv_check_owner(kv, key, err);
    if (status == DDP_OK)
        status = value_check_room(kv, entry, key, value.len, err);
    struct kv_change change;
    if (status == DDP_OK)
        status = ddpi_kv_prepare(kv, key, value, &change, err);
    if (status != DDP_OK)
        return status;
    ddpi_kv_commit(kv, &change);
    *ret_entry = change.entry;
    return DDP_OK;
}

ddp_status ddpi_kv_put(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                       uint64_t *ret_version, struct ddp_error *err)
{
    struct kv_entry *entry;
    ddp_status status = ddpi_kv_store(kv, key, value, &entry, err);
    if (status != DDP_OK)
        return status;
    *ret_version = entry->version;
    ddpi_kv_written(kv, entry);
    return DDP_OK;
}

ddp_status ddpi_kv_extend(struct ddpi_kv *kv, struct kv_entry *entry, struct ddpi_bytes more,
                          struct ddp_error *err)
{
    ddp_status status = ddpi_kv_check_owner(kv, ddpi_kv_name(entry), err);
    if (status != DDP_OK)
        return status;
    uint32_t most = kv->limits.value_len > kv->limits.tcpstore_value_len
                        ? kv->limits.value_len
                        : kv->limits.tcpstore_value_len;
    if (entry->value_len > most || more.len > most - entry->value_len)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "%zu bytes appended to a value of %zu; a value has at most %" PRIu32,
                              more.len, entry->value_len, most);
    status = ddpi_kv_check_growth(kv, entry->account, 0, more.len, err);
    if (status != DDP_OK)
        return status;
    size_t len = entry->value_len + more.len;
    char *value = ddpi_realloc(entry->value, len + 1, 1);
    if (value == NULL)
        return ddpi_error_nomem(err, len + 1);
    if (more.len > 0)
        memcpy(value + entry->value_len, more.data, more.len);
    value[len] = '\0';
    ddpi_kv_charge(kv, entry->account, KV_ROOM_BYTES, more.len);
    ddpi_kv_untie(kv, entry);
    entry->value = value;
    entry->value_len = len;
    entry->version = ++kv->version;
    ddpi_kv_changed(kv, DDPI_CHANGE_SET, ddpi_kv_name(entry), ddpi_kv_value(entry));
    return DDP_OK;
}

/* The number that @text begins with, as strtoll reads it; false if there is none, or it does not
 * fit. */
static bool leading_number(const char *text, int64_t *ret)
{
    while (isspace((unsigned char)*text))
        text++;
    bool negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    if (!isdigit((unsigned char)*text))
        return false;
    int64_t sum = 0;
    for (; isdigit((unsigned char)*text); text++) {
        int digit = *text - '0';
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, negative ? -digit : digit, &sum))
            return false;
    }
    *ret = sum;
    return true;
}

ddp_status ddpi_kv_count_up(struct ddpi_kv *kv, struct kv_call *call, int64_t delta,
                            int64_t *ret_sum, struct kv_entry **ret_entry)
{
    const struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    int64_t sum = 0;
    if (entry != NULL && !leading_number(entry->value, &sum))
        return ddpi_error_set(&call->err, DDP_E_TYPE,
                              "the value of '%.*s' does not begin with a 64-bit integer",
                              KV_QUOTE(call->request->key));
    (void)__builtin_add_overflow(sum, delta, &sum); /* it wraps */
    char text[24];
    int len = snprintf(text, sizeof text, "%" PRId64, sum);
    ddp_status status =
        ddpi_kv_store(kv, call->key, ddpi_bytes_of(text, (size_t)len), ret_entry, &call->err);
    if (status == DDP_OK)
        *ret_sum = sum;
    return status;
}
