/*
 * runs.c - puts operations into the queue of a communicator, decides which thread drives them, and
 * runs the communicator's own thread. Owns that thread.
 */
#include "runs.h"

#include "clock.h"
#include "drive.h"
#include "error.h"
#include "thread.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Call under the lock: let a driver that sleeps look at what has come. */
static void wake_driver(struct ddp_comm *comm)
{
    const uint64_t one = 1;
    if (comm->runs.driven)
        (void)!write(comm->bell, &one, sizeof one);
}

static void prepare_run(struct ddpi_run *run)
{
    run->wait = (struct ddpi_wait){.call = &run->task.call};
    run->begun = run->broken = run->decided = false;
    atomic_init(&run->done, false);
}

/* Call under the lock. */
static void number_run(struct ddp_comm *comm, struct ddpi_run *run)
{
    run->task.call.seq = ddpi_comm_take_number(comm, &run->task.call);
    run->task.record = 0;
}

/* Call under the lock. */
static void enqueue_run(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct ddpi_run_queue *queue = &comm->runs;
    bool for_thread = run->algorithm->execute != NULL;
    queue->pending++;
    queue->thread_runs += for_thread;
    if (queue->driven || !ddpi_list_empty(&queue->incoming)) { /* behind what no driver has taken */
        ddpi_list_append(&queue->incoming, &run->link);
        atomic_store_explicit(&queue->has_incoming, true, memory_order_relaxed);
    } else {
        ddpi_list_append(ddpi_run_list(queue, run), &run->link);
    }
    wake_driver(comm);
    if ((for_thread || (queue->serves && run->is_request)) && queue->sleepers > 0)
        pthread_cond_broadcast(&queue->changed);
}

/* Call under the lock. */
static void put_run(struct ddp_comm *comm, struct ddpi_run *run)
{
    number_run(comm, run);
    run->task.record = ddpi_recorder_begin(comm->recorder, &run->task, false);
    enqueue_run(comm, run);
}

void ddpi_runs_put(struct ddp_comm *comm, struct ddpi_run *run)
{
    prepare_run(run);
    pthread_mutex_lock(&comm->runs.lock);
    put_run(comm, run);
    pthread_mutex_unlock(&comm->runs.lock);
}

void ddpi_runs_pass(struct ddp_comm *comm, struct ddpi_run *run)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&comm->runs.lock);
    comm->operations++;
    run->status = DDP_OK;
    void (*ended)(void *arg, ddp_status) = run->ended;
    void *arg = run->ended_arg;
    if (run->is_request && comm->runs.events >= 0)
        (void)!write(comm->runs.events, &one, sizeof one);
    atomic_store_explicit(&run->done, true, memory_order_release);
    pthread_mutex_unlock(&comm->runs.lock);
    if (ended != NULL)
        ended(arg, DDP_OK);
}

/* Call under the lock, which it releases meanwhile; returns false when @until_ms has come. */
static bool sleep_for_change(struct ddpi_run_queue *queue, uint64_t until_ms)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                                   .tv_nsec = (long)(until_ms % 1000) * 1000000};
    queue->sleepers++;
    int failure = until_ms != 0 ? pthread_cond_timedwait(&queue->changed, &queue->lock, &until)
                                : pthread_cond_wait(&queue->changed, &queue->lock);
    queue->sleepers--;
    return failure != ETIMEDOUT;
}

static bool is_callers_turn(const struct ddpi_run_queue *queue)
{
    return !queue->driven && queue->thread_runs == 0;
}

/* Call under the lock, with no driver: drive until @end. */
static void drive(struct ddp_comm *comm, const struct ddpi_drive_end *end, bool is_thread)
{
    struct ddpi_run_queue *queue = &comm->runs;
    queue->driven = true;
    pthread_mutex_unlock(&queue->lock);
    ddpi_drive(comm, end, is_thread); /* locks */
    queue->driven = false;
    if (queue->sleepers > 0)
        pthread_cond_broadcast(&queue->changed);
}

/* Call under the lock. */
static bool wait_for_run(struct ddp_comm *comm, const struct ddpi_run *run, uint64_t until_ms)
{
    struct ddpi_run_queue *queue = &comm->runs;
    const struct ddpi_drive_end end = {.run = run, .until_ms = until_ms};
    bool in_time = true;
    while (!ddpi_run_is_done(run) && in_time) {
        if (is_callers_turn(queue))
            drive(comm, &end, false);
        else
            in_time = sleep_for_change(queue, until_ms);
        if (until_ms != 0 && ddpi_monotonic_ms() >= until_ms)
            in_time = false;
    }
    return ddpi_run_is_done(run);
}

bool ddpi_runs_wait(struct ddp_comm *comm, const struct ddpi_run *run, uint64_t until_ms)
{
    pthread_mutex_lock(&comm->runs.lock);
    bool done = wait_for_run(comm, run, until_ms);
    pthread_mutex_unlock(&comm->runs.lock);
    return done;
}

/* A brief run is in the queue only if something makes it wait. */
void ddpi_runs_carry_out_locked(struct ddp_comm *comm, struct ddpi_run *run)
{
    prepare_run(run);
    if (ddpi_runs_are_idle(comm) && ddpi_drive_is_brief(comm, run)) {
        number_run(comm, run);
        if (ddpi_drive_briefly(comm, run))
            return;
        enqueue_run(comm, run);
    } else {
        put_run(comm, run);
    }
    (void)wait_for_run(comm, run, 0);
}

