/*
 * train.c - the smallest worker that trains: a line through points, whose gradients are averaged.
 *
 *     cc train.c $(pkg-config --cflags --libs ddpcomm) -o train
 *     ddprun --nproc-per-node=4 ./train
 */
#include <ddprun/ddp.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call) ((call) == DDP_OK ? (void)0 : (fprintf(stderr, "train: %s\n", err.msg), exit(1)))

int main(void)
{
    struct ddp_error err;
    ddp_comm *comm;
    ddp_reducer *reducer;
    float weight[2] = {0, 0}, gradient[2]; /* y = weight[0] * x + weight[1] */
    const struct ddp_parameter line = {
        .name = "line", .data = weight, .gradient = gradient, .count = 2, .dtype = DDP_FLOAT32};
    TRY(ddp_comm_init(NULL, &comm, &err));
    struct ddp_reducer_options options = {
        .size = sizeof options, .parameters = &line, .nparameters = 1};
    TRY(ddp_reducer_create(comm, &options, &reducer, &err));
    for (int step = 0; step < 500; step++) {
        float x = (float)((step * 7 + (int)ddp_comm_rank(comm) * 3) % 10) / 10, y = 3 * x + 1;
        TRY(ddp_reducer_begin(reducer, &err));
        gradient[1] = weight[0] * x + weight[1] - y;
        gradient[0] = gradient[1] * x;
        TRY(ddp_reducer_ready(reducer, 0, NULL, &err));
        TRY(ddp_reducer_finish(reducer, &err));
        for (int i = 0; i < 2; i++)
            weight[i] -= 0.5F * gradient[i];
    }
    printf("rank %u: y = %.3f x + %.3f\n", ddp_comm_rank(comm), weight[0], weight[1]);
    ddp_reducer_destroy(reducer);
    ddp_comm_destroy(comm);
    return 0;
}
