/*
 * pipeline.c - a task round a ring on device memory, from neighbour to neighbour, unit by unit: a
 * ring of all ranks (ring_run.c).
 *
 * Each of the two edges of a rank is of one of two kinds. An edge that reads: the rank reads its
 * predecessor's memory; the predecessor sends a token, one byte, for each unit that is ready, and
 * the reader sends one byte back when it needs no more. A staged edge: units go through pinned
 * memory of the host, and over the edge as bytes. Either way the receiver's GPU reduces. A rank may
 * have one edge of each kind.
 *
 * Work goes into three lanes (device_state.h), whose progress is counted in units. The loop looks
 * at the counters and moves whatever can be moved, so copies, network and reductions overlap. No
 * kernel and no stream waits for another rank: only this loop does.
 */
#include "device_state.h"
#include "units.h"

#include "reduce.h"
#include "steps.h"
#include "wait.h"

enum { TOKENS = 64 }; /* sent or received at once */

struct inward {
    struct ddpi_edge *edge;
    bool reads; /* the predecessor's memory; otherwise its data comes staged, through the host */
    uint64_t units;
    struct ddpi_ring their_ring;     /* reads: the predecessor's side of the schedule */
    struct ddpi_layout their_layout; /* reads: its memory, as mapped in this process */
    struct ddpi_flow their_flow;
    struct ddpi_flow_cursor source;  /* reads: where @reduce finds its input */
    uint64_t ready;                  /* reads: tokens received */
    struct ddpi_flow_cursor receive; /* staged: the unit that is being received */
    size_t received;                 /* staged: bytes of that unit */
    struct ddpi_flow_cursor reduce;  /* the unit to reduce next */
    bool released;                   /* reads: the predecessor was told that its memory is free */
};

struct outward {
    struct ddpi_edge *edge;
    bool is_read; /* the successor reads this rank's memory; otherwise its data is staged */
    uint64_t units, own;
    uint64_t told;                    /* is_read: tokens sent */
    struct ddpi_flow_cursor download; /* staged: the unit to copy to the host next */
    struct ddpi_flow_cursor send;     /* staged: the unit that is being sent */
    size_t sent;                      /* staged: bytes of that unit */
    bool released;                    /* is_read: the successor has read all */
};

struct pipeline {
    struct ddpi_device *device;
    struct ddpi_task *task;
    struct ddpi_layout layout;
    struct ddpi_flow flow;
    uint32_t start[DDPI_LANES]; /* units that were launched in each lane before */
    uint32_t done[DDPI_LANES];  /* units completed in each, when last looked at */
    struct inward in;
    struct outward out;
    struct ddpi_wait wait;
    struct ddp_error err;
    bool moved;
};

/* Read the counters once a turn, so that all of a turn decides on the same values: work that
 * completes later finds the lanes still busy, and counts in the next turn. */
static void look_at_lanes(struct pipeline *pipe)
{
    pipe->moved = false;
    for (unsigned i = 0; i < DDPI_LANES; i++) {
        uint32_t done =
            ddpi_words_get(&pipe->device->words, pipe->device->lanes[i].word) - pipe->start[i];
        pipe->moved |= done != pipe->done[i];
        pipe->done[i] = done;
    }
}

static bool lanes_busy(const struct pipeline *pipe)
{
    for (unsigned i = 0; i < DDPI_LANES; i++)
        if (pipe->done[i] != pipe->device->lanes[i].launched - pipe->start[i])
            return true;
    return false;
}

static ddp_status copy_enqueued(struct pipeline *pipe, enum ddpi_lane_kind kind,
                                ddpi_cu_result result)
{
    pipe->moved = true;
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(&pipe->device->cuda, &pipe->err, result, "copy");
    return ddpi_lane_stamp(pipe->device, kind, &pipe->err);
}

static struct ddpi_place place_of(const struct pipeline *pipe, const struct ddpi_unit *unit)
{
    struct ddpi_place place = ddpi_layout_place(&pipe->layout, pipe->flow.part, unit->chunk);
    return (struct ddpi_place){
        .own = place.own + unit->offset, .held = place.held + unit->offset, .len = unit->len};
}

static size_t slot_of(uint64_t index)
{
    return index % DDPI_SLOTS * DDPI_STAGED_PIECE;
}

