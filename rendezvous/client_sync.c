/*
 * client_sync.c - the blocking client behind <ddprun/store.h>. A handle owns its connection and
 * has at most one request on the way.
 *
 * Requests that wait carry their timeout to the server, which answers DDP_E_TIMEOUT itself: so
 * both sides agree on what happened. Only a server that says nothing for GRACE_MS after that is
 * given up, and with it the handle, since a late answer would belong to no question.
 */
#include "client_impl.h"

#include "client_greet.h"
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "parse.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    CONNECT_DEFAULT_MS = 10000,
    GRACE_MS = 1000,
    RETRY_FIRST_MS = 2,
    RETRY_MAX_MS = 200,
    EVENTS_MAX = 64 * 1024 * 1024,
};

/* --- frames --- */

static void pause_ms(uint64_t ms)
{
    (void)poll(NULL, 0, (int)ms);
}

ddp_status ddpi_client_farewell(const struct ddpi_client_frame *frame, struct ddp_error *err)
{
    (void)ddpi_client_frame_refusal(frame, err);
    return err->status = DDP_E_CLOSED;
}

ddp_status ddpi_client_receive(ddp_store *store, uint64_t deadline_ms,
                               struct ddpi_client_frame *ret, struct ddp_error *err)
{
    struct ddpi_link *link = &store->link;
    for (;;) {
        size_t need;
        ddp_status status = ddpi_client_frame_next(&link->in, &store->seals, ret, &need, err);
        if (status == DDP_OK && need > 0)
            status = ddpi_link_receive(link, need, deadline_ms, err);
        if (status != DDP_OK || need == 0)
            return status;
    }
}

/* --- connecting --- */

static ddp_status greet(ddp_store *store, uint64_t deadline_ms, struct ddp_error *err)
{
    struct ddpi_link *link = &store->link;
    struct ddpi_greet_terms terms;
    struct ddpi_greet greet;
    size_t need = 1;
    struct ddpi_address peer = ddpi_link_peer(link);
    ddp_status status = ddpi_client_auth_terms(&store->auth, &peer, &terms, err);
    if (status == DDP_OK)
        status = ddpi_greet_begin(&greet, &terms, &link->out, err);
    while (status == DDP_OK && need > 0) {
        status = ddpi_link_send(link, deadline_ms, err);
        if (status == DDP_OK || status == DDP_E_CLOSED) /* the reason may be there to be read */
            status = ddpi_greet_take(&greet, &link->in, &link->out, &need, err);
        if (status == DDP_OK && need > 0 && ddpi_buf_len(&link->out) == 0)
            status = ddpi_link_receive(link, need, deadline_ms, err);
    }
    if (status == DDP_OK) {
        store->limits = greet.welcome;
        store->seals = greet.seals;
    }
    ddpi_wipe(&greet, sizeof greet);
    return status;
}

static ddp_status connect_once(ddp_store *store, const struct ddpi_endpoint *endpoint,
                               uint64_t deadline_ms, struct ddp_error *err)
{
    ddp_status status =
        ddpi_link_dial(&store->link, endpoint->host, endpoint->port, deadline_ms, err);
    if (status == DDP_OK) {
        status = greet(store, deadline_ms, err);
        if (status == DDP_E_TIMEOUT)
            status = ddpi_error_set(err, DDP_E_UNREACHABLE,
                                    "something accepts connections there, but says nothing");
    }
    if (status != DDP_OK)
        ddpi_link_close(&store->link);
    return status;
}

/* A server that is starting, or ending before another takes its place, is worth another try. */
static bool passing(ddp_status status)
{
    return status == DDP_E_UNREACHABLE || status == DDP_E_CLOSED;
}

static ddp_status connect_until(ddp_store *store, const struct ddpi_endpoint *endpoint,
                                uint32_t timeout_ms, struct ddp_error *err)
{
    uint64_t deadline_ms = ddpi_deadline(ddpi_link_now(), timeout_ms);
    struct ddp_error last = {0};
    ddp_status status;
    for (uint64_t wait_ms = RETRY_FIRST_MS;; wait_ms *= 2) {
        status = connect_once(store, endpoint, deadline_ms, &last);
        uint64_t left = (uint64_t)ddpi_remaining_ms(ddpi_link_now(), deadline_ms);
        if (!passing(status) || left == 0)
            break;
        wait_ms = wait_ms < RETRY_MAX_MS ? wait_ms : RETRY_MAX_MS;
        pause_ms(wait_ms < left ? wait_ms : left);
    }
    if (status == DDP_OK)
        return DDP_OK;
    if (passing(status))
        return ddpi_error_set(err, DDP_E_UNREACHABLE,
                              "no store answers at %s (tried for %u ms; is the server running "
                              "there?): %s",
                              store->endpoint, timeout_ms, last.msg);
    return ddpi_error_set(err, status, "store at %s: %s", store->endpoint, last.msg);
}

