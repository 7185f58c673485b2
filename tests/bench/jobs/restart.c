/*
 * restart.c - measures the time from the death of a worker or agent, or the arrival of a node,
 * until all workers run again; counts processes that a killed agent leaves behind, and slow nodes
 * that are declared lost by mistake. The method is in docs/benchmarks/restart.md.
 */
#include "error.h"
#include "perf_job.h"
#include "perf_server.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LIMIT_MS = 20000,
    WORKERS = 4,            /* of a node */
    CHILDREN = 2 * WORKERS, /* of workers that fork */
    SPINNERS = 4,
};

/* ---- jobs of ddprun ---- */

/* A job and, for a job of several nodes, its store. */
struct ours {
    struct perf *perf;
    struct perf_job job;
    struct perf_server store;
    const char *nnodes; /* NULL: one node, no store */
    const char *lease;
    char endpoint[64];
};

static bool ours_open(struct ours *ours, struct perf *perf, const char *nnodes,
                      struct ddp_error *err)
{
    *ours = (struct ours){.perf = perf, .nnodes = nnodes, .lease = "--lease=3s"};
    if (nnodes != NULL && !perf_server_start_ours(perf, &ours->store, err))
        return false;
    snprintf(ours->endpoint, sizeof ours->endpoint, "--rdzv-endpoint=127.0.0.1:%u",
             ours->store.port);
    return perf_job_open(&ours->job, err);
}

static void ours_close(struct ours *ours)
{
    perf_job_close(&ours->job);
    perf_server_stop(&ours->store);
}

static bool start_node(struct ours *ours, uint32_t node, bool forks, struct ddp_error *err)
{
    char nnodes[32];
    const char *words[PERF_JOB_WORDS] = {ours->perf->ddprun, "--nproc-per-node=4",
                                         "--max-restarts=1000000", "--crash-loop=0",
                                         "--log-dir=/dev/null"};
    size_t count = 5;
    if (ours->nnodes != NULL) {
        snprintf(nnodes, sizeof nnodes, "--nnodes=%s", ours->nnodes);
        words[count++] = nnodes;
        words[count++] = "--rdzv-id=restart"; /* the store is a ddprund */
        words[count++] = ours->endpoint;
        words[count++] = ours->lease;
    }
    return perf_job_start(&ours->job, node, words, forks, err);
}

/* Wait until all @world ranks run. */
static bool await_world(struct ours *ours, uint32_t world, uint64_t *ret_at_us,
                        struct ddp_error *err)
{
    *ret_at_us = perf_job_running(&ours->job, world, 0, LIMIT_MS);
    if (*ret_at_us != 0)
        return true;
    return !ddpi_error_set(err, DDP_E_TIMEOUT, "%s: %u workers did not run within %d s",
                           ours->perf->ddprun, world, LIMIT_MS / 1000);
}

static bool start_nodes(struct ours *ours, uint32_t nodes, struct ddp_error *err)
{
    uint64_t at_us;
    for (uint32_t node = 0; node < nodes; node++)
        if (!start_node(ours, node, false, err))
            return false;
    return await_world(ours, nodes * WORKERS, &at_us, err);
}

/* Wait until @world ranks run, and add the time since @begin_us. */
static bool measure_restart(struct ours *ours, double begin_us, uint32_t world,
                            struct perf_samples *times, struct ddp_error *err)
{
    uint64_t at_us;
    return await_world(ours, world, &at_us, err) &&
           (perf_add(times, (double)at_us - begin_us) || !ddpi_error_nomem(err, sizeof(double)));
}

/* ---- cases ---- */

/* Each run kills another worker. */
static bool kill_workers(struct ours *ours, uint32_t nodes, struct perf_samples *times,
                         struct ddp_error *err)
{
    bool done = start_nodes(ours, nodes, err);
    for (uint32_t run = 0; done && run < ours->perf->options.runs; run++) {
        int32_t victim = ours->job.pids[run % ours->job.count];
        perf_job_clear(&ours->job);
        double begin_us = perf_now_us();
        kill(victim, SIGKILL);
        done = measure_restart(ours, begin_us, nodes * WORKERS, times, err);
    }
    return done;
}

static bool run_worker(struct ours *ours, struct perf_samples *times, struct ddp_error *err)
{
    return kill_workers(ours, 1, times, err);
}

static bool run_workers3(struct ours *ours, struct perf_samples *times, struct ddp_error *err)
{
    return kill_workers(ours, 3, times, err);
}

