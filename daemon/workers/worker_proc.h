/*
 * worker_proc.h - one worker process: its state, its exit, its output.
 *
 *                        +---------------kill-----------------------+
 *                        |                                          v
 *     IDLE --start--> RUNNING --stop--> STOPPING --grace over--> KILLING
 *                        |                 |                        |
 *                        +-----------------+-------> EXITED <-------+
 *
 * The same struct serves each generation: worker_proc_reset() takes it from EXITED to IDLE.
 */
#ifndef DAEMON_WORKER_PROC_H
#define DAEMON_WORKER_PROC_H

#include "logmux.h"
#include "main_program.h"
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

struct worker_watch {
    uv_poll_t poll; /* of @fd */
    int fd;         /* a pidfd; -1: none */
    bool open;
};

struct worker_proc {
    struct ddpi_sm sm;
    uint32_t local_rank;
    uint32_t rank;
    pid_t pid;
    int wait_status;     /* valid once EXITED */
    int aborts_with;     /* exit code given to MPI_Abort, for which it was killed; 0: none */
    unsigned stopped_in; /* its state when it ended: shows whether it ended by itself */
    bool dying;          /* the kernel is ending it: a stop no longer changes its state */
    uint64_t started_us;
    uint64_t ended_us;
    struct logmux_stream streams[2];
    struct tail output; /* the end of both streams, for a page; empty without one */
    char *prefix;
    char *error_file;               /* "": none; never NULL once started */
    char *log_files[2];             /* of stdout and stderr; NULL: none */
    struct worker_watch exit_watch; /* of the process */
    struct worker_watch main_watch; /* of another main program, while it stops */
    bool main_ended;                /* that one has ended, and the rest was told to end */
    void (*exit_ready)(struct worker_proc *worker); /* waitpid() will succeed */
    void (*main_over)(struct worker_proc *worker);  /* @main_ended has become true */
    void (*unwatched)(struct worker_proc *worker);  /* the handles are closed: reset is allowed */
    void *data;                                     /* the owner's */
};

void worker_proc_init(struct worker_proc *worker, uint32_t local_rank);

/* @child is this worker's process: watch for its end. exit_ready() is called in the order of the
 * exits, however late the loop looks: the kernel queues ready descriptors. */
DDP_MUST_CHECK ddp_status worker_proc_started(struct worker_proc *worker, uv_loop_t *loop,
                                              const struct spawn_child *child, uint64_t now_us,
                                              struct ddp_error *err);

/* Send @sig to the worker if it runs. stop() moves it to STOPPING, or to KILLING for SIGKILL, lets
 * stopped processes go on, and sends SIGTERM to the group when the main program has ended; signal()
 * leaves the state as it is. */
void worker_proc_stop(struct worker_proc *worker, int sig, enum signal_scope scope);
void worker_proc_signal(const struct worker_proc *worker, int sig, enum signal_scope scope);

/* waitpid() has returned @wait_status. */
void worker_proc_exited(struct worker_proc *worker, int wait_status, uint64_t now_us);

/* Close the handles of a worker that cannot be waited for. worker_proc_exited() does it too. */
void worker_proc_unwatch(struct worker_proc *worker);

bool worker_proc_alive(const struct worker_proc *worker);

/* A handle is not closed yet. */
bool worker_proc_watched(const struct worker_proc *worker);

/* It has ended, and not with exit code 0. */
bool worker_proc_failed(const struct worker_proc *worker);

/* Its process, or its main program behind that, is stopped: by SIGSTOP, for example. */
bool worker_proc_is_stopped(const struct worker_proc *worker);

/* The worker's published status; false: it has not been started. */
bool worker_proc_describe(const struct worker_proc *worker, struct worker_status *ret);

/* Its exit code, or 128+N for signal N, as a shell has it. */
int worker_proc_exit_code(const struct worker_proc *worker);

/* Drop what belongs to one generation. Streams must have ended and the handle must be closed. */
void worker_proc_reset(struct worker_proc *worker);

#endif