/* Fields that a caller compiled against an older header does not know count as zero. */
static ddp_status take_options(const struct ddp_store_options *given, struct ddp_store_options *ret,
                               struct ddpi_endpoint *ret_endpoint, struct ddp_error *err)
{
    struct ddp_store_options options = {0};
    if (given == NULL || given->size < offsetof(struct ddp_store_options, connect_timeout_ms) ||
        given->size > DDP_STORE_KEY_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "struct ddp_store_options has no plausible size; set it to "
                              "sizeof(struct ddp_store_options)");
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    if (options.endpoint == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "no endpoint is given");
    ddp_status status = ddpi_parse_endpoint(options.endpoint, ret_endpoint, err);
    if (status != DDP_OK)
        return status;
    if (!ret_endpoint->has_port || ret_endpoint->port == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "the endpoint '%s' has no port",
                              options.endpoint);
    if (options.prefix != NULL && strlen(options.prefix) > DDP_STORE_KEY_MAX)
        return ddpi_error_set(err, DDP_E_LIMIT, "a prefix of more than %d bytes",
                              DDP_STORE_KEY_MAX);
    *ret = options;
    return DDP_OK;
}

ddp_status ddp_store_connect(const struct ddp_store_options *given, ddp_store **ret_store,
                             struct ddp_error *err)
{
    struct ddp_store_options options = {0};
    struct ddpi_endpoint endpoint = {0};
    ddp_status status = take_options(given, &options, &endpoint, err);
    if (status != DDP_OK)
        return status;
    ddp_store *store = ddpi_calloc(1, sizeof(*store));
    if (store == NULL)
        return ddpi_error_nomem(err, sizeof(*store));
    ddpi_link_init(&store->link);
    ddpi_buf_init(&store->events, EVENTS_MAX);
    snprintf(store->endpoint, sizeof store->endpoint,
             strchr(endpoint.host, ':') != NULL ? "[%s]:%u" : "%s:%u", endpoint.host,
             endpoint.port);
    store->prefix = ddpi_strdup(options.prefix != NULL ? options.prefix : "");
    if (store->prefix == NULL) {
        status = ddpi_error_nomem(err, 1);
        goto fail;
    }
    store->prefix_len = strlen(store->prefix);
    status = ddpi_client_auth_init(&store->auth, &options, err);
    if (status != DDP_OK)
        goto fail;
    uint32_t timeout_ms = options.connect_timeout_ms;
    status = connect_until(store, &endpoint, timeout_ms > 0 ? timeout_ms : CONNECT_DEFAULT_MS, err);
    if (status != DDP_OK)
        goto fail;
    *ret_store = store;
    return DDP_OK;

fail:
    ddp_store_close(store);
    return status;
}

void ddp_store_close(ddp_store *store)
{
    if (store == NULL)
        return;
    ddpi_link_close(&store->link);
    ddpi_buf_finish(&store->events);
    ddpi_client_auth_finish(&store->auth);
    ddpi_wipe(&store->seals, sizeof store->seals);
    ddpi_free(store->prefix);
    ddpi_free(store);
}

/* --- calls --- */

ddp_status ddpi_client_key(const ddp_store *store, const char *key, char **ret,
                           struct ddpi_bytes *ret_bytes, struct ddp_error *err)
{
    if (key == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "a key is NULL");
    size_t key_len = strlen(key);
    if (key_len > DDP_STORE_KEY_MAX || store->prefix_len + key_len > store->limits.key_max)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "a key of %zu bytes, prefix included; at most %u are allowed",
                              store->prefix_len + key_len, store->limits.key_max);
    char *full = ddpi_asprintf("%s%s", store->prefix, key);
    if (full == NULL)
        return ddpi_error_nomem(err, store->prefix_len + key_len + 1);
    *ret = full;
    *ret_bytes = ddpi_bytes_of(full, store->prefix_len + key_len);
    return DDP_OK;
}