/* ---- inwards ---- */

/* @bytes went over @edge: its peer works, whatever it was asked. */
static size_t bytes_moved(struct pipeline *pipe, struct ddpi_edge *edge, size_t bytes)
{
    if (bytes > 0) {
        pipe->moved = true;
        edge->asked_ms = 0;
    }
    return bytes;
}

static ddp_status receive_tokens(struct pipeline *pipe)
{
    struct inward *in = &pipe->in;
    if (!in->reads || in->ready == in->units)
        return DDP_OK;
    uint8_t tokens[TOKENS];
    uint64_t left = in->units - in->ready;
    size_t got = in->edge->ops->recv(in->edge, tokens, left < TOKENS ? left : TOKENS);
    in->ready += bytes_moved(pipe, in->edge, got);
    return DDP_OK;
}

/* Copy a received unit to its place or, if it is to be reduced, to a slot on the device. */
static ddp_status upload_unit(struct pipeline *pipe, const struct ddpi_unit *unit, uint64_t index)
{
    struct ddpi_device *device = pipe->device;
    size_t slot = slot_of(index);
    ddpi_cu_deviceptr to = unit->step.reduces ? device->scratch + DDPI_SCRATCH_SLOTS + slot
                                              : (uintptr_t)place_of(pipe, unit).held;
    return copy_enqueued(pipe, DDPI_LANE_UPLOAD,
                         device->cuda.memcpy_htod_async(to, device->slots_in + slot, unit->len,
                                                        device->lanes[DDPI_LANE_UPLOAD].stream));
}

static bool slot_is_free(const struct pipeline *pipe)
{
    return pipe->in.receive.index - pipe->done[DDPI_LANE_REDUCE] < DDPI_SLOTS;
}

static ddp_status receive_unit(struct pipeline *pipe)
{
    struct inward *in = &pipe->in;
    struct ddpi_unit unit;
    if (in->reads || !slot_is_free(pipe) || !ddpi_flow_unit(&pipe->flow, &in->receive, &unit))
        return DDP_OK;
    uint8_t *slot = pipe->device->slots_in + slot_of(in->receive.index);
    size_t got = in->edge->ops->recv(in->edge, slot + in->received, unit.len - in->received);
    in->received += bytes_moved(pipe, in->edge, got);
    if (in->received < unit.len)
        return DDP_OK;
    ddp_status status = upload_unit(pipe, &unit, in->receive.index);
    in->received = 0;
    ddpi_flow_advance(&pipe->flow, &in->receive);
    return status;
}

/* Where an outgoing unit lies. */
static const uint8_t *outgoing(const struct ddpi_flow *flow, const struct ddpi_unit *unit)
{
    struct ddpi_place place = ddpi_layout_place(flow->layout, flow->part, unit->chunk);
    return (unit->first ? place.own : place.held) + unit->offset;
}

/* Where the GPU finds the next incoming unit: in the predecessor's memory, or in a slot. */
static const uint8_t *incoming(const struct pipeline *pipe)
{
    const struct inward *in = &pipe->in;
    if (!in->reads)
        return (const uint8_t *)(uintptr_t)(pipe->device->scratch + DDPI_SCRATCH_SLOTS +
                                            slot_of(in->reduce.index));
    struct ddpi_unit unit;
    (void)ddpi_flow_unit(&in->their_flow, &in->source, &unit);
    return outgoing(&in->their_flow, &unit);
}

static ddp_status launch_reduction(struct pipeline *pipe, const struct ddpi_unit *unit)
{
    const struct ddpi_task *task = pipe->task;
    struct ddpi_place place = place_of(pipe, unit);
    bool divides = unit->step.finishes && task->call.op == DDP_AVERAGE;
    const struct ddpi_reduction work = {
        .in = {place.own, incoming(pipe)},
        .out = {place.held},
        .nin = 2,
        .nout = 1,
        .count = unit->len / task->element_size,
        .dtype = task->call.dtype,
        .op = task->call.op,
        .divisor = divides ? task->ring.nranks : 1,
        .non_finite = unit->step.finishes ? ddpi_finite_note(pipe->device, task) : NULL};
    return ddpi_kernels_launch(&pipe->device->kernels, &work,
                               pipe->device->lanes[DDPI_LANE_REDUCE].stream, &pipe->err);
}

