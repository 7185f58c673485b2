/*
 * client_core.c - the client core: requests, deadlines and connections. Owns the two buffers and
 * the watches (core_watch.c); requests are their owners'.
 *
 * The happy path: DIALING, and the edge connects; GREETING, and client_greet.c talks; OPEN: watches
 * are begun again, requests move from `queued` to `asked`, and each answer finds its request by id.
 *
 * Possible failure modes are:
 *   - no connection, a bad greeting, one that takes too long, a BYE, an end of file, bytes that are
 *     no frames, no memory for them: the connection is lost, and dialled again later;
 *   - a request still waits when its deadline, and a while more, has passed: the connection is lost
 *     as well, since the server is silent;
 *   - a request's deadline passes while there is no connection: it alone fails;
 *   - the server does not let us in: that is the answer to all requests, and it is dialled again
 *     only for new ones and for what is watched.
 * An answer to something that was given up is dropped.
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
    SEAL_MAX = 64 * 1024, /* at once: what is sealed counts as sent */
};

static struct ddpi_client_request *request_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct ddpi_client_request, of_client);
}

void ddpi_client_init(struct ddpi_client *client, const struct ddpi_client_hooks *hooks)
{
    *client = (struct ddpi_client){.hooks = *hooks, .look_ms = UINT64_MAX};
    ddpi_sm_init(&client->sm, &ddpi_client_sm);
    ddpi_buf_init(&client->in, BUFFER_MAX);
    ddpi_buf_init(&client->out, BUFFER_MAX);
    ddpi_buf_init(&client->coming, BUFFER_MAX);
    ddpi_buf_init(&client->leaving, BUFFER_MAX);
    ddpi_list_init(&client->queued);
    ddpi_list_init(&client->asked);
    ddpi_list_init(&client->watches);
}

void ddpi_client_finish(struct ddpi_client *client)
{
    while (!ddpi_list_empty(&client->watches))
        ddpi_client_watch_drop(
            ddpi_container_of(client->watches.next, struct ddpi_client_watch, of_client));
    ddpi_buf_finish(&client->in);
    ddpi_buf_finish(&client->out);
    ddpi_buf_finish(&client->coming);
    ddpi_buf_finish(&client->leaving);
    ddpi_tls_destroy(client->tls);
    ddpi_wipe(&client->greet, sizeof client->greet);
}

static void dial(struct ddpi_client *client, uint64_t now_ms)
{
    client->at_ms = ddpi_deadline(now_ms, DDPI_CLIENT_ATTEMPT_MS);
    ddpi_sm_move(&client->sm, CLIENT_DIALING);
}

void ddpi_client_start(struct ddpi_client *client, uint64_t now_ms)
{
    dial(client, now_ms);
}

/* --- answers --- */

/* The request leaves the core before its owner hears of it, and may come back at once. */
static void answer(struct ddpi_client *client, struct ddpi_client_request *request,
                   const struct ddpi_message *reply)
{
    ddpi_list_remove(&request->of_client);
    if (request->message.op == DDPI_OP_WATCH)
        ddpi_client_watch_begun(client, request, reply);
    if (request->message.op == DDPI_OP_UNWATCH && reply->status == DDP_OK)
        ddpi_client_watch_drop(ddpi_client_watch_find(client, (uint64_t)request->message.number));
    client->hooks.done(client->hooks.ctx, request, reply);
}

static void fail(struct ddpi_client *client, struct ddpi_client_request *request,
                 const struct ddp_error *err)
{
    const struct ddpi_message reply = {.op = request->message.op,
                                       .id = request->message.id,
                                       .status = err->status,
                                       .text = ddpi_bytes_of(err->msg, strlen(err->msg))};
    answer(client, request, &reply);
}

static void fail_all(struct ddpi_client *client, struct ddpi_list *requests,
                     const struct ddp_error *err)
{
    while (!ddpi_list_empty(requests))
        fail(client, request_of(requests->next), err);
}

/* --- output --- */

static bool put(struct ddpi_client *client, const struct ddpi_message *message)
{
    size_t before = ddpi_buf_len(&client->out);
    return ddpi_seals_put(&client->greet.seals, &client->out, before,
                          ddpi_request_put(&client->out, message));
}

bool ddpi_client_put(struct ddpi_client *client, struct ddpi_message *message)
{
    if (message->id == 0)
        message->id = ++client->last_id;
    return put(client, message);
}

