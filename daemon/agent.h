/*
 * agent.h - the agent of one node: it starts the workers, watches them, ends all when one fails,
 * starts them again while the budget lasts, and says what happened.
 *
 *     STARTING --all run--> RUNNING --failure, signal--> STOPPING (asked to stop, grace runs)
 *        |                     |                            |
 *        |                     +--all exited, guard gone--> | all exited, or grace over
 *        +--one cannot start--------> SWEEPING <------------+
 *                                         | nothing is left below the agent
 *                                         v
 *                                     DRAINING --restart--> STARTING
 *                                         | output written
 *                                         v
 *                                        DONE
 *
 * In SWEEPING every process below the agent is killed, orphans of workers included: a generation
 * starts only when nothing of the one before runs.
 */
#ifndef DAEMON_AGENT_H
#define DAEMON_AGENT_H

#include "agent_config.h"
#include "logdir.h"
#include "oom.h"
#include "worker_proc.h"

#include <ddprun/status.h>

#define AGENT_STATES(X)                                                                         \
    X(AGENT, STARTING, DDPI_SM_TO(AGENT_RUNNING) | DDPI_SM_TO(AGENT_SWEEPING), DDPI_SM_INITIAL) \
    X(AGENT, RUNNING, DDPI_SM_TO(AGENT_STOPPING) | DDPI_SM_TO(AGENT_SWEEPING), 0)               \
    X(AGENT, STOPPING, DDPI_SM_TO(AGENT_SWEEPING), 0)                                           \
    X(AGENT, SWEEPING, DDPI_SM_TO(AGENT_DRAINING), 0)                                           \
    X(AGENT, DRAINING, DDPI_SM_TO(AGENT_STARTING) | DDPI_SM_TO(AGENT_DONE), 0)                  \
    X(AGENT, DONE, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(agent, AGENT_STATES);

/* Why the generation is ending. */
enum agent_cause {
    AGENT_CAUSE_NONE,   /* all is well */
    AGENT_CAUSE_WORKER, /* a worker failed */
    AGENT_CAUSE_SIGNAL, /* the user or the scheduler wants it */
    AGENT_CAUSE_START,  /* a worker could not be started */
    AGENT_CAUSE_GUARD,  /* the guard was killed */
    AGENT_CAUSE_STUCK,  /* some process could not be killed */
};

struct agent {
    struct ddpi_sm sm;
    const struct agent_config *config;
    uv_loop_t *loop;
    struct logmux mux;
    struct oom_watch oom;
    struct worker_proc *workers;
    uint32_t alive;
    uint32_t restarts;
    enum agent_cause cause;
    struct worker_proc *root; /* first worker that failed */
    bool root_oom;
    int signal;             /* that ends the job */
    uint64_t signal_ms;     /* when it came first */
    struct ddp_error error; /* of AGENT_CAUSE_START */
    uv_signal_t signals[NSIG];
    bool signal_open[NSIG];
    uv_poll_t guard;
    bool guard_open;
    uv_timer_t timer; /* grace in STOPPING; look again in SWEEPING; give up in DRAINING */
    uint64_t sweep_deadline_ms;
    bool reported;
    int exit_code;
    /* A new generation is about to start: the keyspaces before it are of no use any more. */
    void (*new_generation)(void *ctx, uint32_t generation);
    /* DONE has been reached; exit_code is final. */
    void (*done)(void *ctx, int exit_code);
    void *ctx;
};

/* Prepare, without starting anything. On failure, too, agent_close() and agent_finish() follow. */
DDP_MUST_CHECK ddp_status agent_init(struct agent *agent, uv_loop_t *loop,
                                     const struct agent_config *config, struct ddp_error *err);

/* Start the workers. From here on the agent runs by itself until it calls done(). */
void agent_start(struct agent *agent);

/* After done(): close the handles; agent_finish() once the loop has turned. */
void agent_close(struct agent *agent);
void agent_finish(struct agent *agent);

#endif
