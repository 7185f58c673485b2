/*
 * device.c - the device part of a communicator: what it holds, and how it carries one operation
 * out. Owns all of it but the queue. It waits only where ddpi_wait() and ddpi_device_await() do,
 * and those know deadlines, deaths and aborts.
 */
#include "device_impl.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "peer_card.h"
#include "reduce.h"

#include <stdio.h>
#include <string.h>

enum {
    NAP_MIN_US = 20,
    NAP_MAX_US = 1000,
    STALE_MAX = 32,   /* mappings that wait to be closed */
    REFUSED_MAX = 16, /* buffers that could not be opened since some were */
};

/* ---- what it holds ---- */

ddp_status ddpi_device_create(struct ddp_comm *comm)
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
    pthread_mutex_init(&device->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&device->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    comm->gpu = device;
    return DDP_OK;
}

/* Of the highest priority, which gives them queues of their own: behind a stream that is held in
 * the same queue they would wait for themselves. */
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

/* Everything that a rank needs for itself, and all at once: loading kernels and
 * allocating memory wait for all streams of the context, and later ours may be among them, waiting
 * for us. The context is current. */
static ddp_status equip(struct ddpi_device *device, struct ddp_error *err)
{
    size_t ranks = device->comm->world_size;
    device->offers = ddpi_calloc(2 * ranks, sizeof *device->offers);
    device->ways.reads = ddpi_calloc(ranks, sizeof *device->ways.reads);
    device->peers = ddpi_calloc(ranks, sizeof *device->peers);
    device->opens = ddpi_calloc(ranks, sizeof *device->opens);
    device->scratches = ddpi_calloc(ranks, sizeof *device->scratches);
    if (device->offers == NULL || device->ways.reads == NULL || device->peers == NULL ||
        device->opens == NULL || device->scratches == NULL)
        return ddpi_error_nomem(err, 2 * ranks * sizeof *device->offers);
    struct ddpi_card card = {0};
    ddp_status status = ddpi_card_identify(&card, err);
    if (status != DDP_OK)
        return status;
    /* Ranks that do not share memory of the host do not share that of a GPU. */
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
    if (device->scratch != 0)
        (void)cuda->mem_free(device->scratch);
    ddpi_words_finish(&device->words);
}

unsigned ddpi_device_capture_mode(const struct ddpi_device *device, unsigned mode)
{
    (void)device->cuda.thread_exchange_stream_capture_mode(&mode);
    return mode;
}

void ddpi_device_destroy(struct ddpi_device *device)
{
    if (device == NULL)
        return;
    if (device->equipped) { /* where the context is gone, so is what was in it, and the driver says
                               so */
        unsigned mode = ddpi_device_capture_mode(device, DDPI_CU_STREAM_CAPTURE_MODE_RELAXED);
        bool current = device->cuda.ctx_push_current(device->context) == DDPI_CU_SUCCESS;
        unequip(device);
        if (current)
            (void)device->cuda.ctx_pop_current(NULL);
        (void)ddpi_device_capture_mode(device, mode);
    }
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->lock);
    ddpi_cuda_finish(&device->cuda);
    ddpi_free(device->handed);
    ddpi_free(device->scratches);
    ddpi_free(device->opens);
    ddpi_free(device->peers);
    ddpi_free(device->ways.reads);
    ddpi_free(device->offers);
    ddpi_free(device);
}

/* ---- one operation ---- */

struct ddpi_wait ddpi_device_wait(const struct ddpi_job *job)
{
    uint64_t now = ddpi_now_ms(&ddpi_clock_monotonic);
    return (struct ddpi_wait){
        .call = &job->call, .started_ms = now, .deadline_ms = ddpi_deadline(now, job->timeout_ms)};
}

ddp_status ddpi_device_fail(struct ddpi_device *device, ddp_status status,
                            const struct ddp_error *err)
{
    return ddpi_comm_fail(device->comm, NULL, status, "rank %u: %s", device->comm->rank, err->msg);
}

