/*
 * hierarchical_run.c - all_reduce between nodes. The stages of hierarchy.h follow one another,
 * slice by slice: inside a node as operations in its arena, between nodes as exchanges. Partial
 * results are in the receive buffer; the shares of other nodes come to the communicator's scratch
 * memory. A run owns the exchange under way, and the counts of the parts.
 */
#include "host_algorithms.h"

#include "arena_run.h"
#include "chunk_layout.h"
#include "exchange.h"
#include "hierarchy.h"
#include "mem.h"
#include "reduce.h"
#include "reduce_any.h"
#include "ring_compare.h"

#include <string.h>

enum stage { COMPARE, MEET, REDUCE, SCATTER, GATHER, SPREAD, OVER };

/* The state of a run. */
struct hierarchical_run {
    struct ddpi_hierarchy hierarchy;
    enum stage stage;
    struct ddpi_ring_compare compare;
    size_t index;                  /* of the slice */
    struct ddpi_chunk slice, part; /* the part of this rank */
    struct ddpi_task inside;       /* what the ranks of the node do */
    struct ddpi_arena_op op;       /* it, in the arena */
    struct ddpi_exchange exchange;
    size_t *counts, *offsets; /* of the parts, by rank of the node; NULL: the node has one rank */
    uint64_t sent, received;  /* in the stages before */
};
DDPI_RUN_STATE_FITS(struct hierarchical_run);

static struct hierarchical_run *hierarchical_of(struct ddpi_run *run)
{
    return (struct hierarchical_run *)(void *)run->state;
}

static bool is_alone(const struct hierarchical_run *state)
{
    return ddpi_node_ranks(state->hierarchy.nodes) == 1;
}

static uint8_t *result_at(const struct ddpi_run *run, size_t element)
{
    return run->task.recv + element * run->task.element_size;
}

/* ---- inside the node ---- */

/* The elements of the slice, for all ranks of the node: reduced to their parts, or the parts of
 * all. */
static void inside_begin(struct ddp_comm *comm, struct ddpi_run *run, enum ddpi_operation operation)
{
    struct hierarchical_run *state = hierarchical_of(run);
    bool reduces = operation == DDPI_REDUCE_SCATTER;
    const struct ddpi_parts parts = {.counts = state->counts, .offsets = state->offsets};
    struct ddpi_task *inside = &state->inside;
    *inside = run->task;
    inside->list = NULL; /* it is packed */
    inside->call.operation = operation;
    inside->call.finite_check = false; /* slices are checked when they are complete */
    inside->call.op = run->task.call.op == DDP_AVERAGE ? DDP_SUM : run->task.call.op;
    inside->send = reduces ? run->task.send + state->slice.first * run->task.element_size
                           : result_at(run, state->part.first);
    inside->recv = result_at(run, reduces ? state->part.first : state->slice.first);
    inside->uneven = true;
    *(reduces ? &inside->send_parts : &inside->recv_parts) = parts;
    inside->own = state->part.count;
    inside->count = run->task.send == run->task.recv ? state->slice.count : run->task.count;
    inside->factor = reduces ? run->task.factor : 1;
    inside->bytes_sent = inside->bytes_received = 0;
    ddpi_arena_begin(&state->op, comm->arena, inside);
}

/* A rank that is alone on its node has reduced its elements when they are where partial results
 * are. */
static void take_own(struct ddpi_run *run)
{
    const struct hierarchical_run *state = hierarchical_of(run);
    const struct ddpi_task *task = &run->task;
    const struct ddpi_chunk *slice = &state->slice;
    const uint8_t *from = task->send + slice->first * task->element_size;
    uint8_t *to = result_at(run, slice->first);
    if (slice->count == 0)
        return;
    if (task->factor != 1)
        ddpi_scale(to, from, slice->count, task->call.dtype, task->factor);
    else if (to != from)
        memcpy(to, from, slice->count * task->element_size);
}

