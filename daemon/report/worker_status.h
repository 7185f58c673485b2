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

enum { DESCRIBE_LINE_MAX = 96 };

enum describe_state { DESCRIBE_RUNNING, DESCRIBE_STOPPING, DESCRIBE_EXITED, DESCRIBE_KILLED };

struct describe_worker {
    uint32_t local_rank;
    uint32_t rank;
    int32_t pid;
    enum describe_state state;
    uint8_t exit_code;        /* EXITED */
    char signal[SIGNAME_MAX]; /* KILLED: by its name */
};

/* "running", ... */
const char *describe_state_name(enum describe_state state);

/* Append the line of @worker, the whole or nothing. */
bool describe_put(struct ddpi_buf *buf, const struct describe_worker *worker);

/* Walk the lines of @text, of which *@left bytes are left: the next worker, or false at the end. */
bool describe_next(const char **text, size_t *left, struct describe_worker *ret);

#endif
