/*
 * drive.c - the loop of the driver: advance every run that is under way; when nothing moves, spin
 * for a moment, then sleep in ddpi_wait(). Owns nothing. Must not know any algorithm.
 *
 * The clock of a run starts when the driver first sleeps, or looks at its peers (stay_in_touch()).
 * A short operation ends before that, and never reads a clock.
 */
#include "drive.h"

#include "clock.h"
#include "mem.h"
#include "progress_impl.h"
#include "wait.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MOVES_A_LOOK = 32, /* steps that move something, between looks at the clock and at peers */
};

/* ---- one run ---- */

/* run->begun stays false while an edge is not there. */
static ddp_status run_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    ddp_status status = DDP_OK;
    bool ready = true;
    ddpi_recorder_start(comm->recorder, run->task.record);
    if (run->algorithm->uses_ring)
        status = ddpi_seek_ring(comm, &run->wait, &ready);
    if (status != DDP_OK || !ready)
        return status;
    if (run->task.list != NULL)
        status = ddpi_pack(comm, run);
    if (status != DDP_OK)
        return status;
    run->begun = true; /* not before: end() may find no state */
    return run->algorithm->begin != NULL ? run->algorithm->begin(comm, run) : DDP_OK;
}

static ddp_status run_advance(struct ddp_comm *comm, struct ddpi_run *run,
                              enum ddpi_movement *ret_movement)
{
    *ret_movement = DDPI_IDLE;
    ddp_status status = run->begun ? DDP_OK : run_begin(comm, run);
    if (status == DDP_OK && run->begun)
        status = run->algorithm->advance(comm, run, ret_movement);
    run->broken = status != DDP_OK;
    return status;
}

static void run_start_clock(struct ddpi_run *run, uint64_t now)
{
    if (run->wait.deadline_ms != 0)
        return;
    run->wait.started_ms = now;
    run->wait.deadline_ms = ddpi_deadline(now, run->task.timeout_ms);
}

/* Whether this rank may succeed in @run, which is complete. Ranks that share memory have seen each
 * other's failures, and a message concerns two ranks only. In all other cases the notices that have
 * arrived are read first: a rank may have failed in this operation. */
static bool run_may_succeed(struct ddp_comm *comm, const struct ddpi_run *run)
{
    if (run->decided)
        return true;
    return run->algorithm->sees_failures || comm->world_size == 1 ||
                   ddpi_call_shape(&run->task.call)->message
               ? ddpi_comm_may_succeed(comm, &run->task.call)
               : ddpi_notices_may_succeed(comm, &run->wait);
}

/* The communicator has failed. Advance @run as long as what it needs is here; false: it cannot be
 * completed. */
static bool run_finish(struct ddp_comm *comm, struct ddpi_run *run)
{
    enum ddpi_movement movement = DDPI_IDLE;
    bool may_succeed = run->decided || ddpi_comm_may_succeed(comm, &run->task.call);
    if (!run->begun || run->broken || run->algorithm->execute != NULL || !may_succeed)
        return false;
    do {
        if (run_advance(comm, run, &movement) != DDP_OK)
            return false;
    } while (movement == DDPI_MOVED);
    return movement == DDPI_COMPLETE && run_may_succeed(comm, run);
}

/* A rank has failed, maybe in a later operation than @run: then @run may succeed. */
static ddp_status run_finish_after_failure(struct ddp_comm *comm, struct ddpi_run *run)
{
    if (run_finish(comm, run))
        return DDP_OK;
    ddpi_comm_fail_call(comm, &run->task.call);
    return comm->failed;
}

/* ---- the queue ---- */

struct ddpi_list *ddpi_run_list(struct ddpi_run_queue *queue, const struct ddpi_run *run)
{
    bool takes_turn = run->algorithm->takes_turn || run->algorithm->execute != NULL;
    return ddpi_call_shape(&run->task.call)->message && !takes_turn ? &queue->messages
                                                                    : &queue->collectives;
}

