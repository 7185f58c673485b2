/*
 * apply.c - the core as a whole: its life, its clients, what becomes of each request, and the two
 * ways out: replies to clients, and changes for the sink. Has the operations on single keys, and
 * those on many that never wait; all others are in the files named after them. Owns the core.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"
#include "parse.h"

#include <ddprun/store.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the core and its clients ---- */

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
    .replay_bytes = (size_t)16 << 20,
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
    char *full_key = ddpi_calloc(DDPI_KV_SCOPE_MAX + key_len, 1); /* for keys in a scope */
    if (kv == NULL || full_key == NULL || !ddpi_kv_accounts_init(kv, seed)) {
        if (kv != NULL)
            ddpi_kv_accounts_finish(kv);
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

void ddpi_kv_destroy(struct ddpi_kv *kv)
{
    if (kv == NULL)
        return;
    kv->sink = NULL; /* freeing is no change */
    struct ddpi_table_iter iter = {0};
    for (struct kv_entry *entry;
         (entry = ddpi_kv_entry_of(ddpi_table_next(&kv->keys, &iter))) != NULL;) {
        ddpi_kv_queue_clear(kv, entry);
        ddpi_free(entry->value);
        ddpi_free(entry->tie);
        ddpi_free(entry);
    }
    ddpi_kv_gone_finish(kv);
    ddpi_kv_session_finish(kv);
    ddpi_kv_watch_finish(kv);
    ddpi_kv_scope_finish(kv);
    ddpi_kv_accounts_finish(kv);
    ddpi_free(kv->full_key);
    ddpi_table_finish(&kv->keys);
    ddpi_table_finish(&kv->barriers);
    ddpi_heap_finish(&kv->deadlines);
    ddpi_free(kv);
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

void ddpi_kv_client_init(struct ddpi_kv_client *client)
{
    *client = (struct ddpi_kv_client){0};
    ddpi_list_init(&client->waits);
    ddpi_list_init(&client->watches);
    ddpi_list_init(&client->held);
    ddpi_list_init(&client->works);
}

void ddpi_kv_client_gone(struct ddpi_kv *kv, struct ddpi_kv_client *client)
{
    ddpi_kv_drop_waits(kv, client);
    ddpi_kv_drop_works(kv, client);
    ddpi_kv_drop_watches(kv, client);
    ddpi_kv_session_release(client);
    ddpi_kv_unserve(kv, client);
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
            const struct kv_entry *entry = ddpi_kv_entry_of(nodes[i]);
            __builtin_prefetch(entry->key);
            __builtin_prefetch(entry->value);
        }
}

/* ---- replies, and changes for the sink ---- */

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

void ddpi_kv_set_sink(struct ddpi_kv *kv, void (*change)(void *, const struct ddpi_mutation *),
                      void *ctx)
{
    kv->sink = change;
    kv->sink_ctx = ctx;
}

void ddpi_kv_emit(struct ddpi_kv *kv, const struct ddpi_mutation *mutation)
{
    if (kv->sink != NULL)
        kv->sink(kv->sink_ctx, mutation);
}

struct ddpi_mark ddpi_kv_mark(const struct ddpi_kv *kv)
{
    return (struct ddpi_mark){.version = kv->version,
                              .remembers = kv->history.on,
                              .floor = kv->history.on ? kv->history.floor : kv->version};
}

/* ---- native operations ---- */

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

/* ---- operations of PyTorch's clients ---- */

/* Values compared by their bytes, lenient counting, many keys in one request: the native dialect
 * does not have these. Their odd cases are those that PyTorch's clients and tests rely on. */

/* On success the client gets back the value that it wanted to set. If it expected a value and there
 * is no key, it gets back the value that it expected. */
static ddp_status run_compare_set(struct ddpi_kv *kv, struct kv_call *call)
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

static ddp_status run_add_wrap(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_entry *entry;
    ddp_status status =
        ddpi_kv_count_up(kv, call, call->request->number, &call->reply.number, &entry);
    if (status == DDP_OK)
        ddpi_kv_written(kv, entry);
    return status;
}

static ddp_status run_check(struct ddpi_kv *kv, struct kv_call *call)
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

static ddp_status run_append(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    if (entry == NULL)
        return ddpi_kv_put(kv, call->key, call->request->value, &call->reply.version, &call->err);
    ddp_status status = ddpi_kv_extend(kv, entry, call->request->value, &call->err);
    if (status == DDP_OK)
        ddpi_kv_written(kv, entry);
    return status;
}

static ddp_status run_get_many(struct ddpi_kv *kv, struct kv_call *call)
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
static ddp_status run_set_many(struct ddpi_kv *kv, struct kv_call *call)
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

/* ---- requests ---- */

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

/* The server answers requests about connections itself; here there is none. */
static ddp_status refuse_serverless(struct ddpi_kv *kv, struct kv_call *call)
{
    (void)kv;
    return ddpi_error_set(&call->err, DDP_E_UNSUPPORTED,
                          "this store has no server, which '%s' needs",
                          ddpi_op_name(call->request->op));
}

/* A client that a queue has woken takes a value with its next request, or leaves it to others. */
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
        [DDPI_OP_LIST] = ddpi_kv_list_or_count,
        [DDPI_OP_BARRIER] = ddpi_kv_barrier,
        [DDPI_OP_STATS] = refuse_serverless,
        [DDPI_OP_KEEPER_STATUS] = refuse_serverless,
        [DDPI_OP_OPEN_PORT] = refuse_serverless,
        [DDPI_OP_FENCE] = refuse_serverless,
        [DDPI_OP_TRANSACT] = ddpi_kv_transact,
        [DDPI_OP_WATCH] = ddpi_kv_watch,
        [DDPI_OP_UNWATCH] = ddpi_kv_unwatch,
        [DDPI_OP_SESSION_OPEN] = ddpi_kv_session_open,
        [DDPI_OP_SESSION_KEEP] = ddpi_kv_session_keep,
        [DDPI_OP_SESSION_HOLD] = ddpi_kv_session_hold,
        [DDPI_OP_SESSION_CLOSE] = ddpi_kv_session_close,
        [DDPI_OP_SET_EPHEMERAL] = ddpi_kv_set_ephemeral,
        [DDPI_OP_CANCEL_REQUEST] = ddpi_kv_cancel_request,
        [DDPI_OP_COMPARE_SET] = run_compare_set,
        [DDPI_OP_ADD_WRAP] = run_add_wrap,
        [DDPI_OP_CHECK] = run_check,
        [DDPI_OP_WAIT_EACH] = ddpi_kv_wait_each,
        [DDPI_OP_ARRIVE] = ddpi_kv_arrive,
        [DDPI_OP_CANCEL] = ddpi_kv_cancel,
        [DDPI_OP_COUNT_KEYS] = ddpi_kv_list_or_count,
        [DDPI_OP_APPEND] = run_append,
        [DDPI_OP_GET_MANY] = run_get_many,
        [DDPI_OP_SET_MANY] = run_set_many,
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

/* ---- deadlines ---- */

uint64_t ddpi_kv_next_deadline(const struct ddpi_kv *kv)
{
    uint64_t timeout = ddpi_kv_next_timeout(kv), lease = ddpi_kv_next_lease(kv);
    return timeout < lease ? timeout : lease;
}

void ddpi_kv_expire(struct ddpi_kv *kv, uint64_t now_ms)
{
    ddpi_kv_expire_waits(kv, now_ms);
    ddpi_kv_expire_leases(kv, now_ms);
}
