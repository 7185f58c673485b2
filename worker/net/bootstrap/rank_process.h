/*
 * rank_process.h - the process of one rank: what it does, and how it is started, ended and reaped.
 */
#ifndef DDPI_RANK_PROCESS_H
#define DDPI_RANK_PROCESS_H

#include "rank_end.h"

#include <ddprun/comm.h>
#include <signal.h>
#include <sys/types.h>

/* What all processes of one call have in common. */
struct ddpi_rank_task {
    ddp_rank_function *function;
    void *arg;
    uint32_t nprocs;
    struct ddp_unique_id id;       /* its listener is inherited, and rank 0's */
    struct ddpi_rank_words *words; /* by rank, shared memory */
};

struct ddpi_rank_process {
    pid_t pid;                /* 0: not started */
    int pidfd;                /* -1: not started, or reaped */
    struct ddpi_rank_end end; /* its flags count from the start, the rest once it is reaped */
};

/* In a child of @parent, where all signals are blocked: be @rank until its function returns, and
 * exit. @mask is that of the parent. */
_Noreturn void ddpi_rank_be(const struct ddpi_rank_task *task, uint32_t rank, pid_t parent,
                            const sigset_t *mask);

/* Fork @rank, whose place in @processes is not used yet: does not return in the child. */
ddp_status ddpi_rank_start(struct ddpi_rank_process *processes, const struct ddpi_rank_task *task,
                           uint32_t rank, struct ddp_error *err);

static inline bool ddpi_rank_runs(const struct ddpi_rank_process *process)
{
    return process->pidfd >= 0;
}

/* Send SIGTERM or SIGKILL, unless it is reaped. */
void ddpi_rank_signal(struct ddpi_rank_process *process, int signal);

/* Reap the process if it has ended, as the end number @turn, with what it has left in @words. */
bool ddpi_rank_reap(struct ddpi_rank_process *process, const struct ddpi_rank_words *words,
                    uint32_t turn);

/* Let go of a process that cannot be reaped. */
void ddpi_rank_leave(struct ddpi_rank_process *process);

#endif
