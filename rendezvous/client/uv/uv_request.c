/*
 * uv_request.c - turns struct ddp_store_request into a request of the client core, and its reply
 * into struct ddp_store_result. Owns the copies of what a request points to.
 */
#include "uv_state.h"

#include "client_store.h"
#include "clock.h"
#include "error.h"
#include "keep_alive.h"
#include "mem.h"

/* The fields of the request that an operation uses. */
enum request_fields { KEY = 1, VALUE = 2, KEYS = 4, CLAUSES = 8, SESSION = 16, JOB = 32 };

static const struct operation {
    enum ddpi_op op;
    unsigned fields;
    uint32_t flags; /* those that are allowed */
} operations[] = {
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
    [DDPI_STORE_OP_KEEPER_STATUS] = {DDPI_OP_KEEPER_STATUS, 0, 0},
};

/* The limits of the protocol, used until a server has told its own. */
static const struct ddpi_welcome protocol_limits = {
    .key_max = DDP_STORE_KEY_MAX, .value_max = DDP_STORE_VALUE_MAX, .many_max = DDP_STORE_MANY_MAX};

static void destroy_request(struct uv_request *asked)
{
    ddpi_free(asked->key);
    ddpi_free(asked->value);
    ddpi_buf_finish(&asked->packed);
    ddpi_uv_kept_destroy(asked->kept);
    ddpi_free(asked);
}

/* ---- submitting ---- */

static ddp_status check_request(const struct ddp_store_request *given, struct ddp_error *err)
{
    if (given == NULL || given->size < sizeof *given || given->size > DDP_STORE_KEY_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "struct ddp_store_request has an impossible size; set it to "
                              "sizeof(struct ddp_store_request)");
    if (given->op < DDP_STORE_OP_SET || given->op > DDPI_STORE_OP_KEEPER_STATUS)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not an operation (enum ddp_store_op)",
                              (int)given->op);
    if (given->flags & ~operations[given->op].flags)
        return ddpi_error_set(err, DDP_E_INVALID, "unknown flags for this operation: 0x%x",
                              given->flags);
    if (given->op == DDP_STORE_OP_SESSION_OPEN &&
        (given->lease_ms == 0 || given->lease_ms > DDP_STORE_LEASE_MAX_MS))
        return ddpi_error_set(err, DDP_E_INVALID, "a lease of %u ms; it must be 1 to %d ms",
                              given->lease_ms, DDP_STORE_LEASE_MAX_MS);
    if (given->op == DDP_STORE_OP_BARRIER && (given->count == 0 || given->count > UINT32_MAX))
        return ddpi_error_set(err, DDP_E_INVALID, "a barrier count of %zu; it must be 1 to %u",
                              given->count, UINT32_MAX);
    return DDP_OK;
}

static uint32_t count_field(const struct ddp_store_request *given)
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
    uint32_t count = (uint32_t)given->count; /* packing them has checked it */
    if (operations[given->op].fields & KEYS)
        status = ddpi_target_pack_keys(&store->target, limits, given->keys, given->count,
                                       &asked->packed, err);
    if (operations[given->op].fields & CLAUSES)
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
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no session is given; open one with DDP_STORE_OP_SESSION_OPEN");
    asked->session = *given->session;
    asked->request.message.session =
        ddpi_bytes_of(asked->session.token, sizeof asked->session.token);
    return DDP_OK;
}

/* A job's name is not a key, so the handle's prefix does not apply. */
static ddp_status copy_job(const struct ddp_store_request *given, struct uv_request *asked,
                           struct ddp_error *err)
{
    const char *job = given->key != NULL ? given->key : "";
    asked->key = ddpi_strdup(job);
    asked->request.message.key = ddpi_bytes_of(asked->key, strlen(job));
    return asked->key != NULL ? DDP_OK : ddpi_error_nomem(err, strlen(job) + 1);
}

