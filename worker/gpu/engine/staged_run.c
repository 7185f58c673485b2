/*
 * staged_run.c - a collective or a message in slices (slices.h): a kernel in the caller's stream
 * copies each to pinned memory, the communicator's thread carries it out there as an inner run,
 * and another kernel copies the result back. Owns the pinned memory.
 *
 * A slice is in the stream as
 *
 *     wait until its half of the pinned memory is free
 *     copy to it
 *     stamp its ticket
 *     wait for its gate              (the inner run)
 *     copy from it
 *     note that the half is free
 *
 * where the first three steps of a slice come before the last three of the one before it: while a
 * slice is with the other ranks, the next one is on its way. Buffers used in place allow that, as
 * the slices of a buffer have no element in common. Kernels copy, not the copy engines: a copy of
 * the program may hold up those behind the same gate.
 */
#include "staged_run.h"

#include "clock.h"
#include "drive.h"
#include "error.h"
#include "host_memory.h"
#include "mem.h"
#include "slices.h"
#include "steps.h"
#include "stream_gate.h"

#include <poll.h>

enum { HALF = 4 * 1024 * 1024, STAGING = 2 * DDPI_HALVES * HALF, UPLOAD_MS = 500 };
_Static_assert((size_t)DDPI_WORLD_MAX *DDPI_DTYPE_SIZE_MOST <= HALF,
               "a slice has an element for each rank");

struct staged {
    struct ddpi_device *device;
    const struct ddpi_task *task;
    struct ddpi_slices slices;
    bool sends, receives; /* of a broadcast, the root does the one, others the other */
    uint32_t root;        /* of a message: the peer; any rank, until the first slice has come */
};

static struct staged stage(struct ddpi_device *device, const struct ddpi_task *task)
{
    const struct ddp_comm *comm = device->comm;
    const struct ddpi_call *call = &task->call;
    bool has_root =
        call->operation == DDPI_BROADCAST || (task->list != NULL && ddpi_call_shape(call)->rooted);
    return (struct staged){
        .device = device,
        .task = task,
        .slices = ddpi_slices_of(task, comm->rank, comm->world_size, HALF),
        .sends = call->operation != DDPI_RECV && (!has_root || comm->rank == call->root),
        .receives = call->operation != DDPI_SEND && (!has_root || comm->rank != call->root),
        .root = call->root};
}

/* ---- pinned memory ---- */

ddp_status ddpi_staging_allocate(struct ddpi_device *device, struct ddp_error *err)
{
    void *host;
    struct ddpi_staging *staging = &device->staging;
    ddp_status status =
        ddpi_cuda_alloc_mapped(&device->cuda, STAGING, &host, &staging->device, err);
    if (status == DDP_OK)
        staging->host = host;
    return status;
}

void ddpi_staging_free(struct ddpi_device *device)
{
    if (device->staging.host != NULL)
        (void)device->cuda.mem_free_host(device->staging.host);
    device->staging.host = NULL;
}

/* Where the slice of this turn is staged. */
static size_t place(uint32_t turn, bool receives)
{
    return (size_t)(receives * DDPI_HALVES + turn % DDPI_HALVES) * HALF;
}

/* ---- what is enqueued ---- */

/* Of a list, what lies at byte @at of all its buffers. */
static ddp_status copy_list(const struct staged *staged, bool receives, ddpi_cu_deviceptr pinned,
                            const struct ddpi_stretch *stretch, ddpi_cu_stream stream,
                            struct ddp_error *err)
{
    struct ddpi_segments segments = ddpi_task_segments(staged->task);
    struct ddpi_spot spot = {0};
    struct ddpi_segment segment;
    size_t left = stretch->len;
    ddp_status status = DDP_OK;
    ddpi_segments_skip(&segments, &spot, stretch->at);
    while (status == DDP_OK && ddpi_segments_next(&segments, &spot, left, &segment)) {
        status = receives ? ddpi_kernels_copy(&staged->device->kernels, (uintptr_t)segment.recv,
                                              pinned, segment.len, stream, err)
                          : ddpi_kernels_copy(&staged->device->kernels, pinned,
                                              (uintptr_t)segment.send, segment.len, stream, err);
        pinned += segment.len;
        left -= segment.len;
    }
    return status;
}