ddp_status ddpi_device_gather(struct ddpi_device *device, const struct ddpi_job *job, void *records,
                              size_t size)
{
    struct ddpi_job round = {.call = job->call,
                             .ring = {.kind = DDPI_RING_ALL_GATHER,
                                      .rank = device->comm->rank,
                                      .nranks = device->comm->world_size},
                             .send = (uint8_t *)records + device->comm->rank * size,
                             .recv = records,
                             .count = device->comm->world_size * size,
                             .element_size = 1,
                             .timeout_ms = job->timeout_ms};
    return ddpi_job_run(device->comm, &round);
}

void ddpi_device_stage(struct ddpi_device *device, enum ddpi_stage stage)
{
    struct ddpi_progress *progress = &device->progress;
    uint64_t now_us = ddpi_now_us(&ddpi_clock_monotonic);
    progress->spent_us[stage] += now_us - progress->at_us;
    progress->at_us = now_us;
}

ddp_status ddpi_lane_stamp(struct ddpi_device *device, enum ddpi_lane_kind kind,
                           struct ddp_error *err)
{
    struct ddpi_lane *lane = &device->lanes[kind];
    return ddpi_words_stamp(&device->words, lane->word, ++lane->launched, lane->stream, err);
}

/* A lane does not go on when something that was enqueued in it has failed. */
static ddp_status check_lanes(struct ddpi_device *device)
{
    for (unsigned i = 0; i < DDPI_LANES; i++) {
        ddpi_cu_result result = device->cuda.stream_query(device->lanes[i].stream);
        if (result == DDPI_CU_SUCCESS || result == DDPI_CU_ERROR_NOT_READY)
            continue;
        struct ddp_error err;
        ddp_status status = ddpi_cuda_error(&device->cuda, &err, result,
                                            "the GPU failed; a buffer may have been freed");
        return ddpi_device_fail(device, status, &err);
    }
    return DDP_OK;
}

/* Peers that are waited for have ddpi_wait() to find out about them; this is for our own GPU. What
 * has moved of late when the deadline passes is ddpi_wait_overdue()'s to end. */
static ddp_status check_time(struct ddpi_device *device, const struct ddpi_patience *patience,
                             const struct ddpi_wait *wait)
{
    uint64_t now = ddpi_now_ms(&ddpi_clock_monotonic);
    if (now < wait->deadline_ms || now - patience->since_ms < ddpi_wait_answer_ms(wait))
        return DDP_OK;
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(wait->call, call);
    return ddpi_comm_fail(device->comm, NULL, DDP_E_TIMEOUT,
                          "%s: rank %u has waited %.1f s for its own GPU; %s", call,
                          device->comm->rank, (double)(now - wait->started_ms) / 1000,
                          patience->for_arrival ? "the stream has not come to the operation: a "
                                                  "kernel before it in the stream may hang"
                                                : "a copy or reduction of the operation does not "
                                                  "end");
}

ddp_status ddpi_device_pause(struct ddpi_device *device, struct ddpi_patience *patience,
                             const struct ddpi_wait *wait, const struct ddpi_need *needs,
                             unsigned count)
{
    if (patience->looks++ < device->comm->spin_limit) {
        ddpi_relax();
        return DDP_OK;
    }
    if (patience->nap_us == 0) {
        patience->nap_us = NAP_MIN_US;
        patience->since_ms = ddpi_now_ms(&ddpi_clock_monotonic);
    }
    struct ddpi_wait nap = *wait;
    nap.nap_us = patience->nap_us;
    ddp_status status = ddpi_wait(device->comm, &nap, needs, count);
    if (status == DDP_OK && patience->nap_us == NAP_MAX_US)
        status = check_lanes(device);
    if (status == DDP_OK)
        status = check_time(device, patience, wait);
    patience->nap_us = patience->nap_us < NAP_MAX_US / 2 ? patience->nap_us * 2 : NAP_MAX_US;
    return status;
}

