/*
 * elastic.c - training that survives the loss of workers and nodes: Fashion-MNIST, with
 * checkpoints.
 *
 *     cc -O3 elastic.c idx.c mlp.c options.c run.c trainer.c \
 *         $(pkg-config --cflags --libs ddpcomm ddpstore) -lz -lm -o elastic
 *     ddprun --nnodes=1:4 --nproc-per-node=2 --max-restarts=10 --join-policy=checkpoint \
 *            --rdzv-id=train --rdzv-endpoint=HOST:29400 ./elastic --checkpoints /shared/train
 *
 * A worker whose peer has died gets an error from its reducer and exits. ddprun restarts the
 * remaining workers, and they continue from the newest valid checkpoint. The images of a step
 * depend only on the seed and the step number, not on the number of workers, so a run with failures
 * ends with about the same accuracy.
 *
 * The weights are not bit-identical, as the order of additions depends on the number of workers.
 * The sums are doubles, so the weights, which are floats, differ little: in the tests the accuracy
 * of a run with failures is within 0.1 percentage points, ten of 10,000 images.
 */
#include "options.h"
#include "trainer.h"

#include <ddprun/ddp.h>
#include <ddprun/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORE_TIMEOUT_MS = 5000, FIRST_FREE_FD = 3, LAST_FD = 1000000, BLOBS = 3 };

/* The options that identify a run: runs with equal options take the same steps. */
struct identity {
    uint64_t seed, images, batch, epochs;
    double rate, momentum;
};

struct run {
    const struct options *options;
    struct dataset data;
    struct trainer trainer;
    struct identity identity;
    struct ddp_checkpoint_blob blobs[BLOBS]; /* the step, the model, the velocity */
    struct ddp_checkpoint checkpoint;
    int64_t step;     /* steps taken */
    int64_t steps;    /* of the whole run */
    ddp_store *store; /* of rank 0, if ddprun started it */
};

/* ---- checkpoints ---- */

/* Resume from the newest valid checkpoint, or start at step 0. A damaged checkpoint is skipped; one
 * of another run ends the program, because training would overwrite it. */
static void resume(struct run *run)
{
    struct ddp_error err, skipped;
    ddp_checkpoint_found found = DDP_CHECKPOINT_NONE;
    ddp_status status = ddp_checkpoint_read(&run->checkpoint, &found, &skipped, &err);
    if (status == DDP_E_MISMATCH)
        die(EXIT_CONFIG, "%s; remove it, or choose another folder", err.msg);
    if (status != DDP_OK)
        die(EXIT_FAILURE, "%s", err.msg);
    if (skipped.status != DDP_OK)
        fprintf(stderr, "elastic: %s; trying the previous one\n", skipped.msg);
    if (found == DDP_CHECKPOINT_NEWEST || found == DDP_CHECKPOINT_PREVIOUS)
        return;
    run->step = 0;
    mlp_init(run->trainer.model, (unsigned long)run->options->seed);
    memset(run->trainer.velocity, 0, sizeof *run->trainer.velocity);
}

/* Tell ddprun that other nodes may join now (--join-policy=checkpoint). A failure is harmless: the
 * next checkpoint is announced again. */
static void announce(struct run *run)
{
    struct ddp_error err;
    char step[32];
    int len = snprintf(step, sizeof step, "%lld", (long long)run->step);
    if (run->store != NULL && ddp_store_set(run->store, "ddprun/checkpoint", step, (size_t)len,
                                            STORE_TIMEOUT_MS, NULL, &err) != DDP_OK)
        fprintf(stderr, "elastic: cannot announce the checkpoint: %s\n", err.msg);
}

static void save(struct run *run, double loss)
{
    struct ddp_error err;
    if (ddp_checkpoint_write(&run->checkpoint, &err) != DDP_OK)
        die(EXIT_FAILURE, "%s", err.msg);
    printf("step %lld/%lld  loss %.4f  %u workers\n", (long long)run->step, (long long)run->steps,
           loss, run->trainer.workers);
    fflush(stdout);
    announce(run);
}

/* ---- start ---- */

