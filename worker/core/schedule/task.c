/*
 * task.c - checks the arguments of a call, and computes what follows from them. Pure.
 */
#include "task.h"

#include "chunk_layout.h"
#include "error.h"
#include "reduce.h"
#include "reduce_check.h"

enum { IN_PAIRS = 1 /* call.parts, which as a digest is larger */ };

bool ddpi_call_is_in_pairs(const struct ddpi_call *call)
{
    return call->parts == IN_PAIRS;
}

/* What this rank has in each buffer. */
struct role {
    enum ddpi_extent send, recv;
};

static struct role role_of(const struct ddpi_call *call, uint32_t rank)
{
    const struct ddpi_shape *shape = ddpi_call_shape(call);
    bool is_root = shape->rooted && rank == call->root;
    return is_root ? (struct role){shape->root_send, shape->root_recv}
                   : (struct role){shape->send, shape->recv};
}

static uint32_t parts_in(enum ddpi_extent extent, uint32_t world_size)
{
    return extent == DDPI_EXTENT_NONE ? 0 : extent == DDPI_EXTENT_PART ? 1 : world_size;
}

struct ddpi_extents ddpi_call_extents(const struct ddpi_call *call, uint32_t rank,
                                      uint32_t world_size)
{
    struct role role = role_of(call, rank);
    return (struct ddpi_extents){parts_in(role.send, world_size), parts_in(role.recv, world_size)};
}

static ddp_status check_ranks(const struct ddpi_call *call, uint32_t world_size,
                              struct ddp_error *err)
{
    const struct ddpi_shape *shape = ddpi_call_shape(call);
    if (call->operation == DDPI_RECV && call->root == DDP_ANY_RANK)
        return DDP_OK;
    if ((shape->rooted || shape->message) && call->root >= world_size)
        return ddpi_error_set(err, DDP_E_INVALID, "%s %d does not exist in a world of %u ranks",
                              shape->rooted ? "root" : "rank", (int)call->root, world_size);
    return DDP_OK;
}

static ddp_status check_reduction(const struct ddpi_call *call, uint32_t world_size,
                                  struct ddp_error *err)
{
    size_t size = ddp_dtype_size(call->dtype);
    ddp_status status = ddpi_reduce_check(call->dtype, call->op, err);
    if (status != DDP_OK)
        return status;
    if (world_size * size > DDPI_SCRATCH_SIZE)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s is reduced by at most %zu ranks, and this world has %u",
                              ddp_dtype_name(call->dtype), DDPI_SCRATCH_SIZE / size, world_size);
    return DDP_OK;
}

static ddp_status check_types(struct ddpi_task *task, uint32_t world_size, struct ddp_error *err)
{
    const struct ddpi_call *call = &task->call;
    task->element_size = ddp_dtype_size(call->dtype);
    if (task->element_size == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not an element type", (int)call->dtype);
    if (!ddpi_call_shape(call)->reduces || call->op != DDP_PREMUL_SUM)
        task->factor = 1;
    if (!ddpi_call_shape(call)->reduces)
        return DDP_OK;
    if (call->op == DDP_AVERAGE_BEFORE)
        task->factor = 1.0 / world_size;
    if (task->factor == 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "premul_sum multiplies by a factor, and this one is 0: call "
                              "ddp_run() or ddp_start(), and set the factor of the ddp_operation");
    return check_reduction(call, world_size, err);
}

static ddp_status check_finite_check(struct ddpi_task *task, struct ddp_error *err)
{
    struct ddpi_call *call = &task->call;
    if (task->non_finite == NULL)
        return DDP_OK;
    if (call->operation != DDPI_ALL_REDUCE && call->operation != DDPI_REDUCE_SCATTER)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "%s has no finite check, only all_reduce and reduce_scatter: set non_finite to NULL",
            ddpi_operation_name(call->operation));
    if (!ddpi_dtype_has_non_finite(call->dtype))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s has neither inf nor NaN to check for: set non_finite to NULL",
                              ddp_dtype_name(call->dtype));
    call->finite_check = true;
    return DDP_OK;
}

/* ---- lists of buffers ---- */

ddp_status ddpi_task_set_list(struct ddpi_task *task, const struct ddp_buffer *buffers,
                              size_t nbuffers, struct ddp_error *err)
{
    static const struct ddp_buffer none;
    if (nbuffers > UINT32_MAX) /* a header has no room for more */
        return ddpi_error_set(err, DDP_E_INVALID, "%zu buffers are too many: a call takes %u",
                              nbuffers, UINT32_MAX);
    if (nbuffers > 0 && buffers == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "the list of %zu buffers is NULL", nbuffers);
    task->send = task->recv = NULL;
    task->list = buffers != NULL ? buffers : &none;
    task->call.buffers = (uint32_t)nbuffers;
    return DDP_OK;
}

