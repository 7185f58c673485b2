/*
 * client_round.c - a member's side of the rounds: <ddprun/round.h> on an asynchronous client of the
 * store. Owns that client; what becomes of a member is the server's to say (round_keys.h).
 *
 * The happy path: something is published, so a session is opened and held; its number is the
 * member's. Its seat is watched, then its member key is set, and again with each change. Answers
 * are told apart by the numbers of their requests: one that is not waited for any more is dropped.
 *
 * Possible failure modes are:
 *   - the connection is lost: what may not have arrived is set again on the next one; the client
 *     holds the session and goes on with the watch by itself;
 *   - the session has ended, or the server refuses something for good: the member is lost, and
 *     with the next publication begins anew.
 */
#include "address.h"
#include "auth.h"
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "parse.h"
#include "round_keys.h"
#include "round_record.h"

#include <ddprun/round.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROUND_STATES(X)                                                                   \
    X(ROUND, ABSENT, DDPI_SM_TO(ROUND_OPENING) | DDPI_SM_TO(ROUND_LEFT), DDPI_SM_INITIAL) \
    X(ROUND, OPENING,                                                                     \
      DDPI_SM_TO(ROUND_ABSENT) | DDPI_SM_TO(ROUND_JOINED) | DDPI_SM_TO(ROUND_LEFT), 0)    \
    X(ROUND, JOINED, DDPI_SM_TO(ROUND_ABSENT) | DDPI_SM_TO(ROUND_LEFT), 0)                \
    X(ROUND, LEFT, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(round, ROUND_STATES);
DDPI_SM_DEFINE(round, ROUND_STATES);

enum {
    DESCRIPTION_MAX = 64 * 1024,
    KEY_SIZE = sizeof DDPI_ROUND_PREFIX "/member/" + DDPI_JOB_MAX + 24,
};

/* One of the member's keys. */
struct part {
    const char *kind;
    bool due;         /* it has a value that has not been sent */
    uint64_t request; /* by which the latest is being set; 0: none is */
};

struct ddp_round {
    struct ddpi_sm sm;
    ddp_store_uv *store;
    struct ddp_round_hooks hooks;
    char job[DDPI_JOB_MAX + 1];
    char host[DDPI_HOST_MAX]; /* of the store */
    uint32_t lease_ms;
    bool connected;
    bool closing;

    uint64_t id; /* these four while it is JOINED */
    struct ddp_store_session session;
    uint64_t watch;             /* 0: it has not begun */
    struct ddp_round_seat seat; /* as told last */
    uint64_t asked; /* OPENING: the session; JOINED: the watch, or a look at the seat; 0: nothing */

    struct part member;
    struct ddp_round_member says;
    struct part node;
    char *description;

    void (*left)(void *data);
    void *left_data;
    uint64_t leave_until_ms;
    void (*closed)(void *data);
    void *closed_data;
};

static void key_of(const ddp_round *round, const char *kind, char key[KEY_SIZE])
{
    snprintf(key, KEY_SIZE, DDPI_ROUND_PREFIX "%s/%s/%" PRIu64, round->job, kind, round->id);
}

static ddp_status ask(ddp_round *round, struct ddp_store_request request, ddp_store_uv_done *done,
                      uint64_t *ret_request, struct ddp_error *err)
{
    request.size = sizeof request;
    request.timeout_ms = DDP_STORE_FOREVER;
    return ddp_store_uv_submit(round->store, &request, done, round, ret_request, err);
}

/* An answer that nobody waits for: the membership that asked is over, or so is @round. */
static bool is_stale(const ddp_round *round, const struct ddp_store_result *result, uint64_t asked)
{
    return round->closing || result->request != asked;
}

static uint64_t now_ms(void)
{
    return ddpi_now_ms(&ddpi_clock_monotonic);
}

/* --- being lost --- */

static void forget(ddp_round *round)
{
    struct ddp_store_request unwatch = {
        .size = sizeof unwatch, .op = DDP_STORE_OP_UNWATCH, .watch = round->watch};
    if (round->watch != 0)
        (void)!ddp_store_uv_submit(round->store, &unwatch, NULL, NULL, NULL, NULL);
    round->watch = round->asked = round->member.request = round->node.request = 0;
    round->member.due = false;
    round->node.due = round->description != NULL;
    round->seat = (struct ddp_round_seat){0};
}

/* It is asked for no answer: if it does not arrive, the lease ends the session. */
static void close_session(ddp_round *round)
{
    const struct ddp_store_request close = {.size = sizeof close,
                                            .op = DDP_STORE_OP_SESSION_CLOSE,
                                            .timeout_ms = round->lease_ms,
                                            .session = &round->session};
    (void)!ddp_store_uv_submit(round->store, &close, NULL, NULL, NULL, NULL);
}

static void lose(ddp_round *round, const char *why)
{
    if (round->sm.state == ROUND_ABSENT || round->sm.state == ROUND_LEFT || round->closing)
        return;
    if (round->sm.state == ROUND_JOINED)
        close_session(round);
    ddpi_sm_move(&round->sm, ROUND_ABSENT);
    forget(round);
    round->hooks.lost(round->hooks.data, why);
}

/* --- seats --- */

static void take_seat(ddp_round *round, const void *record, size_t len)
{
    struct ddp_round_seat seat;
    struct ddp_error err;
    if (ddpi_round_seat_get(ddpi_bytes_of(record, len), &seat, &err) != DDP_OK) {
        lose(round, err.msg);
        return;
    }
    if (seat.master_address[0] == '\0')
        memcpy(seat.master_address, round->host, sizeof seat.master_address);
    if (memcmp(&seat, &round->seat, sizeof seat) == 0)
        return;
    round->seat = seat;
    round->hooks.seat(round->hooks.data, &seat);
}

static void on_looked(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    if (is_stale(round, result, round->asked))
        return;
    round->asked = 0;
    if (result->status == DDP_OK)
        take_seat(round, result->value, result->value_len);
    else if (result->status != DDP_E_NOT_FOUND) /* else it has not been given any */
        lose(round, result->message);
}

/* Changes of it were missed. */
static void look_at_seat(ddp_round *round)
{
    char key[KEY_SIZE];
    struct ddp_error err;
    key_of(round, "seat", key);
    if (ask(round, (struct ddp_store_request){.op = DDP_STORE_OP_TRY_GET, .key = key}, on_looked,
            &round->asked, &err) != DDP_OK)
        lose(round, err.msg);
}

static void on_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    ddp_round *round = data;
    (void)store;
    if (round->sm.state != ROUND_JOINED || event->watch != round->watch)
        return;
    if (event->kind == DDP_STORE_EVENT_SET)
        take_seat(round, event->value, event->value_len);
    else if (event->kind == DDP_STORE_EVENT_DELETED)
        lose(round, "the server has given this member up");
    else if (event->value_len > 0)
        lose(round, event->value);
    else
        look_at_seat(round);
}

