/*
 * one_gpu.c - all ranks on one GPU: rank 0 opens the buffers of all ranks and launches the kernels
 * for all, one kernel for most operations. A GPU runs one process at a time, so a ring of kernels
 * that wait for each other would starve; this way every byte is read once and written once.
 *
 * The call alone determines the kernels, so all ranks know them: rank 0 launches, the others count
 * their bytes and learn when it is done. If rank 0 cannot open a buffer yet (exchange_offers.c),
 * all ranks use scratch memory, a window at a time: the same sums in the same order.
 */
#include "pass_descriptors.h"

#include "error.h"
#include "reduce.h"
#include "ring_engine.h"
#include "steps.h"

_Static_assert((int)DDPI_REDUCE_MOST <= 16, "a bit for each deal");

enum {
    NO_RANK = DDPI_REDUCE_MOST,
    WINDOW = DDPI_PARTIALS_SIZE / 2, /* bytes of scratch for inputs, and for outputs */
};

/* One kernel: the same elements of the send buffers of several ranks go into the receive buffers of
 * several ranks. */
struct deal {
    uint32_t nin, nout;
    uint32_t in[DDPI_REDUCE_MOST], out[DDPI_REDUCE_MOST]; /* ranks */
    size_t in_first, out_first;                           /* elements */
    size_t count;
    uint32_t index; /* of the operation's deals */
};

static uint32_t deal_count(const struct ddpi_task *task)
{
    bool sliced =
        task->call.operation == DDPI_ALL_GATHER || task->call.operation == DDPI_REDUCE_SCATTER;
    return sliced ? task->ring.nranks : 1;
}

static void all_but(uint32_t but, uint32_t nranks, uint32_t ranks[DDPI_REDUCE_MOST],
                    uint32_t *ret_count)
{
    *ret_count = 0;
    for (uint32_t i = 0; i < nranks; i++)
        if (i != but)
            ranks[(*ret_count)++] = i;
}

static void one_of(uint32_t rank, uint32_t ranks[DDPI_REDUCE_MOST], uint32_t *ret_count)
{
    ranks[0] = rank;
    *ret_count = 1;
}

static struct deal make_deal(const struct ddpi_task *task, uint32_t index)
{
    const struct ddpi_call *call = &task->call;
    struct deal deal = {.count = call->count, .index = index};
    uint32_t nranks = task->ring.nranks;
    if (call->operation == DDPI_BROADCAST)
        one_of(call->root, deal.in, &deal.nin);
    else if (call->operation == DDPI_ALL_GATHER)
        one_of(index, deal.in, &deal.nin);
    else
        all_but(NO_RANK, nranks, deal.in, &deal.nin);
    if (call->operation == DDPI_REDUCE)
        one_of(call->root, deal.out, &deal.nout);
    else if (call->operation == DDPI_REDUCE_SCATTER)
        one_of(index, deal.out, &deal.nout);
    else
        all_but(call->operation == DDPI_BROADCAST ? call->root : NO_RANK, nranks, deal.out,
                &deal.nout);
    if (call->operation == DDPI_ALL_GATHER)
        deal.out_first = index * call->count;
    if (call->operation == DDPI_REDUCE_SCATTER)
        deal.in_first = index * call->count;
    return deal;
}

static ddp_status open_buffer(struct ddpi_device *device, uint32_t rank, bool recv, size_t offset,
                              void **ret_address, struct ddp_error *err)
{
    ddpi_cu_deviceptr address;
    ddp_status status =
        ddpi_share_open(&device->shares, &device->offers[2 * rank + recv], &address, err);
    if (status == DDP_OK)
        *ret_address = (void *)(uintptr_t)(address + offset);
    return status;
}

static struct ddpi_reduction reduction_of(const struct ddpi_device *device,
                                          const struct ddpi_task *task, const struct deal *deal)
{
    return (struct ddpi_reduction){
        .nin = deal->nin,
        .nout = deal->nout,
        .count = deal->count,
        .dtype = task->call.dtype,
        .op = task->call.op,
        .divisor = task->call.op == DDP_AVERAGE && deal->nin > 1 ? task->ring.nranks : 1,
        .non_finite = ddpi_device_check(device, task, deal->index)};
}

static ddp_status launch_deal(struct ddpi_device *device, const struct ddpi_task *task,
                              const struct deal *deal, struct ddp_error *err)
{
    struct ddpi_reduction work = reduction_of(device, task, deal);
    ddp_status status = DDP_OK;
    if (deal->count == 0) /* there may be no buffers */
        return DDP_OK;
    for (uint32_t i = 0; i < deal->nin && status == DDP_OK; i++) {
        void *address = NULL;
        status = open_buffer(device, deal->in[i], false, deal->in_first * task->element_size,
                             &address, err);
        work.in[i] = address;
    }
    for (uint32_t i = 0; i < deal->nout && status == DDP_OK; i++)
        status = open_buffer(device, deal->out[i], true, deal->out_first * task->element_size,
                             &work.out[i], err);
    if (status == DDP_OK)
        status = ddpi_kernels_launch(&device->kernels, &work,
                                     device->lanes[DDPI_LANE_REDUCE].stream, err);
    return status;
}