static void date(struct ddpi_client *client, struct ddpi_client_request *request,
                 uint32_t timeout_ms, uint64_t now_ms)
{
    request->message.id = ++client->last_id;
    request->deadline_ms = ddpi_deadline(now_ms, timeout_ms);
    request->frame_end = 0;
    if (client->look_ms > request->deadline_ms)
        client->look_ms = request->deadline_ms;
}

void ddpi_client_urge(struct ddpi_client *client, struct ddpi_client_request *request,
                      uint32_t timeout_ms, uint64_t now_ms)
{
    date(client, request, timeout_ms, now_ms);
    ddpi_list_append(client->queued.next, &request->of_client);
}

ddp_status ddpi_client_submit(struct ddpi_client *client, struct ddpi_client_request *request,
                              uint32_t timeout_ms, uint64_t now_ms, struct ddp_error *err)
{
    if (client->sm.state == CLIENT_CLOSED)
        return ddpi_error_set(err, DDP_E_CLOSED, "the connection was closed: %s", client->why.msg);
    date(client, request, timeout_ms, now_ms);
    if (request->message.op == DDPI_OP_WATCH) {
        ddp_status status = ddpi_client_watch_add(client, request, err);
        if (status != DDP_OK)
            return status;
    }
    ddpi_list_append(&client->queued, &request->of_client);
    return DDP_OK;
}

void ddpi_client_fill(struct ddpi_client *client, uint64_t now_ms)
{
    while (client->sm.state == CLIENT_OPEN && !ddpi_list_empty(&client->queued)) {
        struct ddpi_client_request *request = request_of(client->queued.next);
        uint64_t left_ms = request->deadline_ms > now_ms ? request->deadline_ms - now_ms : 0;
        request->message.timeout_ms = left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
        if (put(client, &request->message)) {
            request->frame_end = client->left + ddpi_buf_len(&client->out);
            ddpi_list_remove(&request->of_client);
            ddpi_list_append(&client->asked, &request->of_client);
        } else if (ddpi_buf_len(&client->out) > 0) {
            return; /* when some has left */
        } else {
            struct ddp_error err;
            ddpi_error_nomem(&err, request->message.value.len);
            fail(client, request, &err);
        }
    }
}

static struct ddpi_buf *to_send(struct ddpi_client *client)
{
    return client->tls != NULL ? &client->leaving : &client->out;
}

struct ddpi_buf *ddpi_client_output(struct ddpi_client *client, uint64_t now_ms)
{
    struct ddp_error err;
    size_t before = ddpi_buf_len(&client->out);
    if (client->tls == NULL || ddpi_buf_len(&client->leaving) > 0)
        return to_send(client);
    ddp_status status = ddpi_tls_put(client->tls, &client->out, SEAL_MAX, &client->leaving, &err);
    client->left += before - ddpi_buf_len(&client->out);
    if (status != DDP_OK)
        ddpi_client_lost(client, &err, now_ms);
    return to_send(client);
}

void ddpi_client_sent(struct ddpi_client *client, size_t len)
{
    client->left += client->tls == NULL ? len : 0;
    ddpi_buf_consume(to_send(client), len);
}

void ddpi_client_take_output(struct ddpi_client *client, struct ddpi_buf *buf)
{
    struct ddpi_buf emptied = *buf;
    *buf = *to_send(client);
    *to_send(client) = emptied;
    client->left += client->tls == NULL ? ddpi_buf_len(buf) : 0;
}

static bool may_wait(enum ddpi_op op)
{
    return op == DDPI_OP_GET || op == DDPI_OP_WAIT || op == DDPI_OP_BARRIER;
}

static bool maybe_done(const struct ddpi_client *client, const struct ddpi_client_request *request)
{
    return request->frame_end > 0 && request->frame_end <= client->left;
}

void ddpi_client_cancel(struct ddpi_client *client, struct ddpi_client_request *request)
{
    struct ddpi_message message = {.op = DDPI_OP_CANCEL_REQUEST,
                                   .number = (int64_t)request->message.id};
    /* A server that does not learn of it answers at the deadline, to nobody. */
    if (request->frame_end > 0 && may_wait(request->message.op))
        (void)ddpi_client_put(client, &message);
    struct ddp_error err;
    ddpi_error_set(&err, DDP_E_CANCELED, "canceled%s",
                   maybe_done(client, request) ? "; it may have been done or not" : "");
    fail(client, request, &err);
}

/* --- losing the connection --- */

