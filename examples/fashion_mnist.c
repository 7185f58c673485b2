/*
 * fashion_mnist.c - data-parallel training of a small network on Fashion-MNIST.
 *
 *     ddprun --nproc-per-node=2 fashion_mnist --epochs 3
 *
 * All workers start with the weights of rank 0. In each step they share one global batch, each adds
 * up the gradients of its part, one all-reduce makes the sum of all parts, and every worker takes
 * the same step. So any number of workers sees the same batches and follows the same loss curve.
 * Besides the C library this uses ddprun/comm.h and zlib only.
 */
#include "mlp.h"

#include <ddprun/comm.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_CONFIG = 78, SYNTHETIC_TRAIN = 12000, SYNTHETIC_TEST = 2000 };

struct options {
    long epochs, batch, limit;
    double rate, momentum;
    unsigned long seed;
    const char *data, *loss_log;
    bool synthetic;
};

struct trainer {
    const struct options *options;
    ddp_comm *comm;
    uint32_t rank, workers;
    struct images train, test;
    uint32_t *order; /* of the training images in this epoch */
    struct mlp *model, *velocity;
    struct mlp_sums *sums;
    FILE *loss_log; /* rank 0 with --loss-log */
    size_t steps_per_epoch;
    double started, last_line;
    size_t images_done;
};

static const char usage[] =
    "Usage: fashion_mnist [options]\n"
    "  --epochs N       passes over the training images (3)\n"
    "  --batch N        images per step, of all workers together (128)\n"
    "  --lr X           learning rate at the start; falls evenly to 0 (0.1)\n"
    "  --momentum X     momentum (0.9)\n"
    "  --seed N         of weights and order (1)\n"
    "  --data DIR       where the data set is (/usr/share/datasets/fashion-mnist)\n"
    "  --synthetic      made-up images instead of the data set\n"
    "  --limit N        use only the first N training images\n"
    "  --loss-log FILE  write step and loss of each step (rank 0)\n";

__attribute__((format(printf, 2, 3), noreturn)) static void die(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("fashion_mnist: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(code);
}

/* Every call of the library goes through here. */
static void check(const struct trainer *trainer, ddp_status status, const struct ddp_error *err)
{
    if (status != DDP_OK)
        die(EXIT_FAILURE, "rank %u: %s (%s)", trainer->rank, err->msg, ddp_status_name(status));
}

/* ---- options ---- */

static long whole_number(const char *name, const char *text, long min, long max)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < min || value > max)
        die(EXIT_USAGE, "--%s: '%s' is not a whole number from %ld to %ld", name, text, min, max);
    return value;
}

static double real_number(const char *name, const char *text, double max)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0.0 && value <= max))
        die(EXIT_USAGE, "--%s: '%s' is not a number from 0 to %g", name, text, max);
    return value;
}