/* --- what is published --- */

static void go_on(ddp_round *round);

static void took(ddp_round *round, struct part *part, const struct ddp_store_result *result)
{
    if (is_stale(round, result, part->request))
        return;
    part->request = 0;
    if (result->status == DDP_E_CLOSED)
        part->due = true; /* it may have arrived, or not */
    else if (result->status != DDP_OK)
        lose(round, result->message);
    go_on(round);
}

static void on_member_set(void *data, const struct ddp_store_result *result)
{
    took(data, &((ddp_round *)data)->member, result);
}

static void on_node_set(void *data, const struct ddp_store_result *result)
{
    took(data, &((ddp_round *)data)->node, result);
}

static ddp_status set(ddp_round *round, struct part *part, struct ddpi_bytes value,
                      ddp_store_uv_done *done, struct ddp_error *err)
{
    char key[KEY_SIZE];
    key_of(round, part->kind, key);
    ddp_status status = ask(round,
                            (struct ddp_store_request){.op = DDP_STORE_OP_SET_EPHEMERAL,
                                                       .key = key,
                                                       .value = value.data,
                                                       .value_len = value.len,
                                                       .session = &round->session},
                            done, &part->request, err);
    part->due = status != DDP_OK;
    return status;
}

/* The address from which the store is reached. */
static void own_address(const ddp_round *round, char *text, size_t size)
{
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof name;
    char host[DDPI_ADDRESS_CHARS];
    int fd = ddp_store_uv_socket(round->store);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&name, &len) != 0)
        return;
    struct ddpi_address address = ddpi_address_of((const struct sockaddr *)&name);
    ddpi_address_format(&address, host);
    snprintf(text, size, "%s", host);
}

