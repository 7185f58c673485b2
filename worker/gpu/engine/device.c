/*
 * device.c - a communicator on a GPU: what it holds, and how it runs one operation. Owns all of it.
 */
#include "device.h"

#include "clock.h"
#include "error.h"
#include "list.h"
#include "mem.h"
#include "peer_card.h"
#include "reduce.h"
#include "refused_run.h"
#include "runs.h"
#include "staged_run.h"
#include "steps.h"
#include "stream_gate.h"

#include <poll.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    STALE_MAX = 32,   /* close mappings when this many are stale */
    REFUSED_MAX = 16, /* or when this many could not be opened since then */
    LANES_MS = 500,   /* for work in the lanes after a failure */
    FAIL_MS = 100,    /* for the communicator's thread to see a failure of the GPU */
};

/* ---- what it holds ---- */

ddp_status ddpi_device_create(struct ddp_comm *comm, struct ddpi_device **ret_device)
{
    struct ddpi_device *device = ddpi_calloc(1, sizeof *device);
    if (device == NULL)
        return DDP_E_NOMEM;
    ddp_status status = ddpi_cuda_init(&device->cuda, NULL);
    if (status != DDP_OK) {
        ddpi_free(device);
        return status;
    }
    device->comm = comm;
    pthread_mutex_init(&device->submit_lock, NULL);
    pthread_mutex_init(&device->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&device->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *ret_device = device;
    return DDP_OK;
}

/* The highest priority gives them hardware queues of their own: in the queue of a stream that is
 * held they would wait for themselves. */
static ddp_status make_lanes(struct ddpi_device *device, struct ddp_error *err)
{
    int least = 0, greatest = 0;
    (void)device->cuda.ctx_get_stream_priority_range(&least, &greatest);
    for (uint32_t i = 0; i < DDPI_LANES; i++) {
        struct ddpi_lane *lane = &device->lanes[i];
        lane->word = DDPI_WORD_LANES + i;
        ddpi_cu_result result = device->cuda.stream_create_with_priority(
            &lane->stream, DDPI_CU_STREAM_NON_BLOCKING, greatest);
        if (result != DDPI_CU_SUCCESS)
            return ddpi_cuda_error(&device->cuda, err, result, "make a stream");
    }
    return DDP_OK;
}

static ddp_status make_buffers(struct ddpi_device *device, struct ddp_error *err)
{
    void *slots;
    ddpi_cu_result result = device->cuda.mem_host_alloc(&slots, 2 * DDPI_SLOTS_SIZE, 0);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "allocate %d bytes of pinned memory",
                               2 * DDPI_SLOTS_SIZE);
    device->slots_in = slots;
    device->slots_out = device->slots_in + DDPI_SLOTS_SIZE;
    result = device->cuda.mem_alloc(&device->scratch, DDPI_SCRATCH_ALL);
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    return ddpi_cuda_error(&device->cuda, err, result, "allocate %d bytes of GPU memory",
                           DDPI_SCRATCH_ALL);
}

/* Allocate everything that this rank needs by itself, and all at once: loading kernels and
 * allocating memory wait for all streams of the context, and later some of those may wait for this
 * thread. The context is current. */
static ddp_status equip(struct ddpi_device *device, struct ddp_error *err)
{
    size_t ranks = device->comm->world_size;
    device->offers = ddpi_calloc(2 * ranks, sizeof *device->offers);
    device->ways.reads = ddpi_calloc(ranks, sizeof *device->ways.reads);
    device->opens = ddpi_calloc(ranks, sizeof *device->opens);
    if (device->offers == NULL || device->ways.reads == NULL || device->opens == NULL)
        return ddpi_error_nomem(err, 2 * ranks * sizeof *device->offers);
    struct ddpi_card card = {0};
    ddp_status status = ddpi_card_identify(&card, err);
    if (status != DDP_OK)
        return status;
    /* Ranks that do not share host memory do not share GPU memory either. */
    if (device->comm->edges.meeting.card.shm)
        snprintf(device->machine, sizeof device->machine, "%s", card.machine);
    else
        snprintf(device->machine, sizeof device->machine, "rank %u", device->comm->rank);
    ddpi_shares_init(&device->shares, &device->cuda, device->context, device->comm->world_size);
    ddpi_kernels_init(&device->kernels, &device->cuda);
    status = ddpi_words_init(&device->words, &device->cuda, DDPI_WORDS, err);
    if (status == DDP_OK)
        status = make_lanes(device, err);
    if (status == DDP_OK)
        status = make_buffers(device, err);
    if (status == DDP_OK)
        status = ddpi_staging_allocate(device, err);
    if (status == DDP_OK)
        status = ddpi_kernels_load(&device->kernels, err);
    if (status == DDP_OK)
        status = ddpi_device_pattern(device, err);
    return status;
}

