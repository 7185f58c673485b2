/*
 * perf_coll_rank.c - fills the buffers of a rank, makes the calls, checks the results and times the
 * calls. Owns the buffers.
 */
#include "perf_coll_context.h"

#include "error.h"
#include "mem.h"

#include <string.h>
#include <unistd.h>

enum {
    COPY_LEN = 256 * 1024 * 1024,     /* beyond the caches */
    HOST_COPY_LEN = 64 * 1024 * 1024, /* the same, of each rank */
    COPIES = 20,
    HOST_COPIES = 5,
    FLOOR_FROM = 1024 * 1024, /* bytes; below, starting a kernel takes longer than copying */
};

/* ---- the call ---- */

/* Even ranks send first, as a send may wait for its receive. */
static ddp_status send_and_receive(struct coll_rank *rank, size_t count, struct ddp_error *err)
{
    ddp_dtype dtype = rank->options->dtype;
    void *stream = coll_memory_stream(&rank->memory);
    uint32_t next = (rank->rank + 1) % rank->ranks;
    uint32_t prev = (rank->rank + rank->ranks - 1) % rank->ranks;
    bool sends_first = rank->rank % 2 == 0;
    ddp_status status = DDP_OK;
    if (sends_first)
        status = ddp_send(rank->comm, rank->send, count, dtype, next, stream, err);
    if (status == DDP_OK)
        status = ddp_recv(rank->comm, rank->recv, count, dtype, prev, stream, err);
    if (status == DDP_OK && !sends_first)
        status = ddp_send(rank->comm, rank->send, count, dtype, next, stream, err);
    return status;
}

/* This rank's part of a buffer that holds all parts. */
static uint8_t *own_part(const struct coll_rank *rank, uint8_t *all, const struct coll_shape *shape)
{
    return all + rank->rank * shape->count * ddp_dtype_size(rank->options->dtype);
}

static bool rank_call(struct coll_rank *rank, const struct coll_shape *shape, bool in_place,
                      struct ddp_error *err)
{
    const struct coll_options *options = rank->options;
    void *stream = coll_memory_stream(&rank->memory);
    uint8_t *send = rank->send, *recv = in_place ? rank->send : rank->recv;
    ddp_status status = DDP_E_INVALID;
    switch (rank->call) {
    case COLL_ALL_REDUCE:
        status = ddp_all_reduce(rank->comm, send, recv, shape->count, options->dtype, options->op,
                                stream, err);
        break;
    case COLL_REDUCE:
        status = ddp_reduce(rank->comm, send, recv, shape->count, options->dtype, options->op,
                            options->root, stream, err);
        break;
    case COLL_BROADCAST:
        status = ddp_broadcast(rank->comm, rank->recv, shape->count, options->dtype, options->root,
                               stream, err);
        break;
    case COLL_ALL_GATHER:
        send = in_place ? own_part(rank, rank->recv, shape) : rank->send;
        status =
            ddp_all_gather(rank->comm, send, rank->recv, shape->count, options->dtype, stream, err);
        break;
    case COLL_REDUCE_SCATTER:
        recv = in_place ? own_part(rank, rank->send, shape) : rank->recv;
        status = ddp_reduce_scatter(rank->comm, send, recv, shape->count, options->dtype,
                                    options->op, stream, err);
        break;
    case COLL_ALL_TO_ALL:
        status = ddp_all_to_all(rank->comm, send, recv, shape->count, options->dtype, stream, err);
        break;
    case COLL_SENDRECV:
        status = send_and_receive(rank, shape->count, err);
        break;
    case COLL_BARRIER:
        status = ddp_barrier(rank->comm, stream, err);
        break;
    case COLL_CALLS:
        break;
    }
    return status == DDP_OK;
}

/* Wait until all enqueued calls have finished, and check that none failed. */
static bool rank_settle(struct coll_rank *rank, struct ddp_error *err)
{
    return coll_memory_sync(&rank->memory, err) && ddp_comm_check(rank->comm, err) == DDP_OK;
}

/* ---- inputs and results ---- */

static struct coll_pattern pattern_of(const struct coll_rank *rank, uint32_t from, uint32_t to)
{
    return (struct coll_pattern){.dtype = rank->options->dtype,
                                 .op = rank->options->op,
                                 .ranks = rank->ranks,
                                 .from = from,
                                 .to = to};
}

static bool prepare_buffers(struct coll_rank *rank, const struct coll_shape *shape, bool in_place,
                            struct ddp_error *err)
{
    struct coll_pattern own = pattern_of(rank, rank->rank, rank->rank + 1);
    size_t count = shape->send_len / ddp_dtype_size(rank->options->dtype);
    uint8_t *send = rank->send;
    if (rank->call == COLL_ALL_GATHER && in_place)
        send = own_part(rank, rank->recv, shape);
    if (rank->call == COLL_BROADCAST)
        send = rank->recv;
    if (!coll_memory_poison(&rank->memory, rank->recv, shape->recv_len, err))
        return false;
    if (rank->call == COLL_BROADCAST && rank->rank != rank->options->root)
        return true;
    return coll_memory_fill(&rank->memory, &own, 0, count, send, err);
}