ddp_status ddpi_client_check_value(const ddp_store *store, const void *value, size_t len,
                                   struct ddp_error *err)
{
    if (value == NULL && len > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "a value of %zu bytes at NULL", len);
    if (len > store->limits.value_max)
        return ddpi_error_set(err, DDP_E_LIMIT, "a value of %zu bytes; at most %u are allowed", len,
                              store->limits.value_max);
    return DDP_OK;
}

/* The reply to @call, or the server's BYE, which is an error. */
static ddp_status take_reply(ddp_store *store, struct call *call,
                             const struct ddpi_client_frame *frame, struct ddp_error *err)
{
    if (frame->header.type == DDPI_FRAME_BYE)
        return ddpi_client_farewell(frame, err);
    ddp_status status = ddpi_reply_get(&frame->header, frame->payload, &call->reply, err);
    if (status != DDP_OK)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed reply");
    if (call->reply.id != call->request.id || call->reply.op != call->request.op)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a reply to something else");
    store->held = frame->size;
    return DDP_OK;
}

ddp_status ddpi_client_keep_event(ddp_store *store, const struct ddpi_client_frame *frame,
                                  struct ddp_error *err)
{
    struct ddpi_link *link = &store->link;
    size_t len = frame->size - ddpi_seals_size(&store->seals);
    if (len > EVENTS_MAX - ddpi_buf_len(&store->events))
        return ddpi_error_set(
            err, DDP_E_LIMIT,
            "%zu bytes of events wait for ddp_store_next_event(), and there is no "
            "room for more",
            ddpi_buf_len(&store->events));
    if (!ddpi_buf_append(&store->events, ddpi_buf_head(&link->in), len))
        return ddpi_error_nomem(err, len);
    ddpi_buf_consume(&link->in, frame->size);
    return DDP_OK;
}

/* The reply to @call; what watches have to tell may come before it. */
static ddp_status await_reply(ddp_store *store, struct call *call, uint64_t deadline_ms,
                              struct ddp_error *err)
{
    for (;;) {
        struct ddpi_client_frame frame;
        ddp_status status = ddpi_client_receive(store, deadline_ms, &frame, err);
        if (status != DDP_OK)
            return status;
        if (frame.header.type != ddpi_type_of_op(DDPI_OP_WATCH) ||
            frame.header.id == call->request.id)
            return take_reply(store, call, &frame, err);
        status = ddpi_client_keep_event(store, &frame, err);
        if (status != DDP_OK)
            return status;
    }
}

/* One request, one reply. A failure here is one of the connection: the handle is done with. */
static ddp_status exchange(ddp_store *store, struct call *call, struct ddp_error *err)
{
    struct ddpi_link *link = &store->link;
    uint64_t deadline_ms = ddpi_deadline(ddpi_link_now(), (uint64_t)call->timeout_ms + GRACE_MS);
    ddp_status status = ddpi_link_send(link, deadline_ms, err);
    if (status == DDP_OK || status == DDP_E_CLOSED) /* the reason may be there to be read */
        status = await_reply(store, call, deadline_ms, err);
    if (status == DDP_E_TIMEOUT)
        status =
            ddpi_error_set(err, DDP_E_CLOSED,
                           "the server did not answer within %u ms after the deadline", GRACE_MS);
    return status;
}

ddp_status ddpi_client_run(ddp_store *store, struct call *call, struct ddp_error *err)
{
    struct ddpi_link *link = &store->link;
    struct ddp_error why = {0};
    if (link->fd < 0)
        return ddpi_error_set(err, DDP_E_CLOSED, "the connection to the store at %s was closed",
                              store->endpoint);
    ddpi_buf_consume(&link->in, store->held);
    store->held = 0;
    call->request.id = ++store->next_id;
    call->request.timeout_ms = call->timeout_ms;
    size_t before = ddpi_buf_len(&link->out);
    if (!ddpi_seals_put(&store->seals, &link->out, before,
                        ddpi_request_put(&link->out, &call->request)))
        return ddpi_error_nomem(err, call->request.value.len + call->request.keys.packed_len);
    ddp_status status = exchange(store, call, &why);
    if (status != DDP_OK)
        ddpi_link_close(link);
    else if (call->reply.status != DDP_OK)
        status = ddpi_error_set(&why, call->reply.status, "%.*s", (int)call->reply.text.len,
                                (const char *)call->reply.text.data);
    if (status == DDP_OK)
        return DDP_OK;
    return ddpi_error_set(err, status, "%s at the store %s: %s", ddpi_op_name(call->request.op),
                          store->endpoint, why.msg);
}