static void take_incoming(struct ddpi_run_queue *queue)
{
    if (!atomic_load_explicit(&queue->has_incoming, memory_order_relaxed))
        return;
    pthread_mutex_lock(&queue->lock);
    atomic_store_explicit(&queue->has_incoming, false, memory_order_relaxed);
    ddpi_list_for_each_safe (node, &queue->incoming) {
        struct ddpi_run *run = ddpi_container_of(node, struct ddpi_run, link);
        ddpi_list_remove(node);
        ddpi_list_append(ddpi_run_list(queue, run), node);
    }
    pthread_mutex_unlock(&queue->lock);
}

/* Under the lock. */
static void set_result(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    ddpi_comm_count(comm, &run->task, status);
    run->status = status;
    if (status == DDP_OK && run->task.non_finite != NULL)
        *run->task.non_finite = run->task.found_non_finite;
    if (status == DDP_E_CANCELED && run->cause != NULL)
        snprintf(run->cause, DDP_ERROR_TEXT,
                 "rank %u leaves (ddp_comm_finalize()), and the message has not come", comm->rank);
    else if (status != DDP_OK && run->cause != NULL)
        memcpy(run->cause, comm->cause, sizeof comm->cause);
}

/* Under the lock: nothing counts the run as pending any more. */
static void settle(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    struct ddpi_run_queue *queue = &comm->runs;
    ddpi_list_remove(&run->link);
    set_result(comm, run, status);
    queue->pending--;
    queue->thread_runs -= run->algorithm->execute != NULL;
}

/* end() lets a stream go on, and a thread that has waited for the stream must find the run settled:
 * such a run is settled before end(). Afterwards the run may be freed. Returns whether the lock is
 * still held: only if @keeps_lock, and nobody has to be told. */
static bool run_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status, bool keeps_lock)
{
    struct ddpi_run_queue *queue = &comm->runs;
    bool is_thread_run = run->algorithm->execute != NULL;
    const uint64_t one = 1;
    if (is_thread_run) {
        pthread_mutex_lock(&queue->lock);
        settle(comm, run, status);
        pthread_mutex_unlock(&queue->lock);
    }
    ddp_status before = comm->failed;
    if (run->algorithm->end != NULL)
        run->algorithm->end(comm, run, status);
    if (run->task.list != NULL)
        ddpi_unpack(comm, run, status);
    pthread_mutex_lock(&queue->lock);
    if (!is_thread_run) {
        settle(comm, run, status);
    } else if (status == DDP_OK && run->is_request && before == DDP_OK && comm->failed != DDP_OK) {
        run->status = comm->failed; /* end() has waited for its result in vain */
        if (run->cause != NULL)
            memcpy(run->cause, comm->cause, sizeof comm->cause);
    }
    status = run->status;
    void (*ended)(void *arg, ddp_status) = run->ended;
    void *arg = run->ended_arg;
    if (run->is_request && queue->events >= 0)
        (void)!write(queue->events, &one, sizeof one);
    atomic_store_explicit(&run->done, true, memory_order_release);
    if (queue->sleepers > 0)
        pthread_cond_broadcast(&queue->changed);
    if (keeps_lock && ended == NULL)
        return true;
    pthread_mutex_unlock(&queue->lock);
    if (ended != NULL)
        ended(arg, status);
    return false;
}

static struct ddpi_run *first_collective(const struct ddpi_run_queue *queue)
{
    return ddpi_list_empty(&queue->collectives)
               ? NULL
               : ddpi_container_of(queue->collectives.next, struct ddpi_run, link);
}

static void fail_list(struct ddp_comm *comm, struct ddpi_list *list)
{
    ddpi_list_for_each_safe (node, list) {
        struct ddpi_run *run = ddpi_container_of(node, struct ddpi_run, link);
        run_end(comm, run, run_finish_after_failure(comm, run), false);
    }
}

/* The communicator has failed, and so have all its runs, unless they only have to take what is
 * here. */
