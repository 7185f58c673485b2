/*
 * client_core.c - the client core: connections, replies and time. Owns the buffers of the
 * connection, the request queue and the watches; requests belong to their owners.
 *
 * The happy path: DIALING, and the edge connects; GREETING, and client_greet.c talks; OPEN: watches
 * resume, requests become pending, and each reply finds its request by id.
 *
 * Possible failure modes are:
 *   - no connection, a bad or slow greeting, a BYE, an end of file, bytes that are no frames, no
 *     memory for them: the connection is lost, and dialled again later;
 *   - a request is still pending when its deadline and a grace period have passed: the server is
 *     silent, so the connection is lost;
 *   - a request's deadline passes without a connection: that request fails;
 *   - the server refuses the client: all requests fail, and the server is dialled again only for
 *     new requests and for watches.
 * A reply to a request that was given up is dropped.
 */
#include "client_core.h"

#include "clock.h"
#include "error.h"
#include "tls_key.h"

#include <ddprun/store.h>

DDPI_SM_DEFINE(ddpi_client, DDPI_CLIENT_STATES);

enum {
    BUFFER_MAX = 64 * 1024 * 1024, /* a last bound; proto.h has the limits of frames */
    READ_AHEAD = 16 * 1024,
    SEAL_MAX = 64 * 1024, /* encrypted at once: what is encrypted counts as sent */
};

void ddpi_client_init(struct ddpi_client *client, const struct ddpi_client_hooks *hooks)
{
    *client = (struct ddpi_client){.hooks = *hooks, .endpoints = 1};
    ddpi_sm_init(&client->sm, &ddpi_client_sm);
    ddpi_request_queue_init(&client->requests, BUFFER_MAX, &client->greet.seals);
    ddpi_client_watches_init(&client->watches, &client->requests, hooks->event, hooks->ctx);
    ddpi_buf_init(&client->in, BUFFER_MAX);
    ddpi_buf_init(&client->coming, BUFFER_MAX);
    ddpi_buf_init(&client->leaving, BUFFER_MAX);
}

void ddpi_client_finish(struct ddpi_client *client)
{
    ddpi_client_watches_finish(&client->watches);
    ddpi_request_queue_finish(&client->requests);
    ddpi_buf_finish(&client->in);
    ddpi_buf_finish(&client->coming);
    ddpi_buf_finish(&client->leaving);
    ddpi_tls_destroy(client->tls);
    ddpi_wipe(&client->greet, sizeof client->greet);
}

static uint32_t attempt_ms(const struct ddpi_client *client)
{
    return client->endpoints > 1 ? DDPI_CLIENT_ATTEMPT_OF_SEVERAL_MS : DDPI_CLIENT_ATTEMPT_MS;
}

static void start_dialing(struct ddpi_client *client, uint64_t now_ms)
{
    client->at_ms = ddpi_deadline(now_ms, attempt_ms(client));
    ddpi_sm_move(&client->sm, CLIENT_DIALING);
}

void ddpi_client_start(struct ddpi_client *client, uint64_t now_ms)
{
    start_dialing(client, now_ms);
}

void ddpi_client_resolving(struct ddpi_client *client)
{
    client->at_ms = UINT64_MAX;
}

void ddpi_client_resolved(struct ddpi_client *client, uint64_t now_ms)
{
    client->at_ms = ddpi_deadline(now_ms, attempt_ms(client));
}

/* ---- answers ---- */

/* The owner of a watch has ended it. A server that does not have it may have said just before that
 * it cannot resume it. Returns the answer for the owner. */
static const struct ddpi_message *end_watch(struct ddpi_client *client,
                                            const struct ddpi_client_request *request,
                                            const struct ddpi_message *reply)
{
    static const struct ddpi_message ended = {.op = DDPI_OP_UNWATCH, .status = DDP_OK};
    uint64_t id = (uint64_t)request->message.number;
    struct ddpi_client_watch *watch = ddpi_client_watch_find(&client->watches, id);
    if (watch == NULL || (reply->status != DDP_OK && reply->status != DDP_E_NOT_FOUND))
        return reply;
    ddpi_client_watch_drop(watch);
    return &ended;
}