void ddpi_runs_carry_out(struct ddp_comm *comm, struct ddpi_run *run)
{
    pthread_mutex_lock(&comm->runs.lock);
    ddpi_runs_carry_out_locked(comm, run);
    pthread_mutex_unlock(&comm->runs.lock);
}

bool ddpi_runs_test(struct ddp_comm *comm, const struct ddpi_run *run)
{
    struct ddpi_run_queue *queue = &comm->runs;
    const struct ddpi_drive_end end = {.run = run, .at_once = true};
    pthread_mutex_lock(&queue->lock);
    if (!ddpi_run_is_done(run) && is_callers_turn(queue))
        drive(comm, &end, false);
    bool done = ddpi_run_is_done(run);
    pthread_mutex_unlock(&queue->lock);
    return done;
}

bool ddpi_runs_abandon(struct ddp_comm *comm, struct ddpi_run *run,
                       void (*ended)(void *arg, ddp_status status), void *arg)
{
    pthread_mutex_lock(&comm->runs.lock);
    bool done = ddpi_run_is_done(run);
    if (!done) {
        run->cause = NULL;
        run->ended = ended;
        run->ended_arg = arg;
    }
    pthread_mutex_unlock(&comm->runs.lock);
    return !done;
}

ddp_status ddpi_runs_count_ends(struct ddp_comm *comm, int *ret_fd, struct ddp_error *err)
{
    struct ddpi_run_queue *queue = &comm->runs;
    ddp_status status = DDP_OK;
    pthread_mutex_lock(&queue->lock);
    if (queue->events < 0)
        queue->events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->events < 0)
        status = ddpi_error_sys(err, errno, "make an eventfd");
    else
        *ret_fd = queue->events;
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* Call under the lock. */
static void drain(struct ddp_comm *comm)
{
    struct ddpi_run_queue *queue = &comm->runs;
    const struct ddpi_drive_end end = {0};
    while (!ddpi_runs_are_idle(comm)) {
        if (is_callers_turn(queue))
            drive(comm, &end, false);
        else
            (void)sleep_for_change(queue, 0);
    }
}

void ddpi_runs_drain(struct ddp_comm *comm)
{
    pthread_mutex_lock(&comm->runs.lock);
    wake_driver(comm); /* it may have something to give up */
    drain(comm);
    pthread_mutex_unlock(&comm->runs.lock);
}

void ddpi_runs_claim(struct ddp_comm *comm)
{
    pthread_mutex_lock(&comm->runs.lock);
    drain(comm);
    comm->runs.driven = true;
    pthread_mutex_unlock(&comm->runs.lock);
}

void ddpi_runs_release(struct ddp_comm *comm)
{
    pthread_mutex_lock(&comm->runs.lock);
    comm->runs.driven = false;
    if (comm->runs.sleepers > 0)
        pthread_cond_broadcast(&comm->runs.changed);
    pthread_mutex_unlock(&comm->runs.lock);
}

bool ddpi_runs_are_idle(const struct ddp_comm *comm)
{
    return !comm->runs.driven && comm->runs.pending == 0;
}

/* ---- the thread ---- */

static bool thread_has_work(const struct ddpi_run_queue *queue)
{
    return !queue->driven && (queue->thread_runs > 0 || (queue->serves && queue->pending > 0));
}

static void *progress_thread(void *arg)
{
    struct ddp_comm *comm = arg;
    struct ddpi_run_queue *queue = &comm->runs;
    const struct ddpi_drive_end end = {0};
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (!thread_has_work(queue) && !queue->ending)
            (void)sleep_for_change(queue, 0);
        if (!thread_has_work(queue))
            break;
        drive(comm, &end, true);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

ddp_status ddpi_runs_start_thread(struct ddp_comm *comm, bool serves, struct ddp_error *err)
{
    struct ddpi_run_queue *queue = &comm->runs;
    int failure = 0;
    pthread_mutex_lock(&queue->lock);
    queue->serves |= serves;
    if (!queue->has_thread)
        failure = ddpi_thread_start(&queue->thread, 0, progress_thread, comm);
    queue->has_thread = failure == 0;
    if (queue->sleepers > 0)
        pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return failure == 0 ? DDP_OK : ddpi_error_sys(err, failure, "start a thread");
}

void ddpi_runs_stop(struct ddp_comm *comm)
{
    struct ddpi_run_queue *queue = &comm->runs;
    pthread_mutex_lock(&queue->lock);
    bool pending = queue->pending > 0;
    pthread_mutex_unlock(&queue->lock);
    if (pending)
        ddpi_comm_leave(comm);
    ddpi_runs_drain(comm);
    pthread_mutex_lock(&queue->lock);
    queue->ending = true;
    if (queue->sleepers > 0)
        pthread_cond_broadcast(&queue->changed);
    bool has_thread = queue->has_thread;
    queue->has_thread = false;
    pthread_mutex_unlock(&queue->lock);
    if (has_thread)
        pthread_join(queue->thread, NULL);
}
