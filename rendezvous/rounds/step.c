/*
 * step.c - the round machine's conclusions from the facts noted: when a generation begins, when it
 * must stop, and when the job is over. Owns nothing.
 */
#include "exit_codes.h"
#include "rounds_impl.h"

#include <string.h>

enum {
    PROVEN_MS = 10 * 1000 /* a generation that ran for that long speaks for its nodes */
};

/* ---- moves ---- */

/* The time since the cause of the recovery, at least 1, as 0 means "not yet". */
static uint64_t since_cause(const struct ddpi_rounds *rounds, uint64_t now_ms)
{
    if (!rounds->recovering)
        return 0;
    return now_ms > rounds->recovery_ms ? now_ms - rounds->recovery_ms : 1;
}

static void enter_state(struct ddpi_rounds *rounds, enum ddpi_rounds_state to)
{
    ddpi_sm_move(&rounds->sm, to);
    rounds->settle_ms = UINT64_MAX;
    rounds->checkpoint = false;
    rounds->retell = true;
}

/* rounds->reason says why. */
static void stop_generation(struct ddpi_rounds *rounds, bool failed, uint64_t now_ms)
{
    rounds->failed = failed;
    rounds->proven = now_ms - rounds->begun_ms >= PROVEN_MS;
    if (!failed && rounds->proven) /* what failed before has worked since */
        memset(rounds->streaks, 0, sizeof rounds->streaks);
    rounds->recovering = true;
    rounds->recovery_ms = now_ms;
    rounds->idle_ms = rounds->seated_ms = rounds->running_ms = 0;
    rounds->pause_ms = 0;
    enter_state(rounds, ROUNDS_STOPPING);
}

/* The job ends, now or when all members are idle. rounds->reason says why. */
static void set_verdict(struct ddpi_rounds *rounds, int32_t exit_code)
{
    rounds->closing = true;
    rounds->exit_code = exit_code;
}

static void enter_closed(struct ddpi_rounds *rounds)
{
    if (rounds->exit_code < 0)
        rounds->exit_code = EXIT_FAILED;
    enter_state(rounds, ROUNDS_CLOSED);
}

/* The first member with @trait; NULL: there is none. */
static const struct round_member *first_with_trait(const struct ddpi_rounds *rounds,
                                                   enum round_trait trait)
{
    ddpi_list_for_each (at, &rounds->members)
        if (ddpi_rounds_member_of(at)->traits >> trait & 1)
            return ddpi_rounds_member_of(at);
    return NULL;
}

/* ---- forming ---- */

static void begin_generation(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    struct ddp_error err = {0};
    if (ddpi_rounds_seat_all(rounds, &err) != DDP_OK) {
        ddpi_rounds_say(rounds->reason, "generation %llu could not begin: %s",
                        (unsigned long long)rounds->last + 1, err.msg);
        set_verdict(rounds, EXIT_FAILED);
        enter_closed(rounds);
        return;
    }
    rounds->seated_ms = since_cause(rounds, now_ms);
    rounds->begun_ms = now_ms;
    enter_state(rounds, ROUNDS_RUNNING);
}

static void close_too_few(struct ddpi_rounds *rounds)
{
    uint32_t here = rounds->count[ROUND_WILLING];
    ddpi_rounds_say(rounds->reason, "node %s %s, and %u of at least %u node%s %s left",
                    rounds->departed.node, rounds->departed.drained ? "was drained" : "has left",
                    here, ddpi_rounds_min(rounds), ddpi_rounds_min(rounds) == 1 ? "" : "s",
                    here == 1 ? "is" : "are");
    ddpi_rounds_say_left_out(rounds, rounds->reason);
    set_verdict(rounds, rounds->departed.drained ? EXIT_STOPPED : EXIT_LEFT);
    enter_closed(rounds);
}

/* If the node of a job of one node is left out, no other can come in its place: it is in the
 * process of its machine. What a check has found does not change; a failure is the job's result, as
 * without quarantine. */
