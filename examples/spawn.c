/*
 * spawn.c - ranks without a launcher: this program starts four of itself, which add up rank + 1.
 *
 *     cc spawn.c $(pkg-config --cflags --libs ddpcomm) -o spawn
 *     ./spawn          all succeed
 *     ./spawn 2        rank 2 fails: what the parent is told, and what becomes of the others
 */
#include <ddprun/comm.h>
#include <ddprun/spawn.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, LIMIT_MS = 60 * 1000 };

/* Runs in a process of its own. */
static ddp_status add_up(uint32_t rank, uint32_t world_size, void *arg, struct ddp_error *err)
{
    const long *failing = arg;
    ddp_comm *comm;
    ddp_status status = ddp_comm_init(NULL, &comm, err);
    if (status != DDP_OK)
        return status;
    if ((long)rank == *failing) {
        snprintf(err->msg, sizeof err->msg, "this rank was told to fail");
        ddp_comm_destroy(comm);
        return DDP_E_INVALID;
    }
    float number = (float)rank + 1.0F, sum;
    status = ddp_all_reduce(comm, &number, &sum, 1, DDP_FLOAT32, DDP_SUM, NULL, err);
    if (status == DDP_OK)
        printf("rank %u of %u: the sum is %g\n", rank, world_size, sum);
    ddp_comm_destroy(comm);
    return status;
}

int main(int argc, char **argv)
{
    struct ddp_error err;
    struct ddp_spawn_failure failure = {.size = sizeof failure};
    ddp_spawned *ranks;
    long failing = argc > 1 ? strtol(argv[1], NULL, 10) : -1;
    if (ddp_spawn(add_up, &failing, RANKS, NULL, &ranks, &err) != DDP_OK) {
        fprintf(stderr, "spawn: %s\n", err.msg);
        return EXIT_FAILURE;
    }
    ddp_status status = ddp_spawn_join(ranks, LIMIT_MS, &failure, &err);
    if (status == DDP_OK)
        printf("all %d ranks have succeeded\n", RANKS);
    else
        fprintf(stderr, "spawn: %s\n", err.msg);
    ddp_spawn_destroy(ranks); /* after a timeout this ends those that run still */
    return status == DDP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
