/*
 * guard.c - the guard process. Owns one end of a socket pair and the descriptor that the agent
 * gives it, and the sidecar. After the split it allocates nothing, opens no connection and runs no
 * event loop, so that it works when memory has run out. It cleans up when every process has ended.
 */
#include "guard.h"

#include "cgroup.h"
#include "clock.h"
#include "error.h"
#include "failpoint.h"
#include "reap.h"
#include "sidecar.h"
#include "signames.h"
#include "sigwatch.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SWEEP_MS = 5000,
    SIDECAR_END_MS = 8000,       /* from its signal to SIGKILL */
    WRITE_LIMIT_SIGNAL = SIGURG, /* has no other use, and is not forwarded */
};

/* Signals that are not forwarded: those that stop and continue a process, so that Ctrl-Z returns to
 * the shell; the guard's own faults; and those that are not sent on purpose. */
static const int kept_signals[] = {SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS,
                                   SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGABRT, SIGURG};

static void forwarded_signals(sigset_t *set)
{
    sigfillset(set);
    for (size_t i = 0; i < sizeof kept_signals / sizeof *kept_signals; i++)
        sigdelset(set, kept_signals[i]);
}

static void on_write_limit(int sig)
{
    (void)sig; /* to interrupt write() */
}

/*
 * stderr may be a pipe without a reader, or a stopped terminal, and the guard must not block. The
 * descriptor is shared, so it cannot set O_NONBLOCK; sockets and terminals of other users cannot be
 * reopened through /proc/self/fd/2, and a file would lose its offset; terminals, and pipes before
 * Linux 6.4, do not know RWF_NOWAIT. But a signal ends any such write. So nothing is written
 * without room, and if another process has taken the room meanwhile, a timer interrupts the write.
 * It fires repeatedly, as the first signal may come before write() blocks.
 */
static void write_or_drop(const char *text, size_t len)
{
    const struct timespec limit = {.tv_nsec = 10 * 1000 * 1000};
    const struct itimerspec ticks = {limit, limit}, none = {0};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = WRITE_LIMIT_SIGNAL};
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    timer_t timer;
    if (poll(&room, 1, 0) != 1 || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
        return;
    timer_settime(timer, 0, &ticks, NULL);
    (void)!write(STDERR_FILENO, text, len);
    timer_settime(timer, 0, &none, NULL);
    timer_delete(timer);
}

DDP_PRINTF(1, 2) static void guard_say(const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t shown = len < (int)sizeof line ? (size_t)len : sizeof line - 1;
    if (len > 0)
        write_or_drop(line, shown);
}

static void guard_say_stuck(void *ctx, pid_t pid, char state, const char *name)
{
    (void)ctx;
    guard_say("ddprun: process %d (%s) is still there %d s after SIGKILL, in state %c: it is stuck "
              "in the kernel; nothing but its driver or file system can end it\n",
              (int)pid, name, SWEEP_MS / 1000, state);
}

struct guard {
    const struct guard_duties *duties;
    struct sidecar sidecar;
    pid_t agent;
    bool gone; /* reaped, with this status */
    int wait_status;
    bool told_to_end; /* by a signal, when the agent was gone */
    bool told_agent;  /* to end, as it has no sidecar */
    int signals;      /* signalfd */
    int from_agent;   /* our end of the socket pair */
    int held;         /* the descriptor held for the agent; -1: none */
    struct guard_page *page;
    uint64_t fenced_at_ms; /* the fence that has been carried out */
};

/* Read what is left on the connection: closing it unread would look to the store like a failure of
 * the network. */
static void release_agent(int held)
{
    char ignored[4096];
    while (recv(held, ignored, sizeof ignored, MSG_DONTWAIT) > 0)
        continue;
    close(held);
}

static void note_exit(void *ctx, pid_t pid, int wait_status)
{
    struct guard *guard = ctx;
    sidecar_reaped(&guard->sidecar, pid, wait_status, ddpi_monotonic_ms());
    if (pid != guard->agent)
        return;
    guard->gone = true;
    guard->wait_status = wait_status;
}

static bool is_ending(int signum)
{
    return signum == SIGTERM || signum == SIGINT || signum == SIGHUP || signum == SIGQUIT;
}

