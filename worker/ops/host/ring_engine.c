/*
 * ring_engine.c - the algorithm that carries out a ring schedule over two edges, on host memory. It
 * moves bytes as they come and go, without a barrier between steps: what was received may be sent
 * on at once. A task that needs scratch memory is run in parts (chunk_layout.h), without a barrier
 * between them either.
 *
 * Two cursors walk the steps of the schedule, one for what is sent and one for what is received.
 * The sending cursor never passes the data that it forwards. Before the payload, each rank tells
 * the next one what it called, and compares what the previous one says.
 */
#include "ring_engine.h"

#include "chunk_layout.h"
#include "drive.h"
#include "reduce.h"
#include "reduce_any.h"

#include <string.h>

enum { PIECE = 128 * 1024 }; /* bytes moved in one direction before looking at the other */

struct cursor {
    uint32_t step; /* steps before it are complete */
    struct ddpi_ring_step now;
    struct ddpi_place place; /* of the chunk */
    size_t done;             /* bytes of it */
};

/* The state of a run. */
struct engine {
    struct ddpi_run *run;
    struct ddpi_task *task; /* the run's */
    struct ddpi_edge *next, *prev;
    uint32_t steps;
    struct ddpi_layout layout;
    size_t part, parts;
    struct cursor out, in;
    struct {
        uint8_t wire[DDPI_CALL_WIRE_SIZE];
        size_t done;
    } out_header, in_header;
    bool moved;  /* something went in or out since it was last cleared */
    bool scaled; /* the rank's contribution to the chunk that it sends first is held, multiplied */
};
DDPI_RUN_STATE_FITS(struct engine);

static struct engine *engine_of(struct ddpi_run *run)
{
    return (struct engine *)(void *)run->state;
}

/* Move @cursor to the first step, from its own on, that has bytes to move. */
static void cursor_settle(const struct engine *engine, struct cursor *cursor, bool outwards)
{
    for (; cursor->step < engine->steps; cursor->step++) {
        cursor->now = ddpi_ring_step(&engine->task->ring, cursor->step);
        if (outwards ? !cursor->now.sends : !cursor->now.receives)
            continue;
        uint32_t index = outwards ? cursor->now.send_chunk : cursor->now.recv_chunk;
        cursor->place = ddpi_layout_place(&engine->layout, engine->part, index);
        cursor->done = 0;
        if (cursor->place.len > 0)
            return;
    }
}

static void cursor_advance(const struct engine *engine, struct cursor *cursor, bool outwards,
                           size_t len)
{
    cursor->done += len;
    if (cursor->done < cursor->place.len)
        return;
    cursor->step++;
    cursor_settle(engine, cursor, outwards);
}

/* Bytes of its chunk that the sending cursor may send now: the chunk of step s came in at s - 1. */
static size_t sendable(const struct engine *engine)
{
    const struct cursor *out = &engine->out, *in = &engine->in;
    if (out->step >= engine->steps)
        return 0;
    size_t limit = out->place.len;
    if (out->step > 0 && in->step < out->step)
        limit = in->step == out->step - 1 ? in->done : 0;
    size_t len = limit - out->done;
    return len < PIECE ? len : PIECE;
}

static void move_out(struct engine *engine)
{
    struct ddpi_edge *next = engine->next;
    if (engine->out_header.done < DDPI_CALL_WIRE_SIZE) {
        size_t sent = next->ops->send(next, engine->out_header.wire + engine->out_header.done,
                                      DDPI_CALL_WIRE_SIZE - engine->out_header.done);
        engine->out_header.done += sent;
        if (engine->out_header.done < DDPI_CALL_WIRE_SIZE)
            return;
    }
    size_t len = sendable(engine);
    if (len == 0)
        return;
    const struct ddpi_place *place = &engine->out.place;
    bool is_own = engine->out.step == 0 && !engine->scaled;
    const uint8_t *from = is_own ? place->own : place->held;
    size_t sent = next->ops->send(next, from + engine->out.done, len);
    if (sent == 0)
        return;
    engine->task->bytes_sent += sent;
    engine->moved = true;
    next->asked_ms = 0;
    cursor_advance(engine, &engine->out, true, sent);
}

static ddp_status move_header_in(struct ddp_comm *comm, struct engine *engine)
{
    size_t got =
        engine->prev->ops->recv(engine->prev, engine->in_header.wire + engine->in_header.done,
                                DDPI_CALL_WIRE_SIZE - engine->in_header.done);
    engine->in_header.done += got;
    engine->moved |= got > 0;
    const struct ddpi_call *ours = &engine->task->call;
    return engine->in_header.done == DDPI_CALL_WIRE_SIZE
               ? ddpi_comm_check_peer_call(comm, engine->prev, engine->in_header.wire, ours, ours)
               : DDP_OK;
}

