/*
 * node_check.h - runs the command of --node-check, which finds out whether this node is fit for
 * workers: a shell in a session of its own, whose time is limited, and whose last lines of output
 * are kept for the report.
 *
 *     IDLE --begin--> STARTING --spawned--> RUNNING --its time is over--> STOPPING (SIGTERM sent)
 *       ^                |                   |    |                          | grace is over:
 *       |             cannot              exits  end                         | SIGKILL; exits; end
 *       |                v                   v    v                          |
 *       +--swept------ CLEARING <------------+----+--------------------------+
 *
 * CLEARING: the shell is gone, or was killed. What is left below the agent must not outlive the
 * check: the agent, which waits for all its children and can kill them all, sweeps, and tells when
 * nothing is left.
 */
#ifndef DAEMON_NODE_CHECK_H
#define DAEMON_NODE_CHECK_H

#include "logmux.h"
#include "sm.h"
#include "spawner.h"

#include <uv.h>

#define NODE_CHECK_STATES(X)                                                                     \
    X(NODE_CHECK, IDLE, DDPI_SM_TO(NODE_CHECK_STARTING), DDPI_SM_INITIAL)                        \
    X(NODE_CHECK, STARTING, DDPI_SM_TO(NODE_CHECK_RUNNING) | DDPI_SM_TO(NODE_CHECK_CLEARING), 0) \
    X(NODE_CHECK, RUNNING, DDPI_SM_TO(NODE_CHECK_STOPPING) | DDPI_SM_TO(NODE_CHECK_CLEARING), 0) \
    X(NODE_CHECK, STOPPING, DDPI_SM_TO(NODE_CHECK_CLEARING), 0)                                  \
    X(NODE_CHECK, CLEARING, DDPI_SM_TO(NODE_CHECK_IDLE), 0)

DDPI_SM_DECLARE(node_check, NODE_CHECK_STATES);

enum { NODE_CHECK_WHY_MAX = 256 };

/* Borrowed until the handles are closed. */
struct node_check_config {
    const char *command; /* NULL: there is no check */
    uint64_t timeout_ms;
    uint64_t grace_ms; /* between SIGTERM and SIGKILL */
    char *const *envp;
    const char *node; /* DDPRUN_NODE_NAME */
    const char *job;  /* TORCHELASTIC_RUN_ID, as for workers */
    int cgroup_fd;    /* as of spawn_request */
    const struct rlimit *nofile;
};

struct node_check_hooks {
    void *ctx;
    /* It is CLEARING now, or the shell runs: children may be waited for again. */
    void (*settled)(void *ctx);
};

struct node_check {
    struct ddpi_sm sm;
    struct node_check_config config;
    struct node_check_hooks hooks;
    struct logmux *mux;
    struct logmux_stream output; /* of the shell and its children, both streams */
    struct spawner spawner;
    struct spawner_task task;
    uv_timer_t timer; /* RUNNING: its time; STOPPING: grace; CLEARING: settled() is due */
    char *argv[4];
    char **envp;  /* while it is started, with @own */
    char *own[3]; /* the variables that are ours */
    int null_fd, out_fd;
    pid_t pid; /* 0: not known, or reaped */
    int wait_status;
    uint64_t began_us, ended_us;
    bool exited; /* by itself: @wait_status tells how */
    bool timed_out;
    bool unwanted; /* node_check_end() was called */
    bool opened;
};

/* node_check_close() follows, also after a failure. */
DDP_MUST_CHECK ddp_status node_check_open(struct node_check *check, uv_loop_t *loop,
                                          const struct node_check_config *config,
                                          struct logmux *mux, const struct node_check_hooks *hooks,
                                          struct ddp_error *err);

/* IDLE: begin, after @generation has ended here (0: none has). Returns at once; no hook is called
 * from within. */
void node_check_begin(struct node_check *check, uint64_t generation);

/* Nobody wants to know the result: kill the shell. */
void node_check_end(struct node_check *check);

/* It is being started, and its pid is not known: do not wait for unknown children. */
bool node_check_busy(const struct node_check *check);

/* waitpid() has returned @pid. Returns false if that is not the shell. */
bool node_check_exited(struct node_check *check, pid_t pid, int wait_status);

/* CLEARING: nothing is left of it, or @stuck: something cannot be killed. IDLE again: why the node
 * is not fit goes to @why, "" if it is, and the report to the console. */
void node_check_swept(struct node_check *check, bool stuck, char why[NODE_CHECK_WHY_MAX]);

/* The handles close while the loop turns. */
void node_check_close(struct node_check *check);

#endif