static void unequip(struct ddpi_device *device)
{
    const struct ddpi_cuda *cuda = &device->cuda;
    for (unsigned i = 0; i < DDPI_LANES; i++)
        if (device->lanes[i].stream != NULL) {
            (void)cuda->stream_synchronize(device->lanes[i].stream);
            (void)cuda->stream_destroy(device->lanes[i].stream);
        }
    ddpi_shares_finish(&device->shares);
    ddpi_kernels_finish(&device->kernels);
    if (device->slots_in != NULL)
        (void)cuda->mem_free_host(device->slots_in);
    ddpi_staging_free(device);
    if (device->scratch != 0)
        (void)cuda->mem_free(device->scratch);
    ddpi_words_finish(&device->words);
}

void ddpi_device_destroy(struct ddpi_device *device)
{
    ddpi_gate_watch_stop(device);
    if (device->equipped) { /* if the context was destroyed, so was its content, and the driver only
                               reports that */
        unsigned mode = ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
        bool current = device->cuda.ctx_push_current(device->context) == DDPI_CU_SUCCESS;
        unequip(device);
        if (current)
            (void)device->cuda.ctx_pop_current(NULL);
        (void)ddpi_device_capture_mode(device, mode);
    }
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->submit_lock);
    ddpi_cuda_finish(&device->cuda);
    ddpi_free(device->handed);
    ddpi_free(device->opens);
    ddpi_free(device->ways.reads);
    ddpi_free(device->offers);
    ddpi_free(device);
}

/* ---- one operation ---- */

/* Work in the lanes may still write to buffers that the caller gets back now. */
static void let_lanes_finish(const struct ddpi_device *device)
{
    uint64_t end = ddpi_deadline(ddpi_monotonic_ms(), LANES_MS);
    for (unsigned i = 0; i < DDPI_LANES; i++) {
        const struct ddpi_lane *lane = &device->lanes[i];
        while (!ddpi_words_reached(&device->words, lane->word, lane->launched) &&
               device->cuda.stream_query(lane->stream) == DDPI_CU_ERROR_NOT_READY &&
               ddpi_monotonic_ms() < end)
            (void)poll(NULL, 0, 1);
    }
}