static void fail_runs(struct ddp_comm *comm)
{
    take_incoming(&comm->runs);
    fail_list(comm, &comm->runs.messages);
    fail_list(comm, &comm->runs.collectives);
}

/* ---- a turn ---- */

struct turn {
    const struct ddpi_drive_end *end;
    bool is_thread;
    bool moved;
    bool locked; /* the run that the driver waits for has ended, and the lock is held */
};

/* Advance @run, and end it if it is complete. */
static ddp_status advance_or_end(struct ddp_comm *comm, struct ddpi_run *run, struct turn *turn)
{
    enum ddpi_movement movement;
    ddp_status status = run_advance(comm, run, &movement);
    turn->moved |= movement != DDPI_IDLE;
    if (status != DDP_OK || movement < DDPI_COMPLETE)
        return status;
    if (movement == DDPI_GIVEN_UP)
        turn->locked = run_end(comm, run, DDP_E_CANCELED, run == turn->end->run);
    else if (run_may_succeed(comm, run))
        turn->locked = run_end(comm, run, DDP_OK, run == turn->end->run);
    return comm->failed;
}

static ddp_status execute(struct ddp_comm *comm, struct ddpi_run *run)
{
    ddpi_recorder_start(comm->recorder, run->task.record);
    run->begun = true;
    ddp_status status = run->algorithm->execute(comm, run);
    if (status != DDP_OK)
        return status;
    if (run_may_succeed(comm, run))
        run_end(comm, run, DDP_OK, false);
    return comm->failed;
}

static ddp_status advance_runs(struct ddp_comm *comm, struct turn *turn)
{
    struct ddpi_run_queue *queue = &comm->runs;
    ddp_status status = DDP_OK;
    ddpi_list_for_each_safe (node, &queue->messages) {
        status = advance_or_end(comm, ddpi_container_of(node, struct ddpi_run, link), turn);
        if (status != DDP_OK || turn->locked)
            return status;
    }
    struct ddpi_run *first = first_collective(queue);
    if (first == NULL)
        return DDP_OK;
    if (first->algorithm->execute == NULL)
        return advance_or_end(comm, first, turn);
    turn->moved |= turn->is_thread;
    return turn->is_thread ? execute(comm, first) : DDP_OK;
}

/* ---- what runs wait for ---- */

static bool make_room(struct ddp_comm *comm, unsigned wanted)
{
    struct ddpi_run_queue *queue = &comm->runs;
    if (wanted <= queue->needs_room)
        return true;
    struct ddpi_need *needs = ddpi_calloc(2 * wanted, sizeof *needs);
    if (needs == NULL) {
        (void)ddpi_comm_fail(comm, NULL, DDP_E_NOMEM, "rank %u: no memory to wait for %u edges",
                             comm->rank, wanted);
        return false;
    }
    ddpi_free(queue->needs);
    queue->needs = needs;
    queue->needs_room = 2 * wanted;
    return true;
}

/* Add what @run waits for behind the first @count needs; returns how many there are then. */
static unsigned add_needs(struct ddp_comm *comm, struct ddpi_run *run, unsigned count)
{
    struct ddpi_need *needs = comm->runs.needs + count;
    unsigned more = 1;
    if (run->begun)
        more = run->algorithm->needs(comm, run, needs);
    else
        *needs = (struct ddpi_need){.edge = ddpi_sought_edge(comm), .recv_bytes = 1};
    for (unsigned i = 0; i < more; i++)
        needs[i].wait = &run->wait;
    return count + more;
}

/* Look at the deadline of @run and at the peers that it needs, without sleeping: while bytes @move,
 * or when a program only tests the run. The edges that a run needs before it begins count, too. */
static ddp_status judge_run(struct ddp_comm *comm, struct ddpi_run *run, bool move, uint64_t now)
{
    bool ready;
    run_start_clock(run, now);
    if (run->algorithm->execute != NULL)
        return DDP_OK;
    if (!make_room(comm, run->begun ? run->algorithm->most_needs(run) : 1))
        return comm->failed;
    unsigned count = add_needs(comm, run, 0);
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < count && status == DDP_OK; i++) {
        const struct ddpi_need *need = &comm->runs.needs[i];
        status = need->arena_op != NULL ? ddpi_arena_judge(comm, &run->wait, need, &ready)
                                        : ddpi_judge_awake(comm, &run->wait, need, move, now);
    }
    return status;
}