/* What an operation on a GPU has its ranks tell each other has its call, but is not checked. */
static bool checks_result(const struct ddpi_task *task)
{
    return task->call.finite_check && task->non_finite != NULL;
}

/* Whether received elements are looked at on their way in: they are reduced, or belong to a result
 * that is checked for inf and NaN. */
static bool takes_elements(const struct engine *engine)
{
    const struct ddpi_task *task = engine->task;
    return engine->in.now.reduces || (checks_result(task) && !task->gathered);
}

/* Take whole elements from the edge, reduced with this rank's or as they are; returns the bytes
 * consumed. */
static size_t take_in(struct engine *engine, size_t left)
{
    struct ddpi_task *task = engine->task;
    const struct cursor *in = &engine->in;
    const uint8_t *bytes;
    size_t len = engine->prev->ops->peek(engine->prev, task->element_size, &bytes);
    if (len > left)
        len = left;
    if (len > PIECE)
        len = PIECE;
    size_t count = len / task->element_size;
    if (count == 0)
        return 0;
    bool divides = in->now.finishes && task->call.op == DDP_AVERAGE;
    bool is_result = in->now.finishes || !in->now.reduces;
    bool checks = is_result && checks_result(task);
    const double factor[] = {task->factor, 1};
    const uint8_t *first = in->now.reduces ? in->place.own + in->done : bytes;
    ddpi_reduce_many(
        &(struct ddpi_reduction){.in = {first, bytes},
                                 .out = {in->place.held + in->done},
                                 .nin = in->now.reduces ? 2 : 1,
                                 .nout = 1,
                                 .count = count,
                                 .dtype = task->call.dtype,
                                 .op = task->call.op,
                                 .divisor = divides ? task->ring.nranks : 1,
                                 .factor = in->now.reduces ? factor : NULL,
                                 .non_finite = checks ? &task->found_non_finite : NULL});
    engine->prev->ops->consume(engine->prev, count * task->element_size);
    return count * task->element_size;
}

static void move_in(struct engine *engine)
{
    struct cursor *in = &engine->in;
    if (in->step >= engine->steps)
        return;
    struct ddpi_edge *prev = engine->prev;
    size_t left = in->place.len - in->done;
    size_t got;
    if (takes_elements(engine))
        got = take_in(engine, left);
    else
        got = prev->ops->recv(prev, in->place.held + in->done, left < PIECE ? left : PIECE);
    if (got == 0)
        return;
    engine->task->bytes_received += got;
    engine->run->wait.bytes_done = engine->task->bytes_received;
    engine->moved = true;
    prev->asked_ms = 0;
    cursor_advance(engine, in, false, got);
}

static bool part_is_complete(const struct engine *engine)
{
    return engine->out_header.done == DDPI_CALL_WIRE_SIZE &&
           engine->in_header.done == DDPI_CALL_WIRE_SIZE && engine->out.step >= engine->steps &&
           engine->in.step >= engine->steps;
}

/* Put this rank's contribution to a chunk where the chunk is held. */
static void hold_own(const struct engine *engine, const struct ddpi_place *place)
{
    const struct ddpi_task *task = engine->task;
    if (place->len > 0 && engine->scaled)
        ddpi_scale(place->held, place->own, place->len / task->element_size, task->call.dtype,
                   task->factor);
    else if (place->len > 0 && place->own != place->held)
        memcpy(place->held, place->own, place->len);
}

/* An all-gather holds its own contribution next to those of the others. Where elements are
 * multiplied first, so does a rank with what it sends first: its buffer must not change. */
static void part_begin(struct engine *engine)
{
    const struct ddpi_ring *ring = &engine->task->ring;
    engine->scaled = ddpi_call_shape(&engine->task->call)->reduces && engine->task->factor != 1;
    engine->out = engine->in = (struct cursor){0};
    cursor_settle(engine, &engine->out, true);
    cursor_settle(engine, &engine->in, false);
    if (ring->kind == DDPI_RING_ALL_GATHER) {
        struct ddpi_place own = ddpi_layout_place(&engine->layout, engine->part, ring->rank);
        hold_own(engine, &own);
    } else if (engine->scaled && engine->out.step == 0 && engine->steps > 0) {
        hold_own(engine, &engine->out.place);
    }
}

