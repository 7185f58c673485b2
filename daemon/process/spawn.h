/*
 * spawn.h - starts a process. Nothing else in ddprun does.
 *
 * It uses clone(CLONE_VM | CLONE_VFORK | CLONE_PIDFD): as fast as posix_spawn however large the
 * agent is, and the child can do what posix_spawn cannot. The process gets a session of its own,
 * and dies with the thread that made it (PR_SET_PDEATHSIG, in addition to the guard: guard.h). It
 * has the descriptors 0 to 2 and, where given, the key, the life page, the PMI socket and the
 * memory of its flight recorder; no others. All signals have their default action and none is
 * blocked.
 */
#ifndef DAEMON_SPAWN_H
#define DAEMON_SPAWN_H

#include <ddprun/status.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { SPAWN_KEY_FD = 3, SPAWN_LIFE_FD, SPAWN_PMI_FD, SPAWN_FLIGHT_FD, SPAWN_FREE_FD };

struct spawn_request {
    const char *path;      /* no search in PATH */
    char *const *argv;     /* NULL-terminated */
    char *const *envp;     /* NULL-terminated */
    const char *folder;    /* its working folder; NULL: ours */
    int stdio[3];          /* descriptors that become 0, 1 and 2; each is i or above 2 */
    int key_fd;            /* becomes SPAWN_KEY_FD; 0: none */
    int cgroup_fd;         /* cgroup.procs of the group to join, if possible; 0: ours */
    int life_fd;           /* becomes SPAWN_LIFE_FD, the page of death_watch.h; 0: none */
    int pmi_fd;            /* becomes SPAWN_PMI_FD, the socket of pmi.h; 0: none */
    int flight_fd;         /* becomes SPAWN_FLIGHT_FD, flight_memory.h; 0: none */
    int warm_fd;           /* socket to the process to fork it from, warm_fork.h; 0: none */
    const cpu_set_t *cpus; /* that it may run on, of @cpus_size bytes; NULL: ours */
    size_t cpus_size;
    const struct rlimit *nofile; /* its limit on open files; NULL: ours */
    /* The program must not start at or after this time of the monotonic clock, in ms; 0 or NULL: no
     * limit. The child checks it just before exec, as the caller may be stopped meanwhile. */
    const _Atomic uint64_t *fence_at_ms;
};

struct spawn_child {
    pid_t pid;
    int pidfd;   /* close-on-exec; the caller closes it */
    bool forked; /* from the warm process (warm_fork.h), and not executed */
};

/*
 * Start a process. Returns when it has called exec, or has failed to. Call it from a thread that
 * outlives the child: the child dies when that thread ends.
 *
 * On failure no process is left, and @err names the step and the program. DDP_E_TIMEOUT: the time
 * of its fence had passed.
 */
DDP_MUST_CHECK ddp_status spawn_process(const struct spawn_request *request,
                                        struct spawn_child *ret_child, struct ddp_error *err);

#endif