ddp_status ddpi_client_run_key(ddp_store *store, const char *key, struct call *call,
                               struct ddp_error *err)
{
    char *full;
    ddp_status status = ddpi_client_key(store, key, &full, &call->request.key, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_client_run(store, call, err);
    ddpi_free(full);
    return status;
}

ddp_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t value_len,
                         uint32_t timeout_ms, uint64_t *ret_version, struct ddp_error *err)
{
    struct call call = {.timeout_ms = timeout_ms,
                        .request = {.op = DDPI_OP_SET, .value = {value, value_len}}};
    ddp_status status = ddpi_client_check_value(store, value, value_len, err);
    if (status == DDP_OK)
        status = ddpi_client_run_key(store, key, &call, err);
    if (status == DDP_OK && ret_version != NULL)
        *ret_version = call.reply.version;
    return status;
}

static ddp_status get(ddp_store *store, enum ddpi_op op, const char *key, uint32_t timeout_ms,
                      void **ret_value, size_t *ret_len, uint64_t *ret_version,
                      struct ddp_error *err)
{
    struct call call = {.timeout_ms = timeout_ms, .request = {.op = op}};
    ddp_status status = ddpi_client_run_key(store, key, &call, err);
    if (status != DDP_OK)
        return status;
    void *copy = ddpi_strndup(call.reply.value.data, call.reply.value.len);
    if (copy == NULL)
        return ddpi_error_nomem(err, call.reply.value.len);
    *ret_value = copy;
    *ret_len = call.reply.value.len;
    if (ret_version != NULL)
        *ret_version = call.reply.version;
    return DDP_OK;
}

ddp_status ddp_store_get(ddp_store *store, const char *key, uint32_t timeout_ms, void **ret_value,
                         size_t *ret_len, uint64_t *ret_version, struct ddp_error *err)
{
    return get(store, DDPI_OP_GET, key, timeout_ms, ret_value, ret_len, ret_version, err);
}

ddp_status ddp_store_try_get(ddp_store *store, const char *key, uint32_t timeout_ms,
                             void **ret_value, size_t *ret_len, uint64_t *ret_version,
                             struct ddp_error *err)
{
    return get(store, DDPI_OP_TRY_GET, key, timeout_ms, ret_value, ret_len, ret_version, err);
}

ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta, uint32_t timeout_ms,
                         int64_t *ret_sum, struct ddp_error *err)
{
    struct call call = {.timeout_ms = timeout_ms, .request = {.op = DDPI_OP_ADD, .number = delta}};
    ddp_status status = ddpi_client_run_key(store, key, &call, err);
    if (status == DDP_OK && ret_sum != NULL)
        *ret_sum = call.reply.number;
    return status;
}

ddp_status ddp_store_compare_and_swap(ddp_store *store, const char *key, uint64_t expected_version,
                                      const void *value, size_t value_len, uint32_t timeout_ms,
                                      uint64_t *ret_version, struct ddp_error *err)
{
    struct call call = {
        .timeout_ms = timeout_ms,
        .request = {.op = DDPI_OP_CAS, .version = expected_version, .value = {value, value_len}}};
    ddp_status status = ddpi_client_check_value(store, value, value_len, err);
    if (status == DDP_OK)
        status = ddpi_client_run_key(store, key, &call, err);
    if ((status == DDP_OK || status == DDP_E_CONFLICT) && ret_version != NULL)
        *ret_version = call.reply.version;
    return status;
}

static ddp_status pack_key(const ddp_store *store, const char *key, struct ddpi_buf *packed,
                           struct ddp_error *err)
{
    char *full;
    struct ddpi_bytes bytes;
    ddp_status status = ddpi_client_key(store, key, &full, &bytes, err);
    if (status != DDP_OK)
        return status;
    if (!ddpi_keys_put(packed, bytes))
        status = ddpi_error_nomem(err, bytes.len);
    ddpi_free(full);
    return status;
}