/* Every incoming unit goes through this lane, so that one counter tells how many have come in; a
 * unit that was uploaded to its place needs no work in it. */
static ddp_status reduce_unit(struct pipeline *pipe)
{
    struct inward *in = &pipe->in;
    struct ddpi_device *device = pipe->device;
    struct ddpi_unit unit;
    uint64_t ready = in->reads ? in->ready : pipe->done[DDPI_LANE_UPLOAD];
    if (in->reduce.index >= ready || !ddpi_flow_unit(&pipe->flow, &in->reduce, &unit))
        return DDP_OK;
    ddp_status status = DDP_OK;
    ddpi_cu_result result = DDPI_CU_SUCCESS;
    if (unit.step.reduces)
        status = launch_reduction(pipe, &unit);
    else if (in->reads)
        result = device->cuda.memcpy_async((uintptr_t)place_of(pipe, &unit).held,
                                           (uintptr_t)incoming(pipe), unit.len,
                                           device->lanes[DDPI_LANE_REDUCE].stream);
    ddpi_flow_advance(&pipe->flow, &in->reduce);
    pipe->wait.bytes_done += unit.len;
    if (in->reads)
        ddpi_flow_advance(&in->their_flow, &in->source);
    return status == DDP_OK ? copy_enqueued(pipe, DDPI_LANE_REDUCE, result) : status;
}

static ddp_status send_release(struct pipeline *pipe)
{
    struct inward *in = &pipe->in;
    if (in->released || pipe->done[DDPI_LANE_REDUCE] < in->units)
        return DDP_OK;
    const uint8_t token = 1;
    in->released = bytes_moved(pipe, in->edge, in->edge->ops->send(in->edge, &token, 1)) == 1;
    return DDP_OK;
}

/* ---- outwards ---- */

static uint64_t may_go(const struct pipeline *pipe)
{
    uint64_t ready = pipe->out.own + pipe->done[DDPI_LANE_REDUCE];
    return ready < pipe->out.units ? ready : pipe->out.units;
}

static ddp_status send_tokens(struct pipeline *pipe)
{
    struct outward *out = &pipe->out;
    if (!out->is_read || out->told == may_go(pipe))
        return DDP_OK;
    static const uint8_t tokens[TOKENS];
    uint64_t count = may_go(pipe) - out->told;
    size_t sent = out->edge->ops->send(out->edge, tokens, count < TOKENS ? count : TOKENS);
    out->told += bytes_moved(pipe, out->edge, sent);
    return DDP_OK;
}

static ddp_status receive_release(struct pipeline *pipe)
{
    struct outward *out = &pipe->out;
    if (out->released || out->told < out->units)
        return DDP_OK;
    uint8_t token;
    out->released = bytes_moved(pipe, out->edge, out->edge->ops->recv(out->edge, &token, 1)) == 1;
    return DDP_OK;
}

static ddp_status download_unit(struct pipeline *pipe)
{
    struct outward *out = &pipe->out;
    struct ddpi_device *device = pipe->device;
    struct ddpi_unit unit;
    if (out->is_read || out->download.index >= may_go(pipe) ||
        out->download.index - out->send.index >= DDPI_SLOTS)
        return DDP_OK;
    (void)ddpi_flow_unit(&pipe->flow, &out->download, &unit);
    uint8_t *slot = device->slots_out + slot_of(out->download.index);
    ddpi_flow_advance(&pipe->flow, &out->download);
    return copy_enqueued(
        pipe, DDPI_LANE_DOWNLOAD,
        device->cuda.memcpy_dtoh_async(slot, (uintptr_t)outgoing(&pipe->flow, &unit), unit.len,
                                       device->lanes[DDPI_LANE_DOWNLOAD].stream));
}

static ddp_status send_unit(struct pipeline *pipe)
{
    struct outward *out = &pipe->out;
    struct ddpi_unit unit;
    if (out->is_read || out->send.index >= pipe->done[DDPI_LANE_DOWNLOAD])
        return DDP_OK;
    (void)ddpi_flow_unit(&pipe->flow, &out->send, &unit);
    const uint8_t *slot = pipe->device->slots_out + slot_of(out->send.index);
    size_t sent = out->edge->ops->send(out->edge, slot + out->sent, unit.len - out->sent);
    out->sent += bytes_moved(pipe, out->edge, sent);
    if (out->sent < unit.len)
        return DDP_OK;
    out->sent = 0;
    ddpi_flow_advance(&pipe->flow, &out->send);
    return DDP_OK;
}

