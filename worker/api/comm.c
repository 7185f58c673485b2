/*
 * comm.c - the public functions of a communicator: its life, and the collectives as jobs for the
 * engine. Owns the communicator.
 */
#include "bootstrap.h"
#include "communicator.h"
#include "device.h"
#include "error.h"
#include "mem.h"
#include "private_fds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* On failure ddp_comm_destroy() is still to be called. */
static ddp_status fill(struct ddp_comm *comm, const struct ddpi_config *config,
                       struct ddp_error *err)
{
    ddpi_edges_clear(&comm->edges);
    comm->bell = -1;
    comm->device = -1;
    comm->home_pid = getpid();
    comm->home = ddpi_private_mark();
    if (comm->home == NULL)
        return ddpi_error_sys(err, errno, "get memory that children do not inherit");
    comm->rank = config->rank;
    comm->world_size = config->world_size;
    comm->timeout_ms = config->timeout_ms;
    comm->algorithm = config->algorithm;
    atomic_init(&comm->aborted, false);
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text, "rank %u called ddp_comm_abort()", comm->rank);
    ddpi_memo_fill(&comm->abort_notice, DDPI_NOTICE_FAILED, DDP_E_ABORTED, text);
    comm->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->bell < 0)
        return ddpi_error_sys(err, errno, "make an eventfd");
    comm->tokens = ddpi_calloc(comm->world_size, 1);
    comm->numbers = ddpi_calloc(comm->world_size, sizeof *comm->numbers);
    if (comm->tokens == NULL || comm->numbers == NULL)
        return ddpi_error_nomem(err, comm->world_size * (1 + sizeof *comm->numbers));
    if (comm->world_size > 1) {
        comm->scratch = ddpi_calloc(DDPI_SCRATCH_SIZE, 1);
        if (comm->scratch == NULL)
            return ddpi_error_nomem(err, DDPI_SCRATCH_SIZE);
    }
    return ddpi_edges_init(&comm->edges, comm->world_size, err);
}

ddp_status ddpi_comm_create(const struct ddpi_config *config, struct ddp_comm **ret_comm,
                            struct ddp_error *err)
{
    struct ddp_comm *comm = ddpi_calloc(1, sizeof *comm);
    if (comm == NULL)
        return ddpi_error_nomem(err, sizeof *comm);
    ddp_status status = fill(comm, config, err);
    if (status == DDP_OK)
        *ret_comm = comm;
    else
        ddp_comm_destroy(comm);
    return status;
}

static ddp_status report(const struct ddp_comm *comm, struct ddp_error *err)
{
    return ddpi_error_set(err, comm->failed, "%s", comm->cause);
}

ddp_status ddp_comm_init(const struct ddp_comm_options *options, ddp_comm **ret_comm,
                         struct ddp_error *err)
{
    struct ddpi_config config;
    ddp_status status = ddpi_config_load(options, ddpi_config_getenv, &config, err);
    if (status != DDP_OK)
        return status;
    struct ddp_comm *comm;
    status = ddpi_comm_create(&config, &comm, err);
    if (status != DDP_OK)
        return ddpi_advise_descriptors(err, status);
    comm->life = ddpi_life_hold(config.life_fd, config.life_slot);
    if (comm->world_size > 1)
        status = ddpi_bootstrap(comm, &config, err);
    if (status != DDP_OK) {
        ddp_comm_destroy(comm);
        return status;
    }
    *ret_comm = comm;
    return DDP_OK;
}

static bool is_home(const struct ddp_comm *comm)
{
    return comm->home != NULL && *comm->home != 0;
}

/* What is left in a child of the memory of its parent: nobody is told anything. The thread and the
 * context of the GPU are the parent's alone, and their memory stays. */
static void leave_quietly(struct ddp_comm *comm)
{
    ddpi_edges_disown(&comm->edges);
    ddpi_edges_finish(&comm->edges);
}

static void leave(struct ddp_comm *comm)
{
    ddpi_device_stop(comm->gpu);
    ddpi_edges_farewell(&comm->edges, comm->failed, comm->cause);
    ddpi_edges_finish(&comm->edges);
    ddpi_device_destroy(comm->gpu); /* may wait for ranks of this process, who wait for the news */
}

