/*
 * launch.c - measures the time to start N processes and wait for their end, and the memory of the
 * agent. The method is in docs/benchmarks/launch.md.
 *
 * All contenders run in each round, so that a change of the machine's speed affects all, and in
 * another order each time, as one that ends leaves work to the kernel that slows the next.
 */
#include "error.h"
#include "perf.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_WORDS = 12, CONTENDERS_MAX = 5, RUN_LIMIT_MS = 20000, APPEAR_LIMIT_MS = 10000 };

/* ---- running one command ---- */

static bool start_command(const char *const *words, int stdin_fd, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (stdin_fd >= 0)
        posix_spawn_file_actions_adddup2(&actions, stdin_fd, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    /* posix_spawn does not write to argv; its type is older than const. */
    int failed =
        posix_spawnp(ret_pid, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed == 0;
}

/* Wait for @pid; kill it at the deadline, as a contender that hangs must not block ddp-bench. */
static bool await_command(pid_t pid, int *ret_status)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    if (pidfd >= 0 && poll(&ended, 1, RUN_LIMIT_MS) == 0)
        kill(pid, SIGKILL);
    close(pidfd);
    while (waitpid(pid, ret_status, 0) < 0)
        if (errno != EINTR)
            return false;
    return true;
}

/* The time from just before the start of a command to its end; negative if it failed. */
static double time_command(const char *const *words)
{
    pid_t pid;
    int status;
    double begin = perf_now_us();
    if (!start_command(words, -1, &pid) || !await_command(pid, &status))
        return -1;
    double end = perf_now_us();
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? end - begin : -1;
}

/* The floor: the same processes, started and awaited by a bare loop. */
static double time_bare(uint32_t nproc)
{
    static const char *const words[] = {"/bin/true", NULL};
    pid_t pids[4096];
    uint32_t started = 0;
    double begin = perf_now_us();
    for (; started < nproc; started++)
        if (posix_spawn(&pids[started], words[0], NULL, NULL, (char *const *)(uintptr_t)words,
                        environ) != 0)
            break;
    bool good = started == nproc;
    for (uint32_t i = 0; i < started; i++) {
        int status;
        good = waitpid(pids[i], &status, 0) == pids[i] && status == 0 && good;
    }
    return good ? perf_now_us() - begin : -1;
}

/* ---- contenders ---- */

struct contender {
    const char *name;
    const char *words[MAX_WORDS]; /* "%n": the number of processes; no words: the bare loop */
    bool slow;
    bool broken; /* failed or hung once: not run again for this N */
    struct perf_samples samples;
};

static double run_contender(const struct contender *contender, uint32_t nproc)
{
    if (contender->words[0] == NULL)
        return time_bare(nproc);
    char number[16];
    const char *words[MAX_WORDS + 1] = {0};
    snprintf(number, sizeof number, "%u", nproc);
    for (size_t i = 0; contender->words[i] != NULL; i++)
        words[i] = strcmp(contender->words[i], "%n") == 0 ? number : contender->words[i];
    return time_command(words);
}

static void print_launch_row(struct perf *perf, struct contender *c, uint32_t nproc, double bare_ms)
{
    double min = perf_percentile(&c->samples, 0) / 1e3;
    double median = perf_percentile(&c->samples, 50) / 1e3;
    double p90 = perf_percentile(&c->samples, 90) / 1e3;
    double max = perf_percentile(&c->samples, 100) / 1e3;
    if (c->broken) { /* the runs that succeeded prove little */
        printf("| %u | %s | - | - | - | - | failed |\n", nproc, c->name);
        if (perf->json != NULL)
            fprintf(
                perf->json,
                "{\"benchmark\":\"launch\",\"nproc\":%u,\"contender\":\"%s\",\"failed\":true}\n",
                nproc, c->name);
        return;
    }
    printf("| %u | %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", nproc, c->name, min, median, p90,
           max, median / bare_ms);
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"launch\",\"nproc\":%u,\"contender\":\"%s\",\"runs\":%zu,"
                "\"min_ms\":%.3f,\"median_ms\":%.3f,\"p90_ms\":%.3f,\"max_ms\":%.3f,"
                "\"ratio_to_bare\":%.3f}\n",
                nproc, c->name, c->samples.count, min, median, p90, max, median / bare_ms);
}