/* Allow this thread what a capture in another thread of the program forbids to all. */
static void permit_captures(struct ddpi_device *device)
{
    if (device->permitted)
        return;
    device->permitted = true;
    (void)ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* Wait until the caller's stream has reached the operation; the pauses of this thread are short. */
static ddp_status await_stream(struct ddpi_device *device, struct ddpi_run *run)
{
    struct ddpi_wait wait = ddpi_device_wait(&run->task);
    if (!device->tuned)
        (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    device->tuned = true;
    device->progress.at_us = ddpi_gated_of(run)->enqueued_us;
    ddp_status status = ddpi_gate_await(device, ddpi_gated_of(run)->first, &wait);
    ddpi_device_stage(device, DDPI_STAGE_STREAM);
    return status;
}

static ddp_status run_collective(struct ddpi_device *device, struct ddpi_run *run)
{
    struct ddpi_task *task = &run->task;
    if (task->call.finite_check)
        ddpi_finite_clear(device);
    ddp_status status = ddpi_device_offer(device, run);
    ddpi_device_stage(device, DDPI_STAGE_EXCHANGE);
    if (status != DDP_OK)
        return status;
    if (task->call.algorithm == DDP_ALGORITHM_DIRECT && ddpi_call_shape(&task->call)->reduces)
        return ddpi_comm_fail(device->comm, NULL, DDP_E_UNSUPPORTED,
                              "on memory of GPUs the algorithm 'direct' needs ranks that share one "
                              "GPU; use ring or auto");
    status = ddpi_ring_run(device, task);
    ddpi_device_stage(device, DDPI_STAGE_WORK);
    return status;
}

static struct ddpi_device *device_of_run(struct ddpi_run *run)
{
    return ddpi_container_of(run->owner, struct ddpi_device, memory);
}

/* From the arrival of its stream to its end. */
static ddp_status execute(struct ddpi_device *device, struct ddpi_run *run)
{
    struct ddp_error err;
    permit_captures(device);
    ddpi_cu_result result = device->cuda.ctx_push_current(device->context);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_device_fail(
            device, ddpi_cuda_error(&device->cuda, &err, result, "use the context of the buffers"),
            &err);
    ddp_status status = await_stream(device, run);
    if (status == DDP_OK)
        status = run_collective(device, run);
    if (status != DDP_OK)
        let_lanes_finish(device);
    (void)device->cuda.ctx_pop_current(NULL);
    return status;
}

static ddp_status device_execute(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct ddpi_device *device = device_of_run(run);
    (void)comm;
    (void)ddpi_gate_watch_busy(&device->watch, true);
    ddp_status status = execute(device, run);
    (void)ddpi_gate_watch_busy(&device->watch, false);
    return status == DDP_OK ? ddpi_device_check_refusal(device) : status;
}

static ddp_status staged_execute(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct ddpi_device *device = device_of_run(run);
    (void)comm;
    ddp_status status = await_stream(device, run);
    return status == DDP_OK ? ddpi_staged_run(device, run) : status;
}

static ddp_status barrier_execute(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct ddpi_device *device = device_of_run(run);
    (void)comm;
    ddp_status status = await_stream(device, run);
    if (status == DDP_OK)
        status = ddpi_device_gather(device, &run->task, device->opens, 1);
    ddpi_device_stage(device, DDPI_STAGE_EXCHANGE);
    return status;
}

/* The kernel in the stream has looked. */
static ddp_status alone_execute(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct ddpi_device *device = device_of_run(run);
    uint32_t word = DDPI_WORD_ALONE + ddpi_gated_of(run)->last % DDPI_GATED_MAX;
    (void)comm;
    ddp_status status = await_stream(device, run);
    if (status == DDP_OK)
        run->task.found_non_finite = ddpi_words_get(&device->words, word) != 0;
    return status;
}

static void device_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    (void)comm;
    (void)status;
    ddpi_gate_end(device_of_run(run), run);
    (void)ddpi_device_check_refusal(device_of_run(run)); /* of what comes after the last stamp */
    ddpi_free((void *)(uintptr_t)run->task.list);
    run->task.list = NULL;
}

/* Of a request the result is there when it has ended; what is called without one ends for the
 * stream alone. */
static void staged_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    struct ddpi_device *device = device_of_run(run);
    device_end(comm, run, status);
    if (status != DDP_OK || !run->is_request)
        return;
    ddpi_staged_await_upload(device, run);
    ddpi_device_stage(device, DDPI_STAGE_COMPLETION);
    ddpi_gate_publish_stages(device);
}

enum way { WAY_GPU, WAY_STAGED, WAY_BARRIER, WAY_ALONE };

static const struct ddpi_algorithm ways[] = {
    [WAY_GPU] = {.name = "device", .execute = device_execute, .end = device_end},
    [WAY_STAGED] = {.name = "staged", .execute = staged_execute, .end = staged_end},
    [WAY_BARRIER] = {.name = "barrier", .execute = barrier_execute, .end = device_end},
    [WAY_ALONE] = {.name = "alone", .execute = alone_execute, .end = device_end}};

static enum way way_of(const struct ddpi_device *device, const struct ddpi_task *task)
{
    if (task->call.operation == DDPI_BARRIER)
        return WAY_BARRIER;
    if (ddpi_is_staged(task) || device->ways.shared)
        return WAY_STAGED;
    return device->comm->world_size == 1 ? WAY_ALONE : WAY_GPU;
}