/* With @reply, or else because of @err. The request leaves the core before its owner is told, which
 * may submit it again at once. */
static void end_request(struct ddpi_client *client, struct ddpi_client_request *request,
                        const struct ddpi_message *reply, const struct ddp_error *err)
{
    struct ddpi_message refusal;
    if (reply == NULL) {
        refusal = (struct ddpi_message){.op = request->message.op,
                                        .id = request->message.id,
                                        .status = err->status,
                                        .text = ddpi_bytes_of(err->msg, strlen(err->msg))};
        reply = &refusal;
    }
    ddpi_list_remove(&request->of_queue);
    if (request->message.op == DDPI_OP_WATCH)
        ddpi_client_watch_started(&client->watches, request, reply);
    if (request->message.op == DDPI_OP_UNWATCH)
        reply = end_watch(client, request, reply);
    client->hooks.done(client->hooks.ctx, request, reply);
}

static void fail_requests(struct ddpi_client *client, struct ddpi_list *requests,
                          const struct ddp_error *err)
{
    while (!ddpi_list_empty(requests))
        end_request(client, ddpi_request_of(requests->next), NULL, err);
}

/* @requests are not on this connection, but some may have been executed on an earlier one. */
static void fail_queued(struct ddpi_client *client, struct ddpi_list *requests,
                        const struct ddp_error *err, const struct ddp_error *why)
{
    struct ddp_error unsure;
    ddpi_error_set(&unsure, DDP_E_CLOSED, "the server may have executed it: %s", why->msg);
    while (!ddpi_list_empty(requests)) {
        struct ddpi_client_request *request = ddpi_request_of(requests->next);
        end_request(client, request, NULL, request->maybe_done ? &unsure : err);
    }
}

/* ---- output ---- */

void ddpi_client_urge(struct ddpi_client *client, struct ddpi_client_request *request,
                      uint32_t timeout_ms, uint64_t now_ms)
{
    ddpi_request_queue_prepend(&client->requests, request, timeout_ms, now_ms);
}

ddp_status ddpi_client_submit(struct ddpi_client *client, struct ddpi_client_request *request,
                              uint32_t timeout_ms, uint64_t now_ms, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (client->sm.state == CLIENT_CLOSED)
        return ddpi_error_set(err, DDP_E_CLOSED, "the connection was closed: %s", client->why.msg);
    ddpi_request_queue_append(&client->requests, request, timeout_ms, now_ms);
    if (request->message.op == DDPI_OP_WATCH)
        status = ddpi_client_watch_add(&client->watches, request, err);
    if (status != DDP_OK)
        ddpi_list_remove(&request->of_queue);
    return status;
}

void ddpi_client_fill(struct ddpi_client *client, uint64_t now_ms)
{
    struct ddpi_client_request *request;
    while (client->sm.state == CLIENT_OPEN &&
           (request = ddpi_request_queue_write(&client->requests, now_ms)) != NULL) {
        struct ddp_error err;
        ddpi_error_nomem(&err, request->message.value.len);
        end_request(client, request, NULL, &err);
    }
}

static struct ddpi_buf *output_of(struct ddpi_client *client)
{
    return client->tls != NULL ? &client->leaving : &client->requests.out;
}

struct ddpi_buf *ddpi_client_output(struct ddpi_client *client, uint64_t now_ms)
{
    struct ddp_error err;
    struct ddpi_buf *out = &client->requests.out;
    size_t before = ddpi_buf_len(out);
    if (client->tls == NULL || ddpi_buf_len(&client->leaving) > 0)
        return output_of(client);
    ddp_status status = ddpi_tls_put(client->tls, out, SEAL_MAX, &client->leaving, &err);
    client->requests.sent_bytes += before - ddpi_buf_len(out);
    if (status != DDP_OK)
        ddpi_client_lost(client, &err, now_ms);
    return output_of(client);
}

