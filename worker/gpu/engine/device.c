/*
 * device.c - a communicator on a GPU: what it holds, and how it runs one operation. Owns all of it.
 */
#include "device.h"

#include "clock.h"
#include "debug.h"
#include "error.h"
#include "mem.h"
#include "refused_run.h"
#include "runs.h"
#include "staged_run.h"
#include "steps.h"
#include "stream_gate.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { FAIL_MS = 100 }; /* for the communicator's thread to see a failure of the GPU */

/* ---- what it holds ---- */

ddp_status ddpi_device_create(struct ddp_comm *comm, struct ddpi_device **ret_device)
{
    struct ddpi_device *device = ddpi_calloc(1, sizeof *device);
    if (device == NULL)
        return DDP_E_NOMEM;
    device->unfit = ddpi_cuda_init(&device->cuda, &device->refusal);
    if (device->unfit != DDP_OK && device->unfit != DDP_E_UNSUPPORTED) {
        ddp_status status = device->unfit;
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

static void debug_gpu(const struct ddpi_device *device)
{
    const struct ddpi_cuda *cuda = &device->cuda;
    char name[64] = "?", bus[16] = "?";
    ddpi_cu_device gpu;
    if (cuda->ctx_get_device(&gpu) == DDPI_CU_SUCCESS) {
        (void)cuda->device_get_name(name, sizeof name, gpu);
        (void)cuda->device_get_pci_bus_id(bus, sizeof bus, gpu);
    }
    ddpi_debug(device->comm->rank,
               "works on GPU %d (%s at %s), through pinned memory, with a driver for CUDA %d.%d",
               device->ordinal, name, bus, cuda->version / 1000, cuda->version % 1000 / 10);
}

/* Allocate everything that this rank needs by itself, and all at once: loading kernels and
 * allocating memory wait for all streams of the context, and later some of those may wait for this
 * thread. The context is current. */
static ddp_status equip(struct ddpi_device *device, struct ddp_error *err)
{
    size_t ranks = device->comm->world_size;
    device->arrived = ddpi_calloc(ranks, sizeof *device->arrived);
    if (device->arrived == NULL)
        return ddpi_error_nomem(err, ranks);
    ddpi_kernels_init(&device->kernels, &device->cuda);
    ddpi_cu_result result = device->cuda.stream_create(&device->probe, DDPI_CU_STREAM_NON_BLOCKING);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "make a stream");
    ddp_status status = ddpi_words_init(&device->words, &device->cuda, DDPI_WORDS, err);
    if (status == DDP_OK)
        status = ddpi_staging_allocate(device, err);
    if (status == DDP_OK)
        status = ddpi_kernels_load(&device->kernels, err);
    if (status == DDP_OK)
        debug_gpu(device);
    return status;
}

static void unequip(struct ddpi_device *device)
{
    if (device->probe != NULL)
        (void)device->cuda.stream_destroy(device->probe);
    ddpi_staging_free(device); /* waits for all work of the context, which may use the rest */
    ddpi_words_finish(&device->words);
    ddpi_kernels_finish(&device->kernels);
}

void ddpi_device_release_context(struct ddpi_device *device)
{
    if (device->retained)
        (void)device->cuda.device_primary_ctx_release(device->ordinal);
    device->retained = false;
}

void ddpi_device_destroy(struct ddpi_device *device)
{
    if (device->equipped) { /* if the context was destroyed, so was its content, and the driver only
                               reports that */
        unsigned mode = ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
        bool current = device->cuda.ctx_push_current(device->context) == DDPI_CU_SUCCESS;
        unequip(device);
        if (current)
            (void)device->cuda.ctx_pop_current(NULL);
        (void)ddpi_device_capture_mode(device, mode);
    }
    ddpi_device_release_context(device);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->submit_lock);
    ddpi_cuda_finish(&device->cuda);
    ddpi_free(device->arrived);
    ddpi_free(device);
}

/* ---- one operation ---- */

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

static struct ddpi_device *device_of_run(struct ddpi_run *run)
{
    return ddpi_container_of(run->owner, struct ddpi_device, memory);
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
        status = ddpi_device_gather(device, &run->task, device->arrived, 1);
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
 * stream alone. After a failure the stream is not waited for where it has not come: it may hang. */
static void staged_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    struct ddpi_device *device = device_of_run(run);
    uint32_t first = ddpi_gated_of(run)->first;
    device_end(comm, run, status);
    bool has_come = ddpi_words_reached(&device->words, first % DDPI_GATED_MAX, first);
    if (!run->is_request || (status != DDP_OK && !has_come))
        return;
    ddpi_staged_await_upload(device, run);
    ddpi_device_stage(device, DDPI_STAGE_COMPLETION);
    ddpi_gate_publish_stages(device);
}

enum way { WAY_STAGED, WAY_BARRIER, WAY_ALONE };

static const struct ddpi_algorithm ways[] = {
    [WAY_STAGED] = {.name = "staged", .execute = staged_execute, .end = staged_end},
    [WAY_BARRIER] = {.name = "barrier", .execute = barrier_execute, .end = device_end},
    [WAY_ALONE] = {.name = "alone", .execute = alone_execute, .end = device_end}};

/* In a world of one a kernel reduces, and looks for inf and NaN meanwhile, if there is one. */
static bool is_alone(const struct ddpi_device *device, const struct ddpi_task *task)
{
    const struct ddpi_call *call = &task->call;
    return device->comm->world_size == 1 && ddpi_call_shape(call)->has_ring &&
           ddpi_call_shape(call)->reduces && !task->uneven && task->list == NULL &&
           ddpi_kernels_check(call->dtype, call->op, NULL) == DDP_OK;
}

static enum way way_of(const struct ddpi_device *device, const struct ddpi_task *task)
{
    if (task->call.operation == DDPI_BARRIER)
        return WAY_BARRIER;
    return is_alone(device, task) ? WAY_ALONE : WAY_STAGED;
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

/* To prepare, a rank loads kernels, for which a driver waits for all work of the context. Ranks
 * that are threads share one, so all of them prepare before one of their streams is held. */
static ddp_status meet(struct ddpi_device *device, struct ddpi_task *task, struct ddp_error *err)
{
    struct ddp_comm *comm = device->comm;
    ddpi_runs_claim(comm); /* its thread has nothing to do meanwhile */
    device->met = true;
    task->call.seq = ddpi_comm_next_number(comm);
    ddp_status status = comm->failed != DDP_OK
                            ? comm->failed
                            : ddpi_device_gather(device, task, device->arrived, 1);
    ddpi_runs_release(comm);
    return status == DDP_OK ? DDP_OK : ddpi_error_set(err, status, "%s", comm->cause);
}

/* Ranks of ddp_comm_init_local() are threads. Those who take no part in a message cannot come. */
static bool needs_meeting(const struct ddpi_device *device, const struct ddpi_task *task)
{
    const struct ddp_comm *comm = device->comm;
    bool threads = comm->world_size > 1 && comm->device >= 0;
    return threads && !device->met && !ddpi_call_shape(&task->call)->message;
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
    if (status == DDP_OK && needs_meeting(device, &run->task))
        status = meet(device, &run->task, err);
    return status == DDP_OK ? put(device, run, stream, err) : status;
}

/* Whether the GPU has failed: the driver then says so of every call. */
static void look_for_failure(struct ddpi_device *device)
{
    struct ddp_error err;
    unsigned mode = ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
    if (device->cuda.ctx_push_current(device->context) == DDPI_CU_SUCCESS) {
        ddpi_cu_result result = device->cuda.stream_query(device->probe);
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
