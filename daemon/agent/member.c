/*
 * member.c - the machine of member.h. Owns the record that this node publishes.
 */
#include "member.h"

#include "clock.h"
#include "exit_codes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

DDPI_SM_DEFINE(member, MEMBER_STATES);

uint32_t member_margin_ms(uint32_t lease_ms)
{
    return lease_ms / 8;
}

void member_init(struct member *member, const struct member_config *config,
                 const struct member_hooks *hooks)
{
    memset(member, 0, sizeof *member);
    ddpi_sm_init(&member->sm, &member_sm);
    member->hooks = *hooks;
    member->says = config->says;
    member->lease_ms = config->lease_ms;
    member->join_timeout_ms = config->join_timeout_ms;
}

static void publish_member(struct member *member)
{
    member->joined = true;
    member->hooks.publish(member->hooks.ctx, &member->says);
}

static void say_phase(struct member *member, enum ddp_round_phase phase, uint64_t generation)
{
    member->says.phase = phase;
    member->says.fenced &= generation == member->says.generation; /* it is of that generation */
    member->says.generation = generation;
    publish_member(member);
}

/* No worker of @generation runs any more: check the node, or wait for a seat. A node that has not
 * joined yet publishes nothing before it knows the result of its check. */
static void become_idle(struct member *member, uint64_t generation, uint64_t now_ms)
{
    bool checks = member->hooks.check != NULL;
    ddpi_sm_move(&member->sm, checks ? MEMBER_CHECKING : MEMBER_WAITING);
    member->waiting_since_ms = now_ms;
    member->says.checking = checks;
    if (member->joined || !checks)
        say_phase(member, DDP_ROUND_IDLE, generation);
    if (checks)
        member->hooks.check(member->hooks.ctx);
}

/* End the workers, even if their grace period is not over. Does nothing if there are none, or if
 * they are being killed. */
static void end_workers(struct member *member, enum member_stop how, const char *why)
{
    if (member->sm.state == MEMBER_RUNNING)
        ddpi_sm_move(&member->sm, MEMBER_ENDING);
    else if (member->sm.state != MEMBER_ENDING || member->killing)
        return;
    member->killing = how == MEMBER_STOP_KILL;
    member->hooks.stop(member->hooks.ctx, how, why);
}

static void enter_over(struct member *member, int exit_code, const char *why)
{
    ddpi_sm_move(&member->sm, MEMBER_OVER);
    member->hooks.over(member->hooks.ctx, exit_code, why);
}

/* This node surely has its ranks: the server has answered within @ms, or there is no lease. */
static bool heard_within(const struct member *member, uint32_t ms, uint64_t now_ms)
{
    return member->lease_ms == 0 ||
           (member->heard && now_ms < ddpi_deadline(member->contact_ms, ms));
}

/* ---- the seat ---- */

/* No worker runs. A seat of an earlier generation is a repetition, and is ignored. A seat counts
 * only if the server answered lately: after a pause of this node it may belong to another one. */
static void follow_while_idle(struct member *member, uint64_t now_ms)
{
    const struct ddp_round_seat *seat = &member->seat;
    bool is_new = seat->generation > member->says.generation;
    /* Workers that start now can be ended before the lease is over. */
    uint32_t safe_ms = member->lease_ms - member_margin_ms(member->lease_ms);
    switch (seat->order) {
    case DDP_ROUND_END:
        enter_over(member, seat->exit_code, seat->text);
        return;
    case DDP_ROUND_RUN:
        if (!is_new || member->says.sick[0] != '\0' || !heard_within(member, safe_ms, now_ms))
            return;
        ddpi_sm_move(&member->sm, MEMBER_RUNNING);
        say_phase(member, DDP_ROUND_STARTING, seat->generation);
        member->hooks.start(member->hooks.ctx, seat);
        return;
    case DDP_ROUND_STOP:
        if (member->sm.state == MEMBER_FINISHED)
            become_idle(member, seat->generation, now_ms);
        else if (is_new || member->says.phase != DDP_ROUND_IDLE)
            say_phase(member, DDP_ROUND_IDLE, seat->generation);
        return;
    case DDP_ROUND_WAIT:
        if ((member->sm.state == MEMBER_FINISHED && is_new) ||
            (member->hooks.check != NULL && seat->check > member->says.checks))
            become_idle(member, member->says.generation, now_ms);
        return;
    }
}

/* The seat is followed when the check is over (member_checked()). Only END, and STOP of a newer
 * generation, are followed at once. */
static void follow_while_checking(struct member *member)
{
    const struct ddp_round_seat *seat = &member->seat;
    if (seat->order == DDP_ROUND_STOP && seat->generation > member->says.generation)
        say_phase(member, DDP_ROUND_IDLE, seat->generation);
    if (seat->order != DDP_ROUND_END)
        return;
    member->leaving = true;
    member->exit_code = seat->exit_code;
    snprintf(member->why, sizeof member->why, "%s", seat->text);
    member->hooks.end_check(member->hooks.ctx);
}

