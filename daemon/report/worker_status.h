/*
 * worker_status.h - what a node tells people of its workers, as text: a line each,
 *
 *     LOCAL_RANK RANK PID running | stopping | exited CODE | killed SIGNAL
 *
 * Pure. Written here, carried by the rounds as it is, and read by who looks at a job, for whom it
 * is a stranger's text: what is no such line is passed over.
 */
#ifndef DAEMON_WORKER_STATUS_H
#define DAEMON_WORKER_STATUS_H

#include "buf.h"
#include "signames.h"

enum { WORKER_STATUS_LINE_MAX = 96 };

enum worker_status_state {
    WORKER_STATUS_RUNNING,
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
    char signal[SIGNAME_MAX]; /* KILLED: by its name */
};

/* "running", ... */
const char *worker_status_state_name(enum worker_status_state state);

/* Append the line of @worker, the whole or nothing. */
bool worker_status_put(struct ddpi_buf *buf, const struct worker_status *worker);

/* Walk the lines of @text, of which *@left bytes are left: the next worker, or false at the end. */
bool worker_status_next(const char **text, size_t *left, struct worker_status *ret);

#endif
