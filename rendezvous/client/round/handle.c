/*
 * handle.c - a member of the rounds: <ddprun/round.h> on an asynchronous client of the store. Owns
 * that client. The server decides which members get seats (round_keys.h).
 */
#include "client_store.h"
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "round_impl.h"
#include "round_record.h"

#include <string.h>

enum { DESCRIPTION_MAX = 64 * 1024 };

/* ---- hooks of the client ---- */

static void on_store_state(void *data, ddp_store_uv *store, enum ddp_store_uv_state state,
                           const char *why)
{
    ddp_round *round = data;
    (void)store;
    if (round->closing)
        return;
    round->connected = state == DDP_STORE_UV_CONNECTED;
    ddpi_round_go_on(round);
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
        ddpi_round_lose_session(round, "the server no longer knows this member: its lease has "
                                       "expired, or the server was restarted without its state");
}

/* ---- leaving ---- */

static void report_left(ddp_round *round)
{
    void (*left)(void *data) = round->left;
    round->left = NULL;
    if (left != NULL && !round->closing)
        left(round->left_data);
}

/* With the remaining time to leave as its timeout. */
static void submit_leaving(ddp_round *round, struct ddp_store_request request,
                           ddp_store_uv_done *done)
{
    uint64_t now = ddpi_monotonic_ms();
    request.size = sizeof request;
    request.timeout_ms = round->leave_until_ms > now ? (uint32_t)(round->leave_until_ms - now) : 0;
    if (ddp_store_uv_submit(round->store, &request, done, round, NULL, NULL) != DDP_OK)
        report_left(round);
}

static void on_round_left(void *data, const struct ddp_store_result *result);

static void ask_to_leave(ddp_round *round)
{
    submit_leaving(
        round,
        (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_CLOSE, .session = &round->session},
        on_round_left);
}

static void on_round_left(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    if (result->status == DDP_E_CLOSED && ddpi_monotonic_ms() < round->leave_until_ms &&
        !round->closing)
        ask_to_leave(round); /* the connection was lost */
    else
        report_left(round);
}

/* The server acts only after it has read all pending requests. If it read a publication and the end
 * of the session together, the member would look lost. So the session is closed only after the
 * answer to a request that was sent after the publication. */
static void on_publication_read(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    (void)result;
    if (!round->closing)
        ask_to_leave(round);
}

void ddp_round_leave(ddp_round *round, uint32_t timeout_ms, void (*left)(void *data), void *data)
{
    bool joined = round->sm.state == ROUND_JOINED;
    if (round->sm.state == ROUND_LEFT)
        return;
    round->left = left;
    round->left_data = data;
    round->leave_until_ms = ddpi_monotonic_ms() + timeout_ms;
    if (joined && round->connected && round->member.due)
        (void)ddpi_round_send_member(round, NULL);
    bool unheard = joined && round->member.request != 0;
    if (round->sm.state == ROUND_OPENING)
        (void)ddp_store_uv_cancel(round->store, round->asked);
    ddpi_sm_move(&round->sm, ROUND_LEFT);
    ddpi_round_forget(round);
    ddpi_round_end_old(round);
    if (joined && !unheard) {
        ask_to_leave(round);
        return;
    }
    if (!joined)
        round->leave_until_ms = 0; /* nothing to leave: times out at once, so `left` is called */
    submit_leaving(round, (struct ddp_store_request){.op = DDP_STORE_OP_STATS},
                   joined ? on_publication_read : on_round_left);
}

/* ---- public functions ---- */

static ddp_status check_round_hooks(const struct ddp_round_hooks *hooks, struct ddp_error *err)
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

static ddp_status check_join(const struct ddp_store_options *options, const char *job,
                             uint32_t lease_ms, const struct ddp_round_hooks *hooks,
                             struct ddp_error *err)
{
    if (options == NULL || options->size < sizeof options->size || options->endpoint == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "the endpoint of a store is missing");
    if (job == NULL || !ddpi_job_valid(job, strlen(job)))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not a valid job name",
                              job != NULL ? job : "");
    if (lease_ms == 0 || lease_ms > DDP_STORE_LEASE_MAX_MS)
        return ddpi_error_set(err, DDP_E_INVALID, "a lease of %u ms; 1 to %d ms are allowed",
                              lease_ms, DDP_STORE_LEASE_MAX_MS);
    return check_round_hooks(hooks, err);
}

/* An agent that sees all keys, and reconnects whenever the connection is lost. */
static ddp_status open_round_store(ddp_round *round, struct uv_loop_s *loop,
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
                                             .event = ddpi_round_on_event,
                                             .state = on_store_state,
                                             .session_ended = on_session_ended,
                                             .session_kept = on_session_kept};
    ddp_status status = ddp_store_uv_open(loop, &options, &hooks, &round->store, err);
    if (status == DDP_OK)
        ddpi_store_uv_vouch_for(round->store, round->job);
    return status;
}

ddp_status ddp_round_join(struct uv_loop_s *loop, const struct ddp_store_options *options,
                          const char *job, uint32_t lease_ms, const struct ddp_round_hooks *hooks,
                          ddp_round **ret_round, struct ddp_error *err)
{
    ddp_status status = check_join(options, job, lease_ms, hooks, err);
    if (status != DDP_OK)
        return status;
    ddp_round *round = ddpi_calloc(1, sizeof(*round));
    if (round == NULL)
        return ddpi_error_nomem(err, sizeof(*round));
    ddpi_sm_init(&round->sm, &ddpi_round_client_sm);
    round->hooks = *hooks;
    round->lease_ms = lease_ms;
    round->member.kind = "member";
    round->node.kind = "node";
    memcpy(round->job, job, strlen(job));
    status = open_round_store(round, loop, options, err);
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
    return ddpi_round_kick(round, err);
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
    return ddpi_round_kick(round, err);
}

void ddpi_round_pass_events(ddp_round *round,
                            void (*pass)(void *data, const struct ddp_store_event *event),
                            void *data)
{
    round->pass = pass;
    round->pass_data = data;
}

ddp_store_uv *ddpi_round_store(const ddp_round *round)
{
    return round->store;
}

int ddp_round_socket(const ddp_round *round)
{
    return ddp_store_uv_socket(round->store);
}

static void on_store_closed(void *data)
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
    ddp_store_uv_close(round->store, on_store_closed, round);
}