static void close_left_out(struct ddpi_rounds *rounds)
{
    const struct round_member *member = first_with_trait(rounds, ROUND_LEFT_OUT);
    char why[DDP_ROUND_TEXT_SIZE];
    if (member == NULL)
        return;
    (void)ddpi_rounds_why_left_out(rounds, member, why);
    ddpi_rounds_say(rounds->reason, "node %s is left out, and the job has no other: %s",
                    member->says.name, why);
    set_verdict(rounds, member->says.sick[0] != '\0' ? EXIT_CONFIG : rounds->exit_code);
    enter_closed(rounds);
}

/* When the members that have come may be seated. Unknown members, of a generation that this machine
 * did not begin, consider themselves lost within one lease of its first step. */
static uint64_t seating_ms(const struct ddpi_rounds *rounds)
{
    uint64_t forgotten_ms = rounds->forgotten ? rounds->born_ms + rounds->terms.lease_ms : 0;
    bool all = rounds->count[ROUND_WILLING] >= ddpi_rounds_max(rounds);
    return rounds->settle_ms == UINT64_MAX || (!all && rounds->settle_ms > forgotten_ms)
               ? rounds->settle_ms
               : forgotten_ms;
}

/* Nothing runs on any member, and each knows whether it is fit. */
static bool all_ready(const struct ddpi_rounds *rounds)
{
    return rounds->count[ROUND_BUSY] == 0 && rounds->count[ROUND_CHECKING] == 0;
}

static void conclude_forming(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    uint32_t here = rounds->count[ROUND_WILLING];
    if (rounds->wish.stop) {
        ddpi_rounds_say(rounds->reason, "stopped by request");
        set_verdict(rounds, EXIT_STOPPED);
        enter_closed(rounds);
    } else if (here < ddpi_rounds_min(rounds)) {
        rounds->settle_ms = UINT64_MAX;
        if (rounds->departed.node[0] != '\0')
            close_too_few(rounds);
        else if (rounds->terms.max_nodes == 1 && rounds->terms.lease_ms == 0)
            close_left_out(rounds);
    } else {
        /* After a failure all survivors are known: there is no one else to wait for. */
        if (rounds->settle_ms == UINT64_MAX)
            rounds->settle_ms = rounds->formed ? now_ms : now_ms + rounds->terms.settle_ms;
        if (all_ready(rounds) && now_ms >= seating_ms(rounds))
            begin_generation(rounds, now_ms);
    }
}

/* ---- running ---- */

static const char *name_with_trait(const struct ddpi_rounds *rounds, enum round_trait trait)
{
    const struct round_member *member = first_with_trait(rounds, trait);
    return member != NULL ? member->says.name : "";
}

/* Whether users want the job to change; puts into rounds->reason how. */
static bool is_unwanted(struct ddpi_rounds *rounds)
{
    uint32_t min = ddpi_rounds_min(rounds), max = ddpi_rounds_max(rounds);
    if (rounds->wish.stop) {
        ddpi_rounds_say(rounds->reason, "stopped by request");
        set_verdict(rounds, EXIT_STOPPED);
    } else if (rounds->count[ROUND_DRAINED] != 0) {
        ddpi_rounds_say(rounds->reason, "node %s is drained",
                        name_with_trait(rounds, ROUND_DRAINED));
    } else if (rounds->nodes > max) {
        ddpi_rounds_say(rounds->reason, "the job is scaled from %u to at most %u nodes",
                        rounds->nodes, max);
    } else if (rounds->nodes < min) {
        ddpi_rounds_say(rounds->reason, "the job is scaled from %u to at least %u nodes",
                        rounds->nodes, min);
    } else {
        return false;
    }
    return true;
}

