/*
 * spawn.c - see spawn.h. Owns nothing.
 *
 * The child shares the parent's memory while the parent is blocked inside clone, so it must not
 * allocate, take a lock, or return into the parent's code; everything is prepared before. It
 * reports a failure as (step, errno) in that shared memory.
 */
#include "spawn.h"

#include "clock.h"
#include "error.h"
#include "failpoint.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address))
#endif

enum { STACK_SIZE = 32 * 1024, CLOSE_MAX = 65536 };

/* The steps of the child, in this order. Error sentences use the texts. */
#define SPAWN_STEPS(X)                                        \
    X(STEP_SESSION, "make a session")                         \
    X(STEP_DEATH_SIGNAL, "tie its life to the agent's")       \
    X(STEP_FOLDER, "enter its working folder")                \
    X(STEP_BINDING, "bind it to its processors")              \
    X(STEP_STDIO, "connect standard input, output and error") \
    X(STEP_PASS, "pass descriptors on")                       \
    X(STEP_CLOSE, "close inherited descriptors")              \
    X(STEP_LIMITS, "restore the limit on open files")         \
    X(STEP_SIGNALS, "reset signals")                          \
    X(STEP_FENCE, "begin in time")                            \
    X(STEP_EXEC, "execute it")

enum spawn_step {
#define STEP_ENUM(symbol, text) symbol,
    SPAWN_STEPS(STEP_ENUM)
#undef STEP_ENUM
};

static const char *const step_texts[] = {
#define STEP_TEXT(symbol, text) text,
    SPAWN_STEPS(STEP_TEXT)
#undef STEP_TEXT
};

struct birth {
    const struct spawn_request *request;
    pid_t parent;
    enum spawn_step step;
    int sys_errno; /* 0: exec succeeded */
};