void ddpi_client_sent(struct ddpi_client *client, size_t len)
{
    client->requests.sent_bytes += client->tls == NULL ? len : 0;
    ddpi_buf_consume(output_of(client), len);
}

void ddpi_client_take_output(struct ddpi_client *client, struct ddpi_buf *buf)
{
    struct ddpi_buf emptied = *buf;
    *buf = *output_of(client);
    *output_of(client) = emptied;
    client->requests.sent_bytes += client->tls == NULL ? ddpi_buf_len(buf) : 0;
}

static bool may_wait(enum ddpi_op op)
{
    return op == DDPI_OP_GET || op == DDPI_OP_WAIT || op == DDPI_OP_BARRIER;
}

void ddpi_client_cancel(struct ddpi_client *client, struct ddpi_client_request *request)
{
    struct ddpi_message message = {.op = DDPI_OP_CANCEL_REQUEST,
                                   .number = (int64_t)request->message.id};
    /* Without this message the server replies at the deadline, and the reply is dropped. */
    if (request->frame_end > 0 && may_wait(request->message.op))
        (void)ddpi_request_queue_put(&client->requests, &message);
    struct ddp_error err;
    bool sent = ddpi_request_queue_was_sent(&client->requests, request);
    ddpi_error_set(&err, DDP_E_CANCELED, "canceled%s",
                   sent ? "; the server may have executed it" : "");
    end_request(client, request, NULL, &err);
}

/* ---- losing the connection ---- */

static uint64_t backoff_max(const struct ddpi_client *client)
{
    bool seldom = client->was_open || client->refused;
    uint64_t most = seldom ? DDPI_CLIENT_BACKOFF_MAX_MS : DDPI_CLIENT_BACKOFF_START_MS;
    if (client->backoff_max_ms != 0 && client->backoff_max_ms < most)
        most = client->backoff_max_ms;
    return most > DDPI_CLIENT_BACKOFF_FIRST_MS ? most : DDPI_CLIENT_BACKOFF_FIRST_MS;
}

/* Exponential, with full jitter, when all servers have been tried. Before that it is just long
 * enough for the edge to see the state WAITING, and to close its socket to the server that it
 * leaves. */
static uint64_t next_backoff(struct ddpi_client *client)
{
    uint64_t most = backoff_max(client);
    uint64_t limit = client->refused ? most : DDPI_CLIENT_BACKOFF_FIRST_MS;
    unsigned rounds = client->attempts++ / client->endpoints;
    if (client->attempts % client->endpoints != 0)
        return 1;
    for (unsigned i = 0; i < rounds && limit < most; i++)
        limit *= 2;
    return client->hooks.random(client->hooks.ctx) % ((limit < most ? limit : most) + 1);
}

static void forget_connection(struct ddpi_client *client)
{
    ddpi_buf_consume(&client->in, ddpi_buf_len(&client->in));
    ddpi_buf_consume(&client->leaving, ddpi_buf_len(&client->leaving));
    ddpi_request_queue_reset_output(&client->requests);
    ddpi_tls_destroy(client->tls);
    client->tls = NULL;
    ddpi_wipe(&client->greet, sizeof client->greet);
    client->need = 0;
}

/* See client_core.h: without proof, any program on the server's port could have refused us. */
static bool doubts_refusal(const struct ddpi_client *client)
{
    const struct ddpi_greet *greet = &client->greet;
    return client->was_open && !greet->refusal_proven &&
           (greet->credential != NULL || client->persists);
}

/* The next attempt would fail in the same way: the server does not accept the proof, the job, the
 * epoch or the version, or the token file cannot be used. */
static bool is_refusal(const struct ddpi_client *client, ddp_status status)
{
    return client->sm.state != CLIENT_OPEN && !doubts_refusal(client) &&
           (status == DDP_E_DENIED || status == DDP_E_PROTOCOL || status == DDP_E_INVALID ||
            status == DDP_E_UNSUPPORTED);
}

/* Of several servers the one that serves may refuse while the others are down. So one refusal in a
 * round of attempts is enough, but only after all have been tried: another one might let us in. */