/* Whether a member waits, has a free seat, and may join now. */
static bool is_joined(struct ddpi_rounds *rounds)
{
    bool checkpoint = rounds->checkpoint;
    rounds->checkpoint = false;
    if (rounds->count[ROUND_SPARE] == 0 || rounds->nodes >= ddpi_rounds_max(rounds) ||
        rounds->finishing)
        return false;
    if (rounds->terms.join != DDP_ROUND_JOIN_NOW &&
        !(rounds->terms.join == DDP_ROUND_JOIN_CHECKPOINT && checkpoint))
        return false;
    ddpi_rounds_say(rounds->reason, "node %s joins", name_with_trait(rounds, ROUND_SPARE));
    return true;
}

static void conclude_running(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    if (rounds->recovering && rounds->running_ms == 0 &&
        rounds->count[ROUND_UP] == rounds->count[ROUND_SEATED])
        rounds->running_ms = since_cause(rounds, now_ms);
    if (rounds->cause == ROUND_CAUSE_FAILURE) {
        rounds->judging = true;
        stop_generation(rounds, true, now_ms);
    } else if (rounds->cause == ROUND_CAUSE_MEMBER) {
        stop_generation(rounds, rounds->failed, now_ms);
    } else if (rounds->count[ROUND_DONE] == rounds->count[ROUND_SEATED]) {
        ddpi_rounds_say(rounds->reason, "all workers have ended well");
        set_verdict(rounds, 0);
        enter_closed(rounds);
    } else if (is_unwanted(rounds) || is_joined(rounds)) {
        stop_generation(rounds, false, now_ms);
    }
}

/* ---- stopping ---- */

static void judge_failure(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    bool final = rounds->root.known && rounds->root.record.final;
    rounds->judging = false;
    if (rounds->root.known)
        ddpi_rounds_count_failure(rounds, now_ms);
    if (ddpi_rounds_assign_blame(rounds, rounds->root.known) && !final)
        return; /* the next generation goes on without that node: this is no restart */
    bool again = rounds->root.known && !final;
    if (again && !rounds->wish.stop && ddpi_rounds_in_crash_loop(rounds, now_ms)) {
        ddpi_rounds_say_loop(rounds, rounds->reason,
                             rounds->root.record.broken_program ? "its program cannot run as it is"
                                                                : "it would happen again");
        set_verdict(rounds, EXIT_CRASH_LOOP);
    } else if (final || rounds->restarts >= rounds->terms.max_restarts) {
        set_verdict(rounds, rounds->exit_code);
    } else {
        rounds->restarts++;
        rounds->pause_ms = again ? ddpi_rounds_pause_ms(rounds) : 0;
    }
}

/* A failure goes before a wish. */
static void heed_stop(struct ddpi_rounds *rounds)
{
    if (!rounds->wish.stop || rounds->closing || rounds->judging)
        return;
    ddpi_rounds_say(rounds->reason, "stopped by request");
    set_verdict(rounds, EXIT_STOPPED);
}

/* A check that fails would explain the failure that is to be judged, if the job is to go on. */
static bool awaits_checks(const struct ddpi_rounds *rounds)
{
    bool final = rounds->root.known && rounds->root.record.final;
    bool goes_on = rounds->judging && !final && !rounds->wish.stop;
    return goes_on && rounds->count[ROUND_CHECKING] != 0;
}

static void enter_pausing(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    rounds->resume_ms = now_ms + rounds->pause_ms;
    enter_state(rounds, ROUNDS_PAUSING);
}

static void conclude_stopping(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    heed_stop(rounds);
    if (rounds->count[ROUND_ACTIVE] != 0)
        return;
    if (rounds->idle_ms == 0)
        rounds->idle_ms = since_cause(rounds, now_ms);
    if (awaits_checks(rounds))
        return;
    if (rounds->judging)
        judge_failure(rounds, now_ms);
    else
        (void)ddpi_rounds_assign_blame(rounds, false);
    heed_stop(rounds);
    if (rounds->closing)
        enter_closed(rounds);
    else if (rounds->pause_ms != 0)
        enter_pausing(rounds, now_ms);
    else
        enter_state(rounds, ROUNDS_FORMING);
}

/* ---- pausing ---- */

