/*
 * kv.c - keys and values: the table of entries, and the native operations that never
 * wait. Owns the entries; waiters.c hangs waiting requests onto them, queue.c queues.
 */
#include "kv.h"

#include "error.h"
#include "kv_impl.h"
#include "mem.h"
#include "parse.h"

#include <ddprun/store.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct ddpi_kv_limits ddpi_kv_limits_default = {
    .room = {1000000, (size_t)1 << 30, 65536},
    .of_job = {SIZE_MAX, SIZE_MAX, SIZE_MAX},
    .reserve = {SIZE_MAX, (size_t)64 << 20, 65536},
    .key_len = DDP_STORE_KEY_MAX,
    .value_len = DDP_STORE_VALUE_MAX,
    .keys_per_wait = DDP_STORE_MANY_MAX,
    .waits_per_client = 1024,
    .watches_per_client = 1024,
    .history_changes = 65536,
    .history_bytes = (size_t)32 << 20,
    .tcpstore_key_len = 8192,
    .tcpstore_value_len = 8 * 1024 * 1024,
    .tcpstore_many = 128 * 1024,
};

struct ddpi_kv *ddpi_kv_create(const struct ddpi_kv_limits *limits,
                               const uint8_t seed[DDPI_SEED_SIZE], ddpi_kv_reply_fn *reply,
                               void *ctx)
{
    struct ddpi_kv *kv = ddpi_calloc(1, sizeof(*kv));
    size_t key_len =
        limits->key_len > limits->tcpstore_key_len ? limits->key_len : limits->tcpstore_key_len;
    char *full_key = ddpi_calloc(DDPI_KV_SCOPE_MAX + key_len, 1); /* for keys that have a scope */
    if (kv == NULL || full_key == NULL || !ddpi_kv_room_init(kv, seed)) {
        if (kv != NULL)
            ddpi_kv_room_finish(kv);
        ddpi_free(kv);
        ddpi_free(full_key);
        return NULL;
    }
    kv->full_key = full_key;
    kv->reserved = "";
    kv->limits = *limits;
    kv->reply = reply;
    kv->reply_ctx = ctx;
    ddpi_table_init(&kv->keys, seed);
    ddpi_table_init(&kv->barriers, seed);
    ddpi_table_init(&kv->watch_nodes, seed);
    ddpi_table_init(&kv->sessions, seed);
    ddpi_list_init(&kv->history.changes);
    ddpi_list_init(&kv->line);
    ddpi_list_init(&kv->detached);
    ddpi_list_init(&kv->over);
    return kv;
}

static struct kv_entry *entry_of(struct ddpi_table_node *node)
{
    return node != NULL ? ddpi_container_of(node, struct kv_entry, node) : NULL;
}

void ddpi_kv_destroy(struct ddpi_kv *kv)
{
    if (kv == NULL)
        return;
    kv->sink = NULL; /* what is freed has not changed */
    struct ddpi_table_iter iter = {0};
    for (struct kv_entry *entry; (entry = entry_of(ddpi_table_next(&kv->keys, &iter))) != NULL;) {
        ddpi_kv_queue_clear(kv, entry);
        ddpi_free(entry->value);
        ddpi_free(entry->tie);
        ddpi_free(entry);
    }
    ddpi_kv_gone_finish(kv);
    ddpi_kv_session_finish(kv);
    ddpi_kv_watch_finish(kv);
    ddpi_kv_scope_finish(kv);
    ddpi_kv_room_finish(kv);
    ddpi_free(kv->full_key);
    ddpi_table_finish(&kv->keys);
    ddpi_table_finish(&kv->barriers);
    ddpi_heap_finish(&kv->deadlines);
    ddpi_free(kv);
}

struct kv_entry *ddpi_kv_find(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = entry_of(ddpi_table_find(&kv->keys, key.data, key.len));
    return entry != NULL && ddpi_kv_is_gone(kv, entry) ? NULL : entry;
}

struct kv_entry *ddpi_kv_seek(struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = entry_of(ddpi_table_find(&kv->keys, key.data, key.len));
    if (entry == NULL || !ddpi_kv_is_gone(kv, entry))
        return entry;
    ddpi_kv_drop_gone(kv, entry);
    return entry_of(ddpi_table_find(&kv->keys, key.data, key.len));
}

