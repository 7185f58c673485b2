/*
 * agent.h - the agent of one node at work: it starts the workers of a generation, watches them,
 * ends them when it is told to or when nothing else is left to do, and says what happened. Whether
 * there is a generation to run at all is not its business: membership.h tells it.
 *
 *     IDLE --agent_run--> STARTING --all run--> RUNNING --agent_stop--> STOPPING (grace runs)
 *      ^                     | |                   |                       ^ | exited, grace over
 *      |                     | +--agent_stop-------(-----------------------+ |
 *      |                     |                     +--all exited             |
 *      |                     +--one cannot start---+--> SWEEPING <-----------+
 *      |                                                   | nothing is left below the agent
 *      +--pipes are empty, told-- DRAINING <---------------+
 *
 *     IDLE --agent_end--> FLUSHING --output read--> DONE
 *
 * In SWEEPING every process below the agent is killed, orphans of workers included: a generation
 * is over only when nothing of it runs, and, where GPUs are watched, when their memory is back.
 */
#ifndef DAEMON_AGENT_H
#define DAEMON_AGENT_H

#include "agent_config.h"
#include "death_watch.h"
#include "gpu_watch.h"
#include "logdir.h"
#include "member.h"
#include "oom_kills.h"
#include "pmi.h"
#include "sigwatch.h"
#include "watchdog.h"
#include "worker_proc.h"
#include "worker_starter.h"

#include <ddprun/status.h>

#define AGENT_STATES(X)                                                                       \
    X(AGENT, IDLE, DDPI_SM_TO(AGENT_STARTING) | DDPI_SM_TO(AGENT_FLUSHING), DDPI_SM_INITIAL)  \
    X(AGENT, STARTING,                                                                        \
      DDPI_SM_TO(AGENT_RUNNING) | DDPI_SM_TO(AGENT_STOPPING) | DDPI_SM_TO(AGENT_SWEEPING), 0) \
    X(AGENT, RUNNING, DDPI_SM_TO(AGENT_STOPPING) | DDPI_SM_TO(AGENT_SWEEPING), 0)             \
    X(AGENT, STOPPING, DDPI_SM_TO(AGENT_SWEEPING), 0)                                         \
    X(AGENT, SWEEPING, DDPI_SM_TO(AGENT_DRAINING), 0)                                         \
    X(AGENT, DRAINING, DDPI_SM_TO(AGENT_IDLE), 0)                                             \
    X(AGENT, FLUSHING, DDPI_SM_TO(AGENT_DONE), 0)                                             \
    X(AGENT, DONE, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(agent, AGENT_STATES);

/* Why the generation is ending. */
enum agent_cause {
    AGENT_CAUSE_NONE,   /* all is well */
    AGENT_CAUSE_WORKER, /* a worker failed */
    AGENT_CAUSE_ORDER,  /* agent_stop() */
    AGENT_CAUSE_SIGNAL, /* the user or the scheduler wants it */
    AGENT_CAUSE_START,  /* a worker could not be started */
    AGENT_CAUSE_GUARD,  /* the guard was killed */
    AGENT_CAUSE_STUCK,  /* some process could not be killed */
};

/* Who is told what; all of them from the loop, or from within agent_run() and agent_stop(). */
struct agent_hooks {
    void *ctx;
    /* All workers run. */
    void (*started)(void *ctx);
    /* A worker has ended, or they have been asked to. */
    void (*changed)(void *ctx);
    /* The first worker of this generation has failed, or cannot be started: stop them, please. */
    void (*failed)(void *ctx, const struct ddp_round_failure *failure);
    /* IDLE again: nothing is left, and what there was to say is said, or queued for whoever reads
     * it. @well: all ended by themselves, with exit code 0. */
    void (*ended)(void *ctx, bool well);
    /* This node must leave the job: a signal, a guard that is gone, a process that cannot be
     * killed. Told again, with KILL, by who is impatient. */
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
    struct death_watch death_watch;
    struct gpu_watch gpus;
    struct pmi pmi; /* what MPI programs among the workers ask */
    struct watchdog watchdog;
    struct worker_proc *workers;
    struct ddp_round_seat seat; /* of the generation that runs, or ran last */
    uint32_t attempts;          /* generations that were begun here */
    uint32_t alive;
    enum agent_cause cause;
    struct worker_proc *root;  /* first worker that failed */
    struct worker_proc *dying; /* it will be: told before it could be waited for */
    bool root_oom;
    char *error_copy;      /* what @root has recorded; NULL: nothing */
    sigset_t held_signals; /* to be forwarded when all workers run */
    int signal;            /* that ends the job */
    uint64_t signal_ms;    /* when it came first */
    struct sigwatch signals;
    uv_poll_t guard;
    bool guard_open;
    pid_t *pids;      /* of the workers by local rank, for @gpus */
    uv_timer_t timer; /* grace in STOPPING; look again in SWEEPING; give up in DRAINING */
    uint64_t sweep_deadline_ms;
    int exit_code; /* of FLUSHING and DONE */
};

/* Prepare, without starting anything. On failure, too, agent_close() and agent_finish() follow. */
DDP_MUST_CHECK ddp_status agent_init(struct agent *agent, uv_loop_t *loop,
                                     const struct agent_config *config,
                                     const struct agent_hooks *hooks, struct ddp_error *err);

/* IDLE: start the workers of @seat, which takes its time: the loop turns meanwhile. */
void agent_run(struct agent *agent, const struct ddp_round_seat *seat);

/* End what runs. While that goes on already: no later than so. */
void agent_stop(struct agent *agent, enum member_stop how);

/* IDLE: done() follows, when all output has been taken. */
void agent_end(struct agent *agent, int exit_code);

/* After done(): close the handles; agent_finish() once the loop has turned. */
void agent_close(struct agent *agent);
void agent_finish(struct agent *agent);

#endif