static void note_refusal(struct ddpi_client *client)
{
    if (client->attempts % client->endpoints == 0)
        client->refusal.status = DDP_OK;
    if (is_refusal(client, client->why.status))
        client->refusal = client->why;
    bool tried_all = (client->attempts + 1) % client->endpoints == 0;
    client->refused = tried_all && client->refusal.status != DDP_OK;
    if (client->refused)
        client->why = client->refusal;
}

void ddpi_client_lost(struct ddpi_client *client, const struct ddp_error *err, uint64_t now_ms)
{
    struct ddpi_list unsure, refused;
    ddpi_list_init(&unsure);
    ddpi_list_init(&refused);
    client->why = *err;
    note_refusal(client);
    const struct ddp_error why = client->why; /* the hooks below may change it */
    ddpi_request_queue_requeue(&client->requests, &unsure);
    if (client->refused)
        ddpi_list_move_all(&refused, &client->requests.queued);
    forget_connection(client);
    struct ddp_error unsure_why;
    ddpi_error_set(&unsure_why, DDP_E_CLOSED, "the server may have executed it: %s", err->msg);
    if (client->no_reconnect && client->was_open) {
        struct ddp_error closed = *err;
        closed.status = DDP_E_CLOSED;
        ddpi_client_close(client, &closed);
    } else {
        client->endpoint = (client->endpoint + 1) % client->endpoints;
        client->at_ms = ddpi_deadline(now_ms, next_backoff(client));
        ddpi_sm_move(&client->sm, CLIENT_WAITING);
    }
    fail_requests(client, &unsure, &unsure_why);
    fail_queued(client, &refused, &why, &why);
}

void ddpi_client_close(struct ddpi_client *client, const struct ddp_error *err)
{
    client->why = *err;
    client->requests.next_expiry_ms = UINT64_MAX;
    if (client->sm.state != CLIENT_CLOSED)
        ddpi_sm_move(&client->sm, CLIENT_CLOSED);
    fail_requests(client, &client->requests.pending, err);
    fail_requests(client, &client->requests.queued, err);
}

bool ddpi_client_met(const struct ddpi_client *client, uint64_t *ret_number)
{
    if (!client->proven)
        return false;
    *ret_number = client->welcome.incarnation;
    return true;
}

static void say_silent(struct ddp_error *err)
{
    ddpi_error_set(err, DDP_E_UNREACHABLE,
                   "a program there accepts connections but does not answer: it hangs, or is no "
                   "store of ddprun, so check the port");
}

/* How the last attempt has ended tells more than one that has just begun, and a refusal tells more
 * than another server that is down. */
void ddpi_client_why(const struct ddpi_client *client, struct ddp_error *err)
{
    if (client->refusal.status != DDP_OK)
        ddpi_error_set(err, client->refusal.status, "%s", client->refusal.msg);
    else if (client->why.status != DDP_OK)
        ddpi_error_set(err, client->why.status, "%s", client->why.msg);
    else if (client->sm.state == CLIENT_GREETING)
        say_silent(err);
    else
        ddpi_error_set(err, DDP_E_UNREACHABLE, "there is no connection yet");
}

/* ---- input ---- */

static ddp_status start_tls(struct ddpi_client *client, const struct ddpi_greet_terms *terms,
                            struct ddp_error *err)
{
    struct ddpi_tls_key key = {0};
    if (terms->tls == NULL)
        return DDP_OK;
    ddp_status status = ddpi_tls_key_make(terms->credential, terms->identity, &key, err);
    if (status == DDP_OK)
        status = ddpi_tls_connect(terms->tls, &key, &client->tls, err);
    ddpi_wipe(&key, sizeof key);
    return status;
}

void ddpi_client_connected(struct ddpi_client *client, const struct ddpi_greet_terms *terms,
                           uint64_t now_ms)
{
    struct ddp_error err;
    ddpi_sm_move(&client->sm, CLIENT_GREETING);
    if (start_tls(client, terms, &err) != DDP_OK ||
        ddpi_greet_begin(&client->greet, terms, &client->requests.out, &err) != DDP_OK)
        ddpi_client_lost(client, &err, now_ms);
}