/* ---- the loop ---- */

static bool pipeline_finished(const struct pipeline *pipe)
{
    const struct outward *out = &pipe->out;
    bool gone = out->is_read ? out->told == out->units : out->send.index == out->units;
    return pipe->done[DDPI_LANE_REDUCE] >= pipe->in.units && pipe->in.released && gone &&
           out->released && !lanes_busy(pipe);
}

static ddp_status pipeline_idle(struct pipeline *pipe, struct ddpi_patience *patience)
{
    const struct inward *in = &pipe->in;
    const struct outward *out = &pipe->out;
    bool hears =
        in->reads ? in->ready < in->units : in->receive.index < in->units && slot_is_free(pipe);
    bool speaks =
        out->is_read ? out->told < may_go(pipe) : out->send.index < pipe->done[DDPI_LANE_DOWNLOAD];
    bool returns = !in->released && pipe->done[DDPI_LANE_REDUCE] >= in->units;
    bool awaits = !out->released && out->told >= out->units;
    const struct ddpi_need needs[] = {
        {.edge = in->edge, .recv_bytes = hears, .send = returns},
        {.edge = out->edge, .recv_bytes = awaits, .send = speaks},
    };
    const unsigned count = sizeof needs / sizeof *needs;
    if (lanes_busy(pipe))
        return ddpi_device_pause(pipe->device, patience, &pipe->wait, needs, count);
    return ddpi_device_await_ranks(pipe->device, &pipe->wait, needs, count);
}

static ddp_status pipeline_run_part(struct pipeline *pipe)
{
    static ddp_status (*const moves[])(struct pipeline *) = {
        receive_tokens, receive_unit,    reduce_unit,   send_release,
        send_tokens,    receive_release, download_unit, send_unit};
    struct ddpi_patience patience = {0};
    for (look_at_lanes(pipe); !pipeline_finished(pipe); look_at_lanes(pipe)) {
        ddpi_gate_watch_beat(&pipe->device->watch);
        for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
            ddp_status status = moves[i](pipe);
            if (status != DDP_OK)
                return ddpi_device_fail(pipe->device, status, &pipe->err);
        }
        ddp_status status;
        if (pipe->moved) {
            status = ddpi_question_pace(pipe->device->comm, &pipe->wait, pipe->in.edge);
            patience = (struct ddpi_patience){0};
        } else {
            status = pipeline_idle(pipe, &patience);
        }
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

/* An all-gather copies this rank's contribution to its place in the result. */
static ddp_status copy_own_part(struct pipeline *pipe)
{
    const struct ddpi_ring *ring = &pipe->task->ring;
    if (ring->kind != DDPI_RING_ALL_GATHER)
        return DDP_OK;
    struct ddpi_place place = ddpi_layout_place(&pipe->layout, pipe->flow.part, ring->rank);
    if (place.own == place.held || place.len == 0)
        return DDP_OK;
    ddpi_cu_result result =
        pipe->device->cuda.memcpy_async((uintptr_t)place.held, (uintptr_t)place.own, place.len,
                                        pipe->device->lanes[DDPI_LANE_REDUCE].stream);
    if (result == DDPI_CU_SUCCESS)
        return DDP_OK;
    return ddpi_device_fail(
        pipe->device, ddpi_cuda_error(&pipe->device->cuda, &pipe->err, result, "copy"), &pipe->err);
}

static ddp_status pipeline_begin_part(struct pipeline *pipe, size_t part)
{
    pipe->flow.part = part;
    for (unsigned i = 0; i < DDPI_LANES; i++)
        pipe->start[i] = pipe->device->lanes[i].launched;
    struct ddpi_flow_cursor inwards = ddpi_flow_begin(&pipe->flow, false);
    struct ddpi_flow_cursor outwards = ddpi_flow_begin(&pipe->flow, true);
    pipe->in.units = ddpi_flow_units(&pipe->flow, false);
    pipe->in.ready = 0;
    pipe->in.receive = pipe->in.reduce = inwards;
    pipe->in.released = !pipe->in.reads || pipe->in.units == 0;
    if (pipe->in.reads) {
        pipe->in.their_flow.part = part;
        pipe->in.source = ddpi_flow_begin(&pipe->in.their_flow, true);
    }
    pipe->out.units = ddpi_flow_units(&pipe->flow, true);
    pipe->out.own = ddpi_flow_own(&pipe->flow);
    pipe->out.told = 0;
    pipe->out.download = pipe->out.send = outwards;
    pipe->out.released = !pipe->out.is_read || pipe->out.units == 0;
    return copy_own_part(pipe);
}

/* The predecessor's layout is this rank's, with its rank and its memory. */
static ddp_status open_predecessor(struct pipeline *pipe, const struct ddpi_offer *theirs)
{
    struct ddpi_device *device = pipe->device;
    struct inward *in = &pipe->in;
    in->their_ring = pipe->task->ring;
    in->their_ring.rank = ddpi_ring_prev(in->their_ring.rank, in->their_ring.nranks);
    ddpi_cu_deviceptr at[DDPI_OFFERS] = {0};
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < DDPI_OFFERS && status == DDP_OK; i++)
        if (theirs[i].address != 0)
            status = ddpi_share_open(&device->shares, &theirs[i], &at[i], &pipe->err);
    if (status != DDP_OK)
        return status;
    in->their_layout = pipe->layout;
    in->their_layout.ring = &in->their_ring;
    in->their_layout.send = (const uint8_t *)(uintptr_t)at[DDPI_OFFER_SEND];
    in->their_layout.recv = (uint8_t *)(uintptr_t)at[DDPI_OFFER_RECV];
    in->their_layout.scratch =
        (uint8_t *)(uintptr_t)(at[DDPI_OFFER_SCRATCH] + DDPI_SCRATCH_PARTIALS);
    in->their_flow = pipe->flow;
    in->their_flow.layout = &in->their_layout;
    return DDP_OK;
}