static ddp_status copy_stretch(const struct staged *staged, bool receives, ddpi_cu_deviceptr pinned,
                               const struct ddpi_stretch *stretch, ddpi_cu_stream stream,
                               struct ddp_error *err)
{
    const struct ddpi_task *task = staged->task;
    struct ddpi_kernels *kernels = &staged->device->kernels;
    if (task->list != NULL)
        return copy_list(staged, receives, pinned, stretch, stream, err);
    if (receives)
        return ddpi_kernels_copy(kernels, (uintptr_t)task->recv + stretch->at, pinned, stretch->len,
                                 stream, err);
    return ddpi_kernels_copy(kernels, pinned, (uintptr_t)task->send + stretch->at, stretch->len,
                             stream, err);
}

static ddp_status copy_slice(const struct staged *staged, bool receives, uint64_t index,
                             uint32_t turn, ddpi_cu_stream stream, struct ddp_error *err)
{
    ddpi_cu_deviceptr half = staged->device->staging.device + place(turn, receives);
    struct ddpi_slice_cursor cursor = {.index = index, .receives = receives};
    struct ddpi_stretch stretch;
    ddp_status status = DDP_OK;
    if (!(receives ? staged->receives : staged->sends))
        return DDP_OK;
    while (status == DDP_OK && ddpi_slice_next(&staged->slices, &cursor, &stretch))
        status = copy_stretch(staged, receives, half + stretch.offset, &stretch, stream, err);
    return status;
}

static ddp_status enqueue_download(const struct staged *staged, uint32_t index, uint32_t ticket,
                                   ddpi_cu_stream stream, struct ddp_error *err)
{
    uint32_t turn = staged->device->staging.turn++;
    ddp_status status =
        ddpi_words_hold(&staged->device->words, DDPI_WORD_HALVES + turn % DDPI_HALVES,
                        turn + 1 - DDPI_HALVES, stream, err);
    if (status == DDP_OK)
        status = copy_slice(staged, false, index, turn, stream, err);
    return status == DDP_OK ? ddpi_gate_stamp(staged->device, ticket, stream, err) : status;
}

static ddp_status enqueue_upload(const struct staged *staged, uint32_t index, uint32_t ticket,
                                 uint32_t turn, ddpi_cu_stream stream, struct ddp_error *err)
{
    ddp_status status = ddpi_gate_hold(staged->device, ticket, stream, err);
    if (status == DDP_OK)
        status = copy_slice(staged, true, index, turn, stream, err);
    if (status != DDP_OK)
        return status;
    return ddpi_words_stamp(&staged->device->words, DDPI_WORD_HALVES + turn % DDPI_HALVES, turn + 1,
                            stream, err);
}

static ddp_status enqueue_slices(struct ddpi_device *device, const struct ddpi_run *run,
                                 ddpi_cu_stream stream, struct ddp_error *err)
{
    const struct ddpi_gated *gated = (const struct ddpi_gated *)(const void *)run->state;
    const struct staged staged = stage(device, &run->task);
    uint32_t first = gated->first, count = gated->last - first + 1;
    ddp_status status = enqueue_download(&staged, 0, first, stream, err);
    for (uint32_t i = 0; i < count && status == DDP_OK; i++) {
        if (i + 1 < count)
            status = enqueue_download(&staged, i + 1, first + i + 1, stream, err);
        if (status == DDP_OK)
            status = enqueue_upload(&staged, i, first + i, gated->first_turn + i, stream, err);
    }
    return status;
}

ddp_status ddpi_staged_put(struct ddpi_device *device, struct ddpi_run *run, ddpi_cu_stream stream,
                           struct ddp_error *err)
{
    uint64_t slices = stage(device, &run->task).slices.count;
    if (slices > INT32_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%llu slices of %d bytes are more than an operation can have",
                              (unsigned long long)slices, HALF);
    return ddpi_gate_put(device, run, (uint32_t)slices, enqueue_slices, stream, err);
}

/* ---- what the communicator's thread does ---- */

/* All slices have one deadline. */
static ddp_status exchange_slice(struct staged *staged, struct ddpi_run *run, uint64_t index,
                                 const struct ddpi_wait *wait, size_t *counts)
{
    struct ddpi_device *device = staged->device;
    struct ddpi_run inner = {.wait = *wait};
    uint32_t turn = ddpi_gated_of(run)->first_turn + (uint32_t)index;
    uint8_t *out = device->staging.host + place(turn, false);
    uint8_t *in = device->staging.host + place(turn, true);
    inner.task = ddpi_slice_task(&staged->slices, index, staged->sends ? out : in,
                                 staged->receives ? in : out, counts);
    inner.task.call.root = staged->root;
    inner.task.source = &staged->root;
    ddpi_host_choose(device->comm, &inner);
    ddp_status status = ddpi_drive_inner(device->comm, &inner);
    run->task.bytes_sent += inner.task.bytes_sent;
    run->task.bytes_received += inner.task.bytes_received;
    run->task.found_non_finite |= inner.task.found_non_finite;
    return status;
}