/* At most doubles the memory: a length that the server announces is not reserved at once. */
uint8_t *ddpi_client_room(struct ddpi_client *client, size_t *ret_len)
{
    if (client->tls != NULL) {
        *ret_len = READ_AHEAD;
        return ddpi_buf_reserve(&client->coming, READ_AHEAD);
    }
    size_t have = ddpi_buf_len(&client->in);
    size_t rest = client->need > have ? client->need - have : 0;
    size_t most = have > READ_AHEAD ? have : READ_AHEAD;
    rest = rest > READ_AHEAD ? rest : READ_AHEAD;
    *ret_len = rest < most ? rest : most;
    return ddpi_buf_reserve(&client->in, *ret_len);
}

static void open_connection(struct ddpi_client *client, uint64_t now_ms)
{
    bool other_server =
        client->was_open && client->welcome.incarnation != client->greet.welcome.incarnation;
    client->welcome = client->greet.welcome;
    client->proven = client->greet.seals.on;
    client->was_open = true;
    client->refused = false;
    client->refusal.status = DDP_OK;
    ddpi_sm_move(&client->sm, CLIENT_OPEN);
    if (client->hooks.opened != NULL)
        client->hooks.opened(client->hooks.ctx);
    if (ddpi_client_watches_resume(&client->watches, other_server)) {
        ddpi_client_fill(client, now_ms);
        return;
    }
    struct ddp_error err;
    ddpi_error_nomem(&err, DDP_STORE_KEY_MAX);
    ddpi_client_lost(client, &err, now_ms);
}

static ddp_status take_reply(struct ddpi_client *client, const struct ddpi_client_frame *frame,
                             struct ddp_error *err)
{
    struct ddpi_message reply;
    ddp_status status = ddpi_reply_get(&frame->header, frame->payload, &reply, err);
    if (status != DDP_OK)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed reply");
    if (reply.id > client->requests.last_id)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a reply to a request that was not made");
    struct ddpi_client_request *request = ddpi_request_queue_find(&client->requests, reply.id);
    if (request != NULL && request->message.op != reply.op)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a reply to another kind of request");
    if (request != NULL)
        end_request(client, request, &reply, NULL);
    else if (reply.op == DDPI_OP_WATCH)
        status = ddpi_client_watch_take(&client->watches, &reply, err);
    /* Not while a watch waits: a connection that is lost because of it must back off. */
    if (status == DDP_OK && client->attempts > 0 && ddpi_client_watches_resumed(&client->watches))
        client->attempts = 0;
    return status;
}

static ddp_status take_frame(struct ddpi_client *client, const struct ddpi_client_frame *frame,
                             struct ddp_error *err)
{
    if (frame->header.type != DDPI_FRAME_BYE)
        return take_reply(client, frame, err);
    (void)ddpi_client_frame_refusal(frame, err); /* for its sentence */
    return err->status = DDP_E_CLOSED;
}

/* Parse one step of `in`. Returns false if it needs more bytes or has failed. */
static bool take_step(struct ddpi_client *client, uint64_t now_ms, ddp_status *ret_status,
                      struct ddp_error *err)
{
    if (client->sm.state == CLIENT_GREETING) {
        *ret_status =
            ddpi_greet_take(&client->greet, &client->in, &client->requests.out, &client->need, err);
        if (*ret_status == DDP_OK && client->need == 0)
            open_connection(client, now_ms);
        return *ret_status == DDP_OK && client->need == 0;
    }
    struct ddpi_client_frame frame;
    *ret_status =
        ddpi_client_frame_next(&client->in, &client->greet.seals, &frame, &client->need, err);
    if (*ret_status != DDP_OK || client->need > 0)
        return false;
    *ret_status = take_frame(client, &frame, err);
    if (*ret_status == DDP_OK && client->sm.state == CLIENT_OPEN)
        ddpi_buf_consume(&client->in, frame.size);
    return *ret_status == DDP_OK;
}

