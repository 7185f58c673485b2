/*
 * staged_run.c - a collective in slices (slices.h): each is copied from the device to pinned
 * memory, goes through an algorithm for host memory as an inner run, and its result is copied back.
 * Owns nothing but counts of parts while it runs; the pinned memory is the slots of the device,
 * which no other operation uses meanwhile.
 *
 * The slots are halved: while one slice is with the other ranks, the next one is copied from the
 * device, and the previous one to it. Buffers used in place allow that: the slices of a buffer have
 * no element in common.
 */
#include "staged_run.h"

#include "drive.h"
#include "error.h"
#include "host_memory.h"
#include "mem.h"
#include "slices.h"
#include "steps.h"

enum { HALVES = 2, HALF = DDPI_SLOTS_SIZE / HALVES };
_Static_assert((size_t)DDPI_WORLD_MAX *DDPI_DTYPE_SIZE_MOST <= HALF,
               "a slice has an element for each rank");

struct staged {
    struct ddpi_device *device;
    struct ddpi_task *task;
    struct ddpi_slices slices;
    bool sends,
        receives;   /* of a broadcast of a list, the root does the one, other ranks the other */
    size_t *counts; /* of the parts in the current slice; NULL: parts are equal */
    struct ddpi_wait wait;
    uint32_t downloaded[HALVES]; /* what the word of the lane is when the half is ready, or free */
    uint32_t uploaded[HALVES];
};

bool ddpi_is_staged(const struct ddpi_task *task)
{
    const struct ddpi_call *call = &task->call;
    return !ddpi_call_has_ring(call) || task->uneven || task->list != NULL ||
           (ddpi_call_reduces(call) && ddpi_kernels_check(call->dtype, call->op, NULL) != DDP_OK);
}

/* ---- copies ---- */

static ddp_status copied(struct ddpi_device *device, ddpi_cu_result result, size_t len)
{
    struct ddp_error err;
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    ddp_status status = ddpi_cuda_error(&device->cuda, &err, result,
                                        "copy %zu bytes between the GPU and pinned memory", len);
    return ddpi_device_fail(device, status, &err);
}

static ddp_status download(struct ddpi_device *device, void *to, const void *from, size_t len)
{
    ddpi_cu_stream stream = device->lanes[DDPI_LANE_DOWNLOAD].stream;
    return copied(device, device->cuda.memcpy_dtoh_async(to, (uintptr_t)from, len, stream), len);
}

static ddp_status upload(struct ddpi_device *device, void *to, const void *from, size_t len)
{
    ddpi_cu_stream stream = device->lanes[DDPI_LANE_UPLOAD].stream;
    return copied(device, device->cuda.memcpy_htod_async((uintptr_t)to, from, len, stream), len);
}

/* Of a list, what lies at byte @at of all its buffers: @bytes of pinned memory there, or from
 * there.
 */
static ddp_status copy_list(const struct staged *staged, enum ddpi_lane_kind kind, uint8_t *bytes,
                            const struct ddpi_stretch *stretch)
{
    struct ddpi_segments segments = ddpi_task_segments(staged->task);
    struct ddpi_spot spot = {0};
    struct ddpi_segment segment;
    size_t left = stretch->len;
    ddp_status status = DDP_OK;
    ddpi_segments_skip(&segments, &spot, stretch->at);
    while (status == DDP_OK && ddpi_segments_next(&segments, &spot, left, &segment)) {
        status = kind == DDPI_LANE_DOWNLOAD
                     ? download(staged->device, bytes, segment.send, segment.len)
                     : upload(staged->device, segment.recv, bytes, segment.len);
        bytes += segment.len;
        left -= segment.len;
    }
    return status;
}

static ddp_status download_stretch(const struct staged *staged, uint8_t *to,
                                   const struct ddpi_stretch *stretch)
{
    return staged->task->list != NULL
               ? copy_list(staged, DDPI_LANE_DOWNLOAD, to, stretch)
               : download(staged->device, to, staged->task->send + stretch->at, stretch->len);
}

static ddp_status upload_stretch(const struct staged *staged, uint8_t *from,
                                 const struct ddpi_stretch *stretch)
{
    return staged->task->list != NULL
               ? copy_list(staged, DDPI_LANE_UPLOAD, from, stretch)
               : upload(staged->device, staged->task->recv + stretch->at, from, stretch->len);
}

/* What the lane's word is to become when all that was enqueued there is done. */
static ddp_status stamp(struct ddpi_device *device, enum ddpi_lane_kind kind, uint32_t *ret_value)
{
    struct ddp_error err;
    ddp_status status = ddpi_lane_stamp(device, kind, &err);
    *ret_value = device->lanes[kind].launched;
    return status == DDP_OK ? DDP_OK : ddpi_device_fail(device, status, &err);
}

static ddp_status finish_copy(struct ddpi_device *device, const struct ddpi_wait *wait,
                              enum ddpi_lane_kind kind)
{
    uint32_t value;
    ddp_status status = stamp(device, kind, &value);
    return status == DDP_OK ? ddpi_device_await(device, wait, device->lanes[kind].word, value)
                            : status;
}

ddp_status ddpi_staged_download(struct ddpi_device *device, const struct ddpi_wait *wait, void *to,
                                const void *from, size_t len)
{
    ddp_status status = download(device, to, from, len);
    return status == DDP_OK ? finish_copy(device, wait, DDPI_LANE_DOWNLOAD) : status;
}

