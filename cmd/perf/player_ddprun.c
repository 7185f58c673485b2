/*
 * player_ddprun.c - libddpcomm as a contender (player.h). Owns its communicator.
 */
#include "player.h"

#include "parse.h"
#include "perf_node.h"

#include <ddprun/comm.h>
#include <stdlib.h>
#include <string.h>

static ddp_comm *comm;
static int rank;

static void check(ddp_status status, const struct ddp_error *err)
{
    if (status != DDP_OK)
        player_fail(rank, err->msg);
}

/* Of ddp_alloc() if DDP_PERF_ALLOC is set: ddp-bench turns --alloc. */
static void *ddprun_alloc(size_t len)
{
    struct ddp_error err;
    void *memory;
    if (getenv("DDP_PERF_ALLOC") != NULL)
        check(ddp_alloc(comm, len, &memory, &err), &err);
    else
        memory = calloc(1, len);
    if (memory == NULL)
        player_fail(rank, "no memory for the buffers");
    return memory;
}

static void ddprun_call(const struct player_call *call)
{
    struct ddp_error err;
    const float *send = call->send;
    float *recv = call->recv;
    size_t count = call->count;
    ddp_status status;
    if (strcmp(call->name, "allreduce") == 0)
        status = ddp_all_reduce(comm, send, recv, count, DDP_FLOAT32, DDP_SUM, NULL, &err);
    else if (strcmp(call->name, "broadcast") == 0)
        status = ddp_broadcast(comm, recv, count, DDP_FLOAT32, 0, NULL, &err);
    else if (strcmp(call->name, "allgather") == 0)
        status = ddp_all_gather(comm, send, recv, count, DDP_FLOAT32, NULL, &err);
    else if (strcmp(call->name, "reducescatter") == 0)
        status = ddp_reduce_scatter(comm, send, recv, count, DDP_FLOAT32, DDP_SUM, NULL, &err);
    else if (strcmp(call->name, "alltoall") == 0)
        status = ddp_all_to_all(comm, send, recv, count, DDP_FLOAT32, NULL, &err);
    else
        status = ddp_barrier(comm, NULL, &err);
    check(status, &err);
}

static void ddprun_synchronize(void)
{
    struct ddp_error err;
    check(ddp_barrier(comm, NULL, &err), &err);
}

static double ddprun_slowest(double us)
{
    struct ddp_error err;
    check(ddp_all_reduce(comm, &us, &us, 1, DDP_FLOAT64, DDP_MAX, NULL, &err), &err);
    return us;
}

/* DDP_PERF_NODES divides the ranks among so many pretended nodes: ddp-perf tune --nodes. */
static void pretend_node(void)
{
    struct ddp_error err;
    const char *text = getenv("DDP_PERF_NODES");
    int64_t nodes = 0;
    if (text != NULL)
        check(ddpi_parse_int(text, 1, INT32_MAX, &nodes, &err), &err);
    check(perf_pretend_node(nodes, &err), &err);
}

int main(void)
{
    struct ddp_error err;
    pretend_node();
    check(ddp_comm_init(NULL, &comm, &err), &err);
    rank = (int)ddp_comm_rank(comm);
    const struct player player = {.rank = rank,
                                  .ranks = (int)ddp_comm_world_size(comm),
                                  .alloc = ddprun_alloc,
                                  .run = ddprun_call,
                                  .synchronize = ddprun_synchronize,
                                  .slowest = ddprun_slowest};
    int code = player_serve(&player);
    ddp_comm_destroy(comm);
    return code;
}
