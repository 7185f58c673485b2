/*
 * membership.c - passes events between agent, member and link, and runs the member's timer. It
 * decides nothing: member.c does. Workers tend to end together, so their status is published after
 * a short delay.
 */
#include "membership.h"

#include "clock.h"
#include "exit_codes.h"
#include "guard.h"
#include "worker_status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    STATUS_DELAY_MS = 20,
    STATUS_TEXT_MAX = 64 * 1024, /* workers whose lines do not fit are left out */
};

/* ---- time ---- */

static void on_member_deadline(uv_timer_t *timer);

/* The time @before_ms before the end of the lease; 0: no worker runs, or there is no lease. */
static uint64_t fence_at(const struct member *member, uint32_t before_ms)
{
    bool fenced = member->lease_ms != 0 &&
                  (member->sm.state == MEMBER_RUNNING || member->sm.state == MEMBER_ENDING);
    return fenced ? ddpi_deadline(member->contact_ms, member->lease_ms - before_ms) : 0;
}

/* The guard acts between the member's own deadline and the end of the lease: by then this process
 * must have been stopped itself. Workers act last: by then the guard must have been stopped,
 * too. */
static void keep_fence(struct membership *membership)
{
    const struct member *member = &membership->member;
    const struct guard_agent *guard = membership->agent.config->guard;
    uint32_t margin_ms = member_margin_ms(member->lease_ms);
    if (guard != NULL)
        guard_set_fence(guard, fence_at(member, margin_ms / 2));
    death_watch_set_fence(&membership->agent.death_watch, fence_at(member, margin_ms / 4));
}

/* To be called after every event of the member. */
static void update_deadline(struct membership *membership)
{
    if (membership->member.sm.state == MEMBER_WAITING ||
        membership->member.sm.state == MEMBER_CHECKING)
        events_meeting(&membership->events);

    uint64_t now = ddpi_monotonic_ms(), deadline = member_deadline(&membership->member);
    keep_fence(membership);
    if (deadline == UINT64_MAX)
        uv_timer_stop(&membership->timer);
    else
        uv_timer_start(&membership->timer, on_member_deadline, deadline > now ? deadline - now : 0,
                       0);
}

static void on_member_deadline(uv_timer_t *timer)
{
    struct membership *membership = timer->data;
    member_tick(&membership->member, ddpi_monotonic_ms());
    update_deadline(membership);
}

/* ---- hooks of the member ---- */

static bool several_nodes(const struct membership *membership)
{
    return membership->member.says.terms.max_nodes > 1;
}

static void say_ranks(struct agent *agent, const struct ddp_round_seat *seat)
{
    char ranks[48];
    uint32_t first = seat->first_rank, nproc = agent->config->nproc;
    if (nproc == 1)
        snprintf(ranks, sizeof ranks, "worker is rank %u", first);
    else
        snprintf(ranks, sizeof ranks, "workers are ranks %u to %u", first, first + nproc - 1);
    logmux_note(&agent->mux, "generation %" PRIu64 ": this node is %u of %u, its %s of %u",
                seat->generation, seat->node_rank, seat->nodes, ranks, seat->world_size);
}

static void say_start(struct membership *membership, const struct ddp_round_seat *seat)
{
    struct agent *agent = &membership->agent;
    uint32_t nproc = agent->config->nproc;
    if (agent->attempts > 0 && seat->restarts > agent->seat.restarts)
        logmux_note(&agent->mux, "starting %s%u worker%s again (restart %u of %u)",
                    seat->world_size == 1 ? "" : "all ", seat->world_size,
                    seat->world_size == 1 ? "" : "s", seat->restarts, agent->config->max_restarts);
    if (several_nodes(membership))
        say_ranks(agent, seat);
    logmux_detail(&agent->mux, "job '%s', with its store at %s: starting %u worker%s of '%s'",
                  agent->config->run_id, agent->config->store, nproc, nproc == 1 ? "" : "s",
                  agent->config->program);
}

/* Two jobs without a name at one store are one. So are the nodes of one job whose arguments
 * differ. */
