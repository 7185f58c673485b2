/*
 * warm_process.h - the warm process: one idle process of Python that has imported what the workers
 * import, and from which they are forked after a restart (--preload). Most of the start of a
 * PyTorch worker is that import.
 *
 *     ABSENT --begin--> STARTING --spawned--> IMPORTING --imported--> READY
 *       ^                   |                   |   |                   |
 *       |                 fails               fails ends             ends, or fails to fork
 *       |                   v                   v   v                   v
 *       |                REFUSED <--------------+   ENDING <------------+
 *       +------------reaped, handle closed------------+
 *
 * It is a child of the agent with a session of its own, and the sweep at the end of a generation
 * spares it. Its failure costs a cold start, nothing else: one that ends is replaced when the next
 * generation runs; one whose imports fail is not.
 */
#ifndef DAEMON_WARM_PROCESS_H
#define DAEMON_WARM_PROCESS_H

#include "sm.h"
#include "spawner.h"

#include <uv.h>

#define WARM_STATES(X)                                                                \
    X(WARM, ABSENT, DDPI_SM_TO(WARM_STARTING), DDPI_SM_INITIAL)                       \
    X(WARM, STARTING, DDPI_SM_TO(WARM_IMPORTING) | DDPI_SM_TO(WARM_REFUSED), 0)       \
    X(WARM, IMPORTING,                                                                \
      DDPI_SM_TO(WARM_READY) | DDPI_SM_TO(WARM_ENDING) | DDPI_SM_TO(WARM_REFUSED), 0) \
    X(WARM, READY, DDPI_SM_TO(WARM_ENDING), 0)                                        \
    X(WARM, ENDING, DDPI_SM_TO(WARM_ABSENT), 0)                                       \
    X(WARM, REFUSED, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(warm, WARM_STATES);

enum { WARM_NAMES_MAX = 256 };

/* Borrowed until the handles are closed. */
struct warm_config {
    const char *modules; /* "torch,numpy"; "auto": what the script imports; NULL: no process */
    const char *program; /* the interpreter */
    char *const *argv;   /* of a worker: interpreter, "-u", script, arguments */
    char *const *envp;   /* what all workers share */
    const char *own;     /* "RANK,LOCAL_RANK,": variables of which each worker has its own value */
    const struct rlimit *nofile; /* as of spawn_request */
};

struct warm_hooks {
    void *ctx;
    void (*say)(void *ctx, const char *line); /* to the console */
    void (*settled)(void *ctx);               /* children may be waited for again */
};

struct warm_process {
    struct ddpi_sm sm;
    struct warm_config config;
    struct warm_hooks hooks;
    uv_loop_t *loop;
    struct spawner spawner;
    struct spawner_task task;
    char **argv;                /* of the process that is being started */
    int null_fd, its_socket;    /* the same; -1: closed */
    int socket;                 /* to it; -1: closed */
    uv_poll_t news;             /* of @socket, until it has said how its imports went */
    bool polled;                /* @news is not closed yet */
    bool over;                  /* warm_process_end() was called */
    pid_t pid;                  /* 0: none, or not known yet */
    char names[WARM_NAMES_MAX]; /* of the modules it has imported */
    uint64_t import_ms;
};

/* Without modules the process is never begun. warm_process_close() follows, after a failure too. */
DDP_MUST_CHECK ddp_status warm_process_open(struct warm_process *warm, uv_loop_t *loop,
                                            const struct warm_config *config,
                                            const struct warm_hooks *hooks, struct ddp_error *err);

/* Start the process if it is wanted and ABSENT. Returns at once. What goes wrong is said. */
void warm_process_begin(struct warm_process *warm);

/* It has imported what it should, and workers can be forked from it. */
bool warm_process_is_ready(const struct warm_process *warm);

/* A duplicate of the socket to the READY process, for warm_fork_or_spawn(); the caller closes it.
 * 0: workers must be started without it. */
int warm_process_socket(const struct warm_process *warm);

/* A worker could not be forked because of @why: end the process. */
void warm_process_failed(struct warm_process *warm, const char *why);

/* Its pid, for the sweep to spare; 0: none. */
pid_t warm_process_pid(const struct warm_process *warm);

/* It is being started, and its pid is not known: do not wait for unknown children. */
bool warm_process_busy(const struct warm_process *warm);

/* waitpid() has returned @pid. Returns false if that is not the warm process. */
bool warm_process_exited(struct warm_process *warm, pid_t pid, int wait_status);

/* No worker will be started any more: kill it. */
void warm_process_end(struct warm_process *warm);

/* The handles close while the loop turns. */
void warm_process_close(struct warm_process *warm);

#endif