void ddp_comm_destroy(ddp_comm *comm)
{
    if (comm == NULL)
        return;
    if (is_home(comm))
        leave(comm);
    else
        leave_quietly(comm);
    ddpi_life_release(comm->life);
    if (comm->bell >= 0)
        close(comm->bell);
    ddpi_free(comm->scratch);
    ddpi_free(comm->numbers);
    ddpi_free(comm->tokens);
    ddpi_private_unmark(comm->home);
    ddpi_free(comm);
}

uint32_t ddp_comm_rank(const ddp_comm *comm)
{
    return comm->rank;
}

uint32_t ddp_comm_world_size(const ddp_comm *comm)
{
    return comm->world_size;
}

void ddp_comm_abort(ddp_comm *comm)
{
    if (!is_home(comm))
        return;
    int saved_errno = errno;
    atomic_store(&comm->aborted, true);
    const uint64_t one = 1;
    (void)!write(comm->bell, &one, sizeof one);
    ddpi_edges_tell(&comm->edges, NULL, &comm->abort_notice);
    errno = saved_errno;
}

ddp_status ddp_comm_get_stats(const ddp_comm *comm, struct ddp_comm_stats *ret_stats)
{
    size_t size = ret_stats->size;
    struct ddp_comm_stats stats = {.size = size};
    if (size < offsetof(struct ddp_comm_stats, stream_us) || !is_home(comm))
        return DDP_E_INVALID;
    if (comm->gpu != NULL)
        ddpi_device_lock(comm->gpu);
    stats.operations = comm->operations;
    stats.bytes_sent = comm->bytes_sent;
    stats.bytes_received = comm->bytes_received;
    if (comm->gpu != NULL) {
        ddpi_device_tell(comm->gpu, &stats);
        ddpi_device_unlock(comm->gpu);
    }
    memcpy(ret_stats, &stats, size < sizeof stats ? size : sizeof stats);
    return DDP_OK;
}

/* While operations are enqueued the communicator is not ours to look into. */
ddp_status ddp_comm_check(ddp_comm *comm, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status != DDP_OK)
        return status;
    if (comm->gpu != NULL && ddpi_device_busy(comm->gpu))
        return DDP_OK;
    return ddpi_comm_check_abort(comm) == DDP_OK && comm->failed == DDP_OK ? DDP_OK
                                                                           : report(comm, err);
}

/* ---- what a call must be like ---- */

static const struct shape {
    enum ddpi_ring_kind ring;
    bool reduces;      /* it has a reduction */
    bool rooted;       /* it has a root */
    bool sends_all;    /* the send buffer has a part for each rank */
    bool receives_all; /* the receive buffer has a part of each rank */
    const char *in_place;
} shapes[] = {
    [DDPI_JOIN] = {.ring = DDPI_RING_ALL_GATHER, .receives_all = true},
    [DDPI_BARRIER] = {.ring = DDPI_RING_ALL_GATHER, .receives_all = true},
    [DDPI_BROADCAST] = {.ring = DDPI_RING_BROADCAST, .rooted = true},
    [DDPI_ALL_REDUCE] = {.ring = DDPI_RING_ALL_REDUCE,
                         .reduces = true,
                         .in_place = "they must be equal"},
    [DDPI_REDUCE] = {.ring = DDPI_RING_REDUCE,
                     .reduces = true,
                     .rooted = true,
                     .in_place = "they must be equal"},
    [DDPI_ALL_GATHER] = {.ring = DDPI_RING_ALL_GATHER,
                         .receives_all = true,
                         .in_place = "send must be this rank's part of recv"},
    [DDPI_REDUCE_SCATTER] = {.ring = DDPI_RING_REDUCE_SCATTER,
                             .reduces = true,
                             .sends_all = true,
                             .in_place = "recv must be this rank's part of send"},
    [DDPI_SEND] = {0}, /* between two: peer_message.c */
    [DDPI_RECV] = {0},
};

static const struct shape *shape_of(const struct ddpi_call *call)
{
    return &shapes[call->operation];
}

/* Into how many parts the larger buffer of @call is divided. */
static uint32_t parts_of(const struct ddp_comm *comm, const struct ddpi_call *call)
{
    return shape_of(call)->sends_all || shape_of(call)->receives_all ? comm->world_size : 1;
}

ddp_status ddpi_comm_check_home(const struct ddp_comm *comm, struct ddp_error *err)
{
    if (is_home(comm))
        return DDP_OK;
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "this process (pid %d) was forked from rank %u (pid %d) and has no part in "
        "its communicator: leave the call to that process, or start a rank of its "
        "own with exec",
        getpid(), comm->rank, comm->home_pid);
}