ddp_status ddpi_staged_upload(struct ddpi_device *device, const struct ddpi_wait *wait, void *to,
                              const void *from, size_t len)
{
    ddp_status status = upload(device, to, from, len);
    return status == DDP_OK ? finish_copy(device, wait, DDPI_LANE_UPLOAD) : status;
}

/* ---- slices ---- */

static uint8_t *half_of(uint8_t *slots, uint64_t index)
{
    return slots + index % HALVES * HALF;
}

static ddp_status download_slice(struct staged *staged, uint64_t index)
{
    struct ddpi_device *device = staged->device;
    struct ddpi_slice_cursor cursor = {.index = index};
    struct ddpi_stretch stretch;
    ddp_status status = DDP_OK;
    if (index >= staged->slices.count || !staged->sends)
        return DDP_OK;
    while (status == DDP_OK && ddpi_slice_next(&staged->slices, &cursor, &stretch))
        status =
            download_stretch(staged, half_of(device->slots_out, index) + stretch.offset, &stretch);
    return status == DDP_OK ? stamp(device, DDPI_LANE_DOWNLOAD, &staged->downloaded[index % HALVES])
                            : status;
}

static ddp_status upload_slice(struct staged *staged, uint64_t index)
{
    struct ddpi_device *device = staged->device;
    struct ddpi_slice_cursor cursor = {.index = index, .receives = true};
    struct ddpi_stretch stretch;
    ddp_status status = DDP_OK;
    if (!staged->receives)
        return DDP_OK;
    while (status == DDP_OK && ddpi_slice_next(&staged->slices, &cursor, &stretch))
        status =
            upload_stretch(staged, half_of(device->slots_in, index) + stretch.offset, &stretch);
    return status == DDP_OK ? stamp(device, DDPI_LANE_UPLOAD, &staged->uploaded[index % HALVES])
                            : status;
}

/* All slices have one deadline. */
static ddp_status exchange_slice(struct staged *staged, uint64_t index)
{
    struct ddpi_device *device = staged->device;
    struct ddpi_run run = {.wait = staged->wait};
    uint8_t *out = half_of(device->slots_out, index), *in = half_of(device->slots_in, index);
    run.task = ddpi_slice_task(&staged->slices, index, staged->sends ? out : in,
                               staged->receives ? in : out, staged->counts);
    ddpi_host_choose(device->comm, &run);
    ddp_status status = ddpi_drive_inner(device->comm, &run);
    staged->task->bytes_sent += run.task.bytes_sent;
    staged->task->bytes_received += run.task.bytes_received;
    staged->task->found_non_finite |= run.task.found_non_finite;
    return status;
}

static ddp_status await_lane(const struct staged *staged, enum ddpi_lane_kind kind, uint32_t value)
{
    return ddpi_device_await(staged->device, &staged->wait, staged->device->lanes[kind].word,
                             value);
}

static ddp_status run_slices(struct staged *staged)
{
    ddp_status status = download_slice(staged, 0);
    for (uint64_t i = 0; i < staged->slices.count && status == DDP_OK; i++) {
        status = await_lane(staged, DDPI_LANE_DOWNLOAD, staged->downloaded[i % HALVES]);
        if (status == DDP_OK)
            status = download_slice(staged, i + 1);
        if (status == DDP_OK)
            status = await_lane(staged, DDPI_LANE_UPLOAD, staged->uploaded[i % HALVES]);
        if (status == DDP_OK)
            status = exchange_slice(staged, i);
        if (status == DDP_OK)
            status = upload_slice(staged, i);
    }
    uint32_t last = staged->device->lanes[DDPI_LANE_UPLOAD].launched;
    return status == DDP_OK ? await_lane(staged, DDPI_LANE_UPLOAD, last) : status;
}

/* ---- before the first slice ---- */

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

ddp_status ddpi_staged_run(struct ddpi_device *device, struct ddpi_task *task)
{
    const struct ddp_comm *comm = device->comm;
    struct staged staged = {
        .device = device,
        .task = task,
        .slices = ddpi_slices_of(task, comm->rank, comm->world_size, HALF),
        .wait = ddpi_device_wait(task),
    };
    bool has_root = task->list != NULL && ddpi_call_is_rooted(&task->call);
    staged.sends = !has_root || comm->rank == task->call.root;
    staged.receives = !has_root || comm->rank != task->call.root;
    for (unsigned i = 0; i < HALVES; i++) {
        staged.downloaded[i] = device->lanes[DDPI_LANE_DOWNLOAD].launched;
        staged.uploaded[i] = device->lanes[DDPI_LANE_UPLOAD].launched;
    }
    if (task->uneven) {
        staged.counts = ddpi_calloc(comm->world_size, 2 * sizeof *staged.counts);
        if (staged.counts == NULL)
            return fail_nomem(device, comm->world_size * 2 * sizeof *staged.counts);
    }
    bool agrees = ddpi_call_is_in_pairs(&task->call) && comm->world_size > 1;
    ddp_status status = agrees ? agree(&staged) : DDP_OK;
    ddpi_device_stage(device, DDPI_STAGE_EXCHANGE);
    if (status == DDP_OK)
        status = run_slices(&staged);
    ddpi_device_stage(device, DDPI_STAGE_WORK);
    ddpi_free(staged.counts);
    return status;
}
