/*
 * agent_state.h - the state that the agent's files share, and questions about it. agent.h has the
 * diagram of the states. For the files of the agent alone: everybody else calls agent.h.
 */
#ifndef DAEMON_AGENT_STATE_H
#define DAEMON_AGENT_STATE_H

#include "agent_config.h"
#include "death_watch.h"
#include "gpu_watch.h"
#include "member.h"
#include "node_check.h"
#include "oom_kills.h"
#include "pmi.h"
#include "pmix_host.h"
#include "sigwatch.h"
#include "watchdog.h"
#include "worker_starter.h"

#define AGENT_STATES(X)                                                                        \
    X(AGENT, IDLE,                                                                             \
      DDPI_SM_TO(AGENT_STARTING) | DDPI_SM_TO(AGENT_CHECKING) | DDPI_SM_TO(AGENT_FLUSHING),    \
      DDPI_SM_INITIAL)                                                                         \
    X(AGENT, STARTING,                                                                         \
      DDPI_SM_TO(AGENT_RUNNING) | DDPI_SM_TO(AGENT_STOPPING) | DDPI_SM_TO(AGENT_SWEEPING), 0)  \
    X(AGENT, RUNNING,                                                                          \
      DDPI_SM_TO(AGENT_STOPPING) | DDPI_SM_TO(AGENT_SETTLING) | DDPI_SM_TO(AGENT_SWEEPING), 0) \
    X(AGENT, STOPPING, DDPI_SM_TO(AGENT_SETTLING) | DDPI_SM_TO(AGENT_SWEEPING), 0)             \
    X(AGENT, SETTLING, DDPI_SM_TO(AGENT_SWEEPING), 0)                                          \
    X(AGENT, SWEEPING, DDPI_SM_TO(AGENT_DRAINING), 0)                                          \
    X(AGENT, DRAINING, DDPI_SM_TO(AGENT_IDLE), 0)                                              \
    X(AGENT, CHECKING, DDPI_SM_TO(AGENT_CLEARING), 0)                                          \
    X(AGENT, CLEARING, DDPI_SM_TO(AGENT_IDLE), 0)                                              \
    X(AGENT, FLUSHING, DDPI_SM_TO(AGENT_DONE), 0)                                              \
    X(AGENT, DONE, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(agent, AGENT_STATES);

/* Why the generation ends. */
enum agent_cause {
    AGENT_CAUSE_NONE,   /* every worker has ended with exit code 0 so far */
    AGENT_CAUSE_WORKER, /* a worker failed */
    AGENT_CAUSE_ORDER,  /* agent_stop() */
    AGENT_CAUSE_SIGNAL, /* the user or the scheduler ends the job */
    AGENT_CAUSE_START,  /* a worker could not be started */
    AGENT_CAUSE_GUARD,  /* the guard was killed */
    AGENT_CAUSE_STUCK,  /* a process could not be killed */
};

/* Called from the loop, or from within agent_run() and agent_stop(). */
struct agent_hooks {
    void *ctx;
    /* All workers run. */
    void (*started)(void *ctx);
    /* A worker has ended, or the workers have been asked to end. */
    void (*changed)(void *ctx);
    /* The first worker of this generation has failed, or cannot be started. The owner calls
     * agent_stop(). Called a second time when the exit code of a dying worker is known. */
    void (*failed)(void *ctx, const struct ddp_round_failure *failure);
    /* IDLE again: no process is left, and the report is written or queued. @well: all workers
     * ended by themselves, with exit code 0. */
    void (*ended)(void *ctx, bool well);
    /* IDLE again after agent_check(): why the node is not fit; "": it is. */
    void (*checked)(void *ctx, const char *why);
    /* This node must leave the job: a signal, a dead guard, a process that cannot be killed.
     * Called again with MEMBER_STOP_KILL when the signal is repeated. */
    void (*leave)(void *ctx, int exit_code, const char *why, enum member_stop how);
    /* DONE. */
    void (*done)(void *ctx, int exit_code);
};

struct agent {
    struct ddpi_sm sm;
    const struct agent_config *config;
    struct agent_hooks hooks;
    uv_loop_t *loop;
    struct logmux mux;
    struct oom_kills oom;
    struct worker_starter starter;
    struct warm_process warm; /* from which workers may be forked */
    char **warm_envp, *warm_own;
    struct node_check check;
    struct death_watch death_watch;
    struct gpu_watch gpus;
    struct pmi pmi;        /* serves the MPI programs of MPICH's family among the workers */
    struct pmix_host pmix; /* serves those of Open MPI */
    struct watchdog watchdog;
    struct worker_proc *workers; /* config->nproc of them, by local rank */
    struct ddp_round_seat seat;  /* of the current generation, or of the last one */
    uint32_t attempts;           /* generations that were started here */
    uint32_t alive;
    enum agent_cause cause;
    struct worker_proc *root;  /* first worker that failed */
    struct worker_proc *dying; /* seen dying before waitpid() could report it; else NULL */
    bool root_oom;             /* the kernel's out-of-memory killer ended @root */
    uint64_t oom_others;       /* processes that it ended before, and not @root */
    bool asked_helpers;        /* to end, or it is too late to ask */
    bool root_broken;          /* @root's program cannot run as it is; known at the report */
    char *error_copy;          /* the error file of @root; NULL: it left none */
    sigset_t held_signals;     /* to be forwarded when all workers run */
    int signal;                /* that ends the job */
    uint64_t signal_ms;        /* when @signal arrived */
    struct sigwatch signals;
    uv_poll_t guard;
    bool guard_open;
    pid_t *pids;      /* of the workers by local rank, for @gpus */
    uv_timer_t timer; /* RUNNING: later; STOPPING: grace; SETTLING, SWEEPING, CLEARING: next look;
                       * else: limit */
    uint64_t sweep_deadline_ms; /* of these looks */
    int exit_code;              /* of FLUSHING and DONE */
};

/* Keep the first cause, unless @cause makes it impossible to go on. */
void agent_set_cause(struct agent *agent, enum agent_cause cause);

/* Workers run or are being started, and none has been told to stop. */
bool agent_is_up(const struct agent *agent);

#endif