ddp_status ddpi_comm_check_call(const struct ddp_comm *comm, const struct ddpi_call *call,
                                struct ddp_error *err)
{
    const struct shape *shape = shape_of(call);
    size_t size = ddp_dtype_size(call->dtype), count, bytes;
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status != DDP_OK)
        return status;
    if (size == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is no element type", (int)call->dtype);
    if (shape->reduces && (unsigned)call->op > DDP_PRODUCT)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is no reduction", (int)call->op);
    if (shape->rooted && call->root >= comm->world_size)
        return ddpi_error_set(err, DDP_E_INVALID, "root %u does not exist in a world of %u ranks",
                              call->root, comm->world_size);
    uint32_t parts = parts_of(comm, call);
    if (__builtin_mul_overflow(call->count, parts, &count) ||
        __builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "%zu elements of %zu bytes%s are too many",
                              call->count, size, parts > 1 ? " for each rank" : "");
    return DDP_OK;
}

/* Where in a buffer with @parts for all ranks this rank's part is. */
static uintptr_t own_part(const struct ddp_comm *comm, const void *buffer, bool parts, size_t len)
{
    return (uintptr_t)buffer + (parts ? comm->rank * len : 0);
}

/* The buffers are used in place, or do not overlap. */
static bool buffers_fit(const struct ddp_comm *comm, const struct ddpi_job *job)
{
    const struct shape *shape = shape_of(&job->call);
    size_t len = job->call.count * job->element_size, all = job->count * job->element_size;
    if (own_part(comm, job->send, shape->sends_all, len) ==
        own_part(comm, job->recv, shape->receives_all, len))
        return true;
    uintptr_t send = (uintptr_t)job->send, recv = (uintptr_t)job->recv;
    return send < recv ? recv - send >= (shape->sends_all ? all : len)
                       : send - recv >= (shape->receives_all ? all : len);
}

static ddp_status check_buffers(const struct ddp_comm *comm, const struct ddpi_job *job,
                                struct ddp_error *err)
{
    if (job->count == 0)
        return DDP_OK;
    bool receives = job->call.operation != DDPI_REDUCE || comm->rank == job->call.root;
    if (job->send == NULL || (receives && job->recv == NULL))
        return ddpi_error_set(err, DDP_E_INVALID, "the buffer of %zu elements is NULL",
                              job->call.count);
    if (receives && !buffers_fit(comm, job))
        return ddpi_error_set(err, DDP_E_INVALID, "send and receive buffer overlap; in place, %s",
                              shape_of(&job->call)->in_place);
    return DDP_OK;
}

/* ---- how it is run ---- */

/* What all ranks together do, in a world of one. */
static void run_alone(const struct ddpi_job *job)
{
    if (job->send != job->recv && job->count > 0)
        memcpy(job->recv, job->send, job->count * job->element_size);
}

static bool is_direct(const struct ddp_comm *comm, const struct ddpi_job *job)
{
    return shape_of(&job->call)->reduces && comm->algorithm == DDP_ALGORITHM_DIRECT;
}

static void fill_ring(const struct ddp_comm *comm, struct ddpi_job *job)
{
    job->ring = (struct ddpi_ring){.kind = shape_of(&job->call)->ring,
                                   .rank = comm->rank,
                                   .nranks = comm->world_size,
                                   .root = job->call.root};
}

/* Run @job, of which everything is good, as the next operation of @comm. */
static ddp_status operate(struct ddp_comm *comm, struct ddpi_job *job)
{
    if (comm->failed != DDP_OK)
        return comm->failed;
    ddp_status status = ddpi_comm_check_abort(comm);
    if (status != DDP_OK)
        return status;
    bool direct = is_direct(comm, job);
    job->call.seq = comm->seq++;
    if (shape_of(&job->call)->reduces)
        job->call.algorithm = direct ? DDP_ALGORITHM_DIRECT : DDP_ALGORITHM_RING;
    job->gathered = direct;
    if (direct)
        job->ring.kind = DDPI_RING_ALL_GATHER;
    if (comm->world_size > 1)
        return ddpi_job_run(comm, job);
    run_alone(job);
    return DDP_OK;
}