/* Of each rank, its elements from @first on. */
static bool compare_parts(struct coll_rank *rank, const struct coll_shape *shape, uint64_t first,
                          uint64_t *wrong, struct ddp_error *err)
{
    size_t len = shape->recv_len / rank->ranks;
    for (uint32_t from = 0; from < rank->ranks; from++) {
        struct coll_pattern theirs = pattern_of(rank, from, from + 1);
        if (!coll_memory_check(&rank->memory, &theirs, first, shape->count, rank->recv + from * len,
                               wrong, err))
            return false;
    }
    return true;
}

static bool compare_result(struct coll_rank *rank, const struct coll_shape *shape, bool in_place,
                           uint64_t *wrong, struct ddp_error *err)
{
    struct coll_pattern expected = pattern_of(rank, 0, rank->ranks);
    const uint8_t *result = in_place ? rank->send : rank->recv;
    uint64_t first = 0;
    switch (rank->call) {
    case COLL_REDUCE:
        if (rank->rank != rank->options->root)
            return true;
        break;
    case COLL_BROADCAST:
        expected = pattern_of(rank, rank->options->root, rank->options->root + 1);
        result = rank->recv;
        break;
    case COLL_ALL_GATHER:
        return compare_parts(rank, shape, 0, wrong, err);
    case COLL_ALL_TO_ALL:
        return compare_parts(rank, shape, rank->rank * shape->count, wrong, err);
    case COLL_REDUCE_SCATTER:
        first = rank->rank * shape->count;
        result = in_place ? own_part(rank, rank->send, shape) : rank->recv;
        break;
    case COLL_SENDRECV:
        expected.from = (rank->rank + rank->ranks - 1) % rank->ranks;
        expected.to = expected.from + 1;
        break;
    case COLL_ALL_REDUCE:
    case COLL_BARRIER:
    case COLL_CALLS:
        break;
    }
    return coll_memory_check(&rank->memory, &expected, first, shape->count, result, wrong, err);
}

static bool count_wrong(struct coll_rank *rank, const struct coll_shape *shape, bool in_place,
                        uint64_t *ret_wrong, struct ddp_error *err)
{
    int64_t wrong = 0;
    uint64_t own = 0;
    if (!rank_call(rank, shape, in_place, err) || !rank_settle(rank, err) ||
        !compare_result(rank, shape, in_place, &own, err))
        return false;
    wrong = (int64_t)own;
    if (ddp_all_reduce(rank->side, &wrong, &wrong, 1, DDP_INT64, DDP_SUM, NULL, err) != DDP_OK)
        return false;
    *ret_wrong = (uint64_t)wrong;
    return true;
}

/* ---- time ---- */

static bool rank_call_often(struct coll_rank *rank, const struct coll_shape *shape, bool in_place,
                            uint32_t times, struct ddp_error *err)
{
    for (uint32_t i = 0; i < times; i++)
        if (!rank_call(rank, shape, in_place, err))
            return false;
    return rank_settle(rank, err);
}

static bool measure_figure(struct coll_rank *rank, const struct coll_shape *shape, bool in_place,
                           struct coll_figure *ret, struct ddp_error *err)
{
    const struct coll_options *options = rank->options;
    *ret = (struct coll_figure){.there = true};
    if (!prepare_buffers(rank, shape, in_place, err) ||
        (options->check && !count_wrong(rank, shape, in_place, &ret->wrong, err)) ||
        !rank_call_often(rank, shape, in_place, options->warmup, err) ||
        ddp_barrier(rank->side, NULL, err) != DDP_OK)
        return false;
    double began_us = coll_now_us();
    if (!rank_call_often(rank, shape, in_place, options->iters, err))
        return false;
    ret->us = (coll_now_us() - began_us) / options->iters;
    return coll_rank_slowest(rank, &ret->us, err);
}

/* A broadcast has a single buffer; alltoall and sendrecv need two. */
static bool has_out_of_place(enum coll_call call)
{
    return call != COLL_BROADCAST;
}

static bool has_in_place(enum coll_call call)
{
    return call != COLL_SENDRECV && call != COLL_BARRIER && call != COLL_ALL_TO_ALL;
}