/* What may be done twice with no harm. */
static bool repeatable(enum ddpi_op op)
{
    switch (op) {
    case DDPI_OP_GET:
    case DDPI_OP_TRY_GET:
    case DDPI_OP_WAIT:
    case DDPI_OP_LIST:
    case DDPI_OP_STATS:
    case DDPI_OP_WATCH:
    case DDPI_OP_UNWATCH:
    case DDPI_OP_SESSION_KEEP:
    case DDPI_OP_SESSION_HOLD:
    case DDPI_OP_FENCE:
        return true;
    default:
        return false;
    }
}

static void append_all(struct ddpi_list *to, struct ddpi_list *from)
{
    while (!ddpi_list_empty(from)) {
        struct ddpi_list *node = from->next;
        ddpi_list_remove(node);
        ddpi_list_append(to, node);
    }
}

/* What was asked is to be sent again, before what was not, or goes to @unsure. */
static void take_back(struct ddpi_client *client, struct ddpi_list *unsure)
{
    struct ddpi_list again;
    ddpi_list_init(&again);
    ddpi_list_for_each_safe (node, &client->asked) {
        struct ddpi_client_request *request = request_of(node);
        bool lost = maybe_done(client, request) && !repeatable(request->message.op);
        ddpi_list_remove(node);
        ddpi_list_append(lost ? unsure : &again, node);
        if (!lost)
            request->frame_end = 0;
    }
    append_all(&again, &client->queued);
    append_all(&client->queued, &again);
    client->look_ms = 0; /* some may be too late to be asked again */
}

/* A server that is back is not to be found too late, nor dialled without a pause. */
static uint64_t backoff_max(const struct ddpi_client *client)
{
    bool seldom = client->was_open || client->refused;
    uint64_t most = seldom ? DDPI_CLIENT_BACKOFF_MAX_MS : DDPI_CLIENT_BACKOFF_START_MS;
    if (client->backoff_max_ms != 0 && client->backoff_max_ms < most)
        most = client->backoff_max_ms;
    return most > DDPI_CLIENT_BACKOFF_FIRST_MS ? most : DDPI_CLIENT_BACKOFF_FIRST_MS;
}

static uint64_t backoff(struct ddpi_client *client)
{
    uint64_t most = backoff_max(client);
    uint64_t limit = client->refused ? most : DDPI_CLIENT_BACKOFF_FIRST_MS;
    for (unsigned i = 0; i < client->attempts && limit < most; i++)
        limit *= 2;
    client->attempts++;
    return client->hooks.random(client->hooks.ctx) % ((limit < most ? limit : most) + 1);
}

static void forget_connection(struct ddpi_client *client)
{
    ddpi_buf_consume(&client->in, ddpi_buf_len(&client->in));
    ddpi_buf_consume(&client->out, ddpi_buf_len(&client->out));
    ddpi_buf_consume(&client->leaving, ddpi_buf_len(&client->leaving));
    ddpi_tls_destroy(client->tls);
    client->tls = NULL;
    ddpi_wipe(&client->greet, sizeof client->greet);
    client->need = 0;
    client->left = 0;
}

/* Who was let in once, and expects a proof or counts on coming back, believes no refusal that
 * anybody could have sent who has the port while the server is down. */
static bool doubts(const struct ddpi_client *client)
{
    const struct ddpi_greet *greet = &client->greet;
    return client->was_open && !greet->refusal_proven &&
           (greet->credential != NULL || client->persists);
}

/* Whether the next attempt would end in the same way: a proof, a job, an epoch or a version is not
 * what the server wants, or the token file not one that may be used. */
static bool is_refusal(const struct ddpi_client *client, ddp_status status)
{
    return client->sm.state != CLIENT_OPEN && !doubts(client) &&
           (status == DDP_E_DENIED || status == DDP_E_PROTOCOL || status == DDP_E_INVALID ||
            status == DDP_E_UNSUPPORTED);
}

void ddpi_client_lost(struct ddpi_client *client, const struct ddp_error *err, uint64_t now_ms)
{
    const struct ddp_error why = *err; /* who is answered may do anything */
    struct ddpi_list unsure, refused;
    ddpi_list_init(&unsure);
    ddpi_list_init(&refused);
    client->why = why;
    client->refused = is_refusal(client, why.status);
    take_back(client, &unsure);
    if (client->refused)
        append_all(&refused, &client->queued);
    forget_connection(client);
    struct ddp_error unsure_why;
    ddpi_error_set(&unsure_why, DDP_E_CLOSED, "it may have been done or not: %s", err->msg);
    if (client->no_reconnect && client->was_open) {
        struct ddp_error closed = *err;
        closed.status = DDP_E_CLOSED;
        ddpi_client_close(client, &closed);
    } else {
        client->at_ms = ddpi_deadline(now_ms, backoff(client));
        ddpi_sm_move(&client->sm, CLIENT_WAITING);
    }
    fail_all(client, &unsure, &unsure_why);
    fail_all(client, &refused, &why);
}