/* ---- before it is enqueued ---- */

/* The first operation of this rank. */
static ddp_status start_rank(struct ddpi_device *device, struct ddp_error *err)
{
    device->equipped = true;
    device->unfit = equip(device, err);
    if (device->unfit == DDP_OK)
        device->unfit = ddpi_runs_start_thread(device->comm, false, err);
    return device->unfit;
}

/* The ranks read the memory of each other. */
static bool needs_probes(const struct ddpi_device *device, const struct ddpi_task *task)
{
    return device->comm->world_size > 1 && way_of(device, task) == WAY_GPU;
}

/* The first operation of all ranks that needs it. The thread has nothing to do meanwhile. */
static ddp_status probe_once(struct ddpi_device *device, struct ddpi_task *task,
                             struct ddp_error *err)
{
    struct ddp_comm *comm = device->comm;
    ddpi_runs_claim(comm);
    device->met = true;
    task->call.seq = ddpi_comm_next_number(comm);
    ddp_status status = comm->failed != DDP_OK ? comm->failed : ddpi_device_meet(device, task);
    ddpi_runs_release(comm);
    return status == DDP_OK ? DDP_OK : ddpi_error_set(err, status, "%s", comm->cause);
}

/* Close mappings when that delays nothing; or in any case when many are stale, or one has been in
 * the way for long. The driver waits for all work of the context. */
static void tidy_mappings(struct ddpi_device *device, ddpi_cu_stream stream)
{
    const struct ddpi_shares *shares = &device->shares;
    if (shares->stale == 0)
        return;
    bool must = shares->stale >= STALE_MAX || shares->refused >= REFUSED_MAX;
    pthread_mutex_lock(&device->lock);
    bool idle = device->submitted == device->completed;
    pthread_mutex_unlock(&device->lock);
    idle = idle && device->cuda.stream_query(stream) == DDPI_CU_SUCCESS;
    if (!must && !idle)
        return;
    ddpi_runs_claim(device->comm);
    ddpi_shares_tidy(&device->shares);
    ddpi_runs_release(device->comm);
}

/* In a world of one: a reduction that looks for inf and NaN. */
static ddp_status enqueue_alone(struct ddpi_device *device, const struct ddpi_run *run,
                                ddpi_cu_stream stream, struct ddp_error *err)
{
    const struct ddpi_task *task = &run->task;
    uint32_t word = DDPI_WORD_ALONE + device->submitted % DDPI_GATED_MAX;
    const struct ddpi_reduction work = {
        .in = {task->send},
        .out = {task->recv},
        .nin = 1,
        .nout = 1,
        .count = task->own,
        .dtype = task->call.dtype,
        .op = task->call.op,
        .divisor = 1,
        .non_finite = (bool *)(uintptr_t)ddpi_words_address(&device->words, word)};
    ddp_status status = ddpi_words_stamp(&device->words, word, 0, stream, err);
    if (status == DDP_OK)
        status = ddpi_kernels_launch(&device->kernels, &work, stream, err);
    return status == DDP_OK ? ddpi_gate_pass(device, run, stream, err) : status;
}

static ddp_status put(struct ddpi_device *device, struct ddpi_run *run, ddpi_cu_stream stream,
                      struct ddp_error *err)
{
    enum way way = way_of(device, &run->task);
    run->algorithm = &ways[way];
    if (way == WAY_STAGED)
        return ddpi_staged_put(device, run, stream, err);
    ddp_status status = way == WAY_GPU ? ddpi_gate_watch_start(device, err) : DDP_OK;
    if (status != DDP_OK)
        return status;
    return ddpi_gate_put(device, run, 1, way == WAY_ALONE ? enqueue_alone : ddpi_gate_pass, stream,
                         err);
}

