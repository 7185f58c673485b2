/*
 * test_fashion_mnist.c - the training examples as a user runs them: one, two and four workers
 * follow the same loss curve, threads for workers too, and what goes wrong is said. FASHION_MNIST
 * and DATA_PARALLEL in the environment are the programs. They train on the data set where that is
 * installed, else on made-up images.
 */
#include "check_main.h"
#include "world.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 2 * 50, TEXT = 4096 };

/* The sums of a step are made in another order for each number of workers. In double precision that
 * hardly ever shows in the float32 weights, so the curves differ by a float's rounding at most. */
static const double tolerance = 1e-6;

static const char *program(void)
{
    const char *path = getenv("FASHION_MNIST");
    ck_assert_msg(path != NULL, "FASHION_MNIST is not set");
    return path;
}

/* Become @rank of the program, with stderr in @log and stdout away. */
static void become_worker(const struct world *world, uint32_t rank, const char *log,
                          const char *const *arguments)
{
    char number[16], size[16];
    snprintf(number, sizeof number, "%u", rank);
    snprintf(size, sizeof size, "%u", world->nranks);
    setenv("RANK", number, 1);
    setenv("WORLD_SIZE", size, 1);
    setenv("DDPRUN_STORE", world->endpoint, 1);
    setenv("DDP_FORCE_TCP", world->tcp ? "1" : "0", 1);
    int null = open("/dev/null", O_WRONLY);
    int file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (dup2(null, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0)
        _exit(127);
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(127);
}

static const char *data_option(void)
{
    struct stat info;
    const char *known = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz";
    return stat(known, &info) == 0 ? "--epochs=2" : "--synthetic";
}

/* What both programs are told, so that they train on the same; the last batch is shorter. */
struct lesson {
    char log[280], log_option[300], limit[32];
};

static void plan(struct lesson *lesson, const char *dir)
{
    snprintf(lesson->log, sizeof lesson->log, "%s/loss", dir);
    snprintf(lesson->log_option, sizeof lesson->log_option, "--loss-log=%s", lesson->log);
    snprintf(lesson->limit, sizeof lesson->limit, "--limit=%d", 50 * 60 - 7);
}

static void take_losses(const struct lesson *lesson, double losses[STEPS])
{
    FILE *file = fopen(lesson->log, "r");
    ck_assert_ptr_nonnull(file);
    for (size_t step = 0; step < STEPS; step++) {
        size_t number;
        ck_assert_int_eq(fscanf(file, "%zu %lf", &number, &losses[step]), 2);
        ck_assert_uint_eq(number, step);
    }
    ck_assert_int_eq(fgetc(file), '\n');
    ck_assert_int_eq(fgetc(file), EOF);
    fclose(file);
    unlink(lesson->log);
}

static void train(const char *dir, uint32_t nranks, bool tcp, double losses[STEPS])
{
    struct world world = {.nranks = nranks, .tcp = tcp};
    struct lesson lesson;
    char errors[280];
    plan(&lesson, dir);
    snprintf(errors, sizeof errors, "%s/errors", dir);
    const char *const arguments[] = {program(),         "--epochs=2",  "--batch=60", lesson.limit,
                                     lesson.log_option, data_option(), NULL};
    world_open(&world);
    for (uint32_t rank = 0; rank < nranks; rank++)
        if (world_fork(&world, rank))
            become_worker(&world, rank, errors, arguments);
    world_join(&world);
    world_close(&world);
    take_losses(&lesson, losses);
    unlink(errors);
}

static void check_same_curve(const char *who, uint32_t workers, const double losses[STEPS],
                             const double expected[STEPS])
{
    double worst = 0;
    for (size_t step = 0; step < STEPS; step++)
        worst = fmax(worst, fabs(losses[step] - expected[step]) / expected[step]);
    ck_assert_msg(worst < tolerance, "%u %s: %g", workers, who, worst);
}

START_TEST(any_number_of_workers_follows_the_same_curve)
{
    char dir[] = "/tmp/ddprun-test-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    static double one[STEPS], many[STEPS];
    train(dir, 1, false, one);
    ck_assert_double_lt(one[STEPS - 1], one[0] / 2); /* it learns */
    static const uint32_t counts[] = {2, 4, 3};
    for (size_t i = 0; i < 3; i++) {
        train(dir, counts[i], i == 2, many);
        check_same_curve("workers", counts[i], many, one);
    }
    rmdir(dir);
}
END_TEST

static void train_with_threads(const char *dir, uint32_t threads, double losses[STEPS])
{
    struct lesson lesson;
    char option[32];
    const char *path = getenv("DATA_PARALLEL");
    ck_assert_msg(path != NULL, "DATA_PARALLEL is not set");
    plan(&lesson, dir);
    snprintf(option, sizeof option, "--threads=%u", threads);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        execl(path, path, option, "--epochs=2", "--batch=60", lesson.limit, lesson.log_option,
              data_option(), (char *)NULL);
        _exit(127);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    take_losses(&lesson, losses);
}

START_TEST(threads_follow_the_curve_of_processes)
{
    char dir[] = "/tmp/ddprun-test-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    static double one[STEPS], many[STEPS];
    train(dir, 1, false, one);
    static const uint32_t counts[] = {4, 1, 2, 3};
    for (size_t i = 0; i < 4; i++) {
        train_with_threads(dir, counts[i], many);
        check_same_curve("threads", counts[i], many, one);
    }
    rmdir(dir);
}
END_TEST

/* Run one process alone; its exit status, and its stderr in @text. */
static int run_alone(const char *option, char text[TEXT])
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        execl(program(), program(), option, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    size_t len = 0;
    ssize_t got;
    while (len < TEXT - 1 && (got = read(fds[0], text + len, TEXT - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = '\0';
    close(fds[0]);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const struct {
    const char *option;
    int code;
    const char *says;
} mistakes[] = {
    {"--data=/nonexistent", 78, "apt-get install dataset-fashion-mnist"},
    {"--data=/nonexistent", 78, "--synthetic"},
    {"--epochs=0", 2, "--epochs"},
    {"--batch=12x", 2, "12x"},
    {"--lr=nan", 2, "--lr"},
    {"--momentum=1.5", 2, "--momentum"},
    {"--nonsense", 2, "Usage"},
    {"extra", 2, "extra"},
};

START_TEST(mistakes_are_explained)
{
    char text[TEXT];
    int code = run_alone(mistakes[_i].option, text);
    ck_assert_msg(code == mistakes[_i].code, "%d: %s", code, text);
    ck_assert_msg(strstr(text, mistakes[_i].says) != NULL, "%s", text);
}
END_TEST

/* Until there is something in the file. */
static void await_bytes(const char *path)
{
    struct stat info;
    while (stat(path, &info) != 0 || info.st_size == 0)
        poll(NULL, 0, 10);
}

START_TEST(a_lost_worker_is_reported_by_the_others)
{
    char dir[] = "/tmp/ddprun-test-XXXXXX", losses[64], loss_option[80], errors[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(losses, sizeof losses, "%s/losses", dir);
    snprintf(loss_option, sizeof loss_option, "--loss-log=%s", losses);
    snprintf(errors, sizeof errors, "%s/errors", dir);
    struct world world = {.nranks = 3};
    const char *const arguments[] = {program(),         "--synthetic", "--limit=500",
                                     "--epochs=100000", loss_option,   NULL};
    world_open(&world);
    for (uint32_t rank = 0; rank < 3; rank++)
        if (world_fork(&world, rank))
            become_worker(&world, rank, errors, arguments);
    await_bytes(losses);
    world_kill_rank(&world, 1);
    for (uint32_t rank = 0; rank < 3; rank += 2) {
        int status;
        ck_assert_int_eq(waitpid(world.pids[rank], &status, 0), world.pids[rank]);
        world.pids[rank] = 0;
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
    char text[TEXT] = "";
    int fd = open(errors, O_RDONLY);
    ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
    ck_assert_msg(strstr(text, "rank 1 (") != NULL && strstr(text, "has died") != NULL, "%s", text);
    close(fd);
    unlink(errors);
    unlink(losses);
    rmdir(dir);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("fashion_mnist");
    TCase *tcase = tcase_create("example");
    tcase_add_test(tcase, any_number_of_workers_follows_the_same_curve);
    tcase_add_test(tcase, threads_follow_the_curve_of_processes);
    tcase_add_loop_test(tcase, mistakes_are_explained, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_test(tcase, a_lost_worker_is_reported_by_the_others);
    suite_add_tcase(suite, tcase);
    return suite;
}