/* Workers run. Unless the seat is that of their generation they end; the seat says what follows. */
static void follow_while_running(struct member *member)
{
    const struct ddp_round_seat *seat = &member->seat;
    uint64_t running = member->says.generation;
    if (seat->order == DDP_ROUND_RUN && seat->generation == running)
        return;
    if (seat->order == DDP_ROUND_STOP && seat->generation < running)
        return; /* repeated, from an earlier generation */
    bool orderly = seat->order == DDP_ROUND_STOP && !seat->failed;
    end_workers(member, orderly ? MEMBER_STOP_ORDERLY : MEMBER_STOP_FAILED, seat->text);
}

static void member_follow_seat(struct member *member, uint64_t now_ms)
{
    switch (member->sm.state) {
    case MEMBER_WAITING:
    case MEMBER_FINISHED:
        follow_while_idle(member, now_ms);
        break;
    case MEMBER_RUNNING:
        follow_while_running(member);
        break;
    case MEMBER_CHECKING:
        follow_while_checking(member);
        break;
    default: /* ENDING: member_cleared() follows the seat. OVER: nothing follows */
        break;
    }
}

void member_seat(struct member *member, const struct ddp_round_seat *seat, uint64_t now_ms)
{
    if ((member->seat.spare || member->seat.pausing) && !seat->spare && !seat->pausing)
        member->waiting_since_ms = now_ms; /* it needed no seat until now */
    member->seat = *seat;
    member->seat_void = false;
    member->dropped_why[0] = '\0';
    if (!member->leaving)
        member_follow_seat(member, now_ms);
}

/* ---- from the server ---- */

void member_join(struct member *member, uint64_t now_ms)
{
    member->waiting_since_ms = now_ms;
    if (member->hooks.check != NULL)
        become_idle(member, member->says.generation, now_ms);
    else
        publish_member(member);
}

void member_contact(struct member *member, uint64_t sent_ms, uint64_t now_ms)
{
    member->heard = true;
    member->disconnected_why[0] = '\0';
    if (sent_ms > member->contact_ms)
        member->contact_ms = sent_ms;
    if (!member->leaving && !member->seat_void && member->seat.order == DDP_ROUND_RUN)
        member_follow_seat(member, now_ms); /* the lease may be safe only now */
    member_tick(member, now_ms);
}

void member_dropped(struct member *member, const char *why, uint64_t now_ms)
{
    member->seat = (struct ddp_round_seat){.order = DDP_ROUND_WAIT};
    member->seat_void = true;
    snprintf(member->dropped_why, sizeof member->dropped_why, "%s", why);
    member->says.failure = (struct ddp_round_failure){0}; /* it belongs to the lost member */
    end_workers(member, MEMBER_STOP_KILL, why);
    if (member->sm.state == MEMBER_FINISHED) {
        ddpi_sm_move(&member->sm, MEMBER_WAITING);
        member->waiting_since_ms = now_ms;
    }
    if (member->sm.state == MEMBER_WAITING)
        say_phase(member, DDP_ROUND_IDLE, member->says.generation);
}

void member_disconnected(struct member *member, const char *why)
{
    member->dropped_why[0] = '\0';
    snprintf(member->disconnected_why, sizeof member->disconnected_why, "%s", why);
}

/* ---- from the workers ---- */

void member_started(struct member *member)
{
    if (member->sm.state == MEMBER_RUNNING)
        say_phase(member, DDP_ROUND_RUNNING, member->says.generation);
}

void member_failed(struct member *member, const struct ddp_round_failure *failure)
{
    member->says.failure = *failure;
    publish_member(member);
    if (member->sm.state == MEMBER_RUNNING)
        end_workers(member, MEMBER_STOP_FAILED, failure->text);
}

void member_finished(struct member *member, uint64_t now_ms)
{
    ddpi_sm_move(&member->sm, MEMBER_FINISHED);
    say_phase(member, DDP_ROUND_DONE, member->says.generation);
    if (!member->seat_void)
        member_follow_seat(member, now_ms);
}

void member_cleared(struct member *member, uint64_t now_ms)
{
    if (member->leaving) {
        enter_over(member, member->exit_code, member->why);
        return;
    }
    become_idle(member, member->says.generation, now_ms);
    if (!member->seat_void)
        member_follow_seat(member, now_ms);
}