static uint64_t pipeline_bytes(struct pipeline *pipe)
{
    uint64_t sum = 0;
    struct ddpi_flow flow = pipe->flow;
    for (flow.part = 0; flow.part < ddpi_layout_parts(&pipe->layout); flow.part++)
        sum += ddpi_flow_bytes(&flow, false);
    return sum;
}

static ddp_status run_parts(struct pipeline *pipe, const struct ddpi_offer *theirs)
{
    /* A rank that receives nothing does not read: the previous rank does not wait for it, and may
     * free its memory. */
    pipe->in.reads &= ddpi_flow_units(&pipe->flow, false) > 0;
    pipe->out.is_read &= ddpi_flow_units(&pipe->flow, true) > 0;
    ddp_status status = pipe->in.reads ? open_predecessor(pipe, theirs) : DDP_OK;
    if (status != DDP_OK)
        return ddpi_device_fail(pipe->device, status, &pipe->err);
    pipe->wait.bytes_wanted = pipeline_bytes(pipe);
    for (size_t part = 0; part < ddpi_layout_parts(&pipe->layout) && status == DDP_OK; part++) {
        status = pipeline_begin_part(pipe, part);
        if (status == DDP_OK)
            status = pipeline_run_part(pipe);
        pipe->task->bytes_sent += ddpi_flow_bytes(&pipe->flow, true);
        pipe->task->bytes_received += ddpi_flow_bytes(&pipe->flow, false);
    }
    return status;
}

ddp_status ddpi_pipeline_run(struct ddpi_device *device, struct ddpi_task *task,
                             const struct ddpi_ends *ends)
{
    struct pipeline pipe = {
        .device = device,
        .task = task,
        .layout = {.call = &task->call,
                   .ring = &task->ring,
                   .send = task->send,
                   .recv = task->recv,
                   .scratch = (uint8_t *)(uintptr_t)(device->scratch + DDPI_SCRATCH_PARTIALS),
                   .scratch_size = DDPI_PARTIALS_SIZE,
                   .count = task->count,
                   .element_size = task->element_size},
        .in = {.edge = ends->prev, .reads = ends->reads_prev},
        .out = {.edge = ends->next, .is_read = ends->read_by_next},
        .wait = ddpi_device_wait(task),
    };
    pipe.flow = (struct ddpi_flow){.layout = &pipe.layout, .piece = ends->piece};
    return run_parts(&pipe, ends->theirs);
}
