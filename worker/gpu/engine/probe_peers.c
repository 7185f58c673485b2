/*
 * probe_peers.c - the first operation on device memory: the ranks find out which GPU each of them
 * uses, and which can read the memory of which.
 *
 * They try it: each rank writes a pattern to its scratch memory and offers that, and ranks that
 * would read it later open it and compare. Tables of the topology say yes where containers, MIG or
 * a broken bridge say no. A failure is printed with DDP_DEBUG, and the data goes through the host.
 */
#include "device_state.h"

#include "debug.h"
#include "error.h"
#include "mem.h"
#include "pointer.h"
#include "reduce.h"
#include "steps.h"

#include <string.h>

/* A rank's description of itself. */
struct seat {
    char machine[DDPI_MACHINE_TEXT];
    char gpu[64];
    char bus[16];
    uint8_t uuid[16];
};

struct meeting {
    struct ddpi_device *device;
    const struct ddpi_task *task;
    struct seat *seats;
    struct ddpi_offer *offers; /* of scratch memory */
};

static bool same_machine(const struct meeting *meeting, uint32_t a, uint32_t b)
{
    const struct seat *seats = meeting->seats;
    return memcmp(seats[a].machine, seats[b].machine, DDPI_MACHINE_TEXT) == 0;
}

static bool same_gpu(const struct meeting *meeting, uint32_t a, uint32_t b)
{
    return same_machine(meeting, a, b) &&
           memcmp(meeting->seats[a].uuid, meeting->seats[b].uuid, 16) == 0;
}

static uint32_t previous_rank(const struct meeting *meeting)
{
    const struct ddp_comm *comm = meeting->device->comm;
    return ddpi_ring_prev(comm->rank, comm->world_size);
}

/* ---- what DDP_DEBUG prints ---- */

static void debug_seat(const struct meeting *meeting)
{
    const struct seat *seat = &meeting->seats[meeting->device->comm->rank];
    ddpi_debug(meeting->device->comm->rank,
               "works on GPU %d (%s at %s) with a driver for CUDA %d.%d", meeting->device->ordinal,
               seat->gpu, seat->bus, meeting->device->cuda.version / 1000,
               meeting->device->cuda.version % 1000 / 10);
}

static void debug_way(const struct meeting *meeting)
{
    const struct ddpi_device *device = meeting->device;
    uint32_t rank = device->comm->rank, from = previous_rank(meeting);
    const char *where = same_gpu(meeting, from, rank)       ? "on the same GPU"
                        : same_machine(meeting, from, rank) ? "on another GPU of this machine"
                                                            : "on another machine";
    if (device->ways.reads[rank])
        ddpi_debug(meeting->device->comm->rank, "reads the memory of rank %u, %s, %s", from, where,
                   meeting->offers[from].process == device->shares.process ? "in the same process"
                                                                           : "over CUDA IPC");
    else
        ddpi_debug(meeting->device->comm->rank,
                   "gets the data of rank %u, %s, through pinned memory and %s", from, where,
                   device->comm->edges.ring[DDPI_PREV]->ops->name);
}

static void debug_sharing(const struct meeting *meeting, uint32_t a, uint32_t b)
{
    if (meeting->device->comm->rank == 0)
        ddpi_debug(
            0, "ranks %u and %u share a GPU, so the data of all collectives goes through the host",
            a, b);
}

/* ---- how it is found out ---- */

