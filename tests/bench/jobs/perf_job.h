/*
 * perf_job.h - a job that ddp-bench measures: launchers as child processes, and the board on which
 * their workers write stamps.
 */
#ifndef TESTS_BENCH_PERF_JOB_H
#define TESTS_BENCH_PERF_JOB_H

#include "perf.h"
#include "perf_board.h"

enum { PERF_JOB_NODES = 8, PERF_JOB_WORDS = 24 };

struct perf_job {
    struct perf_board *board;
    char path[64];               /* of the board */
    char worker[4096];           /* the program that writes the stamps */
    pid_t nodes[PERF_JOB_NODES]; /* launchers; 0: none */
    int32_t pids[PERF_BOARD_STAMPS];
    uint32_t count; /* of @pids: the workers at the last look at the board */
};

bool perf_job_open(struct perf_job *job, struct ddp_error *err);
/* End all processes of the job. Does nothing to a zeroed job. */
void perf_job_close(struct perf_job *job);

/* Start a launcher as node @node: its command is @words, then the worker and its arguments. It dies
 * with ddp-bench. @forks: each worker has two children. */
bool perf_job_start(struct perf_job *job, uint32_t node, const char *const *words, bool forks,
                    struct ddp_error *err);

/* The pid of the agent, which is the guard's child; 0: none. */
pid_t perf_job_agent(const struct perf_job *job, uint32_t node);
/* Wait for a launcher to end, and kill it after @limit_ms; false: it was killed. */
bool perf_job_await(struct perf_job *job, uint32_t node, uint32_t limit_ms);

/* Discard all stamps. */
void perf_job_clear(struct perf_job *job);
/* Wait until all @world ranks of one generation with the same MASTER_ADDR and MASTER_PORT, and
 * @children of theirs, have stamped since the last clear. Returns the time of the last stamp in us;
 * 0: not within @limit_ms. */
uint64_t perf_job_running(struct perf_job *job, uint32_t world, uint32_t children,
                          uint32_t limit_ms);
/* How many workers of the last look at the board still exist. */
uint32_t perf_job_left(const struct perf_job *job);

#endif