static void take_signals(struct guard *guard)
{
    struct signalfd_siginfo info;
    while (read(guard->signals, &info, sizeof info) == sizeof info) {
        reap_collect(note_exit, guard); /* a signal that comes with the agent's end is ours */
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (!guard->gone)
            kill(guard->agent, (int)info.ssi_signo);
        else if (!sigwatch_stays_ignored((int)info.ssi_signo))
            guard->told_to_end |= is_ending((int)info.ssi_signo);
    }
}

/* Until it has ended, or @until_ms, or a signal tells the guard to end. */
static void await_sidecar(struct guard *guard, uint64_t until_ms)
{
    struct pollfd signals = {.fd = guard->signals, .events = POLLIN};
    uint64_t now_ms;
    while (guard->sidecar.state == SIDECAR_RUNNING && !guard->told_to_end &&
           (now_ms = ddpi_monotonic_ms()) < until_ms) {
        (void)poll(&signals, 1, ddpi_remaining_ms(now_ms, until_ms));
        take_signals(guard);
    }
}

/* The agent and its workers are gone. The job may need the sidecar for longer. */
static void end_sidecar(struct guard *guard)
{
    bool orderly = WIFEXITED(guard->wait_status) && guard->sidecar.state == SIDECAR_RUNNING;
    uint64_t keep_ms = orderly ? atomic_load(&guard->page->sidecar_ms) : 0;
    if (keep_ms == GUARD_SIDECAR_STAYS)
        guard_say("ddprun: this node has left the job, and keeps a copy of its store until the job "
                  "is over; one more signal ends that\n");
    await_sidecar(guard, ddpi_deadline(ddpi_monotonic_ms(), keep_ms));
    sidecar_signal(&guard->sidecar, SIDECAR_END_SIGNAL);
    guard->told_to_end = false;
    await_sidecar(guard, ddpi_monotonic_ms() + SIDECAR_END_MS);
    sidecar_signal(&guard->sidecar, SIGKILL);
    guard->told_to_end = false;
    await_sidecar(guard, ddpi_monotonic_ms() + SWEEP_MS);
}