static ddp_status describe_seat(struct meeting *meeting, struct ddp_error *err)
{
    const struct ddpi_cuda *cuda = &meeting->device->cuda;
    struct seat *seat = &meeting->seats[meeting->device->comm->rank];
    memcpy(seat->machine, meeting->device->machine, sizeof seat->machine);
    ddpi_cu_device gpu;
    struct ddpi_cu_uuid uuid;
    ddpi_cu_result result = cuda->ctx_get_device(&gpu);
    if (result == DDPI_CU_SUCCESS)
        result = cuda->device_get_uuid(&uuid, gpu);
    if (result == DDPI_CU_SUCCESS)
        result = cuda->device_get_name(seat->gpu, sizeof seat->gpu, gpu);
    if (result == DDPI_CU_SUCCESS)
        result = cuda->device_get_pci_bus_id(seat->bus, sizeof seat->bus, gpu);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(cuda, err, result, "ask what GPU this is");
    memcpy(seat->uuid, uuid.bytes, sizeof seat->uuid);
    return DDP_OK;
}

/* Derived from what distinguishes this memory from that of every other rank, job and generation. By
 * Steele, Lea and Flood's splitmix64. */
static void make_pattern(const struct ddpi_offer *offer, uint8_t pattern[DDPI_PATTERN_SIZE])
{
    uint64_t state = offer->process ^ offer->allocation << 20 ^ offer->address << 8 ^ offer->rank;
    for (size_t at = 0; at < DDPI_PATTERN_SIZE; at += sizeof state) {
        state += 0x9e3779b97f4a7c15U;
        uint64_t word = (state ^ state >> 30) * 0xbf58476d1ce4e5b9U;
        word = (word ^ word >> 27) * 0x94d049bb133111ebU;
        word ^= word >> 31;
        memcpy(pattern + at, &word, sizeof word);
    }
}

ddp_status ddpi_device_pattern(struct ddpi_device *device, struct ddp_error *err)
{
    const struct ddpi_cuda *cuda = &device->cuda;
    const void *scratch = (const void *)(uintptr_t)device->scratch;
    struct ddpi_pointer memory;
    ddp_status status = ddpi_pointer_look(cuda, scratch, "scratch memory", &memory, err);
    if (status != DDP_OK)
        return status;
    ddpi_share_offer(&device->shares, device->comm->rank, scratch, DDPI_SCRATCH_ALL, memory.buffer,
                     &device->own_scratch);
    uint8_t pattern[DDPI_PATTERN_SIZE];
    make_pattern(&device->own_scratch, pattern);
    ddpi_cu_stream stream = device->lanes[DDPI_LANE_UPLOAD].stream;
    ddpi_cu_result result =
        cuda->memcpy_htod_async(device->scratch, pattern, sizeof pattern, stream);
    if (result == DDPI_CU_SUCCESS)
        result = cuda->stream_synchronize(stream);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(cuda, err, result, "write %zu bytes of GPU memory", sizeof pattern);
    return DDP_OK;
}

static ddp_status read_pattern(struct ddpi_device *device, const struct ddpi_offer *offer,
                               uint8_t pattern[DDPI_PATTERN_SIZE], struct ddp_error *err)
{
    ddpi_cu_deviceptr there;
    ddp_status status = ddpi_share_open(&device->shares, offer, &there, err);
    if (status != DDP_OK)
        return status;
    /* With a kernel, as later, into this rank's own scratch; and from there into a pinned slot, as
     * copies to other host memory wait for the stream. */
    ddpi_cu_stream stream = device->lanes[DDPI_LANE_DOWNLOAD].stream;
    ddpi_cu_deviceptr here = device->scratch + DDPI_SCRATCH_SLOTS;
    const struct ddpi_reduction copy = {.in = {(const void *)(uintptr_t)there},
                                        .out = {(void *)(uintptr_t)here},
                                        .nin = 1,
                                        .nout = 1,
                                        .count = DDPI_PATTERN_SIZE / sizeof(int32_t),
                                        .dtype = DDP_INT32,
                                        .divisor = 1};
    status = ddpi_kernels_launch(&device->kernels, &copy, stream, err);
    if (status != DDP_OK)
        return status;
    ddpi_cu_result result =
        device->cuda.memcpy_dtoh_async(device->slots_out, here, DDPI_PATTERN_SIZE, stream);
    if (result == DDPI_CU_SUCCESS)
        result = device->cuda.stream_synchronize(stream);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&device->cuda, err, result, "read the memory of rank %u",
                               offer->rank);
    memcpy(pattern, device->slots_out, DDPI_PATTERN_SIZE);
    return DDP_OK;
}