static void say_other_command(struct membership *membership, const struct ddp_round_seat *seat)
{
    if (seat->text[0] == '\0' || strcmp(seat->text, membership->other_command) == 0)
        return;
    memcpy(membership->other_command, seat->text, sizeof membership->other_command);
    logmux_say(&membership->agent.mux,
               "%s and this node '%s', in one job without a name; if these are two jobs, give each "
               "its own --rdzv-id=NAME",
               seat->text, membership->member.says.command);
}

static void on_member_start(void *ctx, const struct ddp_round_seat *seat)
{
    struct membership *membership = ctx;
    say_start(membership, seat);
    say_other_command(membership, seat);
    membership->waiting[0] = '\0';
    events_seated(&membership->events, seat);
    keep_fence(membership); /* before a worker runs */
    agent_run(&membership->agent, seat);
}

static void on_member_stop(void *ctx, enum member_stop how, const char *why)
{
    struct membership *membership = ctx;
    if (how != MEMBER_STOP_ORDERLY && !membership->member.leaving)
        events_failure(&membership->events, why);
    events_ending(&membership->events, why);
    bool news = !membership->member.leaving && strcmp(why, membership->reported) != 0;
    if (news && *why != '\0')
        logmux_say(&membership->agent.mux, "%s %u worker%s: %s",
                   how == MEMBER_STOP_KILL ? "killing" : "stopping", membership->agent.alive,
                   membership->agent.alive == 1 ? "" : "s", why);
    agent_stop(&membership->agent, how);
}

static void on_member_publish(void *ctx, const struct ddp_round_member *says)
{
    struct membership *membership = ctx;
    membership->link.publish(membership->link.ctx, says);
}

static void say_over(struct membership *membership, int exit_code, const char *why)
{
    struct agent *agent = &membership->agent;
    const struct agent_config *config = agent->config;
    const char *reported = membership->reported;
    bool told = strncmp(why, reported, sizeof membership->reported - 1) == 0; /* it was cut */
    bool well = exit_code == 0 && agent->attempts > 0 && agent->cause == AGENT_CAUSE_NONE;
    bool waited = exit_code == EXIT_UNREACHABLE || exit_code == EXIT_TRY_AGAIN;
    if (!told && !well && *why != '\0' && waited && several_nodes(membership))
        logmux_say(&agent->mux, "%s (job '%s' at %s)", why, config->run_id, config->store);
    else if (!told && !well && *why != '\0')
        logmux_say(&agent->mux, "%s", why);
    if (agent->cause == AGENT_CAUSE_WORKER && config->max_restarts > 0 &&
        agent->seat.restarts == config->max_restarts)
        logmux_say(&agent->mux, "giving up after %u restart%s (--max-restarts=%u)",
                   agent->seat.restarts, agent->seat.restarts == 1 ? "" : "s",
                   config->max_restarts);
    const struct ddp_round_terms *terms = &membership->member.says.terms;
    if (agent->cause == AGENT_CAUSE_WORKER && config->max_restarts == 0 &&
        terms->min_nodes < terms->max_nodes)
        logmux_say(&agent->mux, "no restart: --max-restarts is 0");
}

static void on_member_over(void *ctx, int exit_code, const char *why)
{
    struct membership *membership = ctx;
    say_over(membership, exit_code, why);
    logmux_detail(&membership->agent.mux, "the job is over: exit code %d", exit_code);
    events_over(&membership->events, exit_code, why);
    membership->link.leave(membership->link.ctx);
    agent_end(&membership->agent, exit_code);
}

static void on_member_check(void *ctx)
{
    struct membership *membership = ctx;
    agent_check(&membership->agent);
}

static void on_member_end_check(void *ctx)
{
    struct membership *membership = ctx;
    agent_end_check(&membership->agent);
}

/* ---- the status of the workers ---- */

static void on_status_timer(uv_timer_t *timer)
{
    struct membership *membership = timer->data;
    const struct agent *agent = &membership->agent;
    struct worker_status worker;
    struct ddpi_buf text;
    bool written = true;
    ddpi_buf_init(&text, STATUS_TEXT_MAX + 1);
    for (uint32_t i = 0; i < agent->config->nproc && written; i++)
        if (worker_proc_describe(&agent->workers[i], &worker))
            written = ddpi_buf_len(&text) <= STATUS_TEXT_MAX - WORKER_STATUS_LINE_MAX &&
                      worker_status_put(&text, &worker);
    if (ddpi_buf_put_u8(&text, '\0'))
        membership->link.describe(membership->link.ctx, (const char *)ddpi_buf_head(&text));
    ddpi_buf_finish(&text);
}