/* Each run kills the agent of another node, which then rejoins. */
static bool run_agent(struct ours *ours, struct perf_samples *times, struct ddp_error *err)
{
    bool done = start_nodes(ours, 3, err);
    for (uint32_t run = 0; done && run < ours->perf->options.runs; run++) {
        uint32_t node = run % 3;
        uint64_t at_us;
        pid_t agent = perf_job_agent(&ours->job, node);
        perf_job_clear(&ours->job);
        double begin_us = perf_now_us();
        kill(agent, SIGKILL);
        done = measure_restart(ours, begin_us, 2 * WORKERS, times, err);
        perf_job_await(&ours->job, node, LIMIT_MS);
        perf_job_clear(&ours->job);
        done = done && start_node(ours, node, false, err) &&
               await_world(ours, 3 * WORKERS, &at_us, err);
    }
    return done;
}

static bool run_join(struct ours *ours, struct perf_samples *times, struct ddp_error *err)
{
    bool done = start_nodes(ours, 1, err);
    for (uint32_t run = 0; done && run < ours->perf->options.runs; run++) {
        uint64_t at_us;
        perf_job_clear(&ours->job);
        double begin_us = perf_now_us();
        done = start_node(ours, 1, false, err) &&
               measure_restart(ours, begin_us, 2 * WORKERS, times, err);
        perf_job_clear(&ours->job);
        kill(ours->job.nodes[1], SIGTERM);
        perf_job_await(&ours->job, 1, LIMIT_MS);
        done = done && await_world(ours, WORKERS, &at_us, err);
    }
    return done;
}

static bool run_lone(struct ours *ours, struct perf_samples *times, struct ddp_error *err)
{
    bool done = true;
    for (uint32_t run = 0; done && run < ours->perf->options.runs; run++) {
        perf_job_clear(&ours->job);
        double begin_us = perf_now_us();
        done =
            start_node(ours, 0, false, err) && measure_restart(ours, begin_us, WORKERS, times, err);
        kill(ours->job.nodes[0], SIGTERM);
        perf_job_await(&ours->job, 0, LIMIT_MS);
    }
    return done;
}

/* In the order of the table. */
static const struct restart_case {
    const char *name;
    const char *json;
    double p50_ms, p99_ms; /* the goals; 0: none */
    const char *nnodes;
    bool (*run)(struct ours *ours, struct perf_samples *times, struct ddp_error *err);
} cases[] = {
    {"a worker killed, 4 on one node", "worker", 15, 50, NULL, run_worker},
    {"a worker killed, 3 nodes of 4", "worker_of_3_nodes", 50, 0, "3", run_workers3},
    {"an agent killed, 3 nodes of 4", "agent", 100, 0, "2:3", run_agent},
    {"a second node joins", "join", 100, 0, "1:2", run_join},
    {"a lone node of 1:2, --settle=1s", "lone", 1050, 0, "1:2", run_lone},
};

static void print_case(struct perf *perf, const struct restart_case *what,
                       struct perf_samples *times)
{
    double p50 = perf_percentile(times, 50) / 1e3, p99 = perf_percentile(times, 99) / 1e3;
    double max = perf_percentile(times, 100) / 1e3;
    bool met = p50 <= what->p50_ms && (what->p99_ms == 0 || p99 <= what->p99_ms);
    printf("| %s | ddprun | %zu | %.1f | %.1f | %.1f | p50 %.0f", what->name, times->count, p50,
           p99, max, what->p50_ms);
    if (what->p99_ms > 0)
        printf(", p99 %.0f", what->p99_ms);
    printf(": %s |\n", met ? "met" : "missed");
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"restart\",\"case\":\"%s\",\"contender\":\"ddprun\",\"runs\":%zu,"
                "\"lost\":0,\"limit_ms\":%d,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f}\n",
                what->json, times->count, LIMIT_MS, p50, p99, max);
}

static bool run_cases(struct perf *perf, struct ddp_error *err)
{
    bool done = true;
    for (size_t i = 0; done && i < sizeof cases / sizeof *cases; i++) {
        struct ours ours;
        struct perf_samples times = {0};
        done = ours_open(&ours, perf, cases[i].nnodes, err) && cases[i].run(&ours, &times, err);
        ours_close(&ours);
        if (done)
            print_case(perf, &cases[i], &times);
        perf_samples_finish(&times);
    }
    return done;
}

/* ---- processes left behind ---- */

/* Kill the agent, and wait until no process is left. Returns the time; negative: some are left. */
static double time_cleanup(struct perf_job *job)
{
    double begin_us = perf_now_us();
    kill(perf_job_agent(job, 0), SIGKILL);
    while (perf_job_left(job) > 0 && perf_now_us() - begin_us < LIMIT_MS * 1e3)
        poll(NULL, 0, 1);
    double end_us = perf_now_us();
    perf_job_await(job, 0, LIMIT_MS);
    return perf_job_left(job) == 0 ? end_us - begin_us : -1;
}

