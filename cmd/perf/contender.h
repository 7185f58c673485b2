/*
 * contender.h - a job that measures when it is told to.
 */
#ifndef CMD_PERF_CONTENDER_H
#define CMD_PERF_CONTENDER_H

#include "perf_stats.h"

#include <ddprun/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CONTENDER_WORDS = 12, CONTENDER_PATH = 4096 };

struct contender {
    const char *name;                   /* "Open MPI" */
    const char *words[CONTENDER_WORDS]; /* its command, then NULL */
    char program[CONTENDER_PATH];       /* the player, one of the words */
    const char *algorithm;              /* DDP_ALGORITHM of its ranks; NULL: not set here */
    uint32_t ranks;
    char fifos[CONTENDER_PATH]; /* the path of its FIFOs, without their ends */
    int *orders;                /* a FIFO to each rank; NULL: not started */
    int answer;
    pid_t pid;
    int pidfd;
    double us;                 /* of one call in its latest turn */
    struct perf_samples times; /* of the current size, in microseconds */
    uint64_t wrong;            /* elements, so far */
};

/* Make the FIFOs in @folder and start the command; its ranks wait for orders. */
bool contender_start(struct contender *contender, const char *folder, struct ddp_error *err);

/* Let it make @iters calls of @bytes, and tell the time of one. */
bool contender_play(struct contender *contender, const char *call, uint64_t bytes, uint64_t iters,
                    double *ret_us, struct ddp_error *err);

/* End the job, if it has been started, and remove its FIFOs. */
void contender_end(struct contender *contender);

#endif