struct ddpi_segments ddpi_task_segments(const struct ddpi_task *task)
{
    return (struct ddpi_segments){.buffers = task->list,
                                  .nbuffers = task->call.buffers,
                                  .element_size = task->element_size,
                                  .in_place = !ddpi_call_shape(&task->call)->reduces};
}

/* A list of one buffer is the same call as that buffer without a list, which has shorter ways. */
static void set_only_buffer(struct ddpi_task *task)
{
    const struct ddp_buffer *buffer = task->list;
    task->send = ddpi_call_shape(&task->call)->reduces ? buffer->send : buffer->recv;
    task->recv = buffer->recv;
    task->list = NULL;
    task->call.buffers = 0;
}

/* A list counts as one buffer with the elements of all. */
static ddp_status set_list(struct ddpi_task *task, struct ddp_error *err)
{
    struct ddpi_segments segments = ddpi_task_segments(task);
    ddp_status status = ddpi_segments_check(&segments, &task->call.count, err);
    if (status == DDP_OK && segments.nbuffers == 1)
        set_only_buffer(task);
    else if (status == DDP_OK)
        task->call.parts = ddpi_segments_digest(&segments);
    return status;
}

/* ---- sizes ---- */

/* Of parts with counts of their own, name the first that no buffer can reach. */
static ddp_status refuse_size(const struct ddpi_task *task, enum ddpi_extent extent,
                              const struct ddpi_parts *parts, uint32_t world_size,
                              struct ddp_error *err)
{
    size_t most = PTRDIFF_MAX / task->element_size;
    uint32_t rank = 0;
    if (extent != DDPI_EXTENT_ALL || parts->counts == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "%zu elements of %zu bytes%s are too many",
                              task->own, task->element_size,
                              extent == DDPI_EXTENT_ALL ? " for each rank" : "");
    struct ddpi_chunk part = ddpi_parts_at(parts, 0, 0);
    while (part.count <= most && part.first <= most - part.count && rank + 1 < world_size)
        part = ddpi_parts_at(parts, 0, ++rank);
    return ddpi_error_set(err, DDP_E_INVALID,
                          "the part of rank %u, %zu elements of %zu bytes from element %zu on, "
                          "reaches farther than a buffer can",
                          rank, part.count, task->element_size, part.first);
}

static ddp_status measure(const struct ddpi_task *task, enum ddpi_extent extent,
                          const struct ddpi_parts *parts, uint32_t world_size, size_t *ret_count,
                          size_t *ret_sum, struct ddp_error *err)
{
    size_t bytes;
    uint32_t a, b;
    bool fits = true;
    *ret_sum = *ret_count = extent == DDPI_EXTENT_PART ? task->own : 0;
    if (extent == DDPI_EXTENT_ALL)
        fits = ddpi_parts_span(parts, task->own, world_size, ret_count, ret_sum);
    if (!fits || __builtin_mul_overflow(*ret_count, task->element_size, &bytes) ||
        bytes > PTRDIFF_MAX)
        return refuse_size(task, extent, parts, world_size, err);
    if (extent == DDPI_EXTENT_ALL && ddpi_parts_overlap(parts, world_size, &a, &b))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the parts of ranks %u and %u overlap: rank %u has %zu elements from "
                              "element %zu on, rank %u %zu from %zu on",
                              a, b, a, parts->counts[a], parts->offsets[a], b, parts->counts[b],
                              parts->offsets[b]);
    return DDP_OK;
}

static ddp_status check_counts(const struct ddpi_task *task, struct role role,
                               struct ddp_error *err)
{
    bool of_send = role.send == DDPI_EXTENT_ALL && task->send_parts.counts == NULL;
    bool of_recv = role.recv == DDPI_EXTENT_ALL && task->recv_parts.counts == NULL;
    if (!task->uneven || (!of_send && !of_recv))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "parts are uneven, but %s is NULL: give the elements of each rank's part",
                          of_send ? "send_counts" : "recv_counts");
}

/* Of this rank's part, both buffers have the same number of elements. */
static ddp_status check_own_part(const struct ddpi_task *task, struct role role, uint32_t rank,
                                 struct ddp_error *err)
{
    size_t send = role.send == DDPI_EXTENT_ALL
                      ? ddpi_parts_at(&task->send_parts, task->own, rank).count
                      : task->own;
    size_t recv = role.recv == DDPI_EXTENT_ALL
                      ? ddpi_parts_at(&task->recv_parts, task->own, rank).count
                      : task->own;
    if (role.send == DDPI_EXTENT_NONE || role.recv == DDPI_EXTENT_NONE || send == recv)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "rank %u sends itself %zu elements, but receives %zu from itself", rank,
                          send, recv);
}