static _Noreturn void exit_as_agent(const struct guard *guard)
{
    int wait_status = guard->wait_status;
    if (guard->told_agent)
        _exit(guard->sidecar.code);
    _exit(WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
}

/* The agent is reaped: kill the processes that it left, and exit with its status. */
static _Noreturn void end_guard(struct guard *guard)
{
    size_t ended;
    int wait_status = guard->wait_status;
    struct sidecar *sidecar = &guard->sidecar;
    cgroup_kill(guard->duties->cgroup);
    pid_t spared = sidecar->pid;
    bool clean = reap_sweep(SWEEP_MS, &spared, &ended);
    if (spared == 0)
        sidecar_reaped(sidecar, sidecar->pid, 0, ddpi_monotonic_ms());
    char name[SIGNAME_MAX];
    if (guard->held >= 0 && clean)
        release_agent(guard->held);
    if (WIFSIGNALED(wait_status))
        guard_say("ddprun: the agent was killed by %s; what it left has been killed too (%zu of "
                  "the job's processes)%s\n",
                  signame_of(WTERMSIG(wait_status), name), ended,
                  clean && sidecar->state != SIDECAR_RUNNING
                      ? ", nothing of the job is running any more"
                      : "");
    if (!clean)
        reap_each_child(sidecar->pid, guard_say_stuck, NULL);
    end_sidecar(guard);
    if (guard->duties->clean_up != NULL)
        guard->duties->clean_up(guard->duties->ctx);
    exit_as_agent(guard);
}

/* Start it if it is time. A node where it cannot run, which has been said, has no job. */
static void run_sidecar(struct guard *guard)
{
    struct ddp_error err;
    if (!sidecar_run(&guard->sidecar, ddpi_monotonic_ms(), &err))
        guard_say("ddprun: %s\n", err.msg);
    if (guard->sidecar.state == SIDECAR_FAILED && !guard->told_agent) {
        atomic_store(&guard->page->sidecar_failed, true);
        kill(guard->agent, SIGTERM);
        guard->told_agent = true;
    }
}

union fd_message {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

/* Returns the descriptor in the agent's message, or -1; *@ret_end: the agent has closed its end. */
static int receive_socket(int from_agent, bool *ret_end)
{
    char one;
    union fd_message control;
    struct iovec iov = {&one, 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t len = recvmsg(from_agent, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = len > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    int fd = -1;
    *ret_end = len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

static void take_agent_socket(struct guard *guard)
{
    bool end;
    int fd = receive_socket(guard->from_agent, &end);
    if (fd >= 0) {
        if (guard->held >= 0)
            close(guard->held);
        guard->held = fd;
    }
    if (end)
        guard->from_agent = -1; /* our own end stays open */
}

/* The agent neither moved its fence of @at_ms in time nor ended its workers: it must have been
 * stopped. Kill the workers; when the agent continues it reaps them itself. Orphans of a worker
 * become the agent's children when the worker is dead, so look until the list was empty twice. */
static void fence(const struct guard *guard, uint64_t at_ms)
{
    uint64_t until = ddpi_monotonic_ms() + SWEEP_MS;
    unsigned empty = 0;
    size_t ended = 0;
    while (empty < 2 && atomic_load(&guard->page->fence_at_ms) == at_ms &&
           ddpi_monotonic_ms() < until) {
        size_t alive = reap_kill_children_of(guard->agent);
        cgroup_kill(guard->duties->cgroup); /* after the processes have been counted */
        empty = alive == 0 ? empty + 1 : 0;
        ended += alive;
        poll(NULL, 0, 1); /* they are not our children, so no signal reports their end */
    }
    if (ended > 0)
        guard_say("ddprun: the agent was stopped, or waited for a file system, for longer than its "
                  "lease allows, and the store gives the ranks of this node away; its workers have "
                  "been killed\n");
}

/* When to look at the fence again; UINT64_MAX: when told. One that is due is carried out. Moving
 * the fence to a later time does not wake the guard: it finds the new time when the old one has
 * come, or has been carried out. */
static uint64_t next_fence_ms(struct guard *guard, uint64_t now_ms)
{
    for (uint64_t at;
         (at = atomic_load(&guard->page->fence_at_ms)) != 0 && at != guard->fenced_at_ms;) {
        if (now_ms < at)
            return at;
        fence(guard, at);
        guard->fenced_at_ms = at;
    }
    return UINT64_MAX;
}

/* The timeout for poll(). */
static int until_next(struct guard *guard)
{
    uint64_t now_ms = ddpi_monotonic_ms();
    uint64_t at_ms = next_fence_ms(guard, now_ms), start_ms = sidecar_due_ms(&guard->sidecar);
    at_ms = start_ms < at_ms ? start_ms : at_ms;
    return at_ms == UINT64_MAX ? -1 : ddpi_remaining_ms(now_ms, at_ms);
}

static _Noreturn void guard_main(struct guard *guard)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = guard->signals, .events = POLLIN},
                               {.fd = guard->from_agent, .events = POLLIN}};
        run_sidecar(guard);
        int ready = poll(fds, 2, until_next(guard));
        if (ready > 0 && fds[1].revents != 0)
            take_agent_socket(guard);
        take_signals(guard);
        if (guard->gone)
            end_guard(guard);
    }
}

void guard_hold_signals(void)
{
    sigset_t held;
    forwarded_signals(&held);
    sigprocmask(SIG_BLOCK, &held, NULL);
}

void guard_is_needless(void)
{
    prctl(PR_SET_PDEATHSIG, 0);
}

/* Send a byte, with the descriptor @fd unless it is -1. */
static void tell_guard(const struct guard_agent *guard, int fd)
{
    char one = 0;
    union fd_message control = {{0}};
    struct iovec iov = {&one, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        control.align = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
    }
    while (sendmsg(guard->guard_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR)
        continue;
}

void guard_hold_socket(const struct guard_agent *guard, int socket)
{
    tell_guard(guard, socket);
}

void guard_set_fence(const struct guard_agent *guard, uint64_t at_ms)
{
    /* The guard wakes at the time that it knows; wake it only if it knows none. */
    if (atomic_exchange(&guard->page->fence_at_ms, at_ms) == 0 && at_ms != 0)
        tell_guard(guard, -1);
}

void guard_keep_sidecar(const struct guard_agent *guard, uint64_t ms)
{
    atomic_store(&guard->page->sidecar_ms, ms);
}

bool guard_sidecar_failed(const struct guard_agent *guard)
{
    return atomic_load(&guard->page->sidecar_failed);
}

/* Shared by guard and agent; made before the split. */
struct shared {
    int ends[2]; /* the guard's, the agent's */
    int signals;
    struct guard_page *page;
};

static void close_shared(const struct shared *shared)
{
    const int fds[] = {shared->ends[0], shared->ends[1], shared->signals};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (shared->page != NULL)
        munmap(shared->page, sizeof *shared->page);
}

static ddp_status make_shared(struct shared *shared, const sigset_t *waited, struct ddp_error *err)
{
    *shared = (struct shared){.ends = {-1, -1}, .signals = -1};
    void *page =
        mmap(NULL, sizeof *shared->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED)
        shared->page = page;
    if (page != MAP_FAILED && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, shared->ends) == 0)
        shared->signals = signalfd(-1, waited, SFD_CLOEXEC | SFD_NONBLOCK);
    if (shared->signals >= 0)
        return DDP_OK;
    int sys_errno = errno;
    close_shared(shared);
    return ddpi_error_sys(err, sys_errno,
                          "cannot make the memory and sockets that guard and agent share");
}

/* A terminal may stop background processes that write to it (stty tostop). And the signal that
 * interrupts a write must not be blocked, whatever the caller has blocked. */
static void set_own_signals(void)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    const struct sigaction interrupt = {.sa_handler = on_write_limit}; /* no SA_RESTART */
    sigset_t limit;
    sigaction(SIGTTOU, &ignore, NULL);
    sigaction(WRITE_LIMIT_SIGNAL, &interrupt, NULL);
    sigemptyset(&limit);
    sigaddset(&limit, WRITE_LIMIT_SIGNAL);
    sigprocmask(SIG_UNBLOCK, &limit, NULL);
}

