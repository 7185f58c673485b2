/*
 * comm.c - the public functions of a communicator: its life, and the collectives as jobs for the
 * engine. Owns the communicator.
 */
#include "bootstrap.h"
#include "comm_impl.h"
#include "error.h"
#include "mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* On failure ddp_comm_destroy() is still to be called. */
static ddp_status comm_fill(struct ddp_comm *comm, const struct ddpi_config *config,
                            struct ddp_error *err)
{
    comm->rank = config->rank;
    comm->world_size = config->world_size;
    comm->timeout_ms = config->timeout_ms;
    atomic_init(&comm->aborted, false);
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text, "rank %u called ddp_comm_abort()", comm->rank);
    ddpi_memo_fill(&comm->abort_notice, DDPI_NOTICE_FAILED, DDP_E_ABORTED, text);
    comm->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->bell < 0)
        return ddpi_error_sys(err, errno, "make an eventfd");
    comm->tokens = ddpi_calloc(comm->world_size, 1);
    return comm->tokens != NULL ? DDP_OK : ddpi_error_nomem(err, comm->world_size);
}

static ddp_status report(const struct ddp_comm *comm, struct ddp_error *err)
{
    return ddpi_error_set(err, comm->failed, "%s", comm->cause);
}

static const char *from_environment(const char *name)
{
    return getenv(name);
}

ddp_status ddp_comm_init(const struct ddp_comm_options *options, ddp_comm **ret_comm,
                         struct ddp_error *err)
{
    struct ddpi_config config;
    ddp_status status = ddpi_config_load(options, from_environment, &config, err);
    if (status != DDP_OK)
        return status;
    struct ddp_comm *comm = ddpi_calloc(1, sizeof *comm);
    if (comm == NULL)
        return ddpi_error_nomem(err, sizeof *comm);
    status = comm_fill(comm, &config, err);
    if (status == DDP_OK)
        comm->life = ddpi_life_hold(config.life_fd, config.life_slot);
    if (status == DDP_OK && comm->world_size > 1)
        status = ddpi_bootstrap(comm, &config, err);
    if (status != DDP_OK) {
        ddp_comm_destroy(comm);
        return status;
    }
    *ret_comm = comm;
    return DDP_OK;
}

void ddp_comm_destroy(ddp_comm *comm)
{
    if (comm == NULL)
        return;
    struct ddpi_memo farewell;
    ddpi_memo_fill(&farewell, DDPI_NOTICE_LEFT, DDP_OK, "");
    for (unsigned i = 0; i < DDPI_RING_EDGES; i++) {
        if (comm->edges[i] != NULL)
            ddpi_control_send(&comm->edges[i]->control, &farewell);
        ddpi_edge_destroy(comm->edges[i]);
    }
    ddpi_life_release(comm->life);
    if (comm->bell >= 0)
        close(comm->bell);
    ddpi_free(comm->tokens);
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
    int saved_errno = errno;
    atomic_store(&comm->aborted, true);
    const uint64_t one = 1;
    (void)!write(comm->bell, &one, sizeof one);
    for (unsigned i = 0; i < DDPI_RING_EDGES; i++)
        if (comm->edges[i] != NULL)
            ddpi_control_send(&comm->edges[i]->control, &comm->abort_notice);
    errno = saved_errno;
}

ddp_status ddp_comm_get_stats(const ddp_comm *comm, struct ddp_comm_stats *ret_stats)
{
    if (ret_stats->size < sizeof *ret_stats)
        return DDP_E_INVALID;
    ret_stats->operations = comm->operations;
    ret_stats->bytes_sent = comm->bytes_sent;
    ret_stats->bytes_received = comm->bytes_received;
    return DDP_OK;
}

/* Whatever can be wrong with a buffer argument. */
static ddp_status check_buffer(const void *buffer, size_t count, ddp_dtype dtype,
                               struct ddp_error *err)
{
    size_t size = ddp_dtype_size(dtype), bytes;
    if (size == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is no element type", (int)dtype);
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "%zu elements of %zu bytes are too many", count,
                              size);
    if (buffer == NULL && count > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "the buffer of %zu elements is NULL", count);
    return DDP_OK;
}