static void part_finish(const struct engine *engine)
{
    struct ddpi_task *task = engine->task;
    struct ddpi_gathered gathered;
    if (!ddpi_layout_gathered(&engine->layout, engine->part, &gathered))
        return;
    ddpi_fold(&(struct ddpi_fold){.in = gathered.in,
                                  .stride = gathered.stride,
                                  .nin = task->ring.nranks,
                                  .out = gathered.out,
                                  .count = gathered.count,
                                  .dtype = task->call.dtype,
                                  .op = task->call.op,
                                  .divisor = task->call.op == DDP_AVERAGE ? task->ring.nranks : 1,
                                  .non_finite =
                                      task->call.finite_check ? &task->found_non_finite : NULL});
}

static uint64_t ring_bytes(const struct engine *engine)
{
    uint64_t sum = 0;
    for (uint32_t step = 0; step < engine->steps; step++) {
        struct ddpi_ring_step now = ddpi_ring_step(&engine->task->ring, step);
        if (now.receives)
            sum += ddpi_layout_len(&engine->layout, now.recv_chunk);
    }
    return sum;
}

/* The division of the buffer that has a part for each rank. */
static const struct ddpi_parts *ring_parts(const struct ddpi_task *task)
{
    if (!task->uneven)
        return NULL;
    return task->recv_parts.counts != NULL ? &task->recv_parts : &task->send_parts;
}

static ddp_status ring_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct engine *engine = engine_of(run);
    struct ddpi_task *task = &run->task;
    *engine = (struct engine){
        .run = run,
        .task = task,
        .next = comm->edges.ring[DDPI_NEXT],
        .prev = comm->edges.ring[DDPI_PREV],
        .steps = ddpi_ring_steps(&task->ring),
        .layout = {.call = &task->call,
                   .ring = &task->ring,
                   .send = task->send,
                   .recv = task->recv,
                   .scratch = comm->scratch,
                   .scratch_size = DDPI_SCRATCH_SIZE,
                   .count = task->count,
                   .parts = ring_parts(task),
                   .element_size = task->element_size,
                   .gathered = task->gathered},
    };
    run->wait.bytes_wanted = ring_bytes(engine);
    engine->next->asked_ms = 0;
    engine->prev->asked_ms = 0;
    ddpi_call_encode(&task->call, engine->out_header.wire);
    engine->parts = ddpi_layout_parts(&engine->layout);
    part_begin(engine);
    return DDP_OK;
}

/* Move what can be moved now. */
static ddp_status ring_advance(struct ddp_comm *comm, struct ddpi_run *run,
                               enum ddpi_movement *ret_movement)
{
    struct engine *engine = engine_of(run);
    ddp_status status = DDP_OK;
    engine->moved = false;
    move_out(engine);
    if (engine->in_header.done < DDPI_CALL_WIRE_SIZE)
        status = move_header_in(comm, engine);
    else
        move_in(engine);
    *ret_movement = engine->moved ? DDPI_MOVED : DDPI_IDLE;
    if (status != DDP_OK || !part_is_complete(engine))
        return status;
    part_finish(engine);
    *ret_movement = DDPI_MOVED;
    if (++engine->part == engine->parts)
        *ret_movement = DDPI_COMPLETE;
    else
        part_begin(engine);
    return DDP_OK;
}

static unsigned ring_most_needs(const struct ddpi_run *run)
{
    (void)run;
    return DDPI_RING_EDGES;
}

static unsigned ring_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                           struct ddpi_need *needs)
{
    const struct engine *engine = engine_of(run);
    (void)comm;
    needs[DDPI_NEXT] = (struct ddpi_need){.edge = engine->next,
                                          .send = engine->out_header.done < DDPI_CALL_WIRE_SIZE ||
                                                  sendable(engine) > 0};
    needs[DDPI_PREV] = (struct ddpi_need){.edge = engine->prev};
    if (engine->in_header.done < DDPI_CALL_WIRE_SIZE)
        needs[DDPI_PREV].recv_bytes = 1;
    else if (engine->in.step < engine->steps)
        needs[DDPI_PREV].recv_bytes = takes_elements(engine) ? engine->task->element_size : 1;
    return DDPI_RING_EDGES;
}

const struct ddpi_algorithm ddpi_ring_algorithm = {.name = "ring",
                                                   .uses_ring = true,
                                                   .begin = ring_begin,
                                                   .advance = ring_advance,
                                                   .most_needs = ring_most_needs,
                                                   .needs = ring_needs};

ddp_status ddpi_host_ring(struct ddp_comm *comm, const struct ddpi_task *task)
{
    struct ddpi_run run = {.task = *task, .algorithm = &ddpi_ring_algorithm};
    return ddpi_drive_inner(comm, &run);
}