static bool measure_row(struct coll_rank *rank, uint64_t size, double copy_gb_s,
                        struct ddp_error *err)
{
    struct coll_row row = {.shape =
                               coll_shape(rank->call, size, rank->options->dtype, rank->ranks)};
    if (has_out_of_place(rank->call) && !measure_figure(rank, &row.shape, false, &row.out, err))
        return false;
    if (has_in_place(rank->call) && !measure_figure(rank, &row.shape, true, &row.in, err))
        return false;
    if (copy_gb_s > 0 && row.shape.size >= FLOOR_FROM)
        row.floor_us = 2.0 * rank->ranks * (double)row.shape.size / copy_gb_s / 1e3;
    return rank->rank != 0 || coll_report_row(&rank->report, &row, err);
}

/* The next size, 0 after the last one. A barrier has no sizes. */
static uint64_t next_size(const struct coll_rank *rank, uint64_t size)
{
    const struct coll_options *options = rank->options;
    return rank->call == COLL_BARRIER
               ? 0
               : coll_next_size(size, options->end, options->step, options->factor);
}

static bool measure_rows(struct coll_rank *rank, double copy_gb_s, struct ddp_error *err)
{
    uint64_t size = rank->options->begin;
    do
        if (!measure_row(rank, size, copy_gb_s, err))
            return false;
    while ((size = next_size(rank, size)) != 0);
    return true;
}

/* ---- copying ---- */

/* Of a device rank 0 measures it, and the other ranks wait. In host memory all ranks copy at once,
 * as no processor alone can use all that memory gives. */
static bool measure_copy(struct coll_rank *rank, double *ret_gb_s, struct ddp_error *err)
{
    uint8_t *from = NULL, *to = NULL;
    double us = 0;
    struct coll_pattern any = {.dtype = DDP_FLOAT32, .op = DDP_MAX, .ranks = 1, .to = 1};
    bool all = !rank->cuda, done = true;
    uint32_t copying = all ? rank->ranks : 1;
    size_t len = all ? HOST_COPY_LEN : COPY_LEN;
    if (all || rank->rank == 0)
        done = coll_memory_alloc(&rank->memory, len, &from, err) &&
               coll_memory_alloc(&rank->memory, len, &to, err) &&
               coll_memory_fill(&rank->memory, &any, 0, len / sizeof(float), from, err) &&
               (!all || ddp_barrier(rank->side, NULL, err) == DDP_OK) &&
               coll_memory_time_copy(&rank->memory, to, from, len, all ? HOST_COPIES : COPIES, &us,
                                     err);
    coll_memory_free(&rank->memory, from);
    coll_memory_free(&rank->memory, to);
    done = done && ddp_barrier(rank->side, NULL, err) == DDP_OK &&
           (!all || coll_rank_slowest(rank, &us, err));
    *ret_gb_s = us > 0 ? 2.0 * (double)len * copying / us / 1e3 : 0;
    return done;
}

/* On one device, or on one host. */
static bool share_one_memory(const struct coll_rank *rank)
{
    const struct coll_seat *first = &rank->seats[0];
    for (uint32_t i = 1; i < rank->ranks; i++) {
        const struct coll_seat *other = &rank->seats[i];
        if (rank->cuda ? memcmp(other->uuid, first->uuid, sizeof first->uuid) != 0
                       : strcmp(other->host, first->host) != 0)
            return false;
    }
    return true;
}

/* ---- breakdown ---- */

static void read_stages(struct coll_rank *rank, double stages_us[COLL_STAGES])
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    if (ddp_comm_get_stats(rank->comm, &stats) != DDP_OK)
        return;
    stages_us[COLL_STREAM] = (double)stats.stream_us;
    stages_us[COLL_EXCHANGE] = (double)stats.exchange_us;
    stages_us[COLL_WORK] = (double)stats.work_us;
    stages_us[COLL_COMPLETION] = (double)stats.completion_us;
}

static bool break_down(struct coll_rank *rank, const struct coll_shape *shape,
                       struct ddp_error *err)
{
    uint32_t iters = rank->options->iters;
    bool in_place = has_in_place(rank->call);
    double before[COLL_STAGES] = {0}, stages_us[COLL_STAGES] = {0}, call_us = 0;
    if (!prepare_buffers(rank, shape, in_place, err) ||
        !rank_call_often(rank, shape, in_place, rank->options->warmup, err) ||
        ddp_barrier(rank->side, NULL, err) != DDP_OK)
        return false;
    read_stages(rank, before);
    double began_us = coll_now_us();
    for (uint32_t i = 0; i < iters; i++) {
        double called_us = coll_now_us();
        if (!rank_call(rank, shape, in_place, err))
            return false;
        call_us += coll_now_us() - called_us;
        if (!rank_settle(rank, err))
            return false;
    }
    double total_us = (coll_now_us() - began_us) / iters;
    read_stages(rank, stages_us);
    for (int stage = COLL_STREAM; stage < COLL_STAGES; stage++)
        stages_us[stage] = (stages_us[stage] - before[stage]) / iters;
    stages_us[COLL_CALL] = call_us / iters;
    if (rank->rank == 0)
        coll_report_breakdown(&rank->report, shape, total_us, stages_us);
    return true;
}

