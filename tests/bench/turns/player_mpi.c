/*
 * player_mpi.c - an MPI as a contender (player.h).
 */
#include "player.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static void *mpi_alloc(size_t len)
{
    void *memory = calloc(1, len);
    if (memory == NULL)
        player_fail(0, "no memory for the buffers");
    return memory;
}

/* MPI ends the job by itself if a call fails. */
static void mpi_call(const struct player_call *call)
{
    int count = (int)call->count;
    MPI_Comm world = MPI_COMM_WORLD;
    if (strcmp(call->name, "allreduce") == 0)
        MPI_Allreduce(MPI_IN_PLACE, call->recv, count, MPI_FLOAT, MPI_SUM, world);
    else if (strcmp(call->name, "broadcast") == 0)
        MPI_Bcast(call->recv, count, MPI_FLOAT, 0, world);
    else if (strcmp(call->name, "allgather") == 0)
        MPI_Allgather(call->send, count, MPI_FLOAT, call->recv, count, MPI_FLOAT, world);
    else if (strcmp(call->name, "reducescatter") == 0)
        MPI_Reduce_scatter_block(call->send, call->recv, count, MPI_FLOAT, MPI_SUM, world);
    else if (strcmp(call->name, "alltoall") == 0)
        MPI_Alltoall(call->send, count, MPI_FLOAT, call->recv, count, MPI_FLOAT, world);
    else
        MPI_Barrier(world);
}

static void mpi_synchronize(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static double mpi_slowest(double us)
{
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return us;
}

int main(int argc, char **argv)
{
    struct player player = {.alloc = mpi_alloc,
                            .run = mpi_call,
                            .synchronize = mpi_synchronize,
                            .slowest = mpi_slowest};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &player.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &player.ranks);
    int code = player_serve(&player);
    MPI_Finalize();
    return code;
}
