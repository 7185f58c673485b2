/*
 * host_memory.c - operations on host memory: picks the algorithm and runs it in the caller's
 * thread. Owns nothing. Must not use anything of worker/cuda.
 */
#include "host_memory.h"

#include "error.h"
#include "peer_message.h"
#include "ring_engine.h"

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

/* The operation of a world of one. */
static void run_alone(const struct ddpi_task *task)
{
    if (task->send != task->recv && task->count > 0)
        memcpy(task->recv, task->send, task->count * task->element_size);
}

static ddp_status run_collective(struct ddp_comm *comm, struct ddpi_task *task)
{
    bool reduces = ddpi_call_reduces(&task->call);
    task->gathered = reduces && comm->algorithm == DDP_ALGORITHM_DIRECT;
    if (reduces)
        task->call.algorithm = task->gathered ? DDP_ALGORITHM_DIRECT : DDP_ALGORITHM_RING;
    if (task->gathered)
        task->ring.kind = DDPI_RING_ALL_GATHER;
    if (comm->world_size > 1)
        return ddpi_host_ring(comm, task);
    run_alone(task);
    return DDP_OK;
}

static ddp_status run_message(struct ddp_comm *comm, struct ddpi_task *task)
{
    bool sends = task->call.operation == DDPI_SEND;
    void *bytes = sends ? (void *)(uintptr_t)task->send : task->recv;
    size_t len = task->count * task->element_size;
    struct ddpi_edge *edge;
    ddp_status status = ddpi_message_begin(comm, &task->call, bytes, len, &edge);
    if (status == DDP_OK)
        *(sends ? &task->bytes_sent : &task->bytes_received) = len;
    return status;
}

/* Run @task as the next operation of its kind. */
static ddp_status run_next(struct ddp_comm *comm, struct ddpi_task *task)
{
    ddp_status status = comm->failed != DDP_OK ? comm->failed : ddpi_comm_check_abort(comm);
    if (status != DDP_OK)
        return status;
    task->call.seq = (*ddpi_comm_next_seq(comm, &task->call))++;
    return ddpi_call_is_message(&task->call) ? run_message(comm, task) : run_collective(comm, task);
}

/* A round in which each rank passes its part of @part_size bytes at @parts to all others. */
static void prepare_round(const struct ddp_comm *comm, struct ddpi_task *task, uint8_t *parts,
                          size_t part_size)
{
    task->send = parts + comm->rank * part_size;
    task->recv = parts;
    task->count = comm->world_size;
    task->element_size = part_size;
    task->ring = (struct ddpi_ring){
        .kind = DDPI_RING_ALL_GATHER, .rank = comm->rank, .nranks = comm->world_size};
}

/* The bytes that go round are no payload, and not counted. */
static ddp_status run_barrier(struct ddp_comm *comm, struct ddpi_task *task)
{
    prepare_round(comm, task, comm->tokens, 1);
    ddp_status status = run_next(comm, task);
    task->bytes_sent = task->bytes_received = 0;
    return status;
}

static ddp_status host_run(struct ddpi_memory *memory, struct ddp_comm *comm,
                           struct ddpi_task *task, const struct ddpi_buffers *buffers, void *stream,
                           struct ddp_error *err)
{
    bool is_barrier = task->call.operation == DDPI_BARRIER;
    (void)memory;
    (void)buffers;
    if (stream != NULL && is_barrier)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "no device is in use, so there is no stream to wait on: pass NULL");
    if (stream != NULL && task->count > 0)
        return ddpi_error_set(err, DDP_E_INVALID, "host memory takes no stream: pass NULL");
    ddp_status status = is_barrier ? run_barrier(comm, task) : run_next(comm, task);
    ddpi_comm_count(comm, task, status);
    return status;
}

static void host_read_stats(struct ddpi_memory *memory, const struct ddp_comm *comm,
                            struct ddp_comm_stats *stats)
{
    (void)memory;
    ddpi_comm_read_counts(comm, stats);
}

const struct ddpi_memory_type ddpi_host_memory = {
    .name = "host", .look = host_look, .run = host_run, .read_stats = host_read_stats};

ddp_status ddpi_host_join(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err)
{
    struct ddpi_task task = {.call = {.operation = DDPI_JOIN}, .timeout_ms = timeout_ms};
    prepare_round(comm, &task, comm->edges.meeting.cards, DDPI_CARD_SLOT);
    return run_next(comm, &task) == DDP_OK ? DDP_OK : ddpi_comm_report(comm, err);
}