static struct options parse_options(int argc, char **argv)
{
    static const struct option table[] = {{"epochs", required_argument, NULL, 'e'},
                                          {"batch", required_argument, NULL, 'b'},
                                          {"lr", required_argument, NULL, 'r'},
                                          {"momentum", required_argument, NULL, 'm'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"data", required_argument, NULL, 'd'},
                                          {"synthetic", no_argument, NULL, 'y'},
                                          {"limit", required_argument, NULL, 'l'},
                                          {"loss-log", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    struct options options = {.epochs = 3,
                              .batch = 128,
                              .rate = 0.1,
                              .momentum = 0.9,
                              .seed = 1,
                              .data = "/usr/share/datasets/fashion-mnist"};
    int option, index;
    while ((option = getopt_long(argc, argv, "", table, &index)) != -1) {
        const char *name = option != '?' ? table[index].name : "";
        switch (option) {
        case 'e':
            options.epochs = whole_number(name, optarg, 1, 100000);
            break;
        case 'b':
            options.batch = whole_number(name, optarg, 1, 1000000);
            break;
        case 'r':
            options.rate = real_number(name, optarg, 100.0);
            break;
        case 'm':
            options.momentum = real_number(name, optarg, 1.0);
            break;
        case 's':
            options.seed = (unsigned long)whole_number(name, optarg, 0, 1000000000);
            break;
        case 'd':
            options.data = optarg;
            break;
        case 'y':
            options.synthetic = true;
            break;
        case 'l':
            options.limit = whole_number(name, optarg, 1, 10000000);
            break;
        case 'o':
            options.loss_log = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        default:
            fputs(usage, stderr);
            exit(EXIT_USAGE);
        }
    }
    if (optind < argc)
        die(EXIT_USAGE, "'%s' is not an option; see --help", argv[optind]);
    return options;
}

/* ---- data ---- */

static void load_images(struct trainer *trainer)
{
    const struct options *options = trainer->options;
    size_t limit = (size_t)options->limit;
    if (options->synthetic) {
        size_t count = limit != 0 ? limit : SYNTHETIC_TRAIN;
        if (!images_make_up(2, count, &trainer->train) ||
            !images_make_up(3, SYNTHETIC_TEST, &trainer->test))
            die(EXIT_FAILURE, "out of memory");
        return;
    }
    char why[4500];
    if (!images_read(options->data, "train", limit, &trainer->train, why, sizeof why) ||
        !images_read(options->data, "t10k", 0, &trainer->test, why, sizeof why))
        die(EXIT_CONFIG,
            "%s\nGet the data set with 'apt-get install dataset-fashion-mnist', name its folder "
            "with --data, or use --synthetic.",
            why);
}

/* The same shuffle on every worker: nobody has to tell anybody. */
static void shuffle(struct trainer *trainer, long epoch)
{
    uint64_t state = trainer->options->seed * 1000003U + (uint64_t)epoch;
    for (uint32_t i = 0; i < trainer->train.count; i++)
        trainer->order[i] = i;
    for (size_t i = trainer->train.count - 1; i > 0; i--) {
        size_t j = random_next(&state) % (i + 1);
        uint32_t swap = trainer->order[i];
        trainer->order[i] = trainer->order[j];
        trainer->order[j] = swap;
    }
}

/* ---- what rank 0 prints ---- */

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

/* About once a second; on a terminal the line is written over. */
static void show_progress(struct trainer *trainer, long epoch, size_t step, double loss)
{
    double time = now();
    if (trainer->rank != 0 || time - trainer->last_line < 1.0)
        return;
    trainer->last_line = time;
    bool terminal = isatty(STDOUT_FILENO) != 0;
    double speed = (double)trainer->images_done / (time - trainer->started);
    double all = (double)trainer->train.count * (double)trainer->options->epochs;
    long left = lround((all - (double)trainer->images_done) / speed);
    char text[32];
    printf("%sepoch %ld/%ld  step %zu/%zu  loss %.4f  %s images/s  %ld:%02ld left%s",
           terminal ? "\r" : "", epoch + 1, trainer->options->epochs, step + 1,
           trainer->steps_per_epoch, loss, with_commas(speed, text), left / 60, left % 60,
           terminal ? "\033[K" : "\n");
    fflush(stdout);
}

static void show_epoch(const struct trainer *trainer, long epoch, double loss, double accuracy,
                       double seconds)
{
    if (trainer->rank != 0)
        return;
    printf("%sepoch %ld/%ld  train loss %.4f  train accuracy %.2f %%  %.1f s\n",
           isatty(STDOUT_FILENO) ? "\r\033[K" : "", epoch + 1, trainer->options->epochs, loss,
           100.0 * accuracy, seconds);
    fflush(stdout);
}

/* ---- training ---- */

/* One global batch, which starts at @first: this worker's part of it, then the sum of all. */
static size_t train_step(struct trainer *trainer, size_t first)
{
    size_t left = trainer->train.count - first;
    size_t batch = (size_t)trainer->options->batch < left ? (size_t)trainer->options->batch : left;
    size_t begin = first + batch * trainer->rank / trainer->workers;
    size_t end = first + batch * (trainer->rank + 1) / trainer->workers;
    memset(trainer->sums, 0, sizeof *trainer->sums);
    for (size_t i = begin; i < end; i++) {
        size_t image = trainer->order[i];
        mlp_add_image(trainer->model, trainer->train.pixels + image * IMAGE_PIXELS,
                      trainer->train.labels[image], trainer->sums);
    }
    struct ddp_error err;
    check(trainer,
          ddp_all_reduce(trainer->comm, trainer->sums, trainer->sums, MLP_SUMS_DOUBLES, DDP_FLOAT64,
                         DDP_SUM, &err),
          &err);
    double all = (double)trainer->train.count * (double)trainer->options->epochs;
    double rate = trainer->options->rate * (1.0 - (double)trainer->images_done / all);
    mlp_step(trainer->model, trainer->velocity, trainer->sums, (double)batch, (float)rate,
             (float)trainer->options->momentum);
    trainer->images_done += batch;
    return batch;
}

static void train_epoch(struct trainer *trainer, long epoch)
{
    double loss = 0.0, correct = 0.0, started = now();
    size_t count = trainer->train.count, first = 0;
    shuffle(trainer, epoch);
    for (size_t step = 0; step < trainer->steps_per_epoch; step++) {
        size_t batch = train_step(trainer, first);
        first += batch;
        loss += trainer->sums->loss;
        correct += trainer->sums->correct;
        double mean = trainer->sums->loss / (double)batch;
        if (trainer->loss_log != NULL)
            fprintf(trainer->loss_log, "%zu %.9g\n",
                    (size_t)epoch * trainer->steps_per_epoch + step, mean);
        show_progress(trainer, epoch, step, mean);
    }
    show_epoch(trainer, epoch, loss / (double)count, correct / (double)count, now() - started);
}

/* Each worker looks at its part of the test images. */
static double test_accuracy(struct trainer *trainer)
{
    size_t count = trainer->test.count;
    int64_t correct = 0;
    for (size_t i = trainer->rank; i < count; i += trainer->workers)
        correct += mlp_classify(trainer->model, trainer->test.pixels + i * IMAGE_PIXELS) ==
                   trainer->test.labels[i];
    struct ddp_error err;
    check(trainer, ddp_all_reduce(trainer->comm, &correct, &correct, 1, DDP_INT64, DDP_SUM, &err),
          &err);
    return (double)correct / (double)count;
}

static void prepare(struct trainer *trainer)
{
    load_images(trainer);
    trainer->order = malloc(trainer->train.count * sizeof *trainer->order);
    trainer->model = malloc(sizeof *trainer->model);
    trainer->velocity = calloc(1, sizeof *trainer->velocity);
    trainer->sums = malloc(sizeof *trainer->sums);
    if (trainer->order == NULL || trainer->model == NULL || trainer->velocity == NULL ||
        trainer->sums == NULL)
        die(EXIT_FAILURE, "out of memory");
    size_t batch = (size_t)trainer->options->batch;
    trainer->steps_per_epoch = (trainer->train.count + batch - 1) / batch;
}

static void join(struct trainer *trainer)
{
    struct ddp_error err;
    ddp_status status = ddp_comm_init(NULL, &trainer->comm, &err);
    if (status != DDP_OK)
        die(status == DDP_E_INVALID ? EXIT_CONFIG : EXIT_FAILURE, "%s (%s)", err.msg,
            ddp_status_name(status));
    trainer->rank = ddp_comm_rank(trainer->comm);
    trainer->workers = ddp_comm_world_size(trainer->comm);
    if (trainer->rank == 0)
        mlp_init(trainer->model, trainer->options->seed);
    check(trainer, ddp_broadcast(trainer->comm, trainer->model, MLP_FLOATS, DDP_FLOAT32, 0, &err),
          &err);
    if (trainer->rank != 0 || trainer->options->loss_log == NULL)
        return;
    trainer->loss_log = fopen(trainer->options->loss_log, "w");
    if (trainer->loss_log == NULL)
        die(EXIT_CONFIG, "--loss-log: cannot write %s: %s", trainer->options->loss_log,
            strerror(errno));
    setvbuf(trainer->loss_log, NULL, _IOLBF, 0); /* so that others can follow it */
}

static void release(struct trainer *trainer)
{
    if (trainer->loss_log != NULL && fclose(trainer->loss_log) != 0)
        die(EXIT_FAILURE, "--loss-log: cannot write %s: %s", trainer->options->loss_log,
            strerror(errno));
    ddp_comm_destroy(trainer->comm);
    images_free(&trainer->train);
    images_free(&trainer->test);
    free(trainer->order);
    free(trainer->model);
    free(trainer->velocity);
    free(trainer->sums);
}

int main(int argc, char **argv)
{
    struct options options = parse_options(argc, argv);
    struct trainer trainer = {.options = &options};
    prepare(&trainer);
    join(&trainer);
    trainer.started = trainer.last_line = now();
    for (long epoch = 0; epoch < options.epochs; epoch++)
        train_epoch(&trainer, epoch);
    double accuracy = test_accuracy(&trainer);
    if (trainer.rank == 0)
        printf("test accuracy %.2f %%\n", 100.0 * accuracy);
    release(&trainer);
    return EXIT_SUCCESS;
}
