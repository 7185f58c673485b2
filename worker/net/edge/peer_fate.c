/*
 * peer_fate.c - asks the kernel of this machine, or of another one, what has become of a process.
 * Owns the descriptor of the process.
 */
#include "peer_fate.h"

#include "clock.h"
#include "proc_stat.h"
#include "sockets.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

enum {
    PATIENCE_MS = 1000,
    FIRST_WAIT_MS = 20, /* for an answer; then each time twice as long as before */
    RECONNECT_WAIT_MS = FIRST_WAIT_MS << 4, /* the last one, 620 ms from the beginning */
    ATTEMPTS_MAX = 8,
};

/* ---- a process of this machine ---- */

/* If the pid means another process when it is opened, the peer is dead; and the death of that other
 * process then reports a death that is true of the peer. */
static int open_process(int fd, int pid)
{
    int pidfd;
    socklen_t len = sizeof pidfd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
        return pidfd;
    if (errno == ESRCH || pid <= 0)
        return -1;
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

void ddpi_process_find(int fd, struct ddpi_process *ret_process)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    *ret_process = (struct ddpi_process){.pidfd = -1};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.pid == getpid())
        return;
    ret_process->pid = peer.pid;
    ret_process->pidfd = open_process(fd, peer.pid);
    ret_process->over = ret_process->pidfd < 0 && errno == ESRCH;
}

void ddpi_process_finish(struct ddpi_process *process)
{
    if (process->pidfd >= 0)
        close(process->pidfd);
    process->pidfd = -1;
}

static bool ends_within(const struct ddpi_process *process, int timeout_ms)
{
    struct pollfd pollfd = {.fd = process->pidfd, .events = POLLIN};
    return process->over || (process->pidfd >= 0 && poll(&pollfd, 1, timeout_ms) == 1);
}

bool ddpi_process_ended(const struct ddpi_process *process)
{
    return ends_within(process, 0);
}

/* A dying process closes its sockets first and ends only when all its resources are freed, which
 * takes long with a GPU. Meanwhile the kernel marks it as exiting. */
enum ddpi_fate ddpi_process_fate(const struct ddpi_process *process)
{
    struct ddpi_proc_stat stat;
    if (process->pidfd < 0)
        return process->over ? DDPI_FATE_DEAD : DDPI_FATE_UNKNOWN;
    bool seen = ddpi_proc_stat_read(process->pid, &stat);
    if (ends_within(process, seen ? 0 : PATIENCE_MS))
        return DDPI_FATE_DEAD;
    bool dying =
        seen && (stat.state == 'Z' || stat.state == 'X' || (stat.flags & DDPI_PROC_EXITING) != 0);
    return dying ? DDPI_FATE_DEAD : DDPI_FATE_ALIVE;
}

/* ---- a process of any machine ---- */

/* The events to watch for: while connecting, the result; once connected, that the peer closes the
 * connection. */
static struct epoll_event awaited(struct ddpi_probe *probe)
{
    return (struct epoll_event){.events = probe->error == 0 ? EPOLLIN | EPOLLRDHUP : EPOLLOUT,
                                .data.ptr = probe};
}

/* Connect; @epoll reports how it goes on. On one machine the result may be there at once. */
static void probe_connect(struct ddpi_probe *probe, int epoll)
{
    probe->attempts++;
    probe->error = ddpi_begin_tcp(probe->address, &probe->fd);
    struct epoll_event event = awaited(probe);
    if (probe->error != 0 && probe->error != EINPROGRESS) {
        probe->fd = -1;
    } else if (epoll_ctl(epoll, EPOLL_CTL_ADD, probe->fd, &event) != 0) {
        probe->error = errno;
        close(probe->fd);
        probe->fd = -1;
    }
}

/* A connection that is accepted stays open. A dying process closes its sockets one by one, so it
 * may still accept for a moment and then reset the connection: connect again. A living process also
 * closes connections that send nothing; it accepts the next one, too. */
static void probe_go_on(struct ddpi_probe *probe, bool reset, int epoll)
{
    probe->error = reset ? ECONNRESET : ddpi_connect_result(probe->fd);
    if (probe->error == EINPROGRESS)
        return;
    struct epoll_event event = awaited(probe);
    if (probe->error == 0 && epoll_ctl(epoll, EPOLL_CTL_MOD, probe->fd, &event) == 0)
        return;
    close(probe->fd);
    probe->fd = -1;
    if (probe->error == ECONNRESET && probe->attempts < ATTEMPTS_MAX)
        probe_connect(probe, epoll);
}

/* Packets that reach a listener while it is being closed may be lost: the first packet of a
 * connection, which the kernel repeats only after a second, or the reset of one that was just
 * accepted. So connect again, but only @late, as the answer may be on its way; or send a byte,
 * which provokes a reset if no process has the connection; a living rank drops it as a
 * stranger's. */
static void probe_again(struct ddpi_probe *probes, size_t count, bool late, int epoll)
{
    for (size_t i = 0; i < count; i++) {
        if (probes[i].fd >= 0 && probes[i].error == EINPROGRESS) {
            if (!late)
                continue;
            close(probes[i].fd);
            probe_connect(&probes[i], epoll);
        } else if (probes[i].fd >= 0) {
            (void)!send(probes[i].fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

static bool probe_is_open(const struct ddpi_probe *probes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (probes[i].fd >= 0)
            return true;
    return false;
}

static enum ddpi_fate fate_by(int error)
{
    switch (error) {
    case 0:
    case ECONNRESET:
        return DDPI_FATE_ALIVE;
    case ECONNREFUSED:
        return DDPI_FATE_DEAD;
    case EINPROGRESS: /* no answer */
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return DDPI_FATE_SILENT;
    default: /* it cannot be asked */
        return DDPI_FATE_UNKNOWN;
    }
}

void ddpi_probe_all(struct ddpi_probe *probes, size_t count)
{
    enum { BATCH = 16 }; /* the rest follows next time */
    uint64_t now = ddpi_monotonic_ms();
    uint64_t deadline_ms = ddpi_deadline(now, PATIENCE_MS);
    uint64_t wait_ms = FIRST_WAIT_MS, again_ms = ddpi_deadline(now, wait_ms);
    int epoll = epoll_create1(EPOLL_CLOEXEC); /* -1: nothing can be asked */
    for (size_t i = 0; i < count; i++) {
        probes[i].attempts = 0;
        probe_connect(&probes[i], epoll);
    }
    for (; now < deadline_ms && probe_is_open(probes, count); now = ddpi_monotonic_ms()) {
        struct epoll_event events[BATCH];
        uint64_t wake_ms = again_ms < deadline_ms ? again_ms : deadline_ms;
        int ready = epoll_wait(epoll, events, BATCH, ddpi_remaining_ms(now, wake_ms));
        for (int i = 0; i < ready; i++) {
            struct ddpi_probe *probe = events[i].data.ptr;
            probe_go_on(probe, probe->error == 0, epoll);
        }
        if (ddpi_monotonic_ms() >= again_ms) {
            probe_again(probes, count, wait_ms == RECONNECT_WAIT_MS, epoll);
            wait_ms *= 2;
            again_ms = ddpi_deadline(again_ms, wait_ms);
        }
    }
    for (size_t i = 0; i < count; i++) {
        probes[i].fate = fate_by(probes[i].error);
        if (probes[i].fd >= 0)
            close(probes[i].fd);
    }
    if (epoll >= 0)
        close(epoll);
}