static _Noreturn void become_guard(const struct shared *shared, pid_t agent,
                                   const struct guard_duties *duties)
{
    struct guard guard = {.duties = duties,
                          .sidecar = {.request = duties->sidecar},
                          .agent = agent,
                          .signals = shared->signals,
                          .from_agent = shared->ends[0],
                          .held = -1,
                          .page = shared->page};
    setpgid(agent, agent);
    set_own_signals();
    close(shared->ends[1]); /* our own end stays open until the guard ends */
    if (duties->forget != NULL)
        duties->forget(duties->ctx);
    guard_main(&guard);
}

ddp_status guard_split(const struct guard_duties *duties, struct guard_agent *ret_agent,
                       struct ddp_error *err)
{
    sigset_t blocked, before;
    struct shared shared;
    int sys_errno = reap_become_subreaper();
    if (sys_errno != 0)
        return ddpi_error_sys(err, sys_errno, "cannot become the reaper of orphaned processes");
    forwarded_signals(&blocked);
    sigaddset(&blocked, SIGCHLD);
    ddp_status status = make_shared(&shared, &blocked, err);
    if (status != DDP_OK)
        return status;
    sigprocmask(SIG_BLOCK, &blocked, &before);
    signal(SIGCHLD, SIG_DFL); /* if ignored, there would be no wait statuses */

    pid_t agent = fork();
    if (agent < 0) {
        int fork_errno = errno;
        sigprocmask(SIG_SETMASK, &before, NULL);
        close_shared(&shared);
        return ddpi_error_advise(err,
                                 ddpi_error_sys(err, fork_errno, "cannot start the agent process"),
                                 "raise the limit on processes, 'ulimit -u', or end some of yours");
    }
    if (agent > 0)
        become_guard(&shared, agent, duties);
    setpgid(0, 0); /* in both processes, so that either may come first */
    /* Without the guard a stopped agent would not be fenced: the kernel continues it, and it ends
     * the job. */
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    close(shared.ends[0]);
    close(shared.signals);
    (void)DDPI_FAILPOINT("guard.split"); /* for tests that kill the process here */
    *ret_agent = (struct guard_agent){.guard_fd = shared.ends[1], .page = shared.page};
    return DDP_OK;
}
