/*
 * reap.c - see reap.h. Owns nothing, allocates nothing, keeps no state: it asks the kernel for the
 * list of children each time.
 */
#include "reap.h"

#include "clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH_MAX = 64 };

typedef void (*visit_pid)(void *ctx, pid_t pid);

int reap_become_subreaper(void)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 ? 0 : errno;
}

bool reap_collect(void (*on_exit)(void *ctx, pid_t pid, int wait_status), void *ctx)
{
    for (;;) {
        int wait_status;
        pid_t pid = waitpid(-1, &wait_status, WNOHANG);
        if (pid > 0 && on_exit != NULL)
            on_exit(ctx, pid, wait_status);
        else if (pid == 0)
            return true;
        else if (pid < 0 && errno == ECHILD)
            return false;
    }
}

bool reap_has_stopped(void)
{
    siginfo_t info = {0};
    bool any = false;
    while (waitid(P_ALL, 0, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0) {
        any = true;
        info.si_pid = 0;
    }
    return any;
}

/* Reads "12 345 6 " piece by piece. */
static void visit_numbers(int fd, visit_pid visit, void *ctx)
{
    char piece[1024];
    pid_t pid = 0;
    ssize_t len;
    while ((len = read(fd, piece, sizeof piece)) > 0)
        for (ssize_t i = 0; i < len; i++) {
            if (isdigit((unsigned char)piece[i])) {
                pid = pid * 10 + (piece[i] - '0');
            } else if (pid > 0) {
                visit(ctx, pid);
                pid = 0;
            }
        }
    if (pid > 0)
        visit(ctx, pid);
}

/* Calls @visit for each entry of the directory whose name is a number. getdents64 rather than
 * readdir, which allocates. */
static bool visit_numeric_entries(const char *path, visit_pid visit, void *ctx)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    _Alignas(struct dirent64) char entries[2048];
    ssize_t len;
    while ((len = getdents64(fd, entries, sizeof entries)) > 0)
        for (ssize_t at = 0; at < len;) {
            const struct dirent64 *entry = (const struct dirent64 *)(void *)(entries + at);
            pid_t pid = 0;
            for (const char *c = entry->d_name; isdigit((unsigned char)*c); c++)
                pid = pid * 10 + (*c - '0');
            if (pid > 0)
                visit(ctx, pid);
            at += entry->d_reclen;
        }
    close(fd);
    return true;
}

struct child_visit {
    pid_t parent;
    visit_pid visit;
    void *ctx;
    bool listed; /* the kernel has the children file */
};

static void visit_task(void *arg, pid_t tid)
{
    struct child_visit *children = arg;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)children->parent, (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    children->listed = true;
    visit_numbers(fd, children->visit, children->ctx);
    close(fd);
}

/* No thread of it can run. A process whose first thread has ended looks like a zombie while other
 * threads run; the kernel still counts them. */
static bool is_dead(const struct ddpi_proc_stat *stat)
{
    return stat->state == 'Z' && stat->threads <= 1;
}

/* The wait status with which the kernel is ending @pid; 0: it is not, or that is not known. */
static int status_to_come(pid_t pid)
{
    struct ddpi_proc_stat stat;
    if (!ddpi_proc_stat_read(pid, &stat))
        return 0;
    bool stopped = stat.state == 'T' || stat.state == 't';
    return stopped || stat.exit_code < 0 ? 0 : (int)stat.exit_code;
}

bool reap_is_failing(pid_t pid)
{
    return status_to_come(pid) != 0;
}

