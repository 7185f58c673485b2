/*
 * worker_status.h - the status of a node's workers as text, one line per worker:
 *
 *     LOCAL_RANK RANK PID running | stopped | stopping | exited CODE | killed SIGNAL
 *
 * Pure. The agent publishes the text through the rounds, and ddpctl reads it. The reader does not
 * trust it: other lines are skipped.
 */
#ifndef DAEMON_WORKER_STATUS_H
#define DAEMON_WORKER_STATUS_H

#include "buf.h"
#include "signames.h"

enum { WORKER_STATUS_LINE_MAX = 96 };

enum worker_status_state {
    WORKER_STATUS_RUNNING,
    WORKER_STATUS_STOPPED, /* by SIGSTOP, a terminal or a debugger: it can go on */
    WORKER_STATUS_STOPPING,
    WORKER_STATUS_EXITED,
    WORKER_STATUS_KILLED
};

struct worker_status {
    uint32_t local_rank;
    uint32_t rank;
    int32_t pid;
    enum worker_status_state state;
    uint8_t exit_code;        /* EXITED */
    char signal[SIGNAME_MAX]; /* KILLED: its name */
};

/* "running", ... */
const char *worker_status_state_name(enum worker_status_state state);

/* Append the whole line of @worker, or return false without memory. */
bool worker_status_put(struct ddpi_buf *buf, const struct worker_status *worker);

/* Read the next worker of *@text, which has *@left bytes; false: the end. Both are advanced. */
bool worker_status_next(const char **text, size_t *left, struct worker_status *ret);

#endif