void ddpi_kv_prefetch(const struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                      const struct ddpi_bytes *keys, size_t count)
{
    uint64_t hashes[DDPI_KV_AHEAD] = {0};
    struct ddpi_table_node *nodes[DDPI_KV_AHEAD];
    for (size_t i = 0; i < count; i++) {
        struct ddpi_bytes key = keys[i];
        (void)ddpi_kv_full_key(kv, client, keys[i], &key, NULL);
        hashes[i] = ddpi_table_hash(&kv->keys, key.data, key.len);
    }
    ddpi_table_prefetch(&kv->keys, hashes, count, nodes);
    for (size_t i = 0; i < count; i++)
        if (nodes[i] != NULL) {
            const struct kv_entry *entry = entry_of(nodes[i]);
            __builtin_prefetch(entry->key);
            __builtin_prefetch(entry->value);
        }
}

struct kv_entry *ddpi_kv_find_value(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = ddpi_kv_find(kv, key);
    return entry != NULL && entry->version != 0 ? entry : NULL;
}

size_t ddpi_kv_entry_size(size_t key_len)
{
    return sizeof(struct kv_entry) + key_len;
}

/* An entry without a value; NULL when out of memory. The caller has checked for room. */
struct kv_entry *ddpi_kv_entry_make(struct ddpi_kv *kv, struct kv_account *account,
                                    struct ddpi_bytes key)
{
    if (account == NULL)
        return NULL;
    struct kv_entry *entry = ddpi_calloc(1, ddpi_kv_entry_size(key.len));
    if (entry == NULL)
        return NULL;
    if (key.len > 0)
        memcpy(entry->key, key.data, key.len);
    entry->node.key = entry->key;
    entry->node.key_len = key.len;
    ddpi_list_init(&entry->links);
    ddpi_list_init(&entry->watchers);
    if (!ddpi_table_insert(&kv->keys, &entry->node)) {
        ddpi_free(entry);
        return NULL;
    }
    ddpi_kv_order_insert(&kv->root, entry);
    entry->account = account;
    ddpi_kv_charge(kv, account, KV_ROOM_BYTES, ddpi_kv_entry_size(key.len));
    return entry;
}

/* Nobody needs an entry that has no value and no queue and is not waited for. */
bool ddpi_kv_entry_needed(const struct kv_entry *entry)
{
    return entry->version != 0 || entry->queue != NULL || !ddpi_list_empty(&entry->links) ||
           !ddpi_list_empty(&entry->watchers);
}

/* What is detached goes when its turn comes. */
void ddpi_kv_entry_release(struct ddpi_kv *kv, struct kv_entry *entry)
{
    if (ddpi_kv_entry_needed(entry) || ddpi_kv_is_detached(kv, entry))
        return;
    ddpi_kv_order_remove(&kv->root, entry);
    ddpi_kv_entry_free(kv, entry);
}

void ddpi_kv_entry_free(struct ddpi_kv *kv, struct kv_entry *entry)
{
    ddpi_table_remove(&kv->keys, &entry->node);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, ddpi_kv_entry_size(entry->node.key_len));
    ddpi_free(entry);
}

void ddpi_kv_answer(struct ddpi_kv *kv, struct ddpi_kv_client *client, struct ddpi_message *reply,
                    enum ddpi_op op, uint64_t id)
{
    reply->op = op;
    reply->id = id;
    kv->reply(kv->reply_ctx, client, reply);
}

void ddpi_kv_answer_value(struct ddpi_message *reply, const struct kv_entry *entry)
{
    reply->value = ddpi_kv_value(entry);
    reply->version = entry->version;
}

ddp_status ddpi_kv_next_key(const struct ddpi_kv *kv, struct kv_call *call, struct ddpi_keys *keys,
                            struct ddpi_bytes *ret_full, bool *ret_more)
{
    struct ddpi_bytes key;
    *ret_more = ddpi_keys_next(keys, &key);
    return *ret_more ? ddpi_kv_full_key(kv, call->client, key, ret_full, &call->err) : DDP_OK;
}

static ddp_status check_room(struct ddpi_kv *kv, const struct kv_entry *entry,
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

static void set_value(struct kv_entry *entry, const struct kv_change *change)
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
    set_value(entry, change);
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
        status = check_room(kv, entry, key, value.len, err);
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

void ddpi_kv_lose_value(struct ddpi_kv *kv, struct kv_entry *entry)
{
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, entry->value_len);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_KEYS, 1);
    kv->version++;
    ddpi_kv_untie(kv, entry);
    ddpi_free(entry->value);
    entry->value = NULL;
    entry->value_len = 0;
    entry->version = 0;
    ddpi_kv_changed(kv, DDPI_CHANGE_DELETE, ddpi_kv_name(entry), ddpi_kv_value(entry));
    ddpi_kv_vanished(entry);
}