static int close_others(int first)
{
    if (close_range((unsigned)first, ~0U, 0) == 0)
        return 0;
    /* Kernels before 5.9, and seccomp filters that do not know the call. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return -1;
    int end = limit.rlim_cur < CLOSE_MAX ? (int)limit.rlim_cur : CLOSE_MAX;
    for (int fd = first; fd < end; fd++)
        close(fd);
    return 0;
}

static int connect_stdio(const int stdio[3])
{
    for (int fd = 0; fd < 3; fd++)
        if (stdio[fd] != fd && dup2(stdio[fd], fd) < 0)
            return -1;
    return 0;
}

/* No descriptor may take the number of another that has not moved yet. */
static int pass_on(const struct spawn_request *request)
{
    enum { PASSED = 4 };
    const int from[PASSED] = {request->key_fd, request->life_fd, request->pmi_fd,
                              request->flight_fd};
    const int to[PASSED] = {SPAWN_KEY_FD, SPAWN_LIFE_FD, SPAWN_PMI_FD, SPAWN_FLIGHT_FD};
    int aside[PASSED] = {-1, -1, -1, -1};
    for (int i = 0; i < PASSED; i++)
        if (from[i] > 0 && (aside[i] = fcntl(from[i], F_DUPFD_CLOEXEC, SPAWN_FREE_FD)) < 0)
            return -1;
    for (int i = 0; i < PASSED; i++) {
        if (aside[i] < 0)
            close(to[i]);
        else if (dup2(aside[i], to[i]) < 0)
            return -1;
    }
    return 0;
}

static int reset_signals(void)
{
    /* exec resets handlers, but signals that the agent ignores would stay ignored. */
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    for (int sig = 1; sig < NSIG; sig++)
        if (sigaction(sig, &dfl, NULL) != 0 && errno != EINVAL)
            return -1;
    return ddpi_thread_unblock_signals();
}

/* The guard kills workers that started before the fence. A later one must stop by itself. */
static bool is_too_late(const struct spawn_request *request)
{
    uint64_t at = request->fence_at_ms != NULL ? atomic_load(request->fence_at_ms) : 0;
    errno = ETIME;
    return at != 0 && ddpi_monotonic_ms() >= at;
}

/* Runs in the child, on its own small stack. */
static int child_main(void *arg)
{
    struct birth *birth = arg;
    const struct spawn_request *request = birth->request;

    if (request->cgroup_fd > 0)
        (void)!write(request->cgroup_fd, "0", 1); /* on failure the sweep ends it */
    birth->step = STEP_SESSION;
    if (setsid() < 0)
        goto failed;
    birth->step = STEP_DEATH_SIGNAL;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        goto failed;
    if (getppid() != birth->parent)
        _exit(127); /* the agent died before prctl(): no signal will come */
    birth->step = STEP_FOLDER;
    if (request->folder != NULL && chdir(request->folder) != 0)
        goto failed;
    birth->step = STEP_BINDING;
    if (request->cpus != NULL && sched_setaffinity(0, request->cpus_size, request->cpus) != 0)
        goto failed;
    birth->step = STEP_STDIO;
    if (connect_stdio(request->stdio) != 0)
        goto failed;
    birth->step = STEP_PASS;
    if (pass_on(request) != 0)
        goto failed;
    birth->step = STEP_CLOSE;
    if (close_others(SPAWN_FREE_FD) != 0)
        goto failed;
    birth->step = STEP_LIMITS;
    if (request->nofile != NULL && setrlimit(RLIMIT_NOFILE, request->nofile) != 0)
        goto failed;
    birth->step = STEP_SIGNALS;
    if (reset_signals() != 0)
        goto failed;
    birth->step = STEP_FENCE;
    if (is_too_late(request))
        goto failed;
    birth->step = STEP_EXEC;
    birth->sys_errno = 0;
    execve(request->path, request->argv, request->envp);
failed:
    birth->sys_errno = errno;
    _exit(127);
}

static ddp_status describe_failure(const struct birth *birth, struct ddp_error *err)
{
    const char *path = birth->request->path;
    if (birth->step == STEP_FENCE)
        return ddpi_error_set(err, DDP_E_TIMEOUT,
                              "'%s' was not started: the lease of this node has ended, and its "
                              "ranks may have been given to another node",
                              path);
    if (birth->step == STEP_EXEC && birth->sys_errno == ENOEXEC)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "cannot start '%s': it is neither a binary for this machine nor a script with a #! "
            "line; compile it for this machine, or give it a first line such as #!/bin/sh",
            path);
    if (birth->step == STEP_EXEC && birth->sys_errno == ENOENT && access(path, F_OK) == 0)
        return ddpi_error_set(err, DDP_E_NOT_FOUND,
                              "cannot start '%s': the interpreter in its first line does not "
                              "exist; install it, or correct that line",
                              path);
    return ddpi_error_sys(err, birth->sys_errno, "cannot start '%s': could not %s", path,
                          step_texts[birth->step]);
}

ddp_status spawn_process(const struct spawn_request *request, struct spawn_child *ret_child,
                         struct ddp_error *err)
{
    alignas(16) char stack[STACK_SIZE];
    struct birth birth = {.request = request, .parent = getpid()};
    sigset_t all, before;
    int pidfd = -1;

    /* A handler in the child would change the parent's memory. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = -1;
    int clone_errno = DDPI_FAILPOINT("spawn.clone");
    if (clone_errno == 0) {
        pid = clone(child_main, stack + sizeof stack,
                    CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &birth, &pidfd);
        clone_errno = errno;
        /* Its functions have not returned, as it called exec or was killed: the address sanitizer
         * still has the marks of their frames. */
        ASAN_UNPOISON_MEMORY_REGION(stack, sizeof stack);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);

    if (pid < 0)
        return ddpi_error_advise(
            err, ddpi_error_sys(err, clone_errno, "cannot start '%s'", request->path),
            "raise the limit on %s, or start fewer workers",
            clone_errno == EMFILE ? "open files, 'ulimit -n'" : "processes, 'ulimit -u'");
    if (birth.sys_errno != 0) {
        /* The child has called _exit, or is about to: this does not block. */
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        close(pidfd);
        return describe_failure(&birth, err);
    }
    *ret_child = (struct spawn_child){.pid = pid, .pidfd = pidfd};
    return DDP_OK;
}
