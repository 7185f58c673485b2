/*
 * request.c - the asynchronous client's requests: struct ddp_store_request to a message
 * of the core, which owns nothing, and replies to struct ddp_store_result. Owns the copies between.
 */
#include "error.h"
#include "mem.h"
#include "uv_impl.h"

/* What an operation takes from the request. */
enum takes { KEY = 1, VALUE = 2, VERSION = 4, KEYS = 8, CLAUSES = 16, SESSION = 32, JOB = 64 };

static const struct row {
    enum ddpi_op op;
    unsigned takes;
    uint32_t flags; /* that it knows */
} rows[] = {
    [DDP_STORE_OP_SET] = {DDPI_OP_SET, KEY | VALUE, 0},
    [DDP_STORE_OP_GET] = {DDPI_OP_GET, KEY, 0},
    [DDP_STORE_OP_TRY_GET] = {DDPI_OP_TRY_GET, KEY, 0},
    [DDP_STORE_OP_ADD] = {DDPI_OP_ADD, KEY, 0},
    [DDP_STORE_OP_COMPARE_AND_SWAP] = {DDPI_OP_CAS, KEY | VALUE, 0},
    [DDP_STORE_OP_TRANSACT] = {DDPI_OP_TRANSACT, CLAUSES, 0},
    [DDP_STORE_OP_WAIT] = {DDPI_OP_WAIT, KEYS, 0},
    [DDP_STORE_OP_DELETE] = {DDPI_OP_DELETE, KEY, 0},
    [DDP_STORE_OP_LIST] = {DDPI_OP_LIST, KEY, 0},
    [DDP_STORE_OP_BARRIER] = {DDPI_OP_BARRIER, KEY, 0},
    [DDP_STORE_OP_WATCH] = {DDPI_OP_WATCH, KEY, DDP_STORE_WATCH_PREFIX},
    [DDP_STORE_OP_UNWATCH] = {DDPI_OP_UNWATCH, 0, 0},
    [DDP_STORE_OP_SESSION_OPEN] = {DDPI_OP_SESSION_OPEN, 0, DDP_STORE_KEEP | DDP_STORE_HOLD},
    [DDP_STORE_OP_SESSION_KEEP] = {DDPI_OP_SESSION_KEEP, SESSION, 0},
    [DDP_STORE_OP_SESSION_CLOSE] = {DDPI_OP_SESSION_CLOSE, SESSION, 0},
    [DDP_STORE_OP_SET_EPHEMERAL] = {DDPI_OP_SET_EPHEMERAL, KEY | VALUE | SESSION, 0},
    [DDP_STORE_OP_STATS] = {DDPI_OP_STATS, 0, 0},
    [DDP_STORE_OP_OPEN_PORT] = {DDPI_OP_OPEN_PORT, JOB | SESSION, 0},
    [DDP_STORE_OP_FENCE] = {DDPI_OP_FENCE, JOB, 0},
};

/* Before a server has said what it allows: what the protocol does. */
static const struct ddpi_welcome most = {
    .key_max = DDP_STORE_KEY_MAX, .value_max = DDP_STORE_VALUE_MAX, .many_max = DDP_STORE_MANY_MAX};

static struct uv_request *request_of(struct ddpi_client_request *request)
{
    return ddpi_container_of(request, struct uv_request, request);
}

static void request_destroy(struct uv_request *asked)
{
    ddpi_free(asked->key);
    ddpi_free(asked->value);
    ddpi_buf_finish(&asked->packed);
    ddpi_uv_kept_destroy(asked->kept);
    ddpi_free(asked);
}

/* --- asking --- */

static ddp_status check(const struct ddp_store_request *given, struct ddp_error *err)
{
    if (given == NULL || given->size < sizeof *given || given->size > DDP_STORE_KEY_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "struct ddp_store_request has no plausible size; set it to "
                              "sizeof(struct ddp_store_request)");
    if (given->op < DDP_STORE_OP_SET || given->op > DDP_STORE_OP_FENCE)
        return ddpi_error_set(err, DDP_E_INVALID, "no operation has the number %d", (int)given->op);
    if (given->flags & ~rows[given->op].flags)
        return ddpi_error_set(err, DDP_E_INVALID, "a request with unknown flags: 0x%x",
                              given->flags);
    if (given->op == DDP_STORE_OP_SESSION_OPEN &&
        (given->lease_ms == 0 || given->lease_ms > DDP_STORE_LEASE_MAX_MS))
        return ddpi_error_set(err, DDP_E_INVALID, "a lease of %u ms; it may have 1 to %d ms",
                              given->lease_ms, DDP_STORE_LEASE_MAX_MS);
    if (given->op == DDP_STORE_OP_BARRIER && (given->count == 0 || given->count > UINT32_MAX))
        return ddpi_error_set(err, DDP_E_INVALID, "a barrier for %zu", given->count);
    return DDP_OK;
}