/* Fisher and Yates. */
static void shuffle(size_t *order, size_t count, unsigned *seed)
{
    for (size_t i = count - 1; i > 0; i--) {
        size_t other = (size_t)rand_r(seed) % (i + 1), moved = order[i];
        order[i] = order[other];
        order[other] = moved;
    }
}

/* Run all contenders for one N. The first is the bare loop, the second ddprun. */
static bool compare_contenders(struct perf *perf, struct contender *contenders, size_t count,
                               uint32_t nproc, struct ddp_error *err)
{
    unsigned seed = 1;
    size_t order[CONTENDERS_MAX];
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t round = 0; round <= perf->options.runs; round++) {
        shuffle(order, count, &seed);
        for (size_t i = 0; i < count; i++) {
            struct contender *c = &contenders[order[i]];
            if (c->broken || (c->slow && round > perf->options.slow_runs))
                continue;
            double us = run_contender(c, nproc);
            if (us < 0 && order[i] < 2)
                return !ddpi_error_set(err, DDP_E_SYSTEM, "%s failed to start %u processes",
                                       c->name, nproc);
            c->broken = us < 0;
            if (round > 0 && us >= 0 && !perf_add(&c->samples, us)) /* round 0 warms up */
                return !ddpi_error_nomem(err, c->samples.size * sizeof(double));
        }
    }
    double bare_ms = perf_percentile(&contenders[0].samples, 50) / 1e3;
    for (size_t i = 0; i < count; i++)
        print_launch_row(perf, &contenders[i], nproc, bare_ms);
    double ddprun_ms = perf_percentile(&contenders[1].samples, 50) / 1e3;
    printf("\nN=%u: ddprun takes %.2f ms beside the bare loop.\n\n", nproc, ddprun_ms - bare_ms);
    for (size_t i = 0; i < count; i++) {
        perf_samples_finish(&contenders[i].samples);
        contenders[i].broken = false;
    }
    return true;
}

static bool compare_launchers(struct perf *perf, struct ddp_error *err)
{
    struct contender all[CONTENDERS_MAX] = {
        {.name = "bare posix_spawn loop"},
        {.name = "ddprun", .words = {perf->ddprun, "--nproc-per-node", "%n", "/bin/true"}},
        {.name = "MPICH mpiexec", .words = {"mpiexec.hydra", "-n", "%n", "/bin/true"}},
        {.name = "OpenMPI mpirun",
         .words = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "%n",
                   "/bin/true"}},
        {.name = "torchrun",
         .words = {"torchrun", "--standalone", "--no-python", "--nproc-per-node", "%n",
                   "/bin/true"},
         .slow = true},
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (i < 2 || perf_in_path(all[i].words[0]))
            all[count++] = all[i];
        else
            printf("%s is not installed (%s).\n", all[i].name, all[i].words[0]);
    static const uint32_t sizes[] = {1, 2, 4, 8, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        printf("\n| N | launcher | min ms | median ms | p90 ms | max ms | x bare |\n"
               "|---|---|---|---|---|---|---|\n");
        if (!compare_contenders(perf, all, count, sizes[i], err))
            return false;
    }
    return true;
}

/* ---- memory ---- */

struct weight {
    unsigned long agent_kib;
    unsigned long guard_kib;
};

/* Measure the peak memory of guard and agent while N workers run (cat, which reads a pipe). */
static bool weigh(struct perf *perf, uint32_t nproc, struct weight *ret, struct ddp_error *err)
{
    char number[16];
    int ends[2];
    pid_t guard, agent = 0, worker;
    snprintf(number, sizeof number, "%u", nproc);
    const char *const words[] = {perf->ddprun, "--nproc-per-node", number, "/bin/cat", NULL};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return !ddpi_error_sys(err, errno, "cannot make a pipe");
    bool started = start_command(words, ends[0], &guard);
    close(ends[0]);
    double limit = perf_now_us() + APPEAR_LIMIT_MS * 1e3;
    size_t workers = 0;
    while (started && workers < nproc && perf_now_us() < limit) {
        poll(NULL, 0, 1);
        if (agent == 0)
            perf_children(guard, &agent);
        else
            workers = perf_children(agent, &worker);
    }
    if (workers == nproc)
        *ret = (struct weight){perf_memory_kib(agent, "VmHWM:"), perf_memory_kib(guard, "VmHWM:")};
    close(ends[1]); /* ends the input of the workers */
    int status = -1;
    bool ended = started && await_command(guard, &status);
    if (workers == nproc && ended && status == 0)
        return true;
    return !ddpi_error_set(err, DDP_E_SYSTEM, "%s did not run %u workers", perf->ddprun, nproc);
}

