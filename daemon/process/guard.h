/*
 * guard.h - the process above the agent that ends everything when the agent is gone.
 *
 * Nothing inside the agent can clean up after a SIGKILL of the agent, so ddprun splits in two
 * before it starts a process or opens a socket. The guard is the process that the user started: it
 * forwards signals to the agent, waits for it, and passes its exit status on. When the agent dies
 * of anything but its own exit, the guard kills all that the agent left behind; as a subreaper it
 * has inherited every one of them. When the guard dies, the agent sees the end of a socket and ends
 * the job; if it was stopped, the kernel continues it for that.
 *
 * Two things it does for an agent that has a store: it holds a duplicate of the connection, so that
 * this is closed only when nothing of the job runs any more, which is what its end tells the store;
 * and it ends the workers of an agent that was itself stopped for too long, before the store gives
 * their ranks away.
 *
 * Nothing holds up the guard: what it cannot write at once to stderr it does not say.
 *
 * The agent gets a process group of its own: Ctrl-C then reaches the guard alone and is counted
 * once, and a SIGKILL to the shell's job leaves the agent alive to clean up.
 */
#ifndef DAEMON_GUARD_H
#define DAEMON_GUARD_H

#include <ddprun/status.h>
#include <stdatomic.h>
#include <stdint.h>

struct cgroup;

struct guard_agent {
    int guard_fd; /* reads end-of-file once the guard is gone; owned by the agent */
    _Atomic uint64_t *fence_at_ms; /* shared: guard_set_fence() */
};

/* What the guard does last, whichever way the agent has ended. */
struct guard_farewell {
    void (*clean_up)(void *ctx); /* NULL: nothing */
    void *ctx;
    const struct cgroup *cgroup; /* in which the workers are, made before the split; NULL: none */
};

/* From here on signals wait for guard and agent. To be called before anything is made that the
 * farewell has to clean up; guard_split() does it otherwise. */
void guard_hold_signals(void);

/*
 * Split off the agent. Returns DDP_OK in the agent only, with @ret_agent filled; in the guard it
 * does not return: that process ends with the agent's exit code, or 128+N when signal N killed the
 * agent. On failure there was no split. Signals stay blocked in the agent, so that none is lost:
 * once its handlers stand it unblocks them all, whatever the caller of ddprun had blocked, as a job
 * must be possible to end.
 */
DDP_MUST_CHECK ddp_status guard_split(const struct guard_farewell *farewell,
                                      struct guard_agent *ret_agent, struct ddp_error *err);

/* In the agent: have the guard hold a duplicate of @socket from now on, in the place of the one
 * before. Without effect when the guard is gone. */
void guard_hold_socket(const struct guard_agent *guard, int socket);

/* In the agent: at @at_ms of the monotonic clock the guard ends all workers, unless it is put off
 * before; 0: never. */
void guard_set_fence(const struct guard_agent *guard, uint64_t at_ms);

#endif