static ddp_status send_member(ddp_round *round, struct ddp_error *err)
{
    struct ddp_round_member member = round->says;
    struct ddpi_buf record;
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    if (member.address[0] == '\0')
        own_address(round, member.address, sizeof member.address);
    ddp_status status = ddpi_round_member_put(&record, &member, err);
    if (status == DDP_OK)
        status =
            set(round, &round->member, ddpi_bytes_of(ddpi_buf_head(&record), ddpi_buf_len(&record)),
                on_member_set, err);
    ddpi_buf_finish(&record);
    return status;
}

/* Send what is due. With no connection it waits here, where the next publication replaces it. */
static ddp_status send_due(ddp_round *round, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (!round->connected)
        return DDP_OK;
    if (round->member.due && round->member.request == 0)
        status = send_member(round, err);
    if (status == DDP_OK && round->node.due && round->node.request == 0)
        status =
            set(round, &round->node, ddpi_bytes_of(round->description, strlen(round->description)),
                on_node_set, err);
    return status;
}

/* --- joining --- */

static void on_watched(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    if (is_stale(round, result, round->asked))
        return;
    round->asked = 0;
    if (result->status == DDP_OK)
        round->watch = result->watch;
    else
        lose(round, result->message);
}

static ddp_status watch_seat(ddp_round *round, struct ddp_error *err)
{
    char key[KEY_SIZE];
    key_of(round, "seat", key);
    return ask(round, (struct ddp_store_request){.op = DDP_STORE_OP_WATCH, .key = key}, on_watched,
               &round->asked, err);
}

/* A session's token begins with its number (proto.def). */
static uint64_t number_of(const struct ddp_store_session *session)
{
    struct ddpi_rd rd = ddpi_rd_of(session->token, sizeof session->token);
    return ddpi_rd_u64(&rd);
}

static void on_opened(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    if (is_stale(round, result, round->asked))
        return;
    round->asked = 0;
    struct ddp_error err;
    if (result->status == DDP_E_CLOSED) { /* if one was opened, nobody knows it */
        ddpi_sm_move(&round->sm, ROUND_ABSENT);
    } else if (result->status != DDP_OK) {
        lose(round, result->message);
    } else {
        round->session = *result->session;
        round->id = number_of(&round->session);
        ddpi_sm_move(&round->sm, ROUND_JOINED);
        if (watch_seat(round, &err) != DDP_OK)
            lose(round, err.msg);
    }
    go_on(round);
}

static ddp_status open_session(ddp_round *round, struct ddp_error *err)
{
    ddp_status status = ask(round,
                            (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_OPEN,
                                                       .lease_ms = round->lease_ms,
                                                       .flags = DDP_STORE_HOLD},
                            on_opened, &round->asked, err);
    if (status == DDP_OK)
        ddpi_sm_move(&round->sm, ROUND_OPENING);
    return status;
}

/* Ask for what comes next; if that fails, it is due all the same. */
static ddp_status kick(ddp_round *round, struct ddp_error *err)
{
    if (round->sm.state == ROUND_ABSENT && round->member.due)
        return open_session(round, err);
    return round->sm.state == ROUND_JOINED ? send_due(round, err) : DDP_OK;
}

static void go_on(ddp_round *round)
{
    struct ddp_error err;
    if (!round->closing && kick(round, &err) != DDP_OK)
        lose(round, err.msg);
}

/* --- hooks of the client --- */