static ddp_status inside_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                 enum ddpi_movement *ret_movement)
{
    struct hierarchical_run *state = hierarchical_of(run);
    struct ddp_error cause;
    *ret_movement = DDPI_IDLE;
    if (is_alone(state)) {
        *ret_movement = DDPI_COMPLETE;
        return DDP_OK;
    }
    if (!ddpi_arena_is_ready(&state->op))
        return DDP_OK;
    *ret_movement = DDPI_MOVED;
    switch (ddpi_arena_advance(&state->op, &cause)) {
    case DDPI_ARENA_RESULT_WAITS:
        break;
    case DDPI_ARENA_RESULT_COMPLETE:
        *ret_movement = DDPI_COMPLETE;
        state->sent += state->inside.bytes_sent;
        state->received += state->inside.bytes_received;
        break;
    case DDPI_ARENA_RESULT_FAILED:
        return ddpi_arena_fail_as_other(comm, &state->op);
    case DDPI_ARENA_RESULT_MISMATCH:
        return ddpi_arena_fail_mismatch(comm, &state->op);
    case DDPI_ARENA_RESULT_NO_ROOM:
        return ddpi_comm_fail(comm, NULL, DDP_E_SYSTEM, "rank %u: %s", comm->rank, cause.msg);
    }
    return DDP_OK;
}

/* ---- between nodes ---- */

/* Scratch memory has a place for this rank's share of each node. */
static uint8_t *place_of(const struct ddp_comm *comm, const struct ddpi_run *run, size_t count,
                         uint32_t node)
{
    return comm->scratch + node * count * run->task.element_size;
}

/* Shares of other nodes go to their ranks, and this rank's own share comes from them; or, to
 * gather, the other way round. The next node is the first, so that not all send to one. */
static ddp_status across_begin(struct ddp_comm *comm, struct ddpi_run *run, bool gathers)
{
    struct hierarchical_run *state = hierarchical_of(run);
    const struct ddpi_hierarchy *hierarchy = &state->hierarchy;
    uint32_t nodes = hierarchy->nodes->count, own = hierarchy->nodes->own;
    size_t size = run->task.element_size;
    struct ddpi_chunk ours = ddpi_hierarchy_share(hierarchy, &state->part, own);
    struct ddpi_call call = run->task.call;
    call.message_class = DDPI_PIECE;
    if (!ddpi_hierarchy_crosses(hierarchy))
        return DDP_OK;
    struct ddpi_exchange_piece *pieces = ddpi_calloc(2 * (size_t)nodes, sizeof *pieces), *next;
    if (pieces == NULL)
        return ddpi_comm_fail(comm, NULL, DDP_E_NOMEM,
                              "rank %u: no memory for messages with %u ranks", comm->rank, nodes);
    next = pieces;
    for (uint32_t i = 1; i < nodes; i++) {
        uint32_t node = (own + i) % nodes, peer = ddpi_hierarchy_peer(hierarchy, node);
        struct ddpi_chunk theirs = ddpi_hierarchy_share(hierarchy, &state->part, node);
        struct ddpi_exchange_piece there = {
            .peer = peer, .bytes = result_at(run, theirs.first), .len = theirs.count * size};
        struct ddpi_exchange_piece here = {.peer = peer, .len = ours.count * size};
        here.bytes = gathers ? result_at(run, ours.first) : place_of(comm, run, ours.count, node);
        here.sends = gathers;
        there.sends = !gathers;
        *next++ = here;
        *next++ = there;
    }
    ddp_status status = ddpi_exchange_begin(comm, &state->exchange, &call, pieces, 2 * (nodes - 1));
    ddpi_free(pieces);
    return status;
}

static ddp_status across_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                 enum ddpi_movement *ret_movement)
{
    struct hierarchical_run *state = hierarchical_of(run);
    *ret_movement = DDPI_COMPLETE;
    if (!ddpi_hierarchy_crosses(&state->hierarchy))
        return DDP_OK;
    ddp_status status = ddpi_exchange_advance(comm, &state->exchange, run, ret_movement);
    if (status != DDP_OK || *ret_movement != DDPI_COMPLETE)
        return status;
    state->sent += run->task.bytes_sent;
    state->received += run->task.bytes_received;
    ddpi_exchange_end(comm, &state->exchange);
    return DDP_OK;
}

