/*
 * perf_job.h - a job that ddp-perf measures: launchers as child processes, and the board on which
 * their workers stamp that they run.
 */
#ifndef CMD_PERF_JOB_H
#define CMD_PERF_JOB_H

#include "perf.h"
#include "perf_board.h"

enum { PERF_JOB_NODES = 8, PERF_JOB_WORDS = 24 };

struct perf_job {
    struct perf_board *board;
    char path[64];               /* of the board */
    char worker[4096];           /* the program that stamps */
    pid_t nodes[PERF_JOB_NODES]; /* launchers; 0: none there */
    int32_t pids[PERF_BOARD_STAMPS];
    uint32_t count; /* of @pids: what ran when it was looked at last */
};

bool perf_job_open(struct perf_job *job, struct ddp_error *err);
/* End all that runs, whoever has left it behind. Nothing to a zeroed job. */
void perf_job_close(struct perf_job *job);

/* Start a launcher as node @node: @words, and behind them the worker with its arguments. It dies
 * with ddp-perf. */
bool perf_job_start(struct perf_job *job, uint32_t node, const char *const *words, bool forks,
                    struct ddp_error *err);

/* The agent's pid: the guard's child. 0: it is not there. */
pid_t perf_job_agent(const struct perf_job *job, uint32_t node);
/* Wait for a launcher to end, and kill it after @limit_ms; false if it had to be. */
bool perf_job_await(struct perf_job *job, uint32_t node, uint32_t limit_ms);

/* What has been stamped counts no more. */
void perf_job_clear(struct perf_job *job);
/* Wait until all ranks of one generation, of @world ranks that are to meet at one place, have
 * stamped since the last clear, and @children of theirs: when the last of them did, in us; 0 if not
 * within @limit_ms. */
uint64_t perf_job_running(struct perf_job *job, uint32_t world, uint32_t children,
                          uint32_t limit_ms);
/* How many of those that ran when it was looked at last are there. */
uint32_t perf_job_left(const struct perf_job *job);

#endif