static void on_state(void *data, ddp_store_uv *store, enum ddp_store_uv_state state,
                     const char *why)
{
    ddp_round *round = data;
    (void)store;
    if (round->closing)
        return;
    round->connected = state == DDP_STORE_UV_CONNECTED;
    go_on(round);
    if (!round->closing)
        round->hooks.state(round->hooks.data, state, why);
}

static bool is_own(const ddp_round *round, const struct ddp_store_session *session)
{
    return round->sm.state == ROUND_JOINED && !round->closing &&
           memcmp(&round->session, session, sizeof *session) == 0;
}

static void on_session_kept(void *data, ddp_store_uv *store,
                            const struct ddp_store_session *session, uint64_t sent_ms)
{
    ddp_round *round = data;
    (void)store;
    if (is_own(round, session))
        round->hooks.contact(round->hooks.data, sent_ms);
}

static void on_session_ended(void *data, ddp_store_uv *store,
                             const struct ddp_store_session *session)
{
    ddp_round *round = data;
    (void)store;
    if (is_own(round, session))
        lose(round, "the server does not know this member any more: its lease is over, or the "
                    "server has begun anew");
}

/* --- leaving --- */

static void tell_left(ddp_round *round)
{
    void (*left)(void *data) = round->left;
    round->left = NULL;
    if (left != NULL && !round->closing)
        left(round->left_data);
}

static void on_left(void *data, const struct ddp_store_result *result);

/* Ask for something whose answer ends the leaving. */
static void ask_last(ddp_round *round, struct ddp_store_request request)
{
    uint64_t now = now_ms();
    request.size = sizeof request;
    request.timeout_ms = round->leave_until_ms > now ? (uint32_t)(round->leave_until_ms - now) : 0;
    if (ddp_store_uv_submit(round->store, &request, on_left, round, NULL, NULL) != DDP_OK)
        tell_left(round);
}

static void ask_to_leave(ddp_round *round)
{
    ask_last(round, (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_CLOSE,
                                               .session = &round->session});
}

static void on_left(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    if (result->status == DDP_E_CLOSED && now_ms() < round->leave_until_ms && !round->closing)
        ask_to_leave(round); /* the connection was lost */
    else
        tell_left(round);
}

void ddp_round_leave(ddp_round *round, uint32_t timeout_ms, void (*left)(void *data), void *data)
{
    bool joined = round->sm.state == ROUND_JOINED;
    if (round->sm.state == ROUND_LEFT)
        return;
    round->left = left;
    round->left_data = data;
    round->leave_until_ms = now_ms() + timeout_ms;
    if (joined && round->connected && round->member.due)
        (void)send_member(round, NULL);
    if (round->sm.state == ROUND_OPENING)
        (void)ddp_store_uv_cancel(round->store, round->asked);
    ddpi_sm_move(&round->sm, ROUND_LEFT);
    forget(round);
    if (joined) {
        ask_to_leave(round);
        return;
    }
    round->leave_until_ms = 0; /* there is nothing to leave: answered at once, whatever it is */
    ask_last(round, (struct ddp_store_request){.op = DDP_STORE_OP_STATS});
}

/* --- for the caller --- */

static ddp_status check_hooks(const struct ddp_round_hooks *hooks, struct ddp_error *err)
{
    if (hooks == NULL || hooks->size < sizeof *hooks || hooks->size > DDP_STORE_KEY_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "struct ddp_round_hooks has no plausible size; set it to "
                              "sizeof(struct ddp_round_hooks)");
    if (hooks->seat == NULL || hooks->contact == NULL || hooks->lost == NULL ||
        hooks->state == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "a hook of struct ddp_round_hooks is missing");
    return DDP_OK;
}

static ddp_status check(const struct ddp_store_options *options, const char *job, uint32_t lease_ms,
                        const struct ddp_round_hooks *hooks, struct ddp_error *err)
{
    if (options == NULL || options->size < sizeof options->size || options->endpoint == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "no store is given");
    if (job == NULL || !ddpi_job_valid(job, strlen(job)))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' cannot be the name of a job",
                              job != NULL ? job : "");
    if (lease_ms == 0 || lease_ms > DDP_STORE_LEASE_MAX_MS)
        return ddpi_error_set(err, DDP_E_INVALID, "a lease of %u ms; it may have 1 to %d ms",
                              lease_ms, DDP_STORE_LEASE_MAX_MS);
    return check_hooks(hooks, err);
}