static bool kill_agent(struct perf *perf, struct perf_samples *times, uint32_t *left,
                       struct ddp_error *err)
{
    struct ours ours;
    bool done = ours_open(&ours, perf, NULL, err) && start_node(&ours, 0, true, err);
    if (done && perf_job_running(&ours.job, WORKERS, CHILDREN, LIMIT_MS) == 0)
        done = !ddpi_error_set(err, DDP_E_TIMEOUT, "%s: %d workers and their children did not run",
                               perf->ddprun, WORKERS);
    double us = done ? time_cleanup(&ours.job) : 0;
    *left += us < 0 ? perf_job_left(&ours.job) : 0;
    ours_close(&ours);
    return done && (us < 0 || perf_add(times, us) || !ddpi_error_nomem(err, sizeof(double)));
}

static bool run_kills(struct perf *perf, struct ddp_error *err)
{
    struct perf_samples times = {0};
    uint32_t left = 0;
    bool done = true;
    for (uint32_t run = 0; done && run < perf->options.kills; run++)
        done = kill_agent(perf, &times, &left, err);
    if (done && perf->options.kills > 0) {
        double p50 = perf_percentile(&times, 50) / 1e3, max = perf_percentile(&times, 100) / 1e3;
        printf(
            "\nkill -9 of the agent, %u times, with %d workers that have two children each: %u "
            "processes left; until none was left %.1f ms (median), at most %.1f ms (goal 100).\n",
            perf->options.kills, WORKERS, left, p50, max);
        if (perf->json != NULL)
            fprintf(perf->json,
                    "{\"benchmark\":\"restart-orphans\",\"kills\":%u,\"left\":%u,\"p50_ms\":%.3f,"
                    "\"max_ms\":%.3f}\n",
                    perf->options.kills, left, p50, max);
    }
    perf_samples_finish(&times);
    return done;
}

/* ---- false alarms ---- */

static void stop_spinning(struct perf_server *spinners)
{
    for (int i = 0; i < SPINNERS; i++)
        perf_server_stop(&spinners[i]);
}

static bool start_spinning(struct perf_server *spinners, struct ddp_error *err)
{
    static const char *const words[] = {"/bin/sh", "-c", "while :; do :; done", NULL};
    for (int i = 0; i < SPINNERS; i++) {
        int fd;
        if (!perf_server_spawn(words, &spinners[i].pid, &fd, err))
            return false;
        close(fd);
    }
    return true;
}

/* Each new generation means that a node was declared lost. */
static bool count_false_alarms(struct ours *ours, uint32_t *ret_alarms, struct ddp_error *err)
{
    uint64_t at_us;
    if (!start_nodes(ours, 3, err))
        return false;
    perf_job_clear(&ours->job);
    double end_us = perf_now_us() + (double)ours->perf->options.watch_ms * 1e3;
    for (*ret_alarms = 0; perf_now_us() < end_us; poll(NULL, 0, 100)) {
        if (atomic_load(&ours->job.board->count) == 0)
            continue;
        ++*ret_alarms;
        if (!await_world(ours, 3 * WORKERS, &at_us, err)) /* it joins again */
            return false;
        perf_job_clear(&ours->job);
    }
    return true;
}

static bool run_watch(struct perf *perf, struct ddp_error *err)
{
    struct ours ours;
    struct perf_server spinners[SPINNERS] = {0};
    uint32_t alarms = 0;
    if (perf->options.watch_ms == 0)
        return true;
    bool done = ours_open(&ours, perf, "2:3", err);
    ours.lease = "--lease=600ms";
    done = done && start_spinning(spinners, err) && count_false_alarms(&ours, &alarms, err);
    stop_spinning(spinners);
    ours_close(&ours);
    if (!done)
        return false;
    printf("\nThree nodes with --lease=600ms next to %d spinning processes, for %.1f minutes: %u "
           "false alarms (goal 0).\n",
           SPINNERS, (double)perf->options.watch_ms / 60000, alarms);
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"restart-watch\",\"watch_ms\":%" PRIu64 ",\"lease_ms\":600,"
                "\"false_alarms\":%u}\n",
                perf->options.watch_ms, alarms);
    return true;
}

bool perf_restart(struct perf *perf, struct ddp_error *err)
{
    printf("# ddp-bench restart: until all workers run again, ms\n\n"
           "| what | launcher | runs | p50 | p99 | max | goal |\n|---|---|---|---|---|---|---|\n");
    return run_cases(perf, err) && run_kills(perf, err) && run_watch(perf, err);
}