static bool overlap(const void *a, const void *b, size_t len)
{
    uintptr_t at_a = (uintptr_t)a, at_b = (uintptr_t)b;
    return at_a < at_b ? at_b - at_a < len : at_a - at_b < len;
}

/* Run @job as the next operation of @comm. */
static ddp_status operate(struct ddp_comm *comm, struct ddpi_job *job)
{
    if (comm->failed != DDP_OK)
        return comm->failed;
    ddp_status status = ddpi_comm_check_abort(comm);
    if (status != DDP_OK)
        return status;
    job->call.seq = comm->seq++;
    job->ring.rank = comm->rank;
    job->ring.nranks = comm->world_size;
    return comm->world_size == 1 ? DDP_OK : ddpi_job_run(comm, job);
}

/* The same for an operation that the caller asked for, with its payload counted. */
static ddp_status collect(struct ddp_comm *comm, struct ddpi_job *job, struct ddp_error *err)
{
    job->timeout_ms = comm->timeout_ms;
    ddp_status status = operate(comm, job);
    comm->bytes_sent += job->bytes_sent;
    comm->bytes_received += job->bytes_received;
    if (status != DDP_OK)
        return report(comm, err);
    comm->operations++;
    return DDP_OK;
}

ddp_status ddp_all_reduce(ddp_comm *comm, const void *send, void *recv, size_t count,
                          ddp_dtype dtype, ddp_reduce_op op, struct ddp_error *err)
{
    ddp_status status = check_buffer(send, count, dtype, err);
    if (status == DDP_OK)
        status = check_buffer(recv, count, dtype, err);
    if (status != DDP_OK)
        return status;
    if ((unsigned)op > DDP_PRODUCT)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is no reduction", (int)op);
    size_t size = ddp_dtype_size(dtype);
    if (send != recv && overlap(send, recv, count * size))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "send and receive buffer overlap; they must be equal or apart");
    struct ddpi_job job = {
        .call = {.operation = DDPI_ALL_REDUCE, .count = count, .dtype = dtype, .op = op},
        .ring = {.kind = DDPI_RING_ALL_REDUCE},
        .send = send,
        .recv = recv,
        .count = count,
        .element_size = size};
    status = collect(comm, &job, err);
    if (status == DDP_OK && comm->world_size == 1 && send != recv && count > 0)
        memcpy(recv, send, count * size);
    return status;
}

ddp_status ddp_broadcast(ddp_comm *comm, void *buffer, size_t count, ddp_dtype dtype, uint32_t root,
                         struct ddp_error *err)
{
    ddp_status status = check_buffer(buffer, count, dtype, err);
    if (status != DDP_OK)
        return status;
    if (root >= comm->world_size)
        return ddpi_error_set(err, DDP_E_INVALID, "root %u does not exist in a world of %u ranks",
                              root, comm->world_size);
    struct ddpi_job job = {
        .call = {.operation = DDPI_BROADCAST, .count = count, .dtype = dtype, .root = root},
        .ring = {.kind = DDPI_RING_BROADCAST, .root = root},
        .send = buffer,
        .recv = buffer,
        .count = count,
        .element_size = ddp_dtype_size(dtype)};
    return collect(comm, &job, err);
}

static struct ddpi_job token_round(struct ddp_comm *comm, enum ddpi_operation operation)
{
    return (struct ddpi_job){.call = {.operation = operation},
                             .ring = {.kind = DDPI_RING_ALL_GATHER},
                             .send = comm->tokens,
                             .recv = comm->tokens,
                             .count = comm->world_size,
                             .element_size = 1};
}

ddp_status ddp_barrier(ddp_comm *comm, struct ddp_error *err)
{
    struct ddpi_job job = token_round(comm, DDPI_BARRIER);
    job.timeout_ms = comm->timeout_ms;
    ddp_status status = operate(comm, &job); /* tokens are no payload */
    if (status != DDP_OK)
        return report(comm, err);
    comm->operations++;
    return DDP_OK;
}

ddp_status ddpi_comm_join(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err)
{
    struct ddpi_job job = token_round(comm, DDPI_JOIN);
    job.timeout_ms = timeout_ms;
    ddp_status status = operate(comm, &job);
    return status == DDP_OK ? DDP_OK : report(comm, err);
}