void ddpi_client_close(struct ddpi_client *client, const struct ddp_error *err)
{
    client->why = *err;
    client->look_ms = UINT64_MAX;
    if (client->sm.state != CLIENT_CLOSED)
        ddpi_sm_move(&client->sm, CLIENT_CLOSED);
    fail_all(client, &client->asked, err);
    fail_all(client, &client->queued, err);
}

bool ddpi_client_met(const struct ddpi_client *client, uint64_t *ret_number)
{
    if (!client->proven)
        return false;
    *ret_number = client->welcome.incarnation;
    return true;
}

void ddpi_client_why(const struct ddpi_client *client, struct ddp_error *err)
{
    if (client->sm.state == CLIENT_GREETING)
        ddpi_error_set(err, DDP_E_UNREACHABLE,
                       "something accepts connections there, but says nothing");
    else if (client->why.status == DDP_OK)
        ddpi_error_set(err, DDP_E_UNREACHABLE, "there is no connection yet");
    else
        ddpi_error_set(err, client->why.status, "%s", client->why.msg);
}

/* --- input --- */

static ddp_status begin_tls(struct ddpi_client *client, const struct ddpi_greet_terms *terms,
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
    if (begin_tls(client, terms, &err) != DDP_OK ||
        ddpi_greet_begin(&client->greet, terms, &client->out, &err) != DDP_OK)
        ddpi_client_lost(client, &err, now_ms);
}

uint8_t *ddpi_client_room(struct ddpi_client *client, size_t *ret_len)
{
    if (client->tls != NULL) {
        *ret_len = READ_AHEAD;
        return ddpi_buf_reserve(&client->coming, READ_AHEAD);
    }
    size_t have = ddpi_buf_len(&client->in);
    size_t rest = client->need > have ? client->need - have : 0;
    size_t most = have > READ_AHEAD ? have : READ_AHEAD; /* announced is not sent */
    rest = rest > READ_AHEAD ? rest : READ_AHEAD;
    *ret_len = rest < most ? rest : most;
    return ddpi_buf_reserve(&client->in, *ret_len);
}

static void open_up(struct ddpi_client *client, uint64_t now_ms)
{
    bool other =
        client->was_open && client->welcome.incarnation != client->greet.welcome.incarnation;
    client->welcome = client->greet.welcome;
    client->proven = client->greet.seals.on;
    client->was_open = true;
    client->refused = false;
    ddpi_sm_move(&client->sm, CLIENT_OPEN);
    if (client->hooks.opened != NULL)
        client->hooks.opened(client->hooks.ctx);
    if (ddpi_client_watch_resume(client, other)) {
        ddpi_client_fill(client, now_ms);
        return;
    }
    struct ddp_error err;
    ddpi_error_nomem(&err, DDP_STORE_KEY_MAX);
    ddpi_client_lost(client, &err, now_ms);
}

static struct ddpi_client_request *find_asked(struct ddpi_client *client, uint64_t id)
{
    ddpi_list_for_each (node, &client->asked)
        if (request_of(node)->message.id == id)
            return request_of(node);
    return NULL;
}