static void publish_status_soon(struct membership *membership)
{
    uv_timer_t *timer = &membership->status_timer;
    if (membership->link.describe != NULL && !uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, on_status_timer, STATUS_DELAY_MS, 0);
}

/* ---- hooks of the agent ---- */

static void on_agent_started(void *ctx)
{
    struct membership *membership = ctx;
    events_started(&membership->events);
    logmux_detail(&membership->agent.mux, "all workers of this node have been started");
    member_started(&membership->member);
    publish_status_soon(membership);
}

static void on_agent_changed(void *ctx)
{
    publish_status_soon(ctx);
}

static void on_agent_failed(void *ctx, const struct ddp_round_failure *failure)
{
    struct membership *membership = ctx;
    memcpy(membership->reported, failure->text, sizeof membership->reported);
    events_failure(&membership->events, failure->text);
    if (failure->final && several_nodes(membership)) /* only this node cannot run */
        member_leave(&membership->member, failure->exit_code, failure->text, MEMBER_STOP_FAILED);
    else
        member_failed(&membership->member, failure);
    update_deadline(membership);
}

static void on_agent_ended(void *ctx, bool well)
{
    struct membership *membership = ctx;
    events_terminated(&membership->events);
    if (well)
        member_finished(&membership->member, ddpi_monotonic_ms());
    else
        member_cleared(&membership->member, ddpi_monotonic_ms());
    publish_status_soon(membership);
    update_deadline(membership);
}

static void on_agent_checked(void *ctx, const char *why)
{
    struct membership *membership = ctx;
    if (!membership->member.leaving)
        events_checked(&membership->events, why);
    if (*why == '\0')
        logmux_detail(&membership->agent.mux, "this node has passed its check");
    member_checked(&membership->member, why, ddpi_monotonic_ms());
    update_deadline(membership);
}

static void on_agent_leave(void *ctx, int exit_code, const char *why, enum member_stop how)
{
    struct membership *membership = ctx;
    if (!ddpi_sm_final(&membership->member.sm))
        member_leave(&membership->member, exit_code, why, how);
    else if (membership->link.hurry != NULL)
        membership->link.hurry(membership->link.ctx);
    update_deadline(membership);
}

static void on_agent_done(void *ctx, int exit_code)
{
    struct membership *membership = ctx;
    membership->link.done(membership->link.ctx, exit_code);
}

/* ---- events of the rounds ---- */

static void log_waiting(struct membership *membership, const struct ddp_round_seat *seat)
{
    if (seat->order != DDP_ROUND_WAIT || seat->text[0] == '\0' ||
        strcmp(seat->text, membership->waiting) == 0)
        return;
    memcpy(membership->waiting, seat->text, sizeof membership->waiting);
    if (seat->left_out) {
        events_left_out(&membership->events, seat->text);
        logmux_say(&membership->agent.mux,
                   "this node is %s; 'ddpctl admit %s %s' lets it come back", seat->text,
                   membership->agent.config->run_id, membership->member.says.name);
        return;
    }
    const struct agent_config *config = membership->agent.config;
    if (seat->pausing || !several_nodes(membership))
        logmux_note(&membership->agent.mux, "%s", seat->text);
    else
        logmux_note(&membership->agent.mux, "%s (job '%s' at %s)", seat->text, config->run_id,
                    config->store);
}

static void log_notice(struct membership *membership, const struct ddp_round_seat *seat)
{
    const size_t most = sizeof membership->notices / sizeof *membership->notices;
    if (seat->order != DDP_ROUND_WAIT || seat->notice[0] == '\0' ||
        membership->notice_count == most)
        return;
    for (unsigned i = 0; i < membership->notice_count; i++)
        if (strcmp(membership->notices[i], seat->notice) == 0)
            return;
    memcpy(membership->notices[membership->notice_count++], seat->notice, sizeof seat->notice);
    logmux_say(&membership->agent.mux, "%s", seat->notice);
}

