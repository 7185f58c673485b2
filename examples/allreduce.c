/*
 * allreduce.c - the smallest worker: an all-reduce adds up rank + 1 of all ranks.
 *
 *     cc allreduce.c $(pkg-config --cflags --libs ddpcomm) -o allreduce
 *     ddprun --nproc-per-node=4 ./allreduce
 */
#include <ddprun/comm.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    struct ddp_error err;
    ddp_comm *comm;
    if (ddp_comm_init(NULL, &comm, &err) != DDP_OK) {
        fprintf(stderr, "allreduce: %s\n", err.msg);
        return EXIT_FAILURE;
    }
    uint32_t rank = ddp_comm_rank(comm);
    float number = (float)rank + 1.0F, sum;
    if (ddp_all_reduce(comm, &number, &sum, 1, DDP_FLOAT32, DDP_SUM, NULL, &err) != DDP_OK) {
        fprintf(stderr, "allreduce: rank %u: %s\n", rank, err.msg);
        ddp_comm_destroy(comm);
        return EXIT_FAILURE;
    }
    printf("rank %u of %u: the sum is %g\n", rank, ddp_comm_world_size(comm), sum);
    ddp_comm_destroy(comm);
    return EXIT_SUCCESS;
}