/* This rank's share of all nodes is here: reduce it in the order of nodes. */
static void reduce_share(const struct ddp_comm *comm, struct ddpi_run *run)
{
    const struct hierarchical_run *state = hierarchical_of(run);
    const struct ddpi_nodes *nodes = state->hierarchy.nodes;
    const struct ddpi_task *task = &run->task;
    struct ddpi_chunk ours = ddpi_hierarchy_share(&state->hierarchy, &state->part, nodes->own);
    size_t len = ours.count * task->element_size;
    if (len == 0 || !ddpi_hierarchy_crosses(&state->hierarchy))
        return;
    memcpy(place_of(comm, run, ours.count, nodes->own), result_at(run, ours.first), len);
    ddpi_fold(&(struct ddpi_fold){.in = comm->scratch,
                                  .stride = len,
                                  .nin = nodes->count,
                                  .out = result_at(run, ours.first),
                                  .count = ours.count,
                                  .dtype = task->call.dtype,
                                  .op = task->call.op,
                                  .divisor = task->call.op == DDP_AVERAGE ? comm->world_size : 1});
}

/* ---- stages ---- */

static void slice_begin(struct hierarchical_run *state)
{
    const struct ddpi_hierarchy *hierarchy = &state->hierarchy;
    state->slice = ddpi_hierarchy_slice(hierarchy, state->index);
    state->part = ddpi_hierarchy_part(hierarchy, &state->slice, hierarchy->index);
    for (uint32_t i = 0; state->counts != NULL && i < ddpi_node_ranks(hierarchy->nodes); i++) {
        struct ddpi_chunk part = ddpi_hierarchy_part(hierarchy, &state->slice, i);
        state->counts[i] = part.count;
        state->offsets[i] = part.first - state->slice.first;
    }
}

static ddp_status stage_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct hierarchical_run *state = hierarchical_of(run);
    for (unsigned i = 0; i < DDPI_RING_EDGES; i++) /* what was asked before does not count */
        comm->edges.ring[i]->asked_ms = 0;
    switch (state->stage) {
    case REDUCE:
        slice_begin(state);
        if (is_alone(state))
            take_own(run);
        else
            inside_begin(comm, run, DDPI_REDUCE_SCATTER);
        return DDP_OK;
    case SCATTER:
        return across_begin(comm, run, false);
    case GATHER:
        reduce_share(comm, run);
        return across_begin(comm, run, true);
    case SPREAD:
        if (!is_alone(state))
            inside_begin(comm, run, DDPI_ALL_GATHER);
        return DDP_OK;
    case COMPARE:
    case MEET:
    case OVER:
        break;
    }
    return DDP_OK;
}

/* The slice has come from all ranks, and is in a cache. */
static void slice_check(struct ddpi_run *run)
{
    const struct ddpi_chunk *slice = &hierarchical_of(run)->slice;
    struct ddpi_task *task = &run->task;
    if (task->call.finite_check && !task->found_non_finite)
        task->found_non_finite =
            ddpi_has_non_finite(result_at(run, slice->first), slice->count, task->call.dtype);
}

/* The stage is complete. */
static ddp_status stage_end(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct hierarchical_run *state = hierarchical_of(run);
    if (state->stage == SPREAD)
        slice_check(run);
    state->stage++;
    if (state->stage == OVER && ++state->index < ddpi_hierarchy_slices(&state->hierarchy))
        state->stage = REDUCE;
    return stage_begin(comm, run);
}