/* Every collective comes through here, with call, send and recv of @job filled in. */
static ddp_status collect(struct ddp_comm *comm, struct ddpi_job *job, void *stream,
                          struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_call(comm, &job->call, err);
    if (status != DDP_OK)
        return status;
    job->count = job->call.count * parts_of(comm, &job->call);
    job->element_size = ddp_dtype_size(job->call.dtype);
    status = check_buffers(comm, job, err);
    if (status != DDP_OK)
        return status;
    fill_ring(comm, job);
    job->timeout_ms = comm->timeout_ms;
    bool taken;
    status = ddpi_device_take(comm, job, stream, &taken, err);
    if (status != DDP_OK || taken)
        return status;
    if (stream != NULL && job->count > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "host memory takes no stream: pass NULL");
    status = operate(comm, job);
    comm->bytes_sent += job->bytes_sent;
    comm->bytes_received += job->bytes_received;
    if (status != DDP_OK)
        return report(comm, err);
    comm->operations++;
    return DDP_OK;
}

ddp_status ddp_all_reduce(ddp_comm *comm, const void *send, void *recv, size_t count,
                          ddp_dtype dtype, ddp_reduce_op op, void *stream, struct ddp_error *err)
{
    struct ddpi_job job = {
        .call = {.operation = DDPI_ALL_REDUCE, .count = count, .dtype = dtype, .op = op},
        .send = send,
        .recv = recv};
    return collect(comm, &job, stream, err);
}

ddp_status ddp_reduce(ddp_comm *comm, const void *send, void *recv, size_t count, ddp_dtype dtype,
                      ddp_reduce_op op, uint32_t root, void *stream, struct ddp_error *err)
{
    struct ddpi_job job = {
        .call = {.operation = DDPI_REDUCE, .count = count, .dtype = dtype, .op = op, .root = root},
        .send = send,
        .recv = comm->rank == root ? recv : NULL};
    return collect(comm, &job, stream, err);
}

ddp_status ddp_broadcast(ddp_comm *comm, void *buffer, size_t count, ddp_dtype dtype, uint32_t root,
                         void *stream, struct ddp_error *err)
{
    struct ddpi_job job = {
        .call = {.operation = DDPI_BROADCAST, .count = count, .dtype = dtype, .root = root},
        .send = buffer,
        .recv = buffer};
    return collect(comm, &job, stream, err);
}

ddp_status ddp_all_gather(ddp_comm *comm, const void *send, void *recv, size_t count,
                          ddp_dtype dtype, void *stream, struct ddp_error *err)
{
    struct ddpi_job job = {.call = {.operation = DDPI_ALL_GATHER, .count = count, .dtype = dtype},
                           .send = send,
                           .recv = recv};
    return collect(comm, &job, stream, err);
}

ddp_status ddp_reduce_scatter(ddp_comm *comm, const void *send, void *recv, size_t count,
                              ddp_dtype dtype, ddp_reduce_op op, void *stream,
                              struct ddp_error *err)
{
    struct ddpi_job job = {
        .call = {.operation = DDPI_REDUCE_SCATTER, .count = count, .dtype = dtype, .op = op},
        .send = send,
        .recv = recv};
    return collect(comm, &job, stream, err);
}

/* ---- rounds in which each rank passes its part to all others, which is no payload ---- */

static ddp_status pass_round(struct ddp_comm *comm, enum ddpi_operation operation, uint8_t *parts,
                             size_t part_size, uint64_t timeout_ms, struct ddp_error *err)
{
    struct ddpi_job job = {.call = {.operation = operation},
                           .send = parts + comm->rank * part_size,
                           .recv = parts,
                           .count = comm->world_size,
                           .element_size = part_size,
                           .timeout_ms = timeout_ms};
    fill_ring(comm, &job);
    ddp_status status = operate(comm, &job);
    return status == DDP_OK ? DDP_OK : report(comm, err);
}

ddp_status ddp_barrier(ddp_comm *comm, void *stream, struct ddp_error *err)
{
    const struct ddpi_job job = {.call = {.operation = DDPI_BARRIER},
                                 .timeout_ms = comm->timeout_ms};
    bool taken;
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = ddpi_device_take(comm, &job, stream, &taken, err);
    if (status != DDP_OK || taken)
        return status;
    if (stream != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "there is no device whose stream could wait: pass NULL");
    status = pass_round(comm, DDPI_BARRIER, comm->tokens, 1, comm->timeout_ms, err);
    if (status == DDP_OK)
        comm->operations++;
    return status;
}

ddp_status ddpi_comm_join(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err)
{
    return pass_round(comm, DDPI_JOIN, comm->edges.meeting.cards, DDPI_CARD_SLOT, timeout_ms, err);
}