void ddpi_kv_drop(struct ddpi_kv *kv, struct kv_entry *entry)
{
    if (ddpi_kv_is_gone(kv, entry)) {
        ddpi_kv_drop_gone(kv, entry);
        return;
    }
    ddpi_kv_scope_count(kv, ddpi_kv_name(entry), -1);
    ddpi_kv_lose_value(kv, entry);
    ddpi_kv_entry_release(kv, entry);
}

static ddp_status not_found(struct kv_call *call)
{
    return ddpi_error_set(&call->err, DDP_E_NOT_FOUND, "there is no key '%.*s'",
                          KV_QUOTE(call->request->key));
}

static ddp_status run_set(struct ddpi_kv *kv, struct kv_call *call)
{
    return ddpi_kv_put(kv, call->key, call->request->value, &call->reply.version, &call->err);
}

static ddp_status run_try_get(struct ddpi_kv *kv, struct kv_call *call)
{
    const struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    if (entry == NULL)
        return not_found(call);
    ddpi_kv_answer_value(&call->reply, entry);
    return DDP_OK;
}

static ddp_status run_add(struct ddpi_kv *kv, struct kv_call *call)
{
    const struct ddpi_message *request = call->request;
    const struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    int64_t old = 0, sum;
    if (entry != NULL && (strlen(entry->value) != entry->value_len ||
                          ddpi_parse_int(entry->value, INT64_MIN, INT64_MAX, &old, NULL) != DDP_OK))
        return ddpi_error_set(&call->err, DDP_E_TYPE,
                              "the value of '%.*s' is not a decimal 64-bit integer",
                              KV_QUOTE(call->request->key));
    if (__builtin_add_overflow(old, request->number, &sum))
        return ddpi_error_set(&call->err, DDP_E_TYPE,
                              "%" PRId64 " + %" PRId64 " at '%.*s' does not fit 64 bits", old,
                              request->number, KV_QUOTE(call->request->key));
    char text[24];
    int len = snprintf(text, sizeof text, "%" PRId64, sum);
    uint64_t version;
    ddp_status status =
        ddpi_kv_put(kv, call->key, ddpi_bytes_of(text, (size_t)len), &version, &call->err);
    if (status == DDP_OK)
        call->reply.number = sum;
    return status;
}

static ddp_status run_cas(struct ddpi_kv *kv, struct kv_call *call)
{
    const struct ddpi_message *request = call->request;
    const struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    uint64_t version = entry != NULL ? entry->version : 0;
    if (version == request->version)
        return run_set(kv, call);
    call->reply.version = version;
    return ddpi_error_set(&call->err, DDP_E_CONFLICT,
                          "'%.*s' has version %" PRIu64 ", not %" PRIu64,
                          KV_QUOTE(call->request->key), version, request->version);
}

static ddp_status run_delete(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    ddp_status status = ddpi_kv_check_owner(kv, call->key, &call->err);
    if (status != DDP_OK)
        return status;
    if (entry == NULL)
        return not_found(call);
    ddpi_kv_drop(kv, entry);
    return DDP_OK;
}

static ddp_status check_lengths(const struct ddpi_kv *kv, struct kv_call *call)
{
    const struct ddpi_message *request = call->request;
    ddp_status status = ddpi_kv_full_key(kv, call->client, request->key, &call->key, &call->err);
    if (status != DDP_OK)
        return status;
    uint32_t max = call->client->tcpstore ? kv->limits.tcpstore_value_len : kv->limits.value_len;
    if (call->client->agent && max < DDPI_KV_RESERVED_VALUE_MAX && ddpi_kv_is_reserved(call->key))
        max = DDPI_KV_RESERVED_VALUE_MAX;
    if (request->value.len > max)
        return ddpi_error_set(&call->err, DDP_E_LIMIT,
                              "a value of %zu bytes for '%.*s'; at most %u are allowed",
                              request->value.len, KV_QUOTE(call->request->key), max);
    return DDP_OK;
}

/* The server answers what concerns connections; without one nobody does. */
static ddp_status refuse(struct ddpi_kv *kv, struct kv_call *call)
{
    (void)kv;
    return ddpi_error_set(&call->err, DDP_E_UNSUPPORTED, "this store has no server to ask for '%s'",
                          ddpi_op_name(call->request->op));
}

/* A client that a queue has woken takes its value next, or leaves it to others. */
static void settle_served(struct ddpi_kv *kv, struct kv_call *call)
{
    const struct kv_entry *served = call->client->served;
    if (served == NULL)
        return;
    if (call->request->op != DDPI_OP_POP || served != ddpi_kv_find(kv, call->key))
        ddpi_kv_unserve(kv, call->client);
}