/* Prints with DDP_DEBUG why not. */
static bool reads_scratch(struct ddpi_device *device, const struct ddpi_offer *offer)
{
    uint8_t expected[DDPI_PATTERN_SIZE], seen[DDPI_PATTERN_SIZE] = {0};
    make_pattern(offer, expected);
    struct ddp_error err;
    ddp_status status = read_pattern(device, offer, seen, &err);
    if (status == DDP_OK && memcmp(expected, seen, sizeof seen) == 0)
        return true;
    ddpi_debug(device->comm->rank, "cannot use the GPU memory of rank %u: %s", offer->rank,
               status == DDP_OK ? "what it reads there is not what was written" : err.msg);
    return false;
}

static bool reads_peer(struct meeting *meeting, uint32_t from)
{
    struct ddpi_device *device = meeting->device;
    return same_machine(meeting, device->comm->rank, from) &&
           ddpi_offer_suits(&meeting->offers[from], &device->own_scratch) &&
           reads_scratch(device, &meeting->offers[from]);
}

/* Whether two ranks use one GPU, where kernels of several processes take turns. */
static bool share_gpu(const struct meeting *meeting)
{
    uint32_t ranks = meeting->device->comm->world_size;
    for (uint32_t a = 0; a < ranks; a++)
        for (uint32_t b = a + 1; b < ranks; b++)
            if (same_gpu(meeting, a, b)) {
                debug_sharing(meeting, a, b);
                return true;
            }
    return false;
}

/* Find out which rank reads the memory of the one before it. */
static ddp_status probe_memory(struct meeting *meeting)
{
    struct ddpi_device *device = meeting->device;
    uint32_t rank = device->comm->rank;
    uint8_t *reads = device->ways.reads;
    meeting->offers[rank] = device->own_scratch;
    ddp_status status =
        ddpi_device_gather(device, meeting->task, meeting->offers, sizeof *meeting->offers);
    if (status != DDP_OK)
        return status;
    device->previous_scratch = meeting->offers[previous_rank(meeting)];
    reads[rank] = reads_peer(meeting, previous_rank(meeting));
    status = ddpi_device_gather(device, meeting->task, reads, sizeof *reads);
    if (status == DDP_OK)
        debug_way(meeting);
    return status;
}

static ddp_status probe_all(struct meeting *meeting)
{
    struct ddpi_device *device = meeting->device;
    struct ddp_error err;
    ddp_status status = describe_seat(meeting, &err);
    if (status != DDP_OK)
        return ddpi_device_fail(device, status, &err);
    status = ddpi_device_gather(device, meeting->task, meeting->seats, sizeof *meeting->seats);
    if (status != DDP_OK)
        return status;
    debug_seat(meeting);
    device->ways.shared = share_gpu(meeting);
    return device->ways.shared ? DDP_OK : probe_memory(meeting);
}

ddp_status ddpi_device_meet(struct ddpi_device *device, const struct ddpi_task *task)
{
    uint32_t ranks = device->comm->world_size;
    struct meeting meeting = {.device = device,
                              .task = task,
                              .seats = ddpi_calloc(ranks, sizeof *meeting.seats),
                              .offers = ddpi_calloc(ranks, sizeof *meeting.offers)};
    ddp_status status;
    if (meeting.seats == NULL || meeting.offers == NULL) {
        struct ddp_error err;
        status =
            ddpi_device_fail(device, ddpi_error_nomem(&err, ranks * sizeof *meeting.seats), &err);
    } else {
        status = probe_all(&meeting);
    }
    ddpi_free(meeting.seats);
    ddpi_free(meeting.offers);
    return status;
}