static bool break_down_all(struct coll_rank *rank, struct ddp_error *err)
{
    if (!rank->options->breakdown || !rank->cuda)
        return true;
    if (rank->rank == 0)
        coll_report_breakdown_header();
    uint64_t size = rank->options->begin;
    do {
        struct coll_shape shape = coll_shape(rank->call, size, rank->options->dtype, rank->ranks);
        if (!break_down(rank, &shape, err))
            return false;
    } while ((size = next_size(rank, size)) != 0);
    return true;
}

/* ---- the whole run ---- */

static bool exchange_seats(struct coll_rank *rank, struct ddp_error *err)
{
    rank->seats = ddpi_calloc(rank->ranks, sizeof *rank->seats);
    if (rank->seats == NULL)
        return ddpi_error_nomem(err, rank->ranks * sizeof *rank->seats) == DDP_OK;
    struct coll_seat *own = &rank->seats[rank->rank];
    own->pid = (int32_t)getpid();
    own->device = rank->memory.device;
    if (gethostname(own->host, sizeof own->host - 1) != 0)
        own->host[0] = '\0';
    memcpy(own->name, rank->memory.name, sizeof own->name);
    memcpy(own->bus, rank->memory.bus, sizeof own->bus);
    memcpy(own->uuid, rank->memory.uuid, sizeof own->uuid);
    _Static_assert(sizeof *own % sizeof(int32_t) == 0, "a seat is sent as whole words");
    return ddp_all_gather(rank->side, own, rank->seats, sizeof *own / sizeof(int32_t), DDP_INT32,
                          NULL, err) == DDP_OK;
}

/* The last size is the greatest. */
static bool make_buffers(struct coll_rank *rank, struct ddp_error *err)
{
    void *send, *recv;
    struct coll_shape most =
        coll_shape(rank->call, rank->options->end, rank->options->dtype, rank->ranks);
    if (rank->options->alloc) { /* freed with the communicator */
        if (ddp_alloc(rank->comm, most.send_len, &send, err) != DDP_OK ||
            ddp_alloc(rank->comm, most.recv_len, &recv, err) != DDP_OK)
            return false;
        rank->send = send;
        rank->recv = recv;
        return true;
    }
    return coll_memory_alloc(&rank->memory, most.send_len, &rank->send, err) &&
           coll_memory_alloc(&rank->memory, most.recv_len, &rank->recv, err);
}

static bool measure_all(struct coll_rank *rank, struct ddp_error *err)
{
    double copy_gb_s = 0;
    bool leads = rank->rank == 0;
    bool against_copy = share_one_memory(rank) && rank->call == COLL_ALL_REDUCE &&
                        rank->options->algorithm != DDP_ALGORITHM_RING &&
                        rank->options->end >= FLOOR_FROM;
    if (leads && !coll_report_open(&rank->report, err))
        return false;
    if (leads)
        coll_report_header(&rank->report);
    if ((against_copy && !measure_copy(rank, &copy_gb_s, err)) || !make_buffers(rank, err) ||
        !measure_rows(rank, copy_gb_s, err))
        return false;
    if (leads)
        coll_report_footer(&rank->report, copy_gb_s);
    return break_down_all(rank, err) && coll_nccl(rank, err);
}

bool coll_rank_run(struct coll_rank *rank, struct ddp_error *err)
{
    rank->rank = ddp_comm_rank(rank->comm);
    rank->ranks = ddp_comm_world_size(rank->comm);
    if (rank->call == COLL_SENDRECV && rank->ranks < 2)
        return ddpi_error_set(err, DDP_E_INVALID, "sendrecv needs two ranks (--nproc=2)") == DDP_OK;
    if (rank->options->alloc && rank->cuda)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--alloc takes buffers in host memory: add --device=cpu") == DDP_OK;
    if (coll_kinds[rank->call].rooted && rank->options->root >= rank->ranks)
        return ddpi_error_set(err, DDP_E_INVALID, "there is no rank %u to be the root",
                              rank->options->root) == DDP_OK;
    if (!coll_memory_open(&rank->memory, rank->cuda, rank->local, err))
        return false;
    bool done = exchange_seats(rank, err);
    rank->report = (struct coll_report){
        .options = rank->options, .call = rank->call, .seats = rank->seats, .ranks = rank->ranks};
    done = done && measure_all(rank, err);
    if (!rank->options->alloc) {
        coll_memory_free(&rank->memory, rank->send);
        coll_memory_free(&rank->memory, rank->recv);
    }
    return done;
}