ddp_status ddpi_device_await(struct ddpi_device *device, const struct ddpi_wait *wait,
                             uint32_t word, uint32_t value)
{
    struct ddpi_patience patience = {.for_arrival = word < DDPI_WORD_GATE};
    while (!ddpi_words_reached(&device->words, word, value)) {
        ddp_status status = ddpi_device_pause(device, &patience, wait, NULL, 0);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

bool ddpi_is_message(const struct ddpi_job *job)
{
    return job->call.operation == DDPI_SEND || job->call.operation == DDPI_RECV;
}

static bool reduces(const struct ddpi_call *call)
{
    return call->operation == DDPI_ALL_REDUCE || call->operation == DDPI_REDUCE ||
           call->operation == DDPI_REDUCE_SCATTER;
}

ddp_status ddpi_device_carry_out(struct ddpi_device *device, struct ddpi_errand *errand)
{
    struct ddpi_job *job = &errand->job;
    struct ddpi_wait wait = ddpi_device_wait(job);
    device->progress.at_us = errand->enqueued_us;
    ddp_status status =
        ddpi_device_await(device, &wait, errand->ticket % DDPI_QUEUE_MAX, errand->ticket);
    ddpi_device_stage(device, DDPI_STAGE_STREAM);
    if (status != DDP_OK)
        return status;
    if (ddpi_is_message(job)) {
        status = ddpi_device_message(device, errand);
        ddpi_device_stage(device, DDPI_STAGE_WORK);
        return status;
    }
    bool direct;
    status = ddpi_device_offer(device, errand, &direct);
    ddpi_device_stage(device, DDPI_STAGE_OFFERS);
    if (status != DDP_OK || job->call.operation == DDPI_BARRIER)
        return status;
    if (direct)
        return ddpi_direct_run(device, job);
    if (job->call.algorithm == DDP_ALGORITHM_DIRECT && reduces(&job->call))
        return ddpi_comm_fail(device->comm, NULL, DDP_E_UNSUPPORTED,
                              "on memory of a GPU the algorithm 'direct' needs one GPU that all "
                              "ranks share, at most %d of them; use ring or auto",
                              DDPI_REDUCE_MOST);
    status = ddpi_ring_run(device, job);
    ddpi_device_stage(device, DDPI_STAGE_WORK);
    return status;
}

/* ---- before it is enqueued ---- */

/* The first operation of this rank. */
static ddp_status begin(struct ddpi_device *device)
{
    struct ddp_error err;
    device->equipped = true;
    ddp_status status = equip(device, &err);
    if (status == DDP_OK)
        status = ddpi_queue_start(device, &err);
    return status == DDP_OK ? DDP_OK : ddpi_device_fail(device, status, &err);
}

/* The first operation of all ranks. The thread has nothing to do meanwhile. */
static ddp_status meet(struct ddpi_device *device, const struct ddpi_job *job)
{
    ddpi_device_drain(device);
    device->met = true;
    return device->failed ? device->comm->failed : ddpi_device_meet(device, job);
}

/* Close mappings when that holds nobody up; or all the same, when there are many of them or one has
 * been in the way for long. The driver waits for all that the context has been given to do. */
static void tidy(struct ddpi_device *device, ddpi_cu_stream stream)
{
    const struct ddpi_shares *shares = &device->shares;
    if (shares->stale == 0)
        return;
    bool must = shares->stale >= STALE_MAX || shares->refused >= REFUSED_MAX;
    bool idle = !ddpi_device_busy(device) && device->cuda.stream_query(stream) == DDPI_CU_SUCCESS;
    if (!must && !idle)
        return;
    ddpi_device_drain(device);
    ddpi_shares_tidy(&device->shares);
}

ddp_status ddpi_device_submit(struct ddpi_device *device, struct ddpi_errand *errand,
                              ddpi_cu_stream stream, struct ddp_error *err)
{
    ddp_status status = device->equipped ? DDP_OK : begin(device);
    if (status == DDP_OK && !device->met && !ddpi_is_message(&errand->job))
        status = meet(device, &errand->job);
    if (status != DDP_OK)
        return ddpi_error_set(err, status, "%s", device->comm->cause);
    tidy(device, stream);
    return ddpi_queue_put(device, errand, stream, err);
}