/* Add the @len bytes that were received to `in`. */
static ddp_status add_input(struct ddpi_client *client, size_t len, struct ddp_error *err)
{
    if (client->tls == NULL) {
        ddpi_buf_added(&client->in, len);
        return DDP_OK;
    }
    ddpi_buf_added(&client->coming, len);
    ddp_status status = ddpi_tls_take(client->tls, ddpi_buf_head(&client->coming), len, &client->in,
                                      &client->leaving, err);
    ddpi_buf_consume(&client->coming, len);
    return status;
}

/* Bytes that arrived before a failure of TLS are parsed first. */
void ddpi_client_received(struct ddpi_client *client, size_t len, uint64_t now_ms)
{
    struct ddp_error err, tls_err;
    ddp_status added = add_input(client, len, &tls_err), status = DDP_OK;
    while (client->sm.state == CLIENT_GREETING || client->sm.state == CLIENT_OPEN)
        if (!take_step(client, now_ms, &status, &err))
            break;
    if (status != DDP_OK)
        ddpi_client_lost(client, &err, now_ms);
    else if (added != DDP_OK &&
             (client->sm.state == CLIENT_GREETING || client->sm.state == CLIENT_OPEN))
        ddpi_client_lost(client, &tls_err, now_ms);
}

/* ---- time ---- */

static bool is_connecting(const struct ddpi_client *client)
{
    return client->sm.state == CLIENT_DIALING || client->sm.state == CLIENT_GREETING;
}

/* In WAITING: a connection is needed at `at_ms`. */
static bool must_dial(const struct ddpi_client *client)
{
    return !client->refused || !ddpi_list_empty(&client->requests.queued) ||
           !ddpi_list_empty(&client->watches.all);
}

uint64_t ddpi_client_next(const struct ddpi_client *client)
{
    uint64_t expiry_ms = client->requests.next_expiry_ms;
    bool timed = is_connecting(client) || (client->sm.state == CLIENT_WAITING && must_dial(client));
    return timed && client->at_ms < expiry_ms ? client->at_ms : expiry_ms;
}

static void expire_requests(struct ddpi_client *client, uint64_t now_ms)
{
    struct ddpi_list late, silent;
    struct ddp_error err;
    ddpi_list_init(&late);
    ddpi_list_init(&silent);
    ddpi_request_queue_expire(&client->requests, &late, &silent, now_ms);
    if (!ddpi_list_empty(&silent)) {
        ddpi_error_set(&err, DDP_E_CLOSED,
                       "the server did not answer within %d ms after the deadline",
                       DDPI_CLIENT_GRACE_MS);
        ddpi_client_lost(client, &err, now_ms);
        fail_requests(client, &silent, &err);
    }
    if (!ddpi_list_empty(&late)) {
        struct ddp_error why;
        ddpi_client_why(client, &why);
        if (client->sm.state == CLIENT_OPEN)
            ddpi_error_set(&why, DDP_E_UNREACHABLE, "the server does not read from the connection");
        bool refused = client->refusal.status != DDP_OK;
        ddpi_error_set(&err, refused ? why.status : DDP_E_UNREACHABLE,
                       "not sent before the deadline: %s", why.msg);
        fail_queued(client, &late, &err, &why);
    }
}

void ddpi_client_tick(struct ddpi_client *client, uint64_t now_ms)
{
    if (client->sm.state == CLIENT_WAITING && now_ms >= client->at_ms && must_dial(client)) {
        start_dialing(client, now_ms);
    } else if (is_connecting(client) && now_ms >= client->at_ms) {
        struct ddp_error err;
        if (client->sm.state == CLIENT_GREETING)
            say_silent(&err);
        else
            ddpi_error_set(&err, DDP_E_UNREACHABLE, "no connection within %u ms",
                           attempt_ms(client));
        ddpi_client_lost(client, &err, now_ms);
    }
    if (now_ms >= client->requests.next_expiry_ms)
        expire_requests(client, now_ms);
}