/* @own: the slices that are in this rank's stream; other ranks may have more. The last gate opens
 * when the run has ended. */
static ddp_status run_slices(struct staged *staged, struct ddpi_run *run, uint64_t own,
                             const struct ddpi_wait *wait, size_t *counts)
{
    uint32_t first = ddpi_gated_of(run)->first;
    ddp_status status = DDP_OK;
    for (uint64_t i = 0; i < staged->slices.count && status == DDP_OK; i++) {
        if (i > 0 && i < own)
            status = ddpi_gate_await(staged->device, first + (uint32_t)i, wait);
        if (status == DDP_OK)
            status = exchange_slice(staged, run, i, wait, counts);
        if (status == DDP_OK && i + 1 < own)
            ddpi_gate_open(staged->device, first + (uint32_t)i);
    }
    return status;
}

static ddp_status fail_nomem(struct ddpi_device *device, size_t size)
{
    struct ddp_error err;
    return ddpi_device_fail(device, ddpi_error_nomem(&err, size), &err);
}

/* Of parts that each rank knows for itself only, the longest one decides how many slices there
 * are. */
static ddp_status agree(struct staged *staged)
{
    const struct ddp_comm *comm = staged->device->comm;
    struct ddpi_slices *slices = &staged->slices;
    uint64_t most = PTRDIFF_MAX / slices->width; /* no rank has longer parts */
    uint64_t *counts = ddpi_calloc(comm->world_size, sizeof *counts);
    if (counts == NULL)
        return fail_nomem(staged->device, comm->world_size * sizeof *counts);
    counts[comm->rank] = slices->count;
    ddp_status status = ddpi_device_gather(staged->device, staged->task, counts, sizeof *counts);
    for (uint32_t rank = 0; rank < comm->world_size && status == DDP_OK; rank++) {
        if (counts[rank] > most)
            status = ddpi_comm_fail(staged->device->comm, NULL, DDP_E_PROTOCOL,
                                    "rank %u announced %llu slices of %zu elements", rank,
                                    (unsigned long long)counts[rank], slices->width);
        else if (counts[rank] > slices->count)
            slices->count = counts[rank];
    }
    ddpi_free(counts);
    return status;
}

ddp_status ddpi_staged_run(struct ddpi_device *device, struct ddpi_run *run)
{
    const struct ddp_comm *comm = device->comm;
    const struct ddpi_task called = run->task; /* its counts of bytes change */
    struct staged staged = stage(device, &called);
    struct ddpi_wait wait = ddpi_device_wait(&run->task);
    uint64_t own = staged.slices.count;
    size_t *counts = NULL;
    if (called.uneven) {
        counts = ddpi_calloc(comm->world_size, 2 * sizeof *counts);
        if (counts == NULL)
            return fail_nomem(device, comm->world_size * 2 * sizeof *counts);
    }
    ddp_status status = DDP_OK;
    if (ddpi_call_is_in_pairs(&called.call) && comm->world_size > 1)
        status = agree(&staged);
    ddpi_device_stage(device, DDPI_STAGE_EXCHANGE);
    if (status == DDP_OK)
        status = run_slices(&staged, run, own, &wait, counts);
    if (status == DDP_OK && called.source != NULL)
        *called.source = staged.root;
    ddpi_device_stage(device, DDPI_STAGE_WORK);
    ddpi_free(counts);
    return status;
}

/* After a failure, too, for a moment: the buffer belongs to the caller again. */
void ddpi_staged_await_upload(struct ddpi_device *device, struct ddpi_run *run)
{
    const struct ddpi_gated *gated = ddpi_gated_of(run);
    struct ddpi_wait wait = ddpi_device_wait(&run->task);
    uint32_t turn = gated->first_turn + gated->last - gated->first;
    uint32_t word = DDPI_WORD_HALVES + turn % DDPI_HALVES;
    if (ddpi_device_await(device, &wait, word, turn + 1) == DDP_OK ||
        atomic_load(&device->refused) != DDP_OK)
        return;
    uint64_t end = ddpi_deadline(ddpi_monotonic_ms(), UPLOAD_MS);
    while (!ddpi_words_reached(&device->words, word, turn + 1) && ddpi_monotonic_ms() < end)
        (void)poll(NULL, 0, 1);
}