static uint32_t count_of(const struct ddp_store_request *given)
{
    switch (given->op) {
    case DDP_STORE_OP_BARRIER:
        return (uint32_t)given->count;
    case DDP_STORE_OP_SESSION_OPEN:
        return given->lease_ms;
    default:
        return given->flags;
    }
}

static ddp_status copy_value(const struct ddpi_welcome *limits,
                             const struct ddp_store_request *given, struct uv_request *asked,
                             struct ddp_error *err)
{
    ddp_status status = ddpi_target_check_value(limits, given->value, given->value_len, err);
    if (status != DDP_OK || given->value_len == 0)
        return status;
    asked->value = ddpi_strndup(given->value, given->value_len);
    asked->request.message.value = ddpi_bytes_of(asked->value, given->value_len);
    return asked->value != NULL ? DDP_OK : ddpi_error_nomem(err, given->value_len);
}

static ddp_status copy_lists(ddp_store_uv *store, const struct ddpi_welcome *limits,
                             const struct ddp_store_request *given, struct uv_request *asked,
                             struct ddp_error *err)
{
    struct ddpi_message *message = &asked->request.message;
    ddp_status status = DDP_OK;
    uint32_t count = (uint32_t)given->count; /* small, once they are packed */
    if (rows[given->op].takes & KEYS)
        status = ddpi_target_pack_keys(&store->target, limits, given->keys, given->count,
                                       &asked->packed, err);
    if (rows[given->op].takes & CLAUSES)
        status = ddpi_target_pack_clauses(&store->target, limits, given->clauses, given->count,
                                          &asked->packed, err);
    const void *packed = ddpi_buf_head(&asked->packed);
    size_t len = ddpi_buf_len(&asked->packed);
    message->keys = (struct ddpi_keys){.packed = packed, .packed_len = len, .count = count};
    message->clauses = (struct ddpi_clauses){.packed = packed, .packed_len = len, .count = count};
    return status;
}

static ddp_status copy_session(const struct ddp_store_request *given, struct uv_request *asked,
                               struct ddp_error *err)
{
    if (given->session == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "no session is given");
    asked->session = *given->session;
    asked->request.message.session =
        ddpi_bytes_of(asked->session.token, sizeof asked->session.token);
    return DDP_OK;
}

/* The name of a job is no key: the handle's prefix is not for it. */
static ddp_status copy_job(const struct ddp_store_request *given, struct uv_request *asked,
                           struct ddp_error *err)
{
    const char *job = given->key != NULL ? given->key : "";
    asked->key = ddpi_strdup(job);
    asked->request.message.key = ddpi_bytes_of(asked->key, strlen(job));
    return asked->key != NULL ? DDP_OK : ddpi_error_nomem(err, strlen(job) + 1);
}

static ddp_status copy(ddp_store_uv *store, const struct ddp_store_request *given,
                       struct uv_request *asked, struct ddp_error *err)
{
    const struct ddpi_welcome *limits = store->core.was_open ? &store->core.welcome : &most;
    const struct row *row = &rows[given->op];
    struct ddpi_message *message = &asked->request.message;
    *message = (struct ddpi_message){
        .op = row->op,
        .version = given->version,
        .number = given->op == DDP_STORE_OP_UNWATCH ? (int64_t)given->watch : given->number,
        .count = count_of(given)};
    ddp_status status = DDP_OK;
    if (row->takes & KEY)
        status =
            ddpi_target_key(&store->target, limits, given->key, &asked->key, &message->key, err);
    if (row->takes & JOB)
        status = copy_job(given, asked, err);
    if (status == DDP_OK && (row->takes & VALUE))
        status = copy_value(limits, given, asked, err);
    if (status == DDP_OK && (row->takes & (KEYS | CLAUSES)))
        status = copy_lists(store, limits, given, asked, err);
    if (status == DDP_OK && (row->takes & SESSION))
        status = copy_session(given, asked, err);
    if (status == DDP_OK && given->op == DDP_STORE_OP_SESSION_OPEN && given->flags != 0) {
        asked->kept = ddpi_uv_kept_create(given->lease_ms, given->flags & DDP_STORE_HOLD);
        status = asked->kept != NULL ? DDP_OK : ddpi_error_nomem(err, given->lease_ms);
    }
    return status;
}

ddp_status ddp_store_uv_submit(ddp_store_uv *store, const struct ddp_store_request *request,
                               ddp_store_uv_done *done, void *data, uint64_t *ret_request,
                               struct ddp_error *err)
{
    ddp_status status = check(request, err);
    if (status == DDP_OK && store->closing)
        status = ddpi_error_set(err, DDP_E_CLOSED, "the handle is being closed");
    if (status != DDP_OK)
        return status;
    struct uv_request *asked = ddpi_calloc(1, sizeof(*asked));
    if (asked == NULL)
        return ddpi_error_nomem(err, sizeof(*asked));
    asked->done = done;
    asked->data = data;
    status = copy(store, request, asked, err);
    if (status == DDP_OK)
        status = ddpi_client_submit(&store->core, &asked->request, request->timeout_ms,
                                    ddpi_uv_now(), err);
    if (status != DDP_OK) {
        request_destroy(asked);
        return status;
    }
    if (request->op == DDP_STORE_OP_SESSION_CLOSE)
        ddpi_uv_unkeep(store, request->session);
    if (ret_request != NULL)
        *ret_request = asked->request.message.id;
    ddpi_uv_soon(store);
    return DDP_OK;
}

