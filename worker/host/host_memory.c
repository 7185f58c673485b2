/*
 * host_memory.c - operations on host memory: picks the algorithm. Owns nothing. Must not use
 * anything of worker/cuda.
 */
#include "host_memory.h"

#include "arena_run.h"
#include "doubling_run.h"
#include "error.h"
#include "hierarchical_run.h"
#include "monitored_run.h"
#include "parts_run.h"
#include "peer_message.h"
#include "reduce.h"
#include "ring_engine.h"
#include "runs.h"

#include <string.h>

enum { DOUBLING_MOST = 128 * 1024 }; /* bytes of an all_reduce that auto gives to doubling */

static ddp_status host_look(struct ddpi_memory *memory, const void *address, const char *what,
                            struct ddpi_buffer *ret_buffer, struct ddp_error *err)
{
    (void)address;
    (void)what;
    (void)err;
    ret_buffer->memory = memory;
    return DDP_OK;
}

/* ---- a world of one ---- */

static ddp_status alone_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                enum ddpi_movement *ret_movement)
{
    const struct ddpi_task *task = &run->task;
    struct ddpi_copy copy = ddpi_task_own_copy(task, comm->rank);
    if (ddpi_call_reduces(&task->call) && task->factor != 1 && copy.to != NULL) /* also in place */
        ddpi_scale(copy.to, copy.from, task->own, task->call.dtype, task->factor);
    else if (copy.len > 0)
        memcpy(copy.to, copy.from, copy.len);
    *ret_movement = DDPI_COMPLETE;
    return DDP_OK;
}

static const struct ddpi_algorithm alone_algorithm = {.name = "alone", .advance = alone_advance};

/* ---- the choice ---- */

/* Ranks that do not all share memory pass an all_reduce in fewer hops, as long as bytes cost less
 * than hops. The same on all ranks. */
static bool doubles(const struct ddp_comm *comm, const struct ddpi_task *task)
{
    const struct ddpi_call *call = &task->call;
    if (comm->world_size == 1 || !ddpi_doubling_is_possible(call, task->element_size))
        return false;
    return comm->algorithm == DDP_ALGORITHM_DOUBLING ||
           (comm->algorithm == DDP_ALGORITHM_AUTO && !ddpi_arena_is_chosen(comm) &&
            call->count <= DOUBLING_MOST / task->element_size);
}

/* Ranks of several nodes pass a large all_reduce through the memory of each node. The same on all
 * ranks. */
static bool climbs(const struct ddp_comm *comm, const struct ddpi_task *task)
{
    return ddpi_hierarchical_is_possible(comm, &task->call) &&
           (comm->algorithm == DDP_ALGORITHM_HIERARCHICAL ||
            (comm->algorithm == DDP_ALGORITHM_AUTO &&
             task->call.count > DOUBLING_MOST / task->element_size));
}

/* Where all ranks share memory, everything goes through it, unless another algorithm is asked for.
 */
static const struct ddpi_algorithm *choose_collective(const struct ddp_comm *comm,
                                                      struct ddpi_task *task)
{
    bool reduces = ddpi_call_reduces(&task->call);
    if (doubles(comm, task)) {
        task->call.algorithm = DDP_ALGORITHM_DOUBLING;
        return &ddpi_doubling_algorithm;
    }
    if (climbs(comm, task)) {
        task->call.algorithm = DDP_ALGORITHM_HIERARCHICAL;
        return &ddpi_hierarchical_algorithm;
    }
    bool shared = ddpi_arena_is_chosen(comm);
    task->gathered = reduces && comm->algorithm == DDP_ALGORITHM_DIRECT && !shared;
    if (reduces)
        task->call.algorithm = task->gathered || shared ? DDP_ALGORITHM_DIRECT : DDP_ALGORITHM_RING;
    if (shared)
        return &ddpi_arena_algorithm;
    if (task->gathered)
        task->ring.kind = DDPI_RING_ALL_GATHER;
    if (comm->world_size == 1)
        return &alone_algorithm;
    if (task->call.operation == DDPI_MONITORED)
        return &ddpi_monitored_algorithm;
    return ddpi_call_has_ring(&task->call) ? &ddpi_ring_algorithm : &ddpi_parts_algorithm;
}

/* A round in which each rank passes its part of @part_size bytes at @parts to all others. */
static void prepare_round(const struct ddp_comm *comm, struct ddpi_task *task, uint8_t *parts,
                          size_t part_size)
{
    task->send = parts + comm->rank * part_size;
    task->recv = parts;
    task->count = comm->world_size;
    task->element_size = part_size;
    task->no_payload = true;
    task->ring = (struct ddpi_ring){
        .kind = DDPI_RING_ALL_GATHER, .rank = comm->rank, .nranks = comm->world_size};
}

void ddpi_host_choose(struct ddp_comm *comm, struct ddpi_run *run)
{
    run->algorithm = choose_collective(comm, &run->task);
    if (run->task.call.operation == DDPI_BARRIER && run->algorithm != &ddpi_arena_algorithm)
        prepare_round(comm, &run->task, comm->tokens, 1);
}

static ddp_status host_submit(struct ddpi_memory *memory, struct ddp_comm *comm,
                              struct ddpi_run *run, void *stream, struct ddp_error *err)
{
    (void)memory;
    if (stream != NULL && run->task.call.operation == DDPI_BARRIER)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no device is in use, so there is no stream to wait on: pass NULL");
    if (stream != NULL && run->task.call.operation == DDPI_MONITORED)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a monitored barrier is not enqueued on a stream: pass NULL");
    if (stream != NULL && run->task.count > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "host memory takes no stream: pass NULL");
    if (ddpi_call_is_message(&run->task.call))
        run->algorithm = &ddpi_message_algorithm;
    else
        ddpi_host_choose(comm, run);
    ddpi_runs_put(comm, run);
    return DDP_OK;
}

const struct ddpi_memory_type ddpi_host_memory = {
    .name = "host", .look = host_look, .submit = host_submit};

ddp_status ddpi_host_join(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err)
{
    struct ddpi_task task = {.call = {.operation = DDPI_JOIN, .seq = comm->seq++},
                             .timeout_ms = timeout_ms};
    prepare_round(comm, &task, comm->edges.meeting.cards, DDPI_CARD_SLOT);
    return ddpi_host_ring(comm, &task) == DDP_OK ? DDP_OK : ddpi_comm_report(comm, err);
}