/* FORMING says what follows when too few members are left. */
static void conclude_pausing(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    heed_stop(rounds);
    if (rounds->closing)
        enter_closed(rounds);
    else if (now_ms >= rounds->resume_ms || rounds->count[ROUND_WILLING] < ddpi_rounds_min(rounds))
        enter_state(rounds, ROUNDS_FORMING);
}

/* ---- closed ---- */

static void conclude_closed(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    (void)now_ms;
    if (rounds->count[ROUND_LATE] != 0 && rounds->count[ROUND_LATE] == rounds->by_id.count)
        ddpi_rounds_renew(rounds);
}

/* ---- a server that has started again ---- */

/* The stored state may be of two moments: the server may have ended after it told some members of a
 * generation, or to stop, and before it told the others or stored it. Some members may be gone. */
static void continue_restored(struct ddpi_rounds *rounds)
{
    rounds->restored = false;
    rounds->retell = true;
    if (ddpi_rounds_state(rounds) == ROUNDS_PAUSING)
        ddpi_sm_move(&rounds->sm, ROUNDS_FORMING);
    if (ddpi_rounds_state(rounds) == ROUNDS_FORMING && rounds->count[ROUND_ACTIVE] != 0)
        ddpi_sm_move(&rounds->sm, ROUNDS_RUNNING);
    bool stopped = false;
    ddpi_list_for_each (at, &rounds->members) {
        const struct round_member *member = ddpi_rounds_member_of(at);
        stopped |= member->seated && member->seat.order != DDP_ROUND_RUN &&
                   member->seat.order != DDP_ROUND_END;
        ddpi_rounds_notice(rounds, member, false);
    }
    if (ddpi_rounds_state(rounds) != ROUNDS_RUNNING || rounds->cause != ROUND_NO_CAUSE)
        return;
    if (!stopped && rounds->count[ROUND_SEATED] >= rounds->restored_seated)
        return;
    rounds->cause = ROUND_CAUSE_MEMBER;
    rounds->failed = true;
    ddpi_rounds_say(rounds->reason, "%s",
                    stopped ? "it was being stopped when the server ended"
                            : "a node was lost while the server was away");
}

void ddpi_rounds_step(struct ddpi_rounds *rounds, uint64_t now_ms)
{
    static void (*const conclude[])(struct ddpi_rounds *,
                                    uint64_t) = {[ROUNDS_FORMING] = conclude_forming,
                                                 [ROUNDS_RUNNING] = conclude_running,
                                                 [ROUNDS_STOPPING] = conclude_stopping,
                                                 [ROUNDS_PAUSING] = conclude_pausing,
                                                 [ROUNDS_CLOSED] = conclude_closed};
    if (!rounds->stepped)
        rounds->born_ms = rounds->begun_ms = now_ms;
    rounds->stepped = true;
    if (rounds->restored)
        continue_restored(rounds);
    enum ddpi_rounds_state before;
    do {
        before = ddpi_rounds_state(rounds);
        conclude[before](rounds, now_ms);
    } while (before != ddpi_rounds_state(rounds));
    ddpi_rounds_tell(rounds, now_ms);
    struct ddpi_rounds_summary summary;
    ddpi_rounds_summary(rounds, &summary);
    if (memcmp(&summary, &rounds->summary, sizeof summary) == 0)
        return;
    memcpy(&rounds->summary, &summary, sizeof summary);
    rounds->hooks.changed(rounds->hooks.ctx);
}

uint64_t ddpi_rounds_deadline(const struct ddpi_rounds *rounds)
{
    uint64_t seating = all_ready(rounds) ? seating_ms(rounds) : UINT64_MAX;
    uint64_t next_ms = ddpi_rounds_state(rounds) == ROUNDS_PAUSING ? rounds->resume_ms : seating;
    uint64_t refresh_ms = rounds->stale ? rounds->refresh_ms : UINT64_MAX;
    return next_ms < refresh_ms ? next_ms : refresh_ms;
}
