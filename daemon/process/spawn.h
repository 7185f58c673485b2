/*
 * spawn.h - the one place where a process is started.
 *
 * A worker is born by clone(CLONE_VM | CLONE_VFORK | CLONE_PIDFD): as fast as posix_spawn however
 * large the agent is, but with room between clone and exec for what posix_spawn cannot do. It gets
 * a session of its own, dies with the thread that made it (PR_SET_PDEATHSIG, a second belt only:
 * see guard.h), has no descriptor but 0 to 2, the key, the life page and the PMI socket it may be
 * given, every signal at its default and none blocked.
 */
#ifndef DAEMON_SPAWN_H
#define DAEMON_SPAWN_H

#include <ddprun/status.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { SPAWN_KEY_FD = 3, SPAWN_LIFE_FD, SPAWN_PMI_FD, SPAWN_FREE_FD };

struct spawn_request {
    const char *path;            /* no search in PATH */
    char *const *argv;           /* NULL-terminated */
    char *const *envp;           /* NULL-terminated */
    int stdio[3];                /* descriptors that become 0, 1 and 2; each is i or above 2 */
    int key_fd;                  /* becomes SPAWN_KEY_FD, for the worker to read; 0: none */
    int cgroup_fd;               /* of a cgroup's procs: its group, if that can be; 0: ours */
    int life_fd;                 /* becomes SPAWN_LIFE_FD, the page of death_watch.h; 0: none */
    int pmi_fd;                  /* becomes SPAWN_PMI_FD, the socket of pmi.h; 0: none */
    const struct rlimit *nofile; /* its limit on open files; NULL: ours */
    /* From this time of the monotonic clock on, in ms, it must not begin; 0: it may at any time.
     * Looked at just before it would, as the caller may be stopped meanwhile. NULL: 0. */
    const _Atomic uint64_t *fence_at_ms;
};

struct spawn_child {
    pid_t pid;
    int pidfd; /* close-on-exec; the caller closes it */
};

/*
 * Start a process. Returns when it has called exec, or cannot; does not wait for anything else.
 * Call it from a thread that outlives the child, which dies when the thread that made it ends.
 *
 * On failure no process is left, and the sentence names the step and the program. DDP_E_TIMEOUT: it
 * would have begun behind its fence.
 */
DDP_MUST_CHECK ddp_status spawn_process(const struct spawn_request *request,
                                        struct spawn_child *ret_child, struct ddp_error *err);

#endif