static void open_store(struct run *run)
{
    const char *endpoint = getenv("DDPRUN_STORE"), *fd = getenv("DDPRUN_TOKEN_FD");
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .prefix = getenv("DDPRUN_STORE_PREFIX")};
    struct ddp_error err;
    if (endpoint == NULL)
        return; /* started without a launcher */
    if (fd != NULL) {
        options.token_fd = (int)whole_number("DDPRUN_TOKEN_FD", fd, FIRST_FREE_FD, LAST_FD);
        options.auth = DDP_STORE_AUTH_BEYOND_LOOPBACK;
    }
    trainer_check(&run->trainer, ddp_store_connect(&options, &run->store, &err), &err);
}

/* Rank 0 decides where training continues, and broadcasts its state. */
static void agree(struct run *run)
{
    struct trainer *trainer = &run->trainer;
    struct ddp_error err;
    if (trainer->rank == 0) {
        resume(run);
        open_store(run);
    }
    trainer_check(trainer, ddp_broadcast(trainer->comm, &run->step, 1, DDP_INT64, 0, NULL, &err),
                  &err);
    trainer_share(trainer);
    if (trainer->rank != 0)
        return;
    printf("from step %lld/%lld with %u workers\n", (long long)run->step, (long long)run->steps,
           trainer->workers);
    fflush(stdout);
}

static void join(struct run *run)
{
    const struct options *options = run->options;
    struct trainer *trainer = &run->trainer;
    dataset_open(&run->data, options->data, (size_t)options->limit);
    trainer_init(trainer, trainer_join(), &run->data, (size_t)options->batch);
    run->steps = (int64_t)options->epochs * (int64_t)trainer->steps_per_epoch;
    run->identity = (struct identity){.seed = (uint64_t)options->seed,
                                      .images = run->data.train.count,
                                      .batch = (uint64_t)options->batch,
                                      .epochs = (uint64_t)options->epochs,
                                      .rate = options->rate,
                                      .momentum = options->momentum};
    run->blobs[0] = (struct ddp_checkpoint_blob){"step", &run->step, sizeof run->step};
    run->blobs[1] = (struct ddp_checkpoint_blob){"model", trainer->model, sizeof *trainer->model};
    run->blobs[2] =
        (struct ddp_checkpoint_blob){"velocity", trainer->velocity, sizeof *trainer->velocity};
    run->checkpoint = (struct ddp_checkpoint){.size = sizeof run->checkpoint,
                                              .folder = options->checkpoints,
                                              .run = &run->identity,
                                              .run_bytes = sizeof run->identity,
                                              .blobs = run->blobs,
                                              .count = BLOBS};
}

/* ---- training ---- */

/* The learning rate depends only on the step number, too. */
static double rate_at(const struct run *run, size_t epoch, size_t step)
{
    const struct trainer *trainer = &run->trainer;
    size_t done = epoch * trainer->data->train.count + trainer_images_before(trainer, step);
    double all = (double)trainer->data->train.count * (double)run->options->epochs;
    return run->options->rate * (1.0 - (double)done / all);
}

static void train(struct run *run)
{
    struct trainer *trainer = &run->trainer;
    size_t shuffled = SIZE_MAX;
    int64_t per_epoch = (int64_t)trainer->steps_per_epoch;
    for (int64_t *at = &run->step; *at < run->steps;) {
        size_t epoch = (size_t)(*at / per_epoch), step = (size_t)(*at % per_epoch);
        if (shuffled != epoch)
            trainer_shuffle(trainer, (unsigned long)run->options->seed, epoch);
        shuffled = epoch;
        trainer_step(trainer, step, rate_at(run, epoch, step), run->options->momentum);
        ++*at;
        bool due = *at % run->options->every == 0 || *at == run->steps;
        if (due && trainer->rank == 0)
            save(run, trainer->sums->loss / (double)trainer_batch(trainer, step));
    }
}

int main(int argc, char **argv)
{
    struct options options = options_defaults();
    options.epochs = 5;
    options_parse(&options, OPTIONS_CHECKPOINTS, argc, argv);
    if (options.checkpoints == NULL)
        die(EXIT_USAGE, "--checkpoints DIR is missing; see --help");
    struct run run = {.options = &options};
    join(&run);
    agree(&run);
    train(&run);
    double accuracy = trainer_accuracy(&run.trainer);
    if (run.trainer.rank == 0)
        printf("test accuracy %.2f %%\n", 100.0 * accuracy);
    ddp_store_close(run.store);
    trainer_finish(&run.trainer);
    dataset_close(&run.data);
    return EXIT_SUCCESS;
}
