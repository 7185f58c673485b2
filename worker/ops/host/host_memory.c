/*
 * host_memory.c - operations on host memory: carries out the algorithm that selection.h picks. Owns
 * nothing. Must not use anything of worker/gpu.
 */
#include "host_memory.h"

#include "arena_run.h"
#include "debug.h"
#include "error.h"
#include "host_algorithms.h"
#include "peer_message.h"
#include "reduce.h"
#include "ring_engine.h"
#include "runs.h"

#include <inttypes.h>
#include <string.h>

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

/* @count elements; with a factor also in place. */
static void move_own(const struct ddpi_task *task, uint8_t *to, const uint8_t *from, size_t count)
{
    if (ddpi_call_shape(&task->call)->reduces && task->factor != 1)
        ddpi_scale(to, from, count, task->call.dtype, task->factor);
    else if (to != from)
        memcpy(to, from, count * task->element_size);
}

static void move_list(const struct ddpi_task *task)
{
    struct ddpi_segments segments = ddpi_task_segments(task);
    struct ddpi_spot spot = {0};
    struct ddpi_segment segment;
    while (ddpi_segments_next(&segments, &spot, SIZE_MAX, &segment))
        move_own(task, segment.recv, segment.send, segment.len / task->element_size);
}

static void check_alone(struct ddpi_task *task)
{
    struct ddpi_segments segments = ddpi_task_segments(task);
    struct ddpi_spot spot = {0};
    struct ddpi_segment segment;
    if (!task->call.finite_check)
        return;
    if (task->list == NULL)
        task->found_non_finite = ddpi_has_non_finite(task->recv, task->own, task->call.dtype);
    while (task->list != NULL && ddpi_segments_next(&segments, &spot, SIZE_MAX, &segment))
        task->found_non_finite |=
            ddpi_has_non_finite(segment.recv, segment.len / task->element_size, task->call.dtype);
}

static ddp_status alone_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                enum ddpi_movement *ret_movement)
{
    const struct ddpi_task *task = &run->task;
    struct ddpi_copy copy = ddpi_task_own_copy(task, comm->rank);
    if (task->list != NULL)
        move_list(task);
    else if (ddpi_call_shape(&task->call)->reduces && task->factor != 1 && copy.to != NULL)
        move_own(task, copy.to, copy.from, task->own);
    else if (copy.len > 0)
        memcpy(copy.to, copy.from, copy.len);
    check_alone(&run->task);
    *ret_movement = DDPI_COMPLETE;
    return DDP_OK;
}

static const struct ddpi_algorithm alone_algorithm = {
    .name = "alone", .takes_lists = true, .advance = alone_advance};

/* ---- the choice ---- */

static struct ddpi_selection_case case_of(const struct ddp_comm *comm, const struct ddpi_task *task)
{
    const struct ddpi_nodes *nodes = &comm->edges.nodes;
    return (struct ddpi_selection_case){.operation = task->call.operation,
                                        .reduces = ddpi_call_shape(&task->call)->reduces,
                                        .count = task->call.count,
                                        .element_size = task->element_size,
                                        .ranks = comm->world_size,
                                        .nodes = nodes->count,
                                        .node_ranks = nodes->most,
                                        .arena_ranks = DDPI_ARENA_RANKS,
                                        .asked = comm->algorithm};
}

/* Tell a user who wants to know: once for each operation and each power of two of bytes. */
static void tell_choice(struct ddp_comm *comm, const struct ddpi_selection_case *of,
                        const struct ddpi_selection *selection)
{
    char text[DDPI_SELECTION_TEXT];
    uint64_t bytes = ddpi_selection_bytes(of);
    unsigned class = bytes == 0 ? 0 : 63 - (unsigned)__builtin_clzll(bytes);
    uint64_t bit = UINT64_C(1) << class;
    _Atomic uint64_t *told = &comm->told[of->operation];
    if ((atomic_load_explicit(told, memory_order_relaxed) & bit) != 0 ||
        (atomic_fetch_or(told, bit) & bit) != 0)
        return;
    ddpi_selection_explain(selection, of, text);
    ddpi_debug(comm->rank, "%s from %" PRIu64 " to %" PRIu64 " bytes: %s",
               ddpi_operation_name(of->operation), class == 0 ? 0 : bit, 2 * bit - 1, text);
}

/* An algorithm for what has no other one than the ring. */
static const struct ddpi_algorithm *choose_way(const struct ddp_comm *comm,
                                               const struct ddpi_task *task)
{
    if (comm->world_size == 1)
        return &alone_algorithm;
    if (task->call.operation == DDPI_MONITORED)
        return &ddpi_monitored_algorithm;
    return ddpi_call_shape(&task->call)->has_ring ? &ddpi_ring_algorithm : &ddpi_parts_algorithm;
}

/* Where ranks do not meet in memory, `direct` gathers what all ranks contribute. */
static const struct ddpi_algorithm *choose_collective(struct ddp_comm *comm, struct ddpi_task *task)
{
    struct ddpi_selection_case of = case_of(comm, task);
    struct ddpi_selection selection = ddpi_select(&comm->table, &of);
    ddp_algorithm chosen = selection.algorithm;
    if (comm->world_size > 1)
        tell_choice(comm, &of, &selection);
    task->gathered = chosen == DDP_ALGORITHM_DIRECT && !ddpi_selection_shares(&of);
    if (ddpi_call_shape(&task->call)->reduces)
        task->call.algorithm = chosen;
    if (chosen == DDP_ALGORITHM_DOUBLING)
        return &ddpi_doubling_algorithm;
    if (chosen == DDP_ALGORITHM_HIERARCHICAL)
        return &ddpi_hierarchical_algorithm;
    if (chosen == DDP_ALGORITHM_DIRECT && !task->gathered)
        return of.operation == DDPI_MONITORED ? &ddpi_monitored_meeting : &ddpi_arena_algorithm;
    if (task->gathered)
        task->ring.kind = DDPI_RING_ALL_GATHER;
    return choose_way(comm, task);
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
    if (ddpi_call_shape(&run->task.call)->message) {
        run->algorithm = &ddpi_message_algorithm;
        return;
    }
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
    ddpi_host_choose(comm, run);
    if (run->is_awaited)
        ddpi_runs_carry_out(comm, run);
    else
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
    if (ddpi_host_ring(comm, &task) != DDP_OK)
        return ddpi_comm_report(comm, err);
    comm->unfinished = comm->seq;
    return DDP_OK;
}