/* The generation that this node ran last ends because of a failure on another node. */
static bool reports_failure(const struct membership *membership, const struct ddp_round_seat *seat)
{
    return seat->order == DDP_ROUND_STOP && seat->failed && membership->agent.attempts > 0 &&
           seat->generation == membership->agent.seat.generation;
}

void membership_seat(struct membership *membership, const struct ddp_round_seat *seat)
{
    log_waiting(membership, seat);
    log_notice(membership, seat);
    if (seat->order == DDP_ROUND_WAIT)
        agent_wait(&membership->agent);
    if (reports_failure(membership, seat))
        events_failure(&membership->events, seat->text);
    else if (membership->member.sm.state == MEMBER_FINISHED)
        events_ending(&membership->events, seat->text);
    member_seat(&membership->member, seat, ddpi_monotonic_ms());
    update_deadline(membership);
}

void membership_contact(struct membership *membership, uint64_t sent_ms)
{
    member_contact(&membership->member, sent_ms, ddpi_monotonic_ms());
    update_deadline(membership);
}

void membership_dropped(struct membership *membership, const char *why)
{
    if (membership->member.sm.state == MEMBER_FINISHED)
        events_failure(&membership->events, why);
    if (membership->member.sm.state == MEMBER_WAITING && membership->member.dropped_why[0] == '\0')
        logmux_say(&membership->agent.mux, "%s; this node joins again", why);
    member_dropped(&membership->member, why, ddpi_monotonic_ms());
    update_deadline(membership);
}

void membership_disconnected(struct membership *membership, const char *why)
{
    member_disconnected(&membership->member, why);
}

void membership_leave(struct membership *membership, int exit_code, const char *why)
{
    if (!membership->member.leaving && !ddpi_sm_final(&membership->member.sm)) {
        logmux_say(&membership->agent.mux, "%s", why); /* the member cuts it */
        snprintf(membership->reported, sizeof membership->reported, "%s", why);
    }
    on_agent_leave(membership, exit_code, why, MEMBER_STOP_KILL);
}

void membership_say(struct membership *membership, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    logmux_vsay(&membership->agent.mux, format, args);
    va_end(args);
}

void membership_note(struct membership *membership, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    logmux_vnote(&membership->agent.mux, format, args);
    va_end(args);
}

/* ---- opening and closing ---- */

ddp_status membership_init(struct membership *membership, uv_loop_t *loop,
                           const struct agent_config *agent, const struct member_config *member,
                           const struct membership_link *link, struct ddp_error *err)
{
    membership->link = *link;
    uv_timer_init(loop, &membership->timer);
    membership->timer.data = membership;
    uv_timer_init(loop, &membership->status_timer);
    membership->status_timer.data = membership;
    const struct member_hooks of_member = {.ctx = membership,
                                           .start = on_member_start,
                                           .stop = on_member_stop,
                                           .check =
                                               agent->node_check != NULL ? on_member_check : NULL,
                                           .end_check = on_member_end_check,
                                           .publish = on_member_publish,
                                           .over = on_member_over};
    const struct agent_hooks of_agent = {.ctx = membership,
                                         .started = on_agent_started,
                                         .changed = on_agent_changed,
                                         .failed = on_agent_failed,
                                         .ended = on_agent_ended,
                                         .checked = on_agent_checked,
                                         .leave = on_agent_leave,
                                         .done = on_agent_done};
    member_init(&membership->member, member, &of_member);
    membership->member.says.nproc = agent->nproc;
    events_init(&membership->events, agent->event_log, &membership->agent.mux, agent->run_id,
                agent->host);
    return agent_init(&membership->agent, loop, agent, &of_agent, err);
}

void membership_start(struct membership *membership)
{
    member_join(&membership->member, ddpi_monotonic_ms());
    update_deadline(membership);
}

void membership_close(struct membership *membership)
{
    uv_timer_t *const timers[] = {&membership->timer, &membership->status_timer};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++)
        if (!uv_is_closing((uv_handle_t *)timers[i]))
            uv_close((uv_handle_t *)timers[i], NULL);
    agent_close(&membership->agent);
}

void membership_finish(struct membership *membership)
{
    agent_finish(&membership->agent);
}