/* Wait for the kernel; @status is that of its launch. */
static ddp_status await_kernel(struct ddpi_device *device, const struct ddpi_task *task,
                               ddp_status status, struct ddp_error *err)
{
    if (status == DDP_OK)
        status = ddpi_lane_stamp(device, DDPI_LANE_REDUCE, err);
    if (status != DDP_OK)
        return ddpi_device_fail(device, status, err);
    struct ddpi_wait wait = ddpi_device_wait(task);
    const struct ddpi_lane *lane = &device->lanes[DDPI_LANE_REDUCE];
    return ddpi_device_await(device, &wait, lane->word, lane->launched);
}

static ddp_status launch_all(struct ddpi_device *device, const struct ddpi_task *task)
{
    struct ddp_error err;
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < deal_count(task) && status == DDP_OK; i++) {
        struct deal deal = make_deal(task, i);
        status = launch_deal(device, task, &deal, &err);
    }
    return await_kernel(device, task, status, &err);
}

/* All ranks learn that rank 0 is done, and whose result is not finite: a bit for each deal. */
static ddp_status share_completion(struct ddpi_device *device, struct ddpi_task *task)
{
    uint32_t own = task->call.operation == DDPI_REDUCE_SCATTER ? task->ring.rank : 0;
    uint16_t failed = 0;
    for (uint32_t i = 0; i < deal_count(task) && task->ring.rank == 0; i++)
        failed |= (uint16_t)(ddpi_device_check_failed(device, i) << i);
    struct ddpi_task news = {
        .call = task->call,
        .ring = {.kind = DDPI_RING_BROADCAST, .rank = task->ring.rank, .nranks = task->ring.nranks},
        .send = (const uint8_t *)&failed,
        .recv = (uint8_t *)&failed,
        .count = sizeof failed,
        .factor = 1,
        .element_size = 1,
        .timeout_ms = task->timeout_ms};
    ddp_status status = ddpi_host_ring(device->comm, &news);
    if (status == DDP_OK && task->call.finite_check)
        task->found_non_finite = (failed >> own & 1) != 0;
    return status;
}

ddp_status ddpi_alone_run(struct ddpi_device *device, struct ddpi_task *task)
{
    struct ddp_error err;
    const struct ddpi_reduction work = {.in = {task->send},
                                        .out = {task->recv},
                                        .nin = 1,
                                        .nout = 1,
                                        .count = task->own,
                                        .dtype = task->call.dtype,
                                        .op = task->call.op,
                                        .divisor = 1,
                                        .non_finite = ddpi_device_check(device, task, 0)};
    ddp_status status =
        ddpi_kernels_launch(&device->kernels, &work, device->lanes[DDPI_LANE_REDUCE].stream, &err);
    status = await_kernel(device, task, status, &err);
    if (status == DDP_OK)
        task->found_non_finite = ddpi_device_check_failed(device, 0);
    return status;
}

/* ---- through scratch memory ---- */

static ddp_status launch_in_scratch(struct ddpi_device *device, const struct ddpi_task *task,
                                    const struct deal *window, struct ddp_error *err)
{
    struct ddpi_reduction work = reduction_of(device, task, window);
    ddpi_cu_deviceptr at[DDPI_REDUCE_MOST];
    ddp_status status = DDP_OK;
    for (uint32_t rank = 0; rank < task->ring.nranks && status == DDP_OK; rank++)
        status = ddpi_share_open(&device->shares, &device->scratches[rank], &at[rank], err);
    for (uint32_t i = 0; i < window->nin && status == DDP_OK; i++)
        work.in[i] = (const void *)(uintptr_t)(at[window->in[i]] + DDPI_SCRATCH_PARTIALS);
    for (uint32_t i = 0; i < window->nout && status == DDP_OK; i++)
        work.out[i] = (void *)(uintptr_t)(at[window->out[i]] + DDPI_SCRATCH_PARTIALS + WINDOW);
    if (status == DDP_OK)
        status = ddpi_kernels_launch(&device->kernels, &work,
                                     device->lanes[DDPI_LANE_REDUCE].stream, err);
    return await_kernel(device, task, status, err);
}

