/*
 * shrink.c - training goes on in the same processes when a rank is killed: the survivors make a new
 * communicator, go back to the last commit of the state (<ddprun/ddp_state.h>), and share the
 * examples of the dead rank.
 *
 *     cc shrink.c $(pkg-config --cflags --libs ddpcomm) -lm -o shrink
 *     ./shrink         four ranks; rank 2 is killed by SIGKILL in the middle
 *     ./shrink 3       another one is killed; rank 0 is the process that was started
 *
 * The ranks are forked here, as ddprun would end the others and start all of them anew. They meet
 * by a unique id.
 */
#include <ddprun/ddp.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 4,
    FEATURES = 8,
    EXAMPLES = 4096,
    STEPS = 200,
    COMMIT_STEPS = 10,
    FATAL_STEP = 105,
    TIMEOUT_MS = 20000
};

/* A linear model. */
struct model {
    uint32_t step;
    float weights[FEATURES];
};

/* Feature @k of example @i, between -1 and 1: any fixed set of examples will do. */
static float feature(uint32_t i, uint32_t k)
{
    uint32_t x = (i * 2654435761U) ^ (k * 2246822519U);
    x = (x ^ x >> 15) * 2246822519U;
    return (float)(x >> 8) / (float)(1 << 23) - 1.0F;
}

static float true_weight(uint32_t k)
{
    return (float)k - 3.5F;
}

/* The gradient of the squared error over this rank's examples: each rank takes every Nth one. */
static ddp_status train_step(ddp_comm *comm, struct model *model, struct ddp_error *err)
{
    float gradient[FEATURES] = {0};
    for (uint32_t i = ddp_comm_rank(comm); i < EXAMPLES; i += ddp_comm_world_size(comm)) {
        float error = 0;
        for (uint32_t k = 0; k < FEATURES; k++)
            error += (model->weights[k] - true_weight(k)) * feature(i, k);
        for (uint32_t k = 0; k < FEATURES; k++)
            gradient[k] += error * feature(i, k) / EXAMPLES;
    }
    ddp_status status =
        ddp_all_reduce(comm, gradient, gradient, FEATURES, DDP_FLOAT32, DDP_SUM, NULL, err);
    if (status != DDP_OK)
        return status;
    for (uint32_t k = 0; k < FEATURES; k++)
        model->weights[k] -= gradient[k];
    model->step++;
    return DDP_OK;
}

/* DDP_E_PEER_DEAD: a rank was killed; DDP_E_CLOSED: its connection ended before that was known. */
static ddp_status train(ddp_comm **comm, int doomed, struct ddp_error *err)
{
    struct model model = {0};
    const struct ddp_checkpoint_blob blobs[] = {
        {.name = "step", .data = &model.step, .bytes = sizeof model.step},
        {.name = "weights", .data = model.weights, .bytes = sizeof model.weights}};
    const struct ddp_state_options options = {.size = sizeof options, .blobs = blobs, .count = 2};
    ddp_state *state;
    ddp_status status = ddp_state_create(&options, &state, err);
    if (status != DDP_OK)
        return status;
    status = ddp_state_sync(state, *comm, err);
    while (status == DDP_OK && model.step < STEPS) {
        if (doomed && model.step == FATAL_STEP)
            raise(SIGKILL);
        status = train_step(*comm, &model, err);
        if (status == DDP_OK && model.step % COMMIT_STEPS == 0)
            status = ddp_state_commit(state, err);
        if (status == DDP_E_PEER_DEAD || status == DDP_E_CLOSED) {
            printf("pid %d, step %u: %s\n", (int)getpid(), model.step, err->msg);
            status = ddp_state_recover(state, comm, TIMEOUT_MS, err);
            if (status == DDP_OK)
                printf("pid %d goes on from step %u as rank %u of %u\n", (int)getpid(), model.step,
                       ddp_comm_rank(*comm), ddp_comm_world_size(*comm));
        }
    }
    float farthest = 0;
    for (uint32_t k = 0; k < FEATURES; k++)
        farthest = fmaxf(farthest, fabsf(model.weights[k] - true_weight(k)));
    printf("pid %d, step %u: the weights are right to %.4f\n", (int)getpid(), model.step, farthest);
    ddp_state_destroy(state);
    return status;
}

static int be_rank(const struct ddp_unique_id *id, uint32_t rank, uint32_t victim)
{
    const struct ddp_comm_options options = {.size = sizeof options,
                                             .unique_id = id,
                                             .world_size = RANKS,
                                             .rank = rank,
                                             .timeout_ms = TIMEOUT_MS};
    struct ddp_error err;
    ddp_comm *comm;
    setvbuf(stdout, NULL, _IOLBF, 0);
    ddp_status status = ddp_comm_init(&options, &comm, &err);
    if (status == DDP_OK) {
        status = train(&comm, rank == victim, &err);
        ddp_comm_destroy(comm);
    }
    if (status != DDP_OK)
        fprintf(stderr, "shrink: rank %u: %s\n", rank, err.msg);
    return status == DDP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Whether the others have ended as they should. */
static int wait_for(const pid_t pids[RANKS], uint32_t victim)
{
    int right = 1, status;
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        right &= waitpid(pids[rank], &status, 0) == pids[rank];
        right &=
            rank == victim ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return right;
}

int main(int argc, char **argv)
{
    uint32_t victim = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2;
    pid_t pids[RANKS] = {0};
    struct ddp_unique_id id;
    struct ddp_error err;
    if (victim == 0 || ddp_get_unique_id(&id, &err) != DDP_OK) {
        fprintf(stderr, "shrink: %s\n",
                victim == 0 ? "rank 0 waits for the others: name another one" : err.msg);
        return EXIT_FAILURE;
    }
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            return be_rank(&id, rank, victim);
        if (pids[rank] < 0) { /* the others give up when they miss it */
            perror("shrink: fork");
            return EXIT_FAILURE;
        }
    }
    int code = be_rank(&id, 0, victim);
    return wait_for(pids, victim) ? code : EXIT_FAILURE;
}
