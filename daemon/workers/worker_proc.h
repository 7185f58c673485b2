/*
 * worker_proc.h - one worker process: its machine, its exit, its output.
 *
 *                        +---------------kill-----------------------+
 *                        |                                          v
 *     IDLE --start--> RUNNING --stop--> STOPPING --grace over--> KILLING
 *                        |                 |                        |
 *                        +-----------------+-------> EXITED <-------+
 *
 * A worker is used again for each generation: worker_proc_reset() takes it from EXITED to IDLE.
 */
#ifndef DAEMON_WORKER_PROC_H
#define DAEMON_WORKER_PROC_H

#include "logmux.h"
#include "sm.h"
#include "spawn.h"
#include "worker_status.h"

#define WORKER_STATES(X)                                                                       \
    X(WORKER, IDLE, DDPI_SM_TO(WORKER_RUNNING), DDPI_SM_INITIAL)                               \
    X(WORKER, RUNNING,                                                                         \
      DDPI_SM_TO(WORKER_STOPPING) | DDPI_SM_TO(WORKER_KILLING) | DDPI_SM_TO(WORKER_EXITED), 0) \
    X(WORKER, STOPPING, DDPI_SM_TO(WORKER_KILLING) | DDPI_SM_TO(WORKER_EXITED), 0)             \
    X(WORKER, KILLING, DDPI_SM_TO(WORKER_EXITED), 0)                                           \
    X(WORKER, EXITED, DDPI_SM_TO(WORKER_IDLE), DDPI_SM_FINAL)

DDPI_SM_DECLARE(worker, WORKER_STATES);

struct worker_proc {
    struct ddpi_sm sm;
    uint32_t local_rank;
    uint32_t rank;
    pid_t pid;
    int wait_status; /* valid once EXITED */
    int aborts_with; /* exit code that it was killed for: it has called MPI_Abort; 0: it has not */
    unsigned stopped_in; /* state in which it was when it ended: by itself, or by us */
    bool dying;          /* the kernel is ending it: nobody stops it any more */
    uint64_t started_us;
    uint64_t ended_us;
    struct logmux_stream streams[2];
    char *prefix;
    char *error_file;   /* may be empty, never NULL once started */
    char *log_files[2]; /* NULL: that stream has no file */
    uv_poll_t exit_watch;
    int pidfd;
    bool watched;
    void (*exit_ready)(struct worker_proc *worker); /* it is dead and can be waited for */
    void (*unwatched)(struct worker_proc *worker);  /* its handle is closed: reset is allowed */
    void *data;                                     /* the owner's */
};

void worker_proc_init(struct worker_proc *worker, uint32_t local_rank, uint32_t rank);

/* The process behind @child is this worker: watch for its end. Exits are told in the order in
 * which they happened, however late the loop gets to them: the kernel queues ready descriptors. */
DDP_MUST_CHECK ddp_status worker_proc_started(struct worker_proc *worker, uv_loop_t *loop,
                                              const struct spawn_child *child, uint64_t now_us,
                                              struct ddp_error *err);

/* Send @sig to the worker's process group, as a request to stop or (SIGKILL) as its end; without
 * a move, just forward it. No effect unless it runs. */
void worker_proc_stop(struct worker_proc *worker, int sig);
void worker_proc_forward(const struct worker_proc *worker, int sig);

/* It has been waited for. */
void worker_proc_exited(struct worker_proc *worker, int wait_status, uint64_t now_us);

/* Close the handle of a worker that cannot be waited for; after an exit that happens by itself. */
void worker_proc_unwatch(struct worker_proc *worker);

bool worker_proc_alive(const struct worker_proc *worker);

/* Ended with anything but exit code 0. */
bool worker_proc_failed(const struct worker_proc *worker);

/* It as people are told of it; false: it has not been started. */
bool worker_proc_describe(const struct worker_proc *worker, struct worker_status *ret);

/* Exit code for a shell: its own, or 128+N for signal N. */
int worker_proc_exit_code(const struct worker_proc *worker);

/* Drop all that belongs to one generation. Its streams must have ended, its
 * handle must be closed. */
void worker_proc_reset(struct worker_proc *worker);

#endif