static bool takes_part(uint32_t rank, const uint32_t *ranks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

static ddp_status copy_window(struct ddpi_device *device, const struct ddpi_task *task,
                              ddpi_cu_deviceptr to, ddpi_cu_deviceptr from, size_t len)
{
    struct ddp_error err;
    ddp_status status = DDP_OK;
    ddpi_cu_result result =
        device->cuda.memcpy_async(to, from, len, device->lanes[DDPI_LANE_REDUCE].stream);
    if (result != DDPI_CU_SUCCESS)
        status = ddpi_cuda_error(&device->cuda, &err, result, "copy within the GPU");
    return await_kernel(device, task, status, &err);
}

/* Copy in, run the kernel, copy out. No rank begins one of these steps before all others have ended
 * what it needs. */
static ddp_status move_window(struct ddpi_device *device, struct ddpi_task *task,
                              const struct deal *window)
{
    uint32_t rank = task->ring.rank;
    size_t len = window->count * task->element_size;
    ddpi_cu_deviceptr scratch = device->scratch + DDPI_SCRATCH_PARTIALS;
    ddp_status status = DDP_OK;
    if (takes_part(rank, window->in, window->nin))
        status = copy_window(device, task, scratch,
                             (uintptr_t)task->send + window->in_first * task->element_size, len);
    if (status == DDP_OK) /* serves as a barrier: the values are known */
        status = ddpi_device_gather(device, task, device->opens, 1);
    struct ddp_error err;
    if (status == DDP_OK && rank == 0)
        status = launch_in_scratch(device, task, window, &err);
    if (status == DDP_OK)
        status = share_completion(device, task);
    if (status == DDP_OK && takes_part(rank, window->out, window->nout))
        status = copy_window(device, task,
                             (uintptr_t)task->recv + window->out_first * task->element_size,
                             scratch + WINDOW, len);
    return status;
}

static ddp_status move_windows(struct ddpi_device *device, struct ddpi_task *task)
{
    const size_t room = WINDOW / task->element_size;
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < deal_count(task); i++) {
        struct deal deal = make_deal(task, i), window = deal;
        for (size_t done = 0; done < deal.count && status == DDP_OK; done += window.count) {
            window.count = deal.count - done < room ? deal.count - done : room;
            window.in_first = deal.in_first + done;
            window.out_first = deal.out_first + done;
            status = move_window(device, task, &window);
        }
    }
    return status;
}

/* ---- all of it ---- */

/* Bytes of @owner's that cross between it and rank 0, as this rank counts them. */
static size_t crossing(const struct ddpi_task *task, uint32_t owner, size_t count)
{
    bool ours = task->ring.rank == 0 || task->ring.rank == owner;
    return owner != 0 && ours ? count * task->element_size : 0;
}

/* A rank has sent what was read from it, and received what was written to it; rank 0 the reverse.
 */
static void count_bytes(struct ddpi_task *task)
{
    bool leads = task->ring.rank == 0;
    for (uint32_t i = 0; i < deal_count(task); i++) {
        struct deal deal = make_deal(task, i);
        for (uint32_t k = 0; k < deal.nin; k++)
            *(leads ? &task->bytes_received : &task->bytes_sent) +=
                crossing(task, deal.in[k], deal.count);
        for (uint32_t k = 0; k < deal.nout; k++)
            *(leads ? &task->bytes_sent : &task->bytes_received) +=
                crossing(task, deal.out[k], deal.count);
    }
}

/* Pass descriptors that rank 0 needs, over an edge that is made for it. */
static ddp_status bring_descriptors(struct ddpi_device *device, const struct ddpi_task *task)
{
    uint64_t reader = device->offers[0].process;
    bool leads = task->ring.rank == 0;
    struct ddpi_wait wait = ddpi_device_wait(task);
    ddp_status status = DDP_OK;
    for (uint32_t owner = 1; owner < task->ring.nranks && status == DDP_OK; owner++) {
        const struct ddpi_offer *offers = &device->offers[2 * owner];
        if ((!leads && task->ring.rank != owner) || !ddpi_handover_concerns(offers, 2, reader))
            continue;
        struct ddpi_edge *edge;
        status = ddpi_wait_edge(device->comm, &wait, leads ? owner : 0, &edge);
        if (status == DDP_OK)
            status = leads ? ddpi_receive_descriptors(device, &wait, edge, offers, 2)
                           : ddpi_pass_descriptors(device, edge, 0, offers, 2);
    }
    return status;
}

ddp_status ddpi_direct_run(struct ddpi_device *device, struct ddpi_task *task)
{
    ddp_status status;
    if (device->opens[0] == 0) {
        status = move_windows(device, task);
        ddpi_device_stage(device, DDPI_STAGE_WORK);
    } else {
        status = bring_descriptors(device, task);
        if (status == DDP_OK && task->ring.rank == 0)
            status = launch_all(device, task);
        ddpi_device_stage(device, DDPI_STAGE_WORK);
        if (status == DDP_OK)
            status = share_completion(device, task);
        ddpi_device_stage(device, DDPI_STAGE_COMPLETION);
    }
    if (status == DDP_OK)
        count_bytes(task);
    return status;
}