/* Bytes may move for long, and other ranks may ask meanwhile whether this one waits. */
static ddp_status stay_in_touch(struct ddp_comm *comm, bool move)
{
    uint64_t now = ddpi_monotonic_ms();
    struct ddpi_run *first = first_collective(&comm->runs), *any = first;
    ddp_status status = first != NULL ? judge_run(comm, first, move, now) : DDP_OK;
    ddpi_list_for_each (node, &comm->runs.messages) {
        any = ddpi_container_of(node, struct ddpi_run, link);
        if (status == DDP_OK)
            status = judge_run(comm, any, move, now);
    }
    return status == DDP_OK && any != NULL ? ddpi_notices_read_ready(comm, &any->wait, NULL)
                                           : status;
}

/* Sleep until something may be moved for @first (may be NULL) or a message. */
static ddp_status sleep_for(struct ddp_comm *comm, struct ddpi_run *first, uint64_t until_ms)
{
    struct ddpi_run_queue *queue = &comm->runs;
    uint64_t now = ddpi_monotonic_ms();
    struct ddpi_wait wait = {.started_ms = now, .deadline_ms = UINT64_MAX};
    unsigned wanted = first != NULL ? first->algorithm->most_needs(first) : 0, count = 0;
    ddpi_list_for_each (node, &queue->messages) {
        struct ddpi_run *run = ddpi_container_of(node, struct ddpi_run, link);
        wanted += run->algorithm->most_needs(run);
    }
    if (!make_room(comm, wanted))
        return comm->failed;
    ddpi_list_for_each (node, &queue->messages) {
        struct ddpi_run *run = ddpi_container_of(node, struct ddpi_run, link);
        run_start_clock(run, now);
        count = add_needs(comm, run, count);
        wait = run->wait;
    }
    if (first != NULL) {
        run_start_clock(first, now);
        count = add_needs(comm, first, count);
        wait = first->wait;
    }
    wait.until_ms = until_ms;
    return ddpi_wait(comm, &wait, queue->needs, count);
}

/* ---- the driver ---- */

static bool drive_is_over(const struct ddp_comm *comm, const struct ddpi_drive_end *end)
{
    const struct ddpi_run_queue *queue = &comm->runs;
    if (end->run != NULL)
        return atomic_load_explicit(&end->run->done, memory_order_relaxed);
    return ddpi_list_empty(&queue->collectives) && ddpi_list_empty(&queue->messages) &&
           !atomic_load_explicit(&queue->has_incoming, memory_order_relaxed);
}

/* The next collective may be executed only by the communicator's own thread: this one stops
 * driving, so that that one can. */
static bool is_for_thread(const struct ddp_comm *comm, bool is_thread)
{
    const struct ddpi_run *first = first_collective(&comm->runs);
    return !is_thread && first != NULL && first->algorithm->execute != NULL;
}

static bool is_late(const struct ddpi_drive_end *end)
{
    return end->until_ms != 0 && ddpi_monotonic_ms() >= end->until_ms;
}

/* Nothing has moved: spin for a moment, then let others run. false: it is time to sleep. */
static bool pause_briefly(const struct ddp_comm *comm, uint32_t *idle)
{
    if (*idle < comm->spin_limit) {
        ddpi_relax();
    } else if (*idle < comm->spin_limit + comm->yield_limit) {
        sched_yield();
    } else {
        *idle = 0;
        return false;
    }
    ++*idle;
    return true;
}

