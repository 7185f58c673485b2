/*
 * run.c - see run.h. Prints on rank 0 only. Any failure ends the process, as in trainer.c.
 */
#include "run.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct run {
    const struct options *options;
    struct trainer *trainer;
    FILE *loss_log; /* rank 0 with --loss-log */
    double started, last_line;
    size_t images_done;
};

/* ---- output of rank 0 ---- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* 93120 -> "93,120" */
static const char *with_commas(double value, char text[32])
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%.0f", value);
    char *out = text;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

/* Prints about once a second; on a terminal each line replaces the last. */
static void show_progress(struct run *run, long epoch, size_t step, double loss)
{
    double time = now();
    if (run->trainer->rank != 0 || time - run->last_line < 1.0)
        return;
    run->last_line = time;
    bool terminal = isatty(STDOUT_FILENO) != 0;
    double speed = (double)run->images_done / (time - run->started);
    double all = (double)run->trainer->data->train.count * (double)run->options->epochs;
    long left = lround((all - (double)run->images_done) / speed);
    char text[32];
    printf("%sepoch %ld/%ld  step %zu/%zu  loss %.4f  %s images/s  %ld:%02ld left%s",
           terminal ? "\r" : "", epoch + 1, run->options->epochs, step + 1,
           run->trainer->steps_per_epoch, loss, with_commas(speed, text), left / 60, left % 60,
           terminal ? "\033[K" : "\n");
    fflush(stdout);
}

static void show_epoch(const struct run *run, long epoch, double loss, double accuracy,
                       double seconds)
{
    if (run->trainer->rank != 0)
        return;
    printf("%sepoch %ld/%ld  train loss %.4f  train accuracy %.2f %%  %.1f s\n",
           isatty(STDOUT_FILENO) ? "\r\033[K" : "", epoch + 1, run->options->epochs, loss,
           100.0 * accuracy, seconds);
    fflush(stdout);
}

/* ---- training ---- */

static void train_epoch(struct run *run, long epoch, run_step *step_all, void *self)
{
    struct trainer *trainer = run->trainer;
    const struct options *options = run->options;
    double loss = 0.0, correct = 0.0, started = now();
    double count = (double)trainer->data->train.count, all = count * (double)options->epochs;
    trainer_shuffle(trainer, (unsigned long)options->seed, (size_t)epoch);
    for (size_t step = 0; step < trainer->steps_per_epoch; step++) {
        double rate = options->rate * (1.0 - (double)run->images_done / all);
        step_all(self, step, rate, options->momentum);
        run->images_done += trainer_batch(trainer, step);
        loss += trainer->sums->loss;
        correct += trainer->sums->correct;
        double mean = trainer->sums->loss / (double)trainer_batch(trainer, step);
        if (run->loss_log != NULL)
            fprintf(run->loss_log, "%zu %.9g\n", (size_t)epoch * trainer->steps_per_epoch + step,
                    mean);
        show_progress(run, epoch, step, mean);
    }
    show_epoch(run, epoch, loss / count, correct / count, now() - started);
}

static void open_loss_log(struct run *run)
{
    const char *path = run->options->loss_log;
    if (run->trainer->rank != 0 || path == NULL)
        return;
    run->loss_log = fopen(path, "w");
    if (run->loss_log == NULL)
        die(EXIT_CONFIG, "--loss-log: cannot write %s: %s", path, strerror(errno));
    setvbuf(run->loss_log, NULL, _IOLBF, 0); /* so that other programs can follow it */
}

static void close_loss_log(struct run *run)
{
    if (run->loss_log != NULL && fclose(run->loss_log) != 0)
        die(EXIT_FAILURE, "--loss-log: cannot write %s: %s", run->options->loss_log,
            strerror(errno));
}

void run_train(struct trainer *trainer, const struct options *options, run_step *step, void *self)
{
    struct run run = {.options = options, .trainer = trainer};
    open_loss_log(&run);
    run.started = run.last_line = now();
    for (long epoch = 0; epoch < options->epochs; epoch++)
        train_epoch(&run, epoch, step, self);
    close_loss_log(&run);
}

void run_print_accuracy(const struct trainer *trainer, double accuracy)
{
    if (trainer->rank == 0)
        printf("test accuracy %.2f %%\n", 100.0 * accuracy);
}

/* ---- ranks that are threads ---- */

struct rank_thread {
    pthread_t thread;
    ddp_comm *comm;
    const struct dataset *data;
    const struct options *options;
    run_rank *rank;
};

static void *rank_main(void *argument)
{
    struct rank_thread *self = argument;
    self->rank(self->comm, self->data, self->options);
    return NULL;
}

void run_threads(const struct dataset *data, const struct options *options, const int *devices,
                 run_rank *rank)
{
    struct ddp_error err;
    ddp_comm *comms[MOST_THREADS];
    struct rank_thread threads[MOST_THREADS];
    size_t count = (size_t)options->threads;
    ddp_status status = ddp_comm_init_local((uint32_t)count, devices, comms, &err);
    if (status != DDP_OK)
        die(EXIT_FAILURE, "%s (%s)", err.msg, ddp_status_name(status));
    for (size_t i = 0; i < count; i++) {
        threads[i] =
            (struct rank_thread){.comm = comms[i], .data = data, .options = options, .rank = rank};
        int failure = pthread_create(&threads[i].thread, NULL, rank_main, &threads[i]);
        if (failure != 0)
            die(EXIT_FAILURE, "cannot start a thread: %s", strerror(failure));
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i].thread, NULL);
}