/* Add one run, which must succeed. */
static bool sample_contender(struct contender *contender, uint32_t nproc, struct ddp_error *err)
{
    double us = run_contender(contender, nproc);
    if (us < 0)
        return !ddpi_error_set(err, DDP_E_SYSTEM, "%s failed to run %u processes", contender->name,
                               nproc);
    return perf_add(&contender->samples, us) || !ddpi_error_nomem(err, sizeof(double));
}

static bool show_growth(struct perf *perf, struct ddp_error *err)
{
    static const uint32_t sizes[] = {1, 4, 16, 64, 256};
    printf("| N | ddprun, median ms | bare, median ms | x bare | agent, peak KiB | guard, peak KiB "
           "|\n|---|---|---|---|---|---|\n");
    struct contender bare = {.name = "bare"};
    struct contender ddprun = {.name = "ddprun",
                               .words = {perf->ddprun, "--nproc-per-node", "%n", "/bin/true"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t nproc = sizes[i];
        uint32_t runs = nproc >= 64 ? perf->options.runs / 3 + 1 : perf->options.runs;
        for (uint32_t round = 0; round < runs; round++)
            if (!sample_contender(&bare, nproc, err) || !sample_contender(&ddprun, nproc, err))
                return false;
        struct weight weight = {0};
        if (!weigh(perf, nproc, &weight, err))
            return false;
        double bare_ms = perf_percentile(&bare.samples, 50) / 1e3;
        double ddprun_ms = perf_percentile(&ddprun.samples, 50) / 1e3;
        printf("| %u | %.2f | %.2f | %.2f | %lu | %lu |\n", nproc, ddprun_ms, bare_ms,
               ddprun_ms / bare_ms, weight.agent_kib, weight.guard_kib);
        if (perf->json != NULL)
            fprintf(perf->json,
                    "{\"benchmark\":\"launch-growth\",\"nproc\":%u,\"ddprun_median_ms\":%.3f,"
                    "\"bare_median_ms\":%.3f,\"agent_peak_kib\":%lu,\"guard_peak_kib\":%lu}\n",
                    nproc, ddprun_ms, bare_ms, weight.agent_kib, weight.guard_kib);
        perf_samples_finish(&bare.samples);
        perf_samples_finish(&ddprun.samples);
    }
    return true;
}

/* ---- the cost of starting ddprun ---- */

static bool show_version(struct perf *perf, struct ddp_error *err)
{
    if (access(perf->empty, X_OK) != 0) {
        printf("\nddprun --version: not measured, '%s' was not built.\n", perf->empty);
        return true;
    }
    struct contender empty = {.name = perf->empty, .words = {perf->empty}};
    struct contender version = {.name = "ddprun --version", .words = {perf->ddprun, "--version"}};
    for (uint32_t round = 0; round < perf->options.runs * 3; round++)
        if (!sample_contender(&empty, 1, err) || !sample_contender(&version, 1, err))
            return false;
    double empty_ms = perf_percentile(&empty.samples, 50) / 1e3;
    double version_ms = perf_percentile(&version.samples, 50) / 1e3;
    printf("\nddprun --version: median %.2f ms, an empty C program %.2f ms: %.2f ms more.\n",
           version_ms, empty_ms, version_ms - empty_ms);
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"launch-version\",\"version_median_ms\":%.3f,"
                "\"empty_median_ms\":%.3f}\n",
                version_ms, empty_ms);
    perf_samples_finish(&empty.samples);
    perf_samples_finish(&version.samples);
    return true;
}

bool perf_launch(struct perf *perf, struct ddp_error *err)
{
    printf("# ddp-bench launch: N x /bin/true, from exec of the launcher to its exit\n\n");
    return compare_launchers(perf, err) && show_growth(perf, err) && show_version(perf, err);
}