static ddp_status hierarchical_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct hierarchical_run *state = hierarchical_of(run);
    const struct ddpi_nodes *nodes = &comm->edges.nodes;
    *state = (struct hierarchical_run){.stage = COMPARE};
    state->hierarchy = ddpi_hierarchy_of(nodes, comm->rank, run->task.count,
                                         DDPI_SCRATCH_SIZE / run->task.element_size);
    ddpi_ring_compare_begin(&state->compare, &run->task.call);
    if (is_alone(state))
        return stage_begin(comm, run);
    size_t ranks = ddpi_node_ranks(nodes);
    state->counts = ddpi_calloc(2 * ranks, sizeof *state->counts);
    if (state->counts == NULL)
        return ddpi_comm_fail(comm, NULL, DDP_E_NOMEM, "rank %u: no memory for %zu counts",
                              comm->rank, 2 * ranks);
    state->offsets = state->counts + ranks;
    return stage_begin(comm, run);
}

static ddp_status compare_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                  enum ddpi_movement *ret_movement)
{
    struct hierarchical_run *state = hierarchical_of(run);
    bool moved = false;
    ddp_status status = ddpi_ring_compare_advance(comm, &state->compare, &run->task.call, &moved);
    *ret_movement = ddpi_ring_compare_is_done(&state->compare) ? DDPI_COMPLETE
                    : moved                                    ? DDPI_MOVED
                                                               : DDPI_IDLE;
    return status;
}

static ddp_status meet_advance(struct ddp_comm *comm, struct ddpi_run *run,
                               enum ddpi_movement *ret_movement)
{
    ddp_status status = DDP_OK;
    bool is_needed = !is_alone(hierarchical_of(run));
    if (is_needed && comm->arena == NULL)
        status = ddpi_arena_meet(comm, run);
    *ret_movement = is_needed && comm->arena == NULL ? DDPI_IDLE : DDPI_COMPLETE;
    return status;
}

static ddp_status (*const stage_advance[])(struct ddp_comm *comm, struct ddpi_run *run,
                                           enum ddpi_movement *ret_movement) = {
    [COMPARE] = compare_advance, [MEET] = meet_advance,     [REDUCE] = inside_advance,
    [SCATTER] = across_advance,  [GATHER] = across_advance, [SPREAD] = inside_advance,
};

static ddp_status hierarchical_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                       enum ddpi_movement *ret_movement)
{
    struct hierarchical_run *state = hierarchical_of(run);
    ddp_status status = stage_advance[state->stage](comm, run, ret_movement);
    if (status != DDP_OK || *ret_movement != DDPI_COMPLETE)
        return status;
    status = stage_end(comm, run);
    run->task.bytes_sent = state->sent;
    run->task.bytes_received = state->received;
    *ret_movement = state->stage == OVER ? DDPI_COMPLETE : DDPI_MOVED;
    return status;
}

static unsigned hierarchical_most_needs(const struct ddpi_run *run)
{
    const struct ddpi_hierarchy *hierarchy =
        &((const struct hierarchical_run *)(const void *)run->state)->hierarchy;
    return run->begun ? DDPI_RING_EDGES + 2 * hierarchy->nodes->count : DDPI_RING_EDGES;
}

static unsigned hierarchical_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                                   struct ddpi_need *needs)
{
    struct hierarchical_run *state = hierarchical_of(run);
    switch (state->stage) {
    case COMPARE:
        return ddpi_ring_compare_needs(comm, &state->compare, needs);
    case MEET:
        *needs = ddpi_arena_handover(comm);
        return 1;
    case REDUCE:
    case SPREAD:
        *needs = (struct ddpi_need){.arena_op = &state->op};
        return 1;
    case SCATTER:
    case GATHER:
        return ddpi_exchange_needs(comm, &state->exchange, needs);
    case OVER:
        break;
    }
    return 0;
}

static void hierarchical_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    struct hierarchical_run *state = hierarchical_of(run);
    (void)status;
    if (!run->begun)
        return;
    ddpi_exchange_end(comm, &state->exchange);
    ddpi_free(state->counts);
}

const struct ddpi_algorithm ddpi_hierarchical_algorithm = {.name = "hierarchical",
                                                           .uses_ring = true,
                                                           .begin = hierarchical_begin,
                                                           .advance = hierarchical_advance,
                                                           .most_needs = hierarchical_most_needs,
                                                           .needs = hierarchical_needs,
                                                           .end = hierarchical_end};