static void answer_call(struct ddpi_kv *kv, struct kv_call *call, ddp_status status)
{
    call->reply.status = status;
    if (status != DDP_OK)
        call->reply.text = ddpi_bytes_of(call->err.msg, strlen(call->err.msg));
    ddpi_kv_answer(kv, call->client, &call->reply, call->request->op, call->request->id);
}

void ddpi_kv_serve(struct ddpi_kv *kv, struct kv_call *call)
{
    static ddp_status (*const handlers[])(struct ddpi_kv *, struct kv_call *) = {
        [DDPI_OP_SET] = run_set,
        [DDPI_OP_GET] = ddpi_kv_get,
        [DDPI_OP_TRY_GET] = run_try_get,
        [DDPI_OP_ADD] = run_add,
        [DDPI_OP_CAS] = run_cas,
        [DDPI_OP_WAIT] = ddpi_kv_wait,
        [DDPI_OP_DELETE] = run_delete,
        [DDPI_OP_LIST] = ddpi_kv_list,
        [DDPI_OP_BARRIER] = ddpi_kv_barrier,
        [DDPI_OP_STATS] = refuse,
        [DDPI_OP_OPEN_PORT] = refuse,
        [DDPI_OP_FENCE] = refuse,
        [DDPI_OP_TRANSACT] = ddpi_kv_transact,
        [DDPI_OP_WATCH] = ddpi_kv_watch,
        [DDPI_OP_UNWATCH] = ddpi_kv_unwatch,
        [DDPI_OP_SESSION_OPEN] = ddpi_kv_session_open,
        [DDPI_OP_SESSION_KEEP] = ddpi_kv_session_keep,
        [DDPI_OP_SESSION_HOLD] = ddpi_kv_session_hold,
        [DDPI_OP_SESSION_CLOSE] = ddpi_kv_session_close,
        [DDPI_OP_SET_EPHEMERAL] = ddpi_kv_set_ephemeral,
        [DDPI_OP_CANCEL_REQUEST] = ddpi_kv_cancel_request,
        [DDPI_OP_COMPARE_SET] = ddpi_kv_compare_set,
        [DDPI_OP_ADD_WRAP] = ddpi_kv_add_wrap,
        [DDPI_OP_CHECK] = ddpi_kv_check,
        [DDPI_OP_WAIT_EACH] = ddpi_kv_wait_each,
        [DDPI_OP_ARRIVE] = ddpi_kv_arrive,
        [DDPI_OP_CANCEL] = ddpi_kv_cancel,
        [DDPI_OP_COUNT_KEYS] = ddpi_kv_count_keys,
        [DDPI_OP_APPEND] = ddpi_kv_append,
        [DDPI_OP_GET_MANY] = ddpi_kv_get_many,
        [DDPI_OP_SET_MANY] = ddpi_kv_set_many,
        [DDPI_OP_PUSH] = ddpi_kv_push,
        [DDPI_OP_POP] = ddpi_kv_pop,
        [DDPI_OP_QUEUE_LEN] = ddpi_kv_queue_len,
    };
    _Static_assert(sizeof handlers / sizeof *handlers == DDPI_OP_COUNT, "a handler per operation");
    ddp_status status = handlers[call->request->op](kv, call);
    if (!call->parked)
        answer_call(kv, call, status);
}

void ddpi_kv_apply(struct ddpi_kv *kv, struct ddpi_kv_client *client,
                   const struct ddpi_message *request, uint64_t now_ms)
{
    struct kv_call call = {.client = client, .request = request, .now_ms = now_ms};
    ddp_status status = check_lengths(kv, &call);
    if (status != DDP_OK) {
        answer_call(kv, &call, status);
        return;
    }
    settle_served(kv, &call);
    ddpi_kv_serve(kv, &call);
}

struct ddpi_kv_stats ddpi_kv_stats(const struct ddpi_kv *kv)
{
    return (struct ddpi_kv_stats){.keys = kv->used[KV_ROOM_KEYS],
                                  .bytes = kv->used[KV_ROOM_BYTES],
                                  .reserved = kv->reserve->used[KV_ROOM_BYTES],
                                  .shares_full = kv->shares_full,
                                  .waits = kv->deadlines.count,
                                  .works = kv->nworks,
                                  .watches = kv->nwatches,
                                  .sessions = kv->leases.count,
                                  .version = kv->version};
}