static ddp_status copy_request(ddp_store_uv *store, const struct ddp_store_request *given,
                               struct uv_request *asked, struct ddp_error *err)
{
    const struct ddpi_welcome *limits =
        store->core.was_open ? &store->core.welcome : &protocol_limits;
    const struct operation *operation = &operations[given->op];
    struct ddpi_message *message = &asked->request.message;
    *message = (struct ddpi_message){
        .op = operation->op,
        .version = given->version,
        .number = given->op == DDP_STORE_OP_UNWATCH ? (int64_t)given->watch : given->number,
        .count = count_field(given)};
    ddp_status status = DDP_OK;
    if (operation->fields & KEY)
        status =
            ddpi_target_key(&store->target, limits, given->key, &asked->key, &message->key, err);
    if (operation->fields & JOB)
        status = copy_job(given, asked, err);
    if (status == DDP_OK && (operation->fields & VALUE))
        status = copy_value(limits, given, asked, err);
    if (status == DDP_OK && (operation->fields & (KEYS | CLAUSES)))
        status = copy_lists(store, limits, given, asked, err);
    if (status == DDP_OK && (operation->fields & SESSION))
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
    ddp_status status = check_request(request, err);
    if (status == DDP_OK && store->closing)
        status = ddpi_error_set(err, DDP_E_CLOSED, "the handle is being closed");
    if (status != DDP_OK)
        return status;
    struct uv_request *asked = ddpi_calloc(1, sizeof(*asked));
    if (asked == NULL)
        return ddpi_error_nomem(err, sizeof(*asked));
    asked->done = done;
    asked->data = data;
    status = copy_request(store, request, asked, err);
    if (status == DDP_OK)
        status = ddpi_client_submit(&store->core, &asked->request, request->timeout_ms,
                                    ddpi_monotonic_ms(), err);
    if (status != DDP_OK) {
        destroy_request(asked);
        return status;
    }
    if (request->op == DDP_STORE_OP_SESSION_CLOSE)
        ddpi_uv_unkeep(store, request->session);
    if (ret_request != NULL)
        *ret_request = asked->request.message.id;
    ddpi_uv_soon(store);
    return DDP_OK;
}

/* ---- canceling ---- */

static struct uv_request *find_request(struct ddpi_list *requests, uint64_t id)
{
    ddpi_list_for_each (node, requests) {
        struct uv_request *asked = ddpi_uv_request_of(ddpi_request_of(node));
        if (asked->request.message.id == id && !ddpi_uv_is_keep_alive(asked))
            return asked;
    }
    return NULL;
}

ddp_status ddp_store_uv_cancel(ddp_store_uv *store, uint64_t request)
{
    struct uv_request *asked = find_request(&store->core.requests.queued, request);
    if (asked == NULL)
        asked = find_request(&store->core.requests.pending, request);
    if (asked == NULL)
        return DDP_E_NOT_FOUND;
    asked->canceled = store->any_canceled = true;
    ddpi_uv_soon(store);
    return DDP_OK;
}

static void cancel_marked_of(ddp_store_uv *store, struct ddpi_list *requests)
{
    ddpi_list_for_each_safe (node, requests) {
        struct ddpi_client_request *request = ddpi_request_of(node);
        if (ddpi_uv_request_of(request)->canceled)
            ddpi_client_cancel(&store->core, request);
    }
}

void ddpi_uv_cancel_marked(ddp_store_uv *store)
{
    if (!store->any_canceled)
        return;
    store->any_canceled = false;
    cancel_marked_of(store, &store->core.requests.queued);
    cancel_marked_of(store, &store->core.requests.pending);
}

/* ---- answers ---- */

static ddp_status take_opened_session(ddp_store_uv *store, struct uv_request *asked,
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

/* Fill @result from a good reply; the caller frees *@ret_block. */
static ddp_status fill_result(ddp_store_uv *store, struct uv_request *asked,
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
    case DDPI_OP_KEEPER_STATUS:
        result->value = *ret_block = ddpi_strndup(reply->value.data, reply->value.len);
        result->value_len = reply->value.len;
        return *ret_block != NULL ? DDP_OK : ddpi_error_nomem(err, reply->value.len);
    case DDPI_OP_SESSION_OPEN:
        result->session = &asked->session;
        return take_opened_session(store, asked, reply, err);
    case DDPI_OP_WATCH:
        result->watch = reply->id;
        return DDP_OK;
    default:
        result->number = reply->number;
        return DDP_OK;
    }
}

static void report_result(ddp_store_uv *store, struct uv_request *asked,
                          const struct ddpi_message *reply)
{
    void *block = NULL;
    struct ddp_error why = {0}, err;
    struct ddp_store_result result = {.version = reply->version};
    ddp_status status = reply->status;
    if (status == DDP_OK)
        status = fill_result(store, asked, reply, &result, &block, &why);
    else
        ddpi_error_set(&why, status, "%.*s", (int)reply->text.len, (const char *)reply->text.data);
    if (status != DDP_OK) {
        (void)ddpi_target_failure(&store->target, reply->op, status, why.msg,
                                  &err); /* for its sentence */
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

void ddpi_uv_request_done(void *ctx, struct ddpi_client_request *request,
                          const struct ddpi_message *reply)
{
    ddp_store_uv *store = ctx;
    struct uv_request *asked = ddpi_uv_request_of(request);
    if (ddpi_uv_is_keep_alive(asked)) {
        ddpi_uv_keep_alive_done(store, asked->kept, reply->status);
        return;
    }
    report_result(store, asked, reply);
    destroy_request(asked);
}
