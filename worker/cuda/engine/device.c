/*
 * device.c - a communicator on a GPU: what it holds, and how it runs one operation. Owns all of it
 * but the queue.
 */
#include "device.h"

#include "error.h"
#include "mem.h"
#include "op_queue.h"
#include "peer_card.h"
#include "reduce.h"
#include "steps.h"

#include <stdio.h>
#include <string.h>

enum {
    STALE_MAX = 32,   /* close mappings when this many are stale */
    REFUSED_MAX = 16, /* or when this many could not be opened since then */
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

static ddp_status device_run(struct ddpi_device *device, struct ddpi_queued *queued)
{
    struct ddpi_task *task = &queued->task;
    struct ddpi_wait wait = ddpi_device_wait(task);
    device->progress.at_us = queued->enqueued_us;
    ddp_status status =
        ddpi_device_await(device, &wait, queued->ticket % DDPI_QUEUE_MAX, queued->ticket);
    ddpi_device_stage(device, DDPI_STAGE_STREAM);
    if (status != DDP_OK)
        return status;
    if (ddpi_call_is_message(&task->call)) {
        status = ddpi_device_message(device, queued);
        ddpi_device_stage(device, DDPI_STAGE_WORK);
        return status;
    }
    bool direct;
    status = ddpi_device_offer(device, queued, &direct);
    ddpi_device_stage(device, DDPI_STAGE_EXCHANGE);
    if (status != DDP_OK || task->call.operation == DDPI_BARRIER)
        return status;
    if (direct)
        return ddpi_direct_run(device, task);
    if (task->call.algorithm == DDP_ALGORITHM_DIRECT && ddpi_call_reduces(&task->call))
        return ddpi_comm_fail(device->comm, NULL, DDP_E_UNSUPPORTED,
                              "on memory of a GPU the algorithm 'direct' needs one GPU that all "
                              "ranks share, at most %d of them; use ring or auto",
                              DDPI_REDUCE_MOST);
    status = ddpi_ring_run(device, task);
    ddpi_device_stage(device, DDPI_STAGE_WORK);
    return status;
}

/* ---- before it is enqueued ---- */

/* The first operation of this rank. */
static ddp_status start_rank(struct ddpi_device *device)
{
    struct ddp_error err;
    device->equipped = true;
    ddp_status status = equip(device, &err);
    if (status == DDP_OK)
        status = ddpi_queue_start(device, device_run, &err);
    return status == DDP_OK ? DDP_OK : ddpi_device_fail(device, status, &err);
}

/* The first operation of all ranks. The thread has nothing to do meanwhile. */
static ddp_status probe_once(struct ddpi_device *device, const struct ddpi_task *task)
{
    ddpi_queue_drain(device);
    device->met = true;
    return device->failed ? device->comm->failed : ddpi_device_meet(device, task);
}

/* Close mappings when that delays nothing; or in any case when many are stale, or one has been in
 * the way for long. The driver waits for all work of the context. */
static void tidy_mappings(struct ddpi_device *device, ddpi_cu_stream stream)
{
    const struct ddpi_shares *shares = &device->shares;
    if (shares->stale == 0)
        return;
    bool must = shares->stale >= STALE_MAX || shares->refused >= REFUSED_MAX;
    bool idle = !ddpi_queue_is_busy(device) && device->cuda.stream_query(stream) == DDPI_CU_SUCCESS;
    if (!must && !idle)
        return;
    ddpi_queue_drain(device);
    ddpi_shares_tidy(&device->shares);
}

ddp_status ddpi_device_submit(struct ddpi_device *device, struct ddpi_queued *queued,
                              ddpi_cu_stream stream, struct ddp_error *err)
{
    ddp_status status = device->equipped ? DDP_OK : start_rank(device);
    if (status == DDP_OK && !device->met && !ddpi_call_is_message(&queued->task.call))
        status = probe_once(device, &queued->task);
    if (status != DDP_OK)
        return ddpi_error_set(err, status, "%s", device->comm->cause);
    tidy_mappings(device, stream);
    return ddpi_queue_put(device, queued, stream, err);
}