/* Returns whether the lock is held. */
static bool drive_until(struct ddp_comm *comm, const struct ddpi_drive_end *end, bool is_thread)
{
    struct turn turn = {.end = end, .is_thread = is_thread};
    uint32_t idle = 0, moves = 0;
    for (;;) {
        turn.moved = false;
        take_incoming(&comm->runs);
        ddp_status status = comm->failed != DDP_OK ? comm->failed : ddpi_comm_check_abort(comm);
        if (status == DDP_OK)
            status = advance_runs(comm, &turn);
        if (turn.locked)
            return true;
        if (status != DDP_OK)
            goto failed;
        if (drive_is_over(comm, end))
            return false;
        if (turn.moved) {
            idle = 0;
            bool look = ++moves % MOVES_A_LOOK == 0;
            status = look ? stay_in_touch(comm, true) : DDP_OK;
            if (status == DDP_OK && look && (end->at_once || is_late(end)))
                return false;
        } else if (end->at_once) {
            status = stay_in_touch(comm, false);
            if (status == DDP_OK)
                return false;
        } else if (!pause_briefly(comm, &idle)) {
            if (is_late(end) || is_for_thread(comm, is_thread))
                return false;
            status = sleep_for(comm, first_collective(&comm->runs), end->until_ms);
        }
        if (status == DDP_OK)
            continue;
    failed:
        fail_runs(comm);
        if (drive_is_over(comm, end))
            return false;
    }
}

bool ddpi_drive_is_brief(const struct ddp_comm *comm, const struct ddpi_run *run)
{
    return run->algorithm->is_brief != NULL && run->algorithm->is_brief(comm, run) &&
           comm->failed == DDP_OK && !atomic_load(&comm->aborted);
}

/* The first step sends what this rank has; in the second one what the others have may be there. So
 * a short operation takes the lock once. It is recorded in between, as other ranks wait for what is
 * sent. A failure is left to the driver. */
bool ddpi_drive_briefly(struct ddp_comm *comm, struct ddpi_run *run)
{
    enum ddpi_movement movement = DDPI_IDLE;
    run->begun = true;
    ddp_status status = run->algorithm->begin(comm, run);
    if (status == DDP_OK)
        status = run->algorithm->advance(comm, run, &movement);
    run->task.record = ddpi_recorder_begin(comm->recorder, &run->task, true);
    if (status == DDP_OK && movement == DDPI_MOVED)
        status = run->algorithm->advance(comm, run, &movement);
    run->broken = status != DDP_OK;
    if (movement != DDPI_COMPLETE)
        return false;
    set_result(comm, run, DDP_OK);
    atomic_store_explicit(&run->done, true, memory_order_release);
    return true;
}

void ddpi_drive(struct ddp_comm *comm, const struct ddpi_drive_end *end, bool is_thread)
{
    if (!drive_until(comm, end, is_thread))
        pthread_mutex_lock(&comm->runs.lock);
}

ddp_status ddpi_drive_inner(struct ddp_comm *comm, struct ddpi_run *run)
{
    uint32_t idle = 0, moves = 0;
    run_start_clock(run, ddpi_monotonic_ms());
    run->wait.call = &run->task.call;
    ddp_status status;
    for (;;) {
        enum ddpi_movement movement;
        status = run_advance(comm, run, &movement);
        if (status == DDP_OK && movement == DDPI_COMPLETE)
            break;
        if (status == DDP_OK && movement == DDPI_MOVED) {
            idle = 0;
            status = ++moves % MOVES_A_LOOK == 0 ? ddpi_notices_read_ready(comm, &run->wait, NULL)
                                                 : DDP_OK;
        } else if (status == DDP_OK && !pause_briefly(comm, &idle)) {
            status = make_room(comm, run->algorithm->most_needs(run)) ? DDP_OK : comm->failed;
            if (status == DDP_OK)
                status = ddpi_wait(comm, &run->wait, comm->runs.needs, add_needs(comm, run, 0));
        }
        if (status != DDP_OK) {
            status = run_finish_after_failure(comm, run);
            break;
        }
    }
    if (run->algorithm->end != NULL)
        run->algorithm->end(comm, run, status);
    return status;
}
