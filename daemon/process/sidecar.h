/*
 * sidecar.h - a process that the guard runs beside the agent. The guard starts it again: one that
 * was killed at most once a second, and one that has ended by itself after a minute, as it is not
 * needed now, or cannot run now. Allocates nothing, as the guard must not.
 *
 *   NONE --> RUNNING --the first one fails within a minute--> FAILED: it cannot run here
 *             |  ^
 *             v  |
 *           WAITING, to be started again
 */
#ifndef DAEMON_SIDECAR_H
#define DAEMON_SIDECAR_H

#include "spawn.h"

#include <signal.h>

/* Tells it to end. No supervisor sends this to all processes of a job, as it does SIGTERM. */
enum { SIDECAR_END_SIGNAL = SIGPWR };

enum sidecar_state {
    SIDECAR_NONE,
    SIDECAR_RUNNING,
    SIDECAR_WAITING,
    SIDECAR_FAILED,
};

/* Zeroed, it is NONE. */
struct sidecar {
    const struct spawn_request *request; /* NULL: there is none to run */
    enum sidecar_state state;
    pid_t pid; /* RUNNING */
    int code;  /* FAILED: its exit code */
    uint64_t started_ms;
    uint64_t again_ms; /* WAITING: when to start it again */
    bool again;        /* it is not the first one */
};

/* Start it if it is time, at @now_ms of the monotonic clock. False: it cannot be started; @err says
 * why, and state is FAILED, or WAITING for another try. */
bool sidecar_run(struct sidecar *sidecar, uint64_t now_ms, struct ddp_error *err);

/* When to call sidecar_run(); UINT64_MAX: never. */
uint64_t sidecar_due_ms(const struct sidecar *sidecar);

/* A child was reaped, at @now_ms. */
void sidecar_reaped(struct sidecar *sidecar, pid_t pid, int wait_status, uint64_t now_ms);

/* Send a signal, if it runs. */
void sidecar_signal(const struct sidecar *sidecar, int signum);

#endif
