/*
 * remote_agent.h - the agent of one host, from the remote shell that starts it to its end.
 *
 *     IDLE --start--> STARTING --it says hello--> RUNNING --exit--> ENDED --reset--> IDLE
 *                        +-----------exit, or it could not be started--^
 *
 * Its standard input is the leash (leash_text.h), its outputs are shown as they come. What it
 * writes to stderr before its hello is kept for the message about its failure: a hundred hosts may
 * fail for one reason.
 */
#ifndef CMD_REMOTE_AGENT_H
#define CMD_REMOTE_AGENT_H

#include "blacklist.h"
#include "host_list.h"
#include "logmux.h"
#include "sm.h"
#include "spawner.h"

#define REMOTE_STATES(X)                                                          \
    X(REMOTE, IDLE, DDPI_SM_TO(REMOTE_STARTING), DDPI_SM_INITIAL)                 \
    X(REMOTE, STARTING, DDPI_SM_TO(REMOTE_RUNNING) | DDPI_SM_TO(REMOTE_ENDED), 0) \
    X(REMOTE, RUNNING, DDPI_SM_TO(REMOTE_ENDED), 0)                               \
    X(REMOTE, ENDED, DDPI_SM_TO(REMOTE_IDLE), DDPI_SM_FINAL)

DDPI_SM_DECLARE(remote, REMOTE_STATES);

struct remote_agent;

/* Called from the loop. */
struct remote_hooks {
    void (*ready)(void *ctx, struct remote_agent *agent); /* it has said hello */
    /* Its remote shell has ended; what it wrote may still come. */
    void (*exited)(void *ctx, struct remote_agent *agent);
    void (*ended)(void *ctx, struct remote_agent *agent); /* nothing of it is left; may reset it */
    void *ctx;
};

struct remote_agent {
    struct ddpi_sm sm;
    struct host_entry host;
    struct blacklist_entry blacklist; /* the caller's */
    bool listed;                      /* the caller's: the host is wanted ... */
    bool drained;                     /* ... but was drained since it was listed */
    const struct remote_hooks *hooks;
    uv_loop_t *loop;
    struct logmux *mux;
    struct spawner *spawner;
    struct spawner_task task;
    char **argv;
    char *const *envp;
    uv_pipe_t leash; /* writes to its standard input */
    uv_poll_t exit_watch;
    uv_timer_t deadline; /* until it says hello; later until pipes of an ended process close */
    struct logmux_stream streams[2];
    char hello[64]; /* the line that is being read */
    size_t hello_len;
    char version[32]; /* what it has said */
    int pidfd;
    pid_t pid;
    int wait_status;
    uint64_t started_ms;
    unsigned handles; /* open ones of the four above */
    bool leash_open, exited;
    uint64_t timeout_ms;    /* until it says hello */
    bool late;              /* it has not in that time */
    bool ending;            /* given up, or late: a hello that comes now means nothing */
    bool stopping;          /* the caller's: its end is no failure */
    bool noted;             /* the caller's: it has been said that the host is lost */
    struct ddp_error error; /* why it could not be started; msg "": it was */
};

void remote_agent_init(struct remote_agent *agent, const struct host_entry *host, uv_loop_t *loop,
                       struct logmux *mux, struct spawner *spawner,
                       const struct remote_hooks *hooks);

/* Start it with @argv, which now belongs to the agent (freed with ddpi_free()), and with the limit
 * on open files @nofile; write @greeting to its leash. hooks->ended() follows if it fails, or if
 * there is no hello within @timeout_ms. */
void remote_agent_start(struct remote_agent *agent, char **argv, char *const *envp,
                        const struct rlimit *nofile, const struct ddpi_buf *greeting,
                        uint64_t timeout_ms);

/* The task of the spawner is done; for its callback. */
void remote_agent_spawned(struct spawner_task *task);

/* A stream of the mux has ended: perhaps one of this agent. */
void remote_agent_check(struct remote_agent *agent);

/* It is no longer wanted, and has not said hello: let go of its leash, at which it ends, and kill a
 * remote shell that does not. */
void remote_agent_give_up(struct remote_agent *agent);

/* Pass a signal on; let go of the leash, so that the agent ends its job; kill the local process. */
void remote_agent_signal(struct remote_agent *agent, int sig);
void remote_agent_let_go(struct remote_agent *agent);
void remote_agent_kill(struct remote_agent *agent);

bool remote_agent_is_up(const struct remote_agent *agent); /* STARTING or RUNNING */

/* After its end: its exit code, 128+N for a signal; and why it ended, as a clause with what it last
 * wrote: "exit code 255, after 0.2 s". */
int remote_agent_code(const struct remote_agent *agent);
void remote_agent_describe(const struct remote_agent *agent, char *text, size_t size);

/* The last lines of its stderr, each after "  | ", shown on the console. */
void remote_agent_show_tail(const struct remote_agent *agent);

/* From ENDED to IDLE. */
void remote_agent_reset(struct remote_agent *agent);

#endif