/* What all ranks have in common when parts differ: of all_gather and reduce_scatter every rank
 * knows all counts; of the others a pair of ranks compares its own. */
static void set_common(struct ddpi_task *task, size_t sum, uint32_t world_size)
{
    struct ddpi_call *call = &task->call;
    bool all_know = ddpi_call_shape(call)->has_ring;
    const struct ddpi_parts *parts =
        task->recv_parts.counts != NULL ? &task->recv_parts : &task->send_parts;
    call->count = all_know ? sum : 0;
    call->parts = all_know ? ddpi_parts_digest(parts, world_size) : IN_PAIRS;
}

static ddp_status set_sizes(struct ddpi_task *task, uint32_t rank, uint32_t world_size,
                            struct ddp_error *err)
{
    struct role role = role_of(&task->call, rank);
    size_t send_sum, recv_sum;
    task->own = task->call.count;
    ddp_status status = check_counts(task, role, err);
    if (status == DDP_OK)
        status = measure(task, role.send, &task->send_parts, world_size, &task->send_count,
                         &send_sum, err);
    if (status == DDP_OK)
        status = measure(task, role.recv, &task->recv_parts, world_size, &task->recv_count,
                         &recv_sum, err);
    if (status == DDP_OK)
        status = check_own_part(task, role, rank, err);
    if (status != DDP_OK)
        return status;
    task->count = task->send_count > task->recv_count ? task->send_count : task->recv_count;
    if (task->uneven)
        set_common(task, send_sum > recv_sum ? send_sum : recv_sum, world_size);
    return DDP_OK;
}

/* ---- buffers ---- */

/* Where in a buffer this rank's part is. */
static uintptr_t own_part(const struct ddpi_task *task, enum ddpi_extent extent, const void *buffer,
                          const struct ddpi_parts *parts, uint32_t rank)
{
    size_t first = extent == DDPI_EXTENT_ALL ? ddpi_parts_at(parts, task->own, rank).first : 0;
    return (uintptr_t)buffer + first * task->element_size;
}

/* The buffers are used in place, or do not overlap. */
static bool buffers_fit(const struct ddpi_task *task, struct role role, uint32_t rank)
{
    uintptr_t send = (uintptr_t)task->send, recv = (uintptr_t)task->recv;
    if (ddpi_call_shape(&task->call)->in_place != NULL &&
        own_part(task, role.send, task->send, &task->send_parts, rank) ==
            own_part(task, role.recv, task->recv, &task->recv_parts, rank))
        return true;
    return send < recv ? recv - send >= task->send_count * task->element_size
                       : send - recv >= task->recv_count * task->element_size;
}

static ddp_status check_buffers(const struct ddpi_task *task, uint32_t rank, struct ddp_error *err)
{
    const char *in_place = ddpi_call_shape(&task->call)->in_place;
    struct role role = role_of(&task->call, rank);
    bool sends = task->send_count > 0, receives = task->recv_count > 0;
    if ((sends && task->send == NULL) || (receives && task->recv == NULL))
        return ddpi_error_set(err, DDP_E_INVALID, "the buffer of %zu elements is NULL",
                              sends && task->send == NULL ? task->send_count : task->recv_count);
    if (!sends || !receives || buffers_fit(task, role, rank))
        return DDP_OK;
    if (in_place == NULL)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "send and receive buffer overlap; this operation has no in-place form");
    return ddpi_error_set(err, DDP_E_INVALID, "send and receive buffer overlap; in place, %s",
                          in_place);
}

ddp_status ddpi_task_prepare(struct ddpi_task *task, uint32_t rank, uint32_t world_size,
                             struct ddp_error *err)
{
    ddp_status status = check_types(task, world_size, err);
    if (status == DDP_OK)
        status = check_ranks(&task->call, world_size, err);
    if (status == DDP_OK)
        status = check_finite_check(task, err);
    if (status == DDP_OK && task->list != NULL)
        status = set_list(task, err);
    if (status == DDP_OK)
        status = set_sizes(task, rank, world_size, err);
    if (status == DDP_OK && task->list == NULL)
        status = check_buffers(task, rank, err);
    if (status != DDP_OK)
        return status;
    task->ring = (struct ddpi_ring){.kind = ddpi_call_shape(&task->call)->ring,
                                    .rank = rank,
                                    .nranks = world_size,
                                    .root = task->call.root};
    if (ddpi_call_shape(&task->call)->message) {
        if (task->call.message_class == DDPI_NOT_A_MESSAGE)
            task->call.message_class = DDPI_USER_MESSAGE;
        task->call.bytes = task->count * task->element_size;
    }
    return DDP_OK;
}

