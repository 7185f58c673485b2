/*
 * guard.c - the guard process. Owns one end of a pipe and nothing else; after the split it
 * allocates nothing, opens no connection and runs no event loop: little enough to be trusted when
 * memory has run out. What it is given to clean up comes when all is ended.
 */
#include "guard.h"

#include "error.h"
#include "failpoint.h"
#include "reap.h"
#include "signames.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SWEEP_MS = 5000 };

/* Signals that stay with the guard: those that stop and continue a process, so that Ctrl-Z gives
 * the shell back, its own faults, and those that nobody sends on purpose. */
static const int kept_signals[] = {SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS,
                                   SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGABRT, SIGURG,  SIGWINCH};

static void forwarded_signals(sigset_t *set)
{
    sigfillset(set);
    for (size_t i = 0; i < sizeof kept_signals / sizeof *kept_signals; i++)
        sigdelset(set, kept_signals[i]);
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t shown = len < (int)sizeof line ? (size_t)len : sizeof line - 1;
    if (len > 0 && write(STDERR_FILENO, line, shown) < 0)
        return; /* nobody is left to be told */
}

static void say_stuck(void *ctx, pid_t pid, char state, const char *name)
{
    (void)ctx;
    say("ddprun: process %d (%s) is still there %d s after SIGKILL, in state %c: it is stuck in "
        "the kernel; nothing but its driver or file system can end it\n",
        (int)pid, name, SWEEP_MS / 1000, state);
}

/* The agent is gone and reaped: end what it left, and exit the way it did. */
static _Noreturn void finish(int wait_status, const struct guard_farewell *farewell)
{
    size_t ended;
    bool clean = reap_sweep(SWEEP_MS, &ended);
    char name[SIGNAME_MAX];
    if (WIFSIGNALED(wait_status))
        say("ddprun: the agent was killed by %s; what it left has been killed too (%zu of the "
            "job's "
            "processes)%s\n",
            signame_of(WTERMSIG(wait_status), name), ended,
            clean ? ", nothing of the job is running any more" : "");
    if (!clean)
        reap_each_child(say_stuck, NULL);
    if (farewell->clean_up != NULL)
        farewell->clean_up(farewell->ctx);
    _exit(WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
}

struct agent_exit {
    pid_t agent;
    bool gone;
    int wait_status;
};

static void note_exit(void *ctx, pid_t pid, int wait_status)
{
    struct agent_exit *exit = ctx;
    if (pid != exit->agent)
        return;
    exit->gone = true;
    exit->wait_status = wait_status;
}

static _Noreturn void guard_main(pid_t agent, const struct guard_farewell *farewell)
{
    sigset_t waited;
    forwarded_signals(&waited);
    sigaddset(&waited, SIGCHLD);
    struct agent_exit exit = {.agent = agent};
    for (;;) {
        int sig = sigwaitinfo(&waited, NULL);
        if (sig == SIGCHLD)
            reap_collect(note_exit, &exit);
        else if (sig > 0)
            kill(agent, sig);
        if (exit.gone)
            finish(exit.wait_status, farewell);
    }
}

void guard_hold_signals(void)
{
    sigset_t held;
    forwarded_signals(&held);
    sigprocmask(SIG_BLOCK, &held, NULL);
}

ddp_status guard_split(const struct guard_farewell *farewell, struct guard_agent *ret_agent,
                       struct ddp_error *err)
{
    sigset_t blocked, before;
    int ends[2];
    int sys_errno = reap_become_subreaper();
    if (sys_errno != 0)
        return ddpi_error_sys(err, sys_errno, "cannot become the reaper of orphaned processes");
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ddpi_error_sys(err, errno, "cannot make the pipe between guard and agent");
    forwarded_signals(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored it would make wait statuses disappear */

    pid_t agent = fork();
    if (agent < 0) {
        int fork_errno = errno;
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(ends[0]);
        close(ends[1]);
        return ddpi_error_advise(err,
                                 ddpi_error_sys(err, fork_errno, "cannot start the agent process"),
                                 "raise the limit on processes, 'ulimit -u', or end some of yours");
    }
    if (agent > 0) {
        setpgid(agent, agent);
        close(ends[0]); /* the writing end stays open for as long as the guard lives */
        guard_main(agent, farewell);
    }
    setpgid(0, 0); /* on both sides, so that neither can be early */
    close(ends[1]);
    (void)DDPI_FAILPOINT("guard.split"); /* only a kill makes sense */
    ret_agent->guard_fd = ends[0];
    return DDP_OK;
}