bool reap_is_killed(pid_t pid)
{
    static const int ends[] = {SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    int status = status_to_come(pid);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (WIFSIGNALED(status) && WTERMSIG(status) == ends[i])
            return true;
    return false;
}

static void visit_if_child(void *arg, pid_t pid)
{
    struct child_visit *children = arg;
    struct ddpi_proc_stat stat;
    if (ddpi_proc_stat_read(pid, &stat) && stat.parent == children->parent)
        children->visit(children->ctx, pid);
}

static void visit_children_of(pid_t parent, visit_pid visit, void *ctx)
{
    struct child_visit children = {parent, visit, ctx, false};
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    /* An adopted orphan is the child of some thread of its parent, so ask all threads. */
    visit_numeric_entries(path, visit_task, &children);
    if (!children.listed) /* a kernel without CONFIG_PROC_CHILDREN */
        visit_numeric_entries("/proc", visit_if_child, &children);
}

/* Ask before looking in /proc: what was looked up there must be dropped when the process ends, and
 * the kernel lets its parent wait for that. */
static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

static void visit_children(visit_pid visit, void *ctx)
{
    if (has_children())
        visit_children_of(getpid(), visit, ctx);
}

struct sparing_visit {
    pid_t spared;
    size_t count;
};

static void kill_one(void *arg, pid_t pid)
{
    struct sparing_visit *visit = arg;
    if (pid != visit->spared && kill(pid, SIGKILL) == 0)
        visit->count++;
}

size_t reap_kill_children(pid_t spared)
{
    struct sparing_visit visit = {spared, 0};
    visit_children(kill_one, &visit);
    return visit.count;
}

static void count_one(void *arg, pid_t pid)
{
    struct sparing_visit *visit = arg;
    visit->count += pid != visit->spared;
}

bool reap_has_child_besides(pid_t spared)
{
    struct sparing_visit visit = {spared, 0};
    visit_children(count_one, &visit);
    return visit.count > 0;
}

struct only_visit {
    pid_t child;
    unsigned alive;
};

static void note_alive(void *arg, pid_t pid)
{
    struct only_visit *only = arg;
    struct ddpi_proc_stat stat;
    if (ddpi_proc_stat_read(pid, &stat) && !is_dead(&stat)) {
        only->child = pid;
        only->alive++;
    }
}

bool reap_only_child_of(pid_t parent, pid_t *ret)
{
    struct only_visit only = {0, 0};
    visit_children_of(parent, note_alive, &only);
    *ret = only.child;
    return only.alive == 1;
}

struct signal_visit {
    int sig;
    pid_t spared;
    bool (*is_meant)(void *ctx, const struct ddpi_proc_stat *stat);
    void *ctx;
    pid_t parent;
    int depth;
};

static void send_to(int pidfd, pid_t pid, int sig)
{
    if (pidfd >= 0)
        syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
    else
        kill(pid, sig);
}

/* It may be no child of ours, so its pid may be reused at any time. Where the kernel has pidfds,
 * open one first and check the parent then. */
static void signal_if_meant(void *arg, pid_t pid)
{
    const struct signal_visit *visit = arg;
    struct ddpi_proc_stat stat;
    if (pid == visit->spared)
        return;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    bool known = ddpi_proc_stat_read(pid, &stat) && stat.parent == visit->parent;
    if (known && visit->is_meant(visit->ctx, &stat))
        send_to(pidfd, pid, visit->sig);
    if (pidfd >= 0)
        close(pidfd);
    if (!known || visit->depth == DEPTH_MAX)
        return;
    struct signal_visit below = *visit;
    below.parent = pid;
    below.depth++;
    visit_children_of(pid, signal_if_meant, &below);
}

void reap_signal_below(int sig, pid_t spared,
                       bool (*is_meant)(void *ctx, const struct ddpi_proc_stat *stat), void *ctx)
{
    struct signal_visit visit = {sig, spared, is_meant, ctx, getpid(), 1};
    visit_children(signal_if_meant, &visit);
}

static bool count_alive(void *ctx, const struct ddpi_proc_stat *stat)
{
    size_t *alive = ctx;
    *alive += !is_dead(stat);
    return !is_dead(stat);
}

size_t reap_kill_children_of(pid_t parent)
{
    size_t alive = 0;
    struct signal_visit visit = {SIGKILL, 0, count_alive, &alive, parent, DEPTH_MAX};
    visit_children_of(parent, signal_if_meant, &visit);
    return alive;
}

struct describe_visit {
    pid_t spared;
    void (*visit)(void *ctx, pid_t pid, char state, const char *name);
    void *ctx;
};

static void describe_one(void *arg, pid_t pid)
{
    struct describe_visit *describe = arg;
    struct ddpi_proc_stat stat;
    if (pid != describe->spared && ddpi_proc_stat_read(pid, &stat))
        describe->visit(describe->ctx, pid, stat.state, stat.name);
}

void reap_each_child(pid_t spared,
                     void (*visit)(void *ctx, pid_t pid, char state, const char *name), void *ctx)
{
    struct describe_visit describe = {spared, visit, ctx};
    visit_children(describe_one, &describe);
}

struct sweep {
    pid_t *spared;
    size_t *ended;
};

static void count_exit(void *ctx, pid_t pid, int wait_status)
{
    const struct sweep *sweep = ctx;
    (void)wait_status;
    if (pid == *sweep->spared)
        *sweep->spared = 0;
    else
        ++*sweep->ended;
}

bool reap_sweep(uint64_t timeout_ms, pid_t *spared, size_t *ret_ended)
{
    pid_t nobody = 0;
    struct sweep sweep = {spared != NULL ? spared : &nobody, ret_ended};
    sigset_t child_signal;
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    uint64_t deadline = ddpi_monotonic_ms() + timeout_ms;
    *ret_ended = 0;
    for (;;) {
        reap_kill_children(*sweep.spared);
        if (!reap_collect(count_exit, &sweep) ||
            (*sweep.spared != 0 && !reap_has_child_besides(*sweep.spared)))
            return true;
        if (ddpi_monotonic_ms() >= deadline)
            return false;
        /* The list may miss a child while others exit: look again soon. */
        const struct timespec soon = {.tv_nsec = 1000000};
        sigtimedwait(&child_signal, NULL, &soon);
    }
}