/* --- giving up --- */

/* Of the caller's requests; keep-alives are no one's. */
static struct uv_request *find(struct ddpi_list *requests, uint64_t id)
{
    ddpi_list_for_each (node, requests) {
        struct uv_request *asked =
            request_of(ddpi_container_of(node, struct ddpi_client_request, of_client));
        if (asked->request.message.id == id && !ddpi_uv_is_keep(asked))
            return asked;
    }
    return NULL;
}

ddp_status ddp_store_uv_cancel(ddp_store_uv *store, uint64_t request)
{
    struct uv_request *asked = find(&store->core.queued, request);
    if (asked == NULL)
        asked = find(&store->core.asked, request);
    if (asked == NULL)
        return DDP_E_NOT_FOUND;
    asked->canceled = store->any_canceled = true;
    ddpi_uv_soon(store);
    return DDP_OK;
}

static void cancel_marked(ddp_store_uv *store, struct ddpi_list *requests)
{
    ddpi_list_for_each_safe (node, requests) {
        struct ddpi_client_request *request =
            ddpi_container_of(node, struct ddpi_client_request, of_client);
        if (request_of(request)->canceled)
            ddpi_client_cancel(&store->core, request);
    }
}

void ddpi_uv_cancel_marked(ddp_store_uv *store)
{
    if (!store->any_canceled)
        return;
    store->any_canceled = false;
    cancel_marked(store, &store->core.queued);
    cancel_marked(store, &store->core.asked);
}

/* --- answers --- */

static ddp_status take_session(ddp_store_uv *store, struct uv_request *asked,
                               const struct ddpi_message *reply, struct ddp_error *err)
{
    if (reply->session.len != sizeof asked->session.token)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed session");
    memcpy(asked->session.token, reply->session.data, sizeof asked->session.token);
    if (asked->kept != NULL && !asked->canceled)
        ddpi_uv_keep(store, asked->kept, &asked->session);
    else
        ddpi_uv_kept_destroy(asked->kept);
    asked->kept = NULL;
    return DDP_OK;
}

/* What a good reply brings; *@ret_block is to be freed afterwards. */
static ddp_status take(ddp_store_uv *store, struct uv_request *asked,
                       const struct ddpi_message *reply, struct ddp_store_result *result,
                       void **ret_block, struct ddp_error *err)
{
    switch (reply->op) {
    case DDPI_OP_LIST: {
        char **keys;
        ddp_status status =
            ddpi_target_unpack(&store->target, reply->keys, &keys, &result->count, err);
        if (status == DDP_OK)
            result->keys = *ret_block = keys;
        return status;
    }
    case DDPI_OP_GET:
    case DDPI_OP_TRY_GET:
    case DDPI_OP_STATS:
        result->value = *ret_block = ddpi_strndup(reply->value.data, reply->value.len);
        result->value_len = reply->value.len;
        return *ret_block != NULL ? DDP_OK : ddpi_error_nomem(err, reply->value.len);
    case DDPI_OP_SESSION_OPEN:
        result->session = &asked->session;
        return take_session(store, asked, reply, err);
    case DDPI_OP_WATCH:
        result->watch = reply->id;
        return DDP_OK;
    default:
        result->number = reply->number;
        return DDP_OK;
    }
}

static void tell(ddp_store_uv *store, struct uv_request *asked, const struct ddpi_message *reply)
{
    void *block = NULL;
    struct ddp_error why = {0}, err;
    struct ddp_store_result result = {.version = reply->version};
    ddp_status status = reply->status;
    if (status == DDP_OK)
        status = take(store, asked, reply, &result, &block, &why);
    else
        ddpi_error_set(&why, status, "%.*s", (int)reply->text.len, (const char *)reply->text.data);
    if (status != DDP_OK) {
        ddpi_error_set(&err, status, "%s at the store %s: %s", ddpi_op_name(reply->op),
                       store->target.endpoint, why.msg);
        result = (struct ddp_store_result){.version = reply->version, .message = err.msg};
    } else {
        result.message = "";
    }
    result.request = asked->request.message.id;
    result.status = status;
    if (asked->done != NULL)
        asked->done(asked->data, &result);
    ddpi_free(block);
}

void ddpi_uv_done(void *ctx, struct ddpi_client_request *request, const struct ddpi_message *reply)
{
    ddp_store_uv *store = ctx;
    struct uv_request *asked = request_of(request);
    if (ddpi_uv_is_keep(asked)) {
        ddpi_uv_was_kept(store, asked->kept, reply->status);
        return;
    }
    tell(store, asked, reply);
    request_destroy(asked);
}