void member_checked(struct member *member, const char *why, uint64_t now_ms)
{
    if (member->sm.state != MEMBER_CHECKING)
        return;
    member->says.checking = false;
    member->says.checks++;
    snprintf(member->says.sick, sizeof member->says.sick, "%s", why);
    if (member->leaving) {
        enter_over(member, member->exit_code, member->why);
        return;
    }
    ddpi_sm_move(&member->sm, MEMBER_WAITING);
    member->waiting_since_ms = now_ms;
    publish_member(member);
    if (!member->seat_void)
        member_follow_seat(member, now_ms);
}

/* ---- leaving ---- */

void member_leave(struct member *member, int exit_code, const char *why, enum member_stop how)
{
    if (member->sm.state == MEMBER_OVER)
        return;
    member->exit_code = exit_code;
    snprintf(member->why, sizeof member->why, "%s", why);
    if (!member->leaving) {
        member->leaving = member->says.leaving = true;
        if (member->joined)
            publish_member(member);
    }
    if (member->sm.state == MEMBER_RUNNING || member->sm.state == MEMBER_ENDING)
        end_workers(member, how, why);
    else if (member->sm.state == MEMBER_CHECKING)
        member->hooks.end_check(member->hooks.ctx);
    else
        enter_over(member, exit_code, why);
}

/* ---- time ---- */

uint64_t member_deadline(const struct member *member)
{
    const struct ddp_round_seat *seat = &member->seat;
    bool waits = !member->seat_void && seat->order == DDP_ROUND_WAIT;
    bool left_out = !member->seat_void && seat->left_out;
    switch (member->sm.state) {
    case MEMBER_RUNNING:
    case MEMBER_ENDING: /* the grace period must not outlast the lease */
        if (member->lease_ms == 0 || (member->sm.state == MEMBER_ENDING && member->killing))
            return UINT64_MAX;
        return ddpi_deadline(member->contact_ms,
                             member->lease_ms - member_margin_ms(member->lease_ms));
    case MEMBER_WAITING:
        /* A spare may wait for any time: the job runs without it. A pause ends by itself. */
        if (member->leaving || member->join_timeout_ms == 0 ||
            (waits && (seat->spare || seat->pausing)))
            return UINT64_MAX;
        /* One that is left out waits longer: so the others, when they give up, can say so. */
        return ddpi_deadline(member->waiting_since_ms,
                             member->join_timeout_ms +
                                 (left_out ? member->join_timeout_ms / 8 : 0));
    case MEMBER_FINISHED:
        if (member->lease_ms == 0 || member->join_timeout_ms == 0)
            return UINT64_MAX;
        return ddpi_deadline(member->contact_ms, member->join_timeout_ms);
    default:
        return UINT64_MAX;
    }
}

static void give_up(struct member *member, uint64_t now_ms)
{
    char why[DDP_ROUND_TEXT_SIZE];
    double seconds = (double)(now_ms - member->waiting_since_ms) / 1e3;
    if (member->sm.state == MEMBER_FINISHED) {
        snprintf(why, sizeof why,
                 "the workers of this node have ended well, but the store has not answered for "
                 "%.0f s, so the result of the other nodes is not known",
                 (double)(now_ms - member->contact_ms) / 1e3);
        enter_over(member, EXIT_UNREACHABLE, why);
    } else if (member->dropped_why[0] != '\0') {
        snprintf(why, sizeof why,
                 "the store has refused this node for %.0f s (--join-timeout): %.190s", seconds,
                 member->dropped_why);
        enter_over(member, EXIT_TRY_AGAIN, why);
    } else if (!heard_within(member, member->lease_ms, now_ms)) {
        snprintf(why, sizeof why,
                 "the store could not be reached for %.0f s (--join-timeout): %.180s", seconds,
                 member->disconnected_why[0] != '\0' ? member->disconnected_why
                                                     : "it does not answer");
        enter_over(member, EXIT_UNREACHABLE, why);
    } else {
        snprintf(why, sizeof why, "no seat in the job after %.0f s (--join-timeout): %.160s",
                 seconds,
                 member->seat.text[0] != '\0' ? member->seat.text : "the store gave no reason");
        enter_over(member, EXIT_TRY_AGAIN, why);
    }
}

void member_tick(struct member *member, uint64_t now_ms)
{
    if (now_ms < member_deadline(member))
        return;
    if (member->sm.state == MEMBER_RUNNING || member->sm.state == MEMBER_ENDING) {
        char why[DDP_ROUND_TEXT_SIZE];
        snprintf(why, sizeof why,
                 "the store has not answered for %" PRIu64 " ms and gives the ranks of this node "
                 "away after %u ms (--lease): its workers must end",
                 now_ms - member->contact_ms, member->lease_ms);
        member->says.fenced |= member->sm.state == MEMBER_RUNNING;
        end_workers(member, MEMBER_STOP_KILL, why);
    } else {
        give_up(member, now_ms);
    }
}