ddp_status ddpi_device_submit(struct ddpi_device *device, struct ddpi_run *run,
                              ddpi_cu_stream stream, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (device->unfit != DDP_OK)
        return ddpi_error_set(err, device->unfit,
                              "an earlier operation could not prepare GPU %d for this communicator",
                              device->ordinal);
    if (!device->equipped)
        status = start_rank(device, err);
    if (status == DDP_OK && !device->met && needs_probes(device, &run->task))
        status = probe_once(device, &run->task, err);
    if (status != DDP_OK)
        return status;
    tidy_mappings(device, stream);
    return put(device, run, stream, err);
}

/* Whether the GPU has failed: the driver then says so of every call. */
static void look_for_failure(struct ddpi_device *device)
{
    struct ddp_error err;
    unsigned mode = ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
    if (device->cuda.ctx_push_current(device->context) == DDPI_CU_SUCCESS) {
        ddpi_cu_result result = device->cuda.stream_query(device->lanes[0].stream);
        if (result != DDPI_CU_SUCCESS && result != DDPI_CU_ERROR_NOT_READY)
            ddpi_gate_refuse(device,
                             ddpi_cuda_error(&device->cuda, &err, result,
                                             "the GPU failed; a buffer may have been freed"),
                             &err);
        (void)device->cuda.ctx_pop_current(NULL);
    }
    (void)ddpi_device_capture_mode(device, mode);
}

/* If no operation is under way, one that fails at once. */
static bool fail_if_idle(struct ddpi_device *device, ddp_status refused)
{
    struct ddp_comm *comm = device->comm;
    struct ddpi_run run = {.task.call.operation = DDPI_BARRIER};
    pthread_mutex_lock(&comm->runs.lock);
    bool idle = ddpi_runs_are_idle(comm);
    if (idle) {
        ddpi_refused_init(&run, refused, device->refusal.msg);
        ddpi_runs_carry_out_locked(comm, &run);
    }
    pthread_mutex_unlock(&comm->runs.lock);
    return idle;
}

/* Let the communicator fail, so that the other ranks hear of it. An operation that waits for the
 * GPU does so when its thread looks, for which it has a moment. */
static void fail_soon(struct ddpi_device *device, ddp_status refused)
{
    const uint64_t one = 1;
    (void)!write(device->comm->bell, &one, sizeof one);
    for (unsigned i = 0; i < FAIL_MS && device->comm->failed == DDP_OK; i++)
        if (!fail_if_idle(device, refused))
            (void)poll(NULL, 0, 1);
}

static bool is_own_thread(struct ddp_comm *comm)
{
    pthread_mutex_lock(&comm->runs.lock);
    bool is = comm->runs.has_thread && pthread_equal(comm->runs.thread, pthread_self());
    pthread_mutex_unlock(&comm->runs.lock);
    return is;
}

/* The communicator's thread never waits for the driver, also not in a function of the program that
 * it calls. Who enqueues sees a failure itself. */
ddp_status ddpi_device_check(struct ddpi_device *device, struct ddp_error *err)
{
    bool is_thread = is_own_thread(device->comm);
    if (!is_thread && atomic_load(&device->refused) == DDP_OK &&
        pthread_mutex_trylock(&device->submit_lock) == 0) {
        if (device->equipped && device->unfit == DDP_OK)
            look_for_failure(device);
        pthread_mutex_unlock(&device->submit_lock);
    }
    ddp_status refused = (ddp_status)atomic_load_explicit(&device->refused, memory_order_acquire);
    if (refused == DDP_OK)
        return DDP_OK;
    if (!is_thread && device->comm->failed == DDP_OK)
        fail_soon(device, refused);
    return ddpi_error_set(err, refused, "rank %u: %s", device->comm->rank, device->refusal.msg);
}

void ddpi_device_read_stats(struct ddpi_device *device, struct ddp_comm_stats *stats)
{
    pthread_mutex_lock(&device->lock);
    stats->stream_us = device->spent_us[DDPI_STAGE_STREAM];
    stats->exchange_us = device->spent_us[DDPI_STAGE_EXCHANGE];
    stats->work_us = device->spent_us[DDPI_STAGE_WORK];
    stats->completion_us = device->spent_us[DDPI_STAGE_COMPLETION];
    pthread_mutex_unlock(&device->lock);
}