static ddp_status take_reply(struct ddpi_client *client, const struct ddpi_client_frame *frame,
                             struct ddp_error *err)
{
    struct ddpi_message reply;
    ddp_status status = ddpi_reply_get(&frame->header, frame->payload, &reply, err);
    if (status != DDP_OK)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed reply");
    if (reply.id > client->last_id)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a reply to nothing that was asked");
    struct ddpi_client_request *request = find_asked(client, reply.id);
    if (request != NULL && request->message.op != reply.op)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a reply to something else");
    if (request != NULL)
        answer(client, request, &reply);
    else if (reply.op == DDPI_OP_WATCH)
        status = ddpi_client_watch_take(client, &reply, err);
    if (status == DDP_OK && client->attempts > 0 && ddpi_client_watch_settled(client))
        client->attempts = 0; /* else what is lost over a watch would be dialled without a pause */
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

/* One step of what `in` begins with; false: more must come first. */
static bool take_next(struct ddpi_client *client, uint64_t now_ms, ddp_status *ret_status,
                      struct ddp_error *err)
{
    if (client->sm.state == CLIENT_GREETING) {
        *ret_status =
            ddpi_greet_take(&client->greet, &client->in, &client->out, &client->need, err);
        if (*ret_status == DDP_OK && client->need == 0)
            open_up(client, now_ms);
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

/* The @len bytes in the room that was given, which go to `in`. */
static ddp_status take_bytes(struct ddpi_client *client, size_t len, struct ddp_error *err)
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

/* What came before a failure counts. */
void ddpi_client_received(struct ddpi_client *client, size_t len, uint64_t now_ms)
{
    struct ddp_error err, why;
    ddp_status taken = take_bytes(client, len, &why), status = DDP_OK;
    while (client->sm.state == CLIENT_GREETING || client->sm.state == CLIENT_OPEN)
        if (!take_next(client, now_ms, &status, &err))
            break;
    if (status != DDP_OK)
        ddpi_client_lost(client, &err, now_ms);
    else if (taken != DDP_OK &&
             (client->sm.state == CLIENT_GREETING || client->sm.state == CLIENT_OPEN))
        ddpi_client_lost(client, &why, now_ms);
}

/* --- time --- */

uint64_t ddpi_client_expiry(const struct ddpi_client_request *request)
{
    return request->frame_end > 0 ? ddpi_deadline(request->deadline_ms, DDPI_CLIENT_GRACE_MS)
                                  : request->deadline_ms;
}

static bool trying(const struct ddpi_client *client)
{
    return client->sm.state == CLIENT_DIALING || client->sm.state == CLIENT_GREETING;
}

/* In WAITING: whether anybody needs a connection enough to dial at `at_ms`. */
static bool is_wanted(const struct ddpi_client *client)
{
    return !client->refused || !ddpi_list_empty(&client->queued) ||
           !ddpi_list_empty(&client->watches);
}

uint64_t ddpi_client_next(const struct ddpi_client *client)
{
    bool timed = trying(client) || (client->sm.state == CLIENT_WAITING && is_wanted(client));
    return timed && client->at_ms < client->look_ms ? client->at_ms : client->look_ms;
}

static void move_expired(struct ddpi_client *client, struct ddpi_list *from, struct ddpi_list *to,
                         uint64_t now_ms)
{
    ddpi_list_for_each_safe (node, from) {
        uint64_t expiry = ddpi_client_expiry(request_of(node));
        if (expiry <= now_ms) {
            ddpi_list_remove(node);
            ddpi_list_append(to, node);
        } else if (expiry < client->look_ms) {
            client->look_ms = expiry;
        }
    }
}

static void expire(struct ddpi_client *client, uint64_t now_ms)
{
    struct ddpi_list late, silent;
    struct ddp_error err;
    ddpi_list_init(&late);
    ddpi_list_init(&silent);
    client->look_ms = UINT64_MAX;
    move_expired(client, &client->queued, &late, now_ms);
    move_expired(client, &client->asked, &silent, now_ms);
    if (!ddpi_list_empty(&silent)) {
        ddpi_error_set(&err, DDP_E_CLOSED,
                       "the server did not answer within %d ms after the deadline",
                       DDPI_CLIENT_GRACE_MS);
        ddpi_client_lost(client, &err, now_ms);
        fail_all(client, &silent, &err);
    }
    if (!ddpi_list_empty(&late)) {
        struct ddp_error why;
        ddpi_client_why(client, &why);
        if (client->sm.state == CLIENT_OPEN)
            ddpi_error_set(&why, DDP_E_UNREACHABLE, "the server takes nothing");
        ddpi_error_set(&err, client->refused ? why.status : DDP_E_UNREACHABLE,
                       "not sent before the deadline: %s", why.msg);
        fail_all(client, &late, &err);
    }
}

void ddpi_client_tick(struct ddpi_client *client, uint64_t now_ms)
{
    if (client->sm.state == CLIENT_WAITING && now_ms >= client->at_ms && is_wanted(client)) {
        dial(client, now_ms);
    } else if (trying(client) && now_ms >= client->at_ms) {
        struct ddp_error err;
        if (client->sm.state == CLIENT_GREETING)
            ddpi_client_why(client, &err);
        else
            ddpi_error_set(&err, DDP_E_UNREACHABLE, "no connection within %d ms",
                           DDPI_CLIENT_ATTEMPT_MS);
        ddpi_client_lost(client, &err, now_ms);
    }
    if (now_ms >= client->look_ms)
        expire(client, now_ms);
}