ddp_status ddp_store_wait(ddp_store *store, const char *const *keys, size_t count,
                          uint32_t timeout_ms, struct ddp_error *err)
{
    if (count == 0 || count > DDP_STORE_MANY_MAX || keys == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "a wait for %zu keys; 1 to %d are allowed", count,
                              DDP_STORE_MANY_MAX);
    if (count > store->limits.many_max)
        return ddpi_error_set(err, DDP_E_LIMIT, "a wait for %zu keys; this server allows %u", count,
                              store->limits.many_max);
    struct ddpi_buf packed;
    ddpi_buf_init(&packed, ddpi_request_max(DDPI_OP_WAIT));
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        status = pack_key(store, keys[i], &packed, err);
    if (status == DDP_OK) {
        struct call call = {.timeout_ms = timeout_ms, .request = {.op = DDPI_OP_WAIT}};
        call.request.keys = (struct ddpi_keys){.packed = ddpi_buf_head(&packed),
                                               .packed_len = ddpi_buf_len(&packed),
                                               .count = (uint32_t)count};
        status = ddpi_client_run(store, &call, err);
    }
    ddpi_buf_finish(&packed);
    return status;
}

ddp_status ddp_store_delete(ddp_store *store, const char *key, uint32_t timeout_ms,
                            struct ddp_error *err)
{
    struct call call = {.timeout_ms = timeout_ms, .request = {.op = DDPI_OP_DELETE}};
    return ddpi_client_run_key(store, key, &call, err);
}

/* Pointers and strings in one block, without the prefix of the handle. */
static ddp_status unpack_list(const ddp_store *store, struct ddpi_keys keys, char ***ret_keys,
                              size_t *ret_count, struct ddp_error *err)
{
    size_t count = keys.count; /* checked by the codec: as many are there, four bytes each */
    size_t size = (count + 1) * sizeof(char *) + keys.packed_len + count;
    char **list = ddpi_calloc(size, 1);
    if (list == NULL)
        return ddpi_error_nomem(err, size);
    char *at = (char *)(list + count + 1);
    struct ddpi_bytes key;
    for (size_t i = 0; ddpi_keys_next(&keys, &key); i++) {
        if (key.len < store->prefix_len) {
            ddpi_free(list);
            return ddpi_error_set(err, DDP_E_PROTOCOL, "the store at %s listed a foreign key",
                                  store->endpoint);
        }
        size_t len = key.len - store->prefix_len;
        list[i] = memcpy(at, (const char *)key.data + store->prefix_len, len);
        at += len + 1;
    }
    *ret_keys = list;
    *ret_count = count;
    return DDP_OK;
}

ddp_status ddp_store_list(ddp_store *store, const char *prefix, uint32_t timeout_ms,
                          char ***ret_keys, size_t *ret_count, struct ddp_error *err)
{
    struct call call = {.timeout_ms = timeout_ms, .request = {.op = DDPI_OP_LIST}};
    ddp_status status = ddpi_client_run_key(store, prefix, &call, err);
    if (status == DDP_OK)
        status = unpack_list(store, call.reply.keys, ret_keys, ret_count, err);
    return status;
}

ddp_status ddp_store_barrier(ddp_store *store, const char *name, uint32_t count,
                             uint32_t timeout_ms, struct ddp_error *err)
{
    if (count == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "a barrier for nobody");
    struct call call = {.timeout_ms = timeout_ms,
                        .request = {.op = DDPI_OP_BARRIER, .count = count}};
    return ddpi_client_run_key(store, name, &call, err);
}

ddp_status ddp_store_stats(ddp_store *store, uint32_t timeout_ms, char **ret_text,
                           struct ddp_error *err)
{
    struct call call = {.timeout_ms = timeout_ms, .request = {.op = DDPI_OP_STATS}};
    ddp_status status = ddpi_client_run(store, &call, err);
    if (status != DDP_OK)
        return status;
    char *text = ddpi_strndup(call.reply.value.data, call.reply.value.len);
    if (text == NULL)
        return ddpi_error_nomem(err, call.reply.value.len);
    *ret_text = text;
    return DDP_OK;
}

void ddp_store_free(void *memory)
{
    ddpi_free(memory);
}