/* An agent that sees all keys, whose connection is made again as often as it is lost. */
static ddp_status open_store(ddp_round *round, struct uv_loop_s *loop,
                             const struct ddp_store_options *given, struct ddp_error *err)
{
    struct ddp_store_options options = {0};
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    options.prefix = NULL;
    options.role = DDP_STORE_AGENT;
    options.job = NULL;
    options.epoch = 0;
    options.flags &= ~DDP_STORE_NO_RECONNECT;
    const struct ddp_store_uv_hooks hooks = {.size = sizeof hooks,
                                             .data = round,
                                             .event = on_event,
                                             .state = on_state,
                                             .session_ended = on_session_ended,
                                             .session_kept = on_session_kept};
    return ddp_store_uv_open(loop, &options, &hooks, &round->store, err);
}

ddp_status ddp_round_join(struct uv_loop_s *loop, const struct ddp_store_options *options,
                          const char *job, uint32_t lease_ms, const struct ddp_round_hooks *hooks,
                          ddp_round **ret_round, struct ddp_error *err)
{
    struct ddpi_endpoint endpoint;
    ddp_status status = check(options, job, lease_ms, hooks, err);
    if (status == DDP_OK)
        status = ddpi_parse_endpoint(options->endpoint, &endpoint, err);
    if (status != DDP_OK)
        return status;
    ddp_round *round = ddpi_calloc(1, sizeof(*round));
    if (round == NULL)
        return ddpi_error_nomem(err, sizeof(*round));
    ddpi_sm_init(&round->sm, &round_sm);
    round->hooks = *hooks;
    round->lease_ms = lease_ms;
    round->member.kind = "member";
    round->node.kind = "node";
    memcpy(round->job, job, strlen(job));
    memcpy(round->host, endpoint.host, sizeof round->host);
    status = open_store(round, loop, options, err);
    if (status == DDP_OK)
        *ret_round = round;
    else
        ddpi_free(round);
    return status;
}

static ddp_status check_left(const ddp_round *round, struct ddp_error *err)
{
    if (round->sm.state == ROUND_LEFT || round->closing)
        return ddpi_error_set(err, DDP_E_CLOSED, "this member has left");
    return DDP_OK;
}

ddp_status ddp_round_publish(ddp_round *round, const struct ddp_round_member *member,
                             struct ddp_error *err)
{
    struct ddpi_buf record;
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    ddp_status status = check_left(round, err);
    if (status == DDP_OK)
        status = ddpi_round_member_put(&record, member, err);
    ddpi_buf_finish(&record);
    if (status != DDP_OK)
        return status;
    round->says = *member;
    round->member.due = true;
    return kick(round, err);
}

ddp_status ddp_round_describe(ddp_round *round, const char *text, struct ddp_error *err)
{
    ddp_status status = check_left(round, err);
    if (status != DDP_OK)
        return status;
    if (text == NULL || strlen(text) > DESCRIPTION_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "a description has at most %d bytes",
                              DESCRIPTION_MAX);
    char *description = ddpi_strdup(text);
    if (description == NULL)
        return ddpi_error_nomem(err, strlen(text) + 1);
    ddpi_free(round->description);
    round->description = description;
    round->node.due = true;
    return kick(round, err);
}

int ddp_round_socket(const ddp_round *round)
{
    return ddp_store_uv_socket(round->store);
}

static void on_closed(void *data)
{
    ddp_round *round = data;
    void (*closed)(void *data) = round->closed;
    void *closed_data = round->closed_data;
    ddpi_free(round->description);
    ddpi_free(round);
    if (closed != NULL)
        closed(closed_data);
}

void ddp_round_close(ddp_round *round, void (*closed)(void *data), void *data)
{
    round->closing = true;
    round->closed = closed;
    round->closed_data = data;
    ddp_store_uv_close(round->store, on_closed, round);
}
