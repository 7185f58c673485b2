/*
 * guard.h - the process above the agent that ends everything when the agent is gone.
 *
 * After a SIGKILL the agent cannot clean up, so ddprun splits in two before it starts a process or
 * opens a socket. The guard is the process that the user started: it forwards signals to the agent,
 * waits for it, and exits with its exit status. When a signal kills the agent, the guard kills
 * every process that the agent left; as a subreaper it has inherited them all. When the guard dies,
 * the agent sees the end of a socket and ends the job; a stopped agent is continued by the kernel.
 *
 * For an agent with a store the guard does two things more. It holds a duplicate of the connection,
 * so that the connection closes, and the store learns of the end, only when no process of the job
 * runs any more. And if the agent itself is stopped for too long, the guard kills its workers
 * before the store gives their ranks away.
 *
 * The guard may run one more process, the sidecar, which is neither the agent's nor a worker: what
 * ends those leaves it alone.
 *
 * The guard never blocks on stderr: it drops what it cannot write at once.
 *
 * The agent gets a process group of its own. So Ctrl-C reaches the guard alone and counts once, and
 * a SIGKILL to the shell's job leaves the agent alive to clean up.
 */
#ifndef DAEMON_GUARD_H
#define DAEMON_GUARD_H

#include <ddprun/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cgroup;
struct spawn_request;

/* Memory that guard and agent share. */
struct guard_page {
    _Atomic uint64_t fence_at_ms; /* guard_set_fence() */
    _Atomic uint64_t sidecar_ms;  /* guard_keep_sidecar() */
    atomic_bool sidecar_failed;   /* guard_sidecar_failed() */
};

struct guard_agent {
    int guard_fd; /* reads end-of-file when the guard is dead; owned by the agent */
    struct guard_page *page;
};

/* What the guard does in its own process: first forget what only the agent needs, secrets above
 * all, and last clean up, however the agent ended. */
struct guard_duties {
    void (*forget)(void *ctx);   /* NULL: nothing */
    void (*clean_up)(void *ctx); /* NULL: nothing */
    void *ctx;
    const struct cgroup *cgroup; /* of the workers, made before the split; NULL: none */
    /* A process to run beside the agent (sidecar.h), started as soon as there is an agent; NULL:
     * none. Where it cannot run, the agent gets SIGTERM, and the guard exits with its exit code. */
    const struct spawn_request *sidecar;
};

/* Block signals until guard and agent handle them. Call it before anything is made that the guard
 * has to clean up; guard_split() does it otherwise. */
void guard_hold_signals(void);

/*
 * Split off the agent. Returns DDP_OK in the agent only, with @ret_agent filled; in the guard it
 * does not return: that process exits with the agent's exit code, or 128+N when signal N killed the
 * agent. On failure there was no split. Signals stay blocked in the agent, so that none is lost:
 * once its handlers are installed it unblocks all of them, even those that the caller of ddprun had
 * blocked, so that a job can always be ended.
 */
DDP_MUST_CHECK ddp_status guard_split(const struct guard_duties *duties,
                                      struct guard_agent *ret_agent, struct ddp_error *err);

/* In the agent, when no other process of the job is left: the death of the guard sends no signal
 * any more. A leak checker that stops this process at its exit would wait for ever if SIGCONT took
 * its stop away. */
void guard_is_needless(void);

/* In the agent: let the guard hold a duplicate of @socket, in place of an earlier one. No effect
 * when the guard is dead. */
void guard_hold_socket(const struct guard_agent *guard, int socket);

/* In the agent: let the guard kill all workers at @at_ms of the monotonic clock, unless a later
 * call sets another time; 0: never. */
void guard_set_fence(const struct guard_agent *guard, uint64_t at_ms);

/* In the agent: let the sidecar go on for @ms after the agent, unless it ends before; 0: not at
 * all, as when the agent is killed; GUARD_SIDECAR_STAYS: until it ends. The guard stays with it. A
 * signal that ends programs ends it then. */
#define GUARD_SIDECAR_STAYS UINT64_MAX
void guard_keep_sidecar(const struct guard_agent *guard, uint64_t ms);

/* In the agent: whether the sidecar cannot run here, so that SIGTERM came from the guard. */
bool guard_sidecar_failed(const struct guard_agent *guard);

#endif
