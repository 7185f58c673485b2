/*
 * restart_torch.c - the same with torchrun, a few times and with a bound: some of it never
 * recovers. Its workers are the same program, started without Python.
 */
#include "error.h"
#include "perf_restart.h"
#include "perf_server.h"

#include <arpa/inet.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    START_LIMIT_MS = 60000, /* its import takes seconds */
    LIMIT_MS = 45000,       /* torchrun's last call is 30 s */
    LOSS_LIMIT_MS = 15000,  /* its heartbeats time out after that; nobody looks */
    WORKERS = PERF_RESTART_WORKERS,
};

struct torch {
    struct perf *perf;
    const char *python;
    char endpoint[64];
    struct perf_job job;
};

static bool has_torch(const char *python)
{
    static const char look[] = "from importlib.util import find_spec\n"
                               "if find_spec('torch'): print('listening on torch:1')";
    const char *const words[] = {python, "-c", look, NULL};
    struct perf_server process = {0};
    struct ddp_error err;
    bool has = perf_server_start(words, &process, &err);
    perf_server_stop(&process);
    return has;
}

/* Nobody else takes it at once: the kernel gives them out by turns. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = bind(fd, (const struct sockaddr *)&address, len) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &len) == 0;
    close(fd);
    return bound ? ntohs(address.sin_port) : 0;
}

static bool open_torch(struct torch *torch, struct ddp_error *err)
{
    snprintf(torch->endpoint, sizeof torch->endpoint, "--rdzv-endpoint=localhost:%u", free_port());
    return perf_job_open(&torch->job, err);
}

static bool start_node(struct torch *torch, uint32_t node, const char *nnodes,
                       struct ddp_error *err)
{
    const char *const words[] = {torch->python,
                                 "-m",
                                 "torch.distributed.run",
                                 nnodes,
                                 "--nproc-per-node=4",
                                 "--max-restarts=1000",
                                 "--rdzv-backend=c10d",
                                 "--rdzv-id=perf",
                                 torch->endpoint,
                                 "--no-python",
                                 NULL};
    return perf_job_start(&torch->job, node, words, false, err);
}

static bool await_world(struct torch *torch, uint32_t world, struct ddp_error *err)
{
    if (perf_job_running(&torch->job, world, 0, START_LIMIT_MS) != 0)
        return true;
    return !ddpi_error_set(err, DDP_E_TIMEOUT, "torchrun: %u workers did not run within %d s",
                           world, START_LIMIT_MS / 1000);
}

/* What follows @begin_us into @times, or nothing where nothing does. */
static bool measure(struct torch *torch, double begin_us, uint32_t world, uint32_t limit_ms,
                    struct perf_samples *times, struct ddp_error *err)
{
    uint64_t at_us = perf_job_running(&torch->job, world, 0, limit_ms);
    return at_us == 0 || perf_add(times, (double)at_us - begin_us) ||
           !ddpi_error_nomem(err, sizeof(double));
}

/* ---- cases: each begins with a fresh job, as some of them end it ------------------------------
 */

static bool run_worker(struct torch *torch, struct perf_samples *times, struct ddp_error *err)
{
    bool done = start_node(torch, 0, "--nnodes=1:1", err) && await_world(torch, WORKERS, err);
    for (uint32_t run = 0; done && run < torch->perf->options.slow_runs; run++) {
        int32_t victim = torch->job.pids[run % torch->job.count];
        perf_job_clear(&torch->job);
        double begin_us = perf_now_us();
        kill(victim, SIGKILL);
        done = measure(torch, begin_us, WORKERS, LIMIT_MS, times, err);
    }
    return done;
}

static bool run_agent(struct torch *torch, struct perf_samples *times, struct ddp_error *err)
{
    bool done = true;
    for (uint32_t node = 0; done && node < 3; node++)
        done = start_node(torch, node, "--nnodes=2:3", err);
    done = done && await_world(torch, 3 * WORKERS, err);
    if (!done)
        return false;
    perf_job_clear(&torch->job);
    double begin_us = perf_now_us();
    kill(torch->job.nodes[2], SIGKILL); /* the first has the store */
    perf_job_await(&torch->job, 2, LIMIT_MS);
    return measure(torch, begin_us, 2 * WORKERS, LOSS_LIMIT_MS, times, err);
}

/* The time that the lone node takes to start, and then the second. */
static bool run_join(struct torch *torch, struct perf_samples *lone, struct perf_samples *join,
                     struct ddp_error *err)
{
    double begin_us = perf_now_us();
    if (!start_node(torch, 0, "--nnodes=1:2", err) ||
        !measure(torch, begin_us, WORKERS, LIMIT_MS, lone, err))
        return false;
    perf_job_clear(&torch->job);
    begin_us = perf_now_us();
    return start_node(torch, 1, "--nnodes=1:2", err) &&
           measure(torch, begin_us, 2 * WORKERS, LIMIT_MS, join, err);
}

static bool run_all(struct torch *torch, struct perf_samples *times, struct ddp_error *err)
{
    bool done = open_torch(torch, err) && run_worker(torch, &times[PERF_RESTART_WORKER], err);
    perf_job_close(&torch->job);
    if (done)
        done = open_torch(torch, err) && run_agent(torch, &times[PERF_RESTART_AGENT], err);
    perf_job_close(&torch->job);
    if (done)
        done = open_torch(torch, err) &&
               run_join(torch, &times[PERF_RESTART_LONE], &times[PERF_RESTART_JOIN], err);
    perf_job_close(&torch->job);
    return done;
}

static void print_rows(struct perf *perf, struct perf_samples *times)
{
    static const struct {
        enum perf_restart_case what;
        uint32_t limit_ms;
    } rows[] = {{PERF_RESTART_WORKER, LIMIT_MS},
                {PERF_RESTART_AGENT, LOSS_LIMIT_MS},
                {PERF_RESTART_JOIN, LIMIT_MS},
                {PERF_RESTART_LONE, LIMIT_MS}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct perf_samples *samples = &times[rows[i].what];
        uint32_t runs = rows[i].what == PERF_RESTART_WORKER ? perf->options.slow_runs : 1;
        perf_restart_row(perf, "torchrun", rows[i].what, samples, runs - (uint32_t)samples->count,
                         rows[i].limit_ms);
    }
}

bool perf_restart_torch(struct perf *perf, struct ddp_error *err)
{
    const char *const given = perf->options.python;
    const char *const pythons[] = {given != NULL ? given : perf->python, "python3"};
    struct torch torch = {.perf = perf};
    for (size_t i = 0; torch.python == NULL && i < (given != NULL ? 1 : 2); i++)
        if (has_torch(pythons[i]))
            torch.python = pythons[i];
    if (perf->options.slow_runs == 0 || torch.python == NULL) {
        printf("\ntorchrun is left out: %s.\n",
               torch.python == NULL ? "no Python here has PyTorch (--python=PATH names one)"
                                    : "--slow-runs=0");
        return true;
    }
    struct perf_samples times[PERF_RESTART_CASES] = {0};
    bool done = run_all(&torch, times, err);
    if (done)
        print_rows(perf, times);
    for (int i = 0; i < PERF_RESTART_CASES; i++)
        perf_samples_finish(&times[i]);
    return done;
}
