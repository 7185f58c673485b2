/*
 * peer_fate.c - asks the kernel of this machine, or that of another one, what has become of a
 * process. Owns the descriptor of the process.
 */
#include "peer_fate.h"

#include "clock.h"
#include "proc_stat.h"
#include "sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

enum {
    PATIENCE_MS = 1000,
    KNOCKS_MAX = 8,
    EXITING = 0x4 /* PF_EXITING in the kernel */
};

/* ---- a process of this machine ---- */

/* If the number means another process by the time at which it is looked up, then ours is dead, and
 * whatever is said about the other one's death is true of ours. */
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

/* A process that dies closes its sockets first, and is over only when all else is given back, which
 * takes long with a GPU. Meanwhile it is marked. */
enum ddpi_fate ddpi_process_fate(const struct ddpi_process *process)
{
    struct ddpi_proc_stat stat;
    if (process->pidfd < 0)
        return process->over ? DDPI_FATE_DEAD : DDPI_FATE_UNKNOWN;
    bool seen = ddpi_proc_stat_read(process->pid, &stat);
    if (ends_within(process, seen ? 0 : PATIENCE_MS))
        return DDPI_FATE_DEAD;
    bool dying = seen && (stat.state == 'Z' || stat.state == 'X' || (stat.flags & EXITING) != 0);
    return dying ? DDPI_FATE_DEAD : DDPI_FATE_ALIVE;
}

/* ---- a process of any machine ---- */

/* What @looks is to tell: of who knocks, the answer; of who was let in, that it is thrown out. */
static struct epoll_event awaited(struct ddpi_door *door)
{
    return (struct epoll_event){.events = door->error == 0 ? EPOLLIN | EPOLLRDHUP : EPOLLOUT,
                                .data.ptr = door};
}

/* Connect, and be told by @looks how that goes on. On one machine the answer may be there at once.
 */
static void knock(struct ddpi_door *door, int looks)
{
    door->knocks++;
    door->error = ddpi_begin_tcp(door->address, &door->fd);
    struct epoll_event event = awaited(door);
    if (door->error != 0 && door->error != EINPROGRESS) {
        door->fd = -1;
    } else if (epoll_ctl(looks, EPOLL_CTL_ADD, door->fd, &event) != 0) {
        door->error = errno;
        close(door->fd);
        door->fd = -1;
    }
}

/* Who is let in stays there. Who dies closes its connections one by one, so that it may still
 * listen for a moment; those who have come in then are thrown out, and knock once more. So does a
 * process that lives with those who say nothing; it lets them in again. */
static void go_on(struct ddpi_door *door, bool thrown_out, int looks)
{
    door->error = thrown_out ? ECONNRESET : ddpi_connect_result(door->fd);
    if (door->error == EINPROGRESS)
        return;
    struct epoll_event event = awaited(door);
    if (door->error == 0 && epoll_ctl(looks, EPOLL_CTL_MOD, door->fd, &event) == 0)
        return;
    close(door->fd);
    door->fd = -1;
    if (door->error == ECONNRESET && door->knocks < KNOCKS_MAX)
        knock(door, looks);
}

/* What meets a listener that is just being closed may be lost: the first packet of a connection,
 * which the kernel repeats only a second later, too late for us; or the word that a connection that
 * stood for a moment does not any more. A byte brings the answer that nobody has it; a rank that
 * lives takes it for a stranger's. */
static void knock_again(struct ddpi_door *doors, size_t count, int looks)
{
    for (size_t i = 0; i < count; i++) {
        if (doors[i].fd >= 0 && doors[i].error == EINPROGRESS) {
            close(doors[i].fd);
            knock(&doors[i], looks);
        } else if (doors[i].fd >= 0) {
            (void)!send(doors[i].fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

static bool is_open(const struct ddpi_door *doors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (doors[i].fd >= 0)
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
    case EINPROGRESS: /* nobody has answered */
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return DDPI_FATE_SILENT;
    default: /* we cannot even ask */
        return DDPI_FATE_UNKNOWN;
    }
}

void ddpi_doors_ask(struct ddpi_door *doors, size_t count)
{
    enum { BATCH = 16 }; /* what is left over comes next time */
    uint64_t now = ddpi_now_ms(&ddpi_clock_monotonic);
    uint64_t deadline_ms = ddpi_deadline(now, PATIENCE_MS);
    uint64_t again_ms = ddpi_deadline(now, PATIENCE_MS / 2);
    int looks = epoll_create1(EPOLL_CLOEXEC); /* -1: then nothing can be asked */
    for (size_t i = 0; i < count; i++) {
        doors[i].knocks = 0;
        knock(&doors[i], looks);
    }
    for (; now < deadline_ms && is_open(doors, count); now = ddpi_now_ms(&ddpi_clock_monotonic)) {
        struct epoll_event events[BATCH];
        uint64_t wake_ms = now < again_ms ? again_ms : deadline_ms;
        int ready = epoll_wait(looks, events, BATCH, ddpi_remaining_ms(now, wake_ms));
        for (int i = 0; i < ready; i++) {
            struct ddpi_door *door = events[i].data.ptr;
            go_on(door, door->error == 0, looks);
        }
        if (now < again_ms && ddpi_now_ms(&ddpi_clock_monotonic) >= again_ms)
            knock_again(doors, count, looks);
    }
    for (size_t i = 0; i < count; i++) {
        doors[i].fate = fate_by(doors[i].error);
        if (doors[i].fd >= 0)
            close(doors[i].fd);
    }
    if (looks >= 0)
        close(looks);
}