bool ddpi_task_part(const struct ddpi_task *task, uint32_t rank, bool receives, uint32_t index,
                    struct ddpi_chunk *ret_part)
{
    struct role role = role_of(&task->call, rank);
    enum ddpi_extent extent = receives ? role.recv : role.send;
    const struct ddpi_parts *parts = receives ? &task->recv_parts : &task->send_parts;
    *ret_part = extent == DDPI_EXTENT_ALL ? ddpi_parts_at(parts, task->own, index)
                                          : (struct ddpi_chunk){.count = task->own};
    return extent == DDPI_EXTENT_ALL || (extent == DDPI_EXTENT_PART && index == 0);
}

/* ---- what passes between two ranks ---- */

struct ddpi_copy ddpi_task_own_copy(const struct ddpi_task *task, uint32_t rank)
{
    struct role role = role_of(&task->call, rank);
    if (role.send == DDPI_EXTENT_NONE || role.recv == DDPI_EXTENT_NONE || task->send == NULL ||
        task->recv == NULL)
        return (struct ddpi_copy){.len = 0};
    const struct ddpi_parts *parts =
        role.send == DDPI_EXTENT_ALL ? &task->send_parts : &task->recv_parts;
    bool all = role.send == DDPI_EXTENT_ALL || role.recv == DDPI_EXTENT_ALL;
    size_t count = all ? ddpi_parts_at(parts, task->own, rank).count : task->own;
    struct ddpi_copy copy = {
        .from = (const uint8_t *)own_part(task, role.send, task->send, &task->send_parts, rank),
        .to = (uint8_t *)own_part(task, role.recv, task->recv, &task->recv_parts, rank),
        .len = count * task->element_size};
    if (copy.from == copy.to)
        copy.len = 0;
    return copy;
}

/* Where the elements for, or of, @peer lie in the buffer of which this rank has @extent; false:
 * there are none, as only the root has them. */
static bool piece_at(const struct ddpi_task *task, enum ddpi_extent extent,
                     const struct ddpi_parts *parts, uint32_t peer, struct ddpi_chunk *ret_piece)
{
    *ret_piece = extent == DDPI_EXTENT_ALL ? ddpi_parts_at(parts, task->own, peer)
                                           : (struct ddpi_chunk){.count = task->own};
    return extent == DDPI_EXTENT_ALL || (extent == DDPI_EXTENT_PART && peer == task->call.root);
}

bool ddpi_task_to_peer(const struct ddpi_task *task, uint32_t rank, uint32_t peer,
                       struct ddpi_range *ret_piece)
{
    struct ddpi_chunk piece;
    if (!piece_at(task, role_of(&task->call, rank).send, &task->send_parts, peer, &piece))
        return false;
    *ret_piece =
        (struct ddpi_range){(uint8_t *)((uintptr_t)task->send + piece.first * task->element_size),
                            piece.count * task->element_size};
    return true;
}

bool ddpi_task_from_peer(const struct ddpi_task *task, uint32_t rank, uint32_t peer,
                         struct ddpi_range *ret_piece)
{
    struct ddpi_chunk piece;
    if (!piece_at(task, role_of(&task->call, rank).recv, &task->recv_parts, peer, &piece))
        return false;
    *ret_piece =
        (struct ddpi_range){(uint8_t *)((uintptr_t)task->recv + piece.first * task->element_size),
                            piece.count * task->element_size};
    return true;
}

static uint64_t weigh(uint64_t from, uint64_t to, uint64_t len)
{
    uint64_t mixed = (from << 32 | to) * 0x9e3779b97f4a7c15 + len * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 32) * 0x94d049bb133111eb;
    return mixed >> 48;
}

uint16_t ddpi_task_balance(const struct ddpi_task *task, uint32_t rank, uint32_t nranks)
{
    struct ddpi_range piece;
    uint64_t sum = 0;
    for (uint32_t peer = 0; peer < nranks; peer++) {
        if (peer != rank && ddpi_task_to_peer(task, rank, peer, &piece))
            sum += weigh(rank, peer, piece.len);
        if (peer != rank && ddpi_task_from_peer(task, rank, peer, &piece))
            sum -= weigh(peer, rank, piece.len);
    }
    return (uint16_t)sum;
}
