/*
 * warm_fork.c - see warm_fork.h; warm_python.py is the other side. Owns the socket to one worker
 * until it has its arguments. Does not check the fence of spawn.h: a guard that carries it out
 * kills the warm process too, so that spawn_process() is called and checks it.
 */
#include "warm_fork.h"

#include "buf.h"
#include "error.h"
#include "failpoint.h"
#include "parse.h"
#include "proc_stat.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    ANSWER_MS = 2000,
    WORDS_MAX = 16 * 1024 * 1024, /* more than the kernel passes to a program */
    /* Targets that are no descriptor numbers. */
    TARGET_CHANNEL = 64,
    TARGET_CGROUP = 65,
};

/* Descriptors, and the number that each of them becomes in the worker. */
struct parcel {
    enum { PARCEL_MAX = 9 } size;
    int count;
    unsigned char targets[PARCEL_MAX];
    int fds[PARCEL_MAX];
};

static void pack(struct parcel *parcel, int fd, int target)
{
    parcel->targets[parcel->count] = (unsigned char)target;
    parcel->fds[parcel->count++] = fd;
}

static void pack_request(struct parcel *parcel, const struct spawn_request *request, int channel)
{
    const int passed[] = {request->key_fd, request->life_fd, request->pmi_fd, request->flight_fd};
    static const int targets[] = {SPAWN_KEY_FD, SPAWN_LIFE_FD, SPAWN_PMI_FD, SPAWN_FLIGHT_FD};
    *parcel = (struct parcel){.count = 0};
    pack(parcel, channel, TARGET_CHANNEL);
    for (int fd = 0; fd < 3; fd++)
        pack(parcel, request->stdio[fd], fd);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (passed[i] > 0)
            pack(parcel, passed[i], targets[i]);
    if (request->cgroup_fd > 0)
        pack(parcel, request->cgroup_fd, TARGET_CGROUP);
}

static ddp_status send_parcel(int warm_fd, const struct parcel *parcel, struct ddp_error *err)
{
    size_t bytes = (size_t)parcel->count * sizeof *parcel->fds;
    union {
        char bytes[CMSG_SPACE(sizeof parcel->fds)];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {(void *)parcel->targets, (size_t)parcel->count};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(bytes)};
    control.align.cmsg_len = CMSG_LEN(bytes);
    control.align.cmsg_level = SOL_SOCKET;
    control.align.cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(&control.align), parcel->fds, bytes);
    ssize_t sent;
    while ((sent = sendmsg(warm_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR)
        continue;
    return sent >= 0 ? DDP_OK : ddpi_error_sys(err, errno, "cannot ask the warm process to fork");
}

static ddp_status receive_pid(int warm_fd, pid_t *ret_pid, struct ddp_error *err)
{
    char text[32] = "";
    struct pollfd answer = {.fd = warm_fd, .events = POLLIN};
    int ready;
    while ((ready = poll(&answer, 1, ANSWER_MS)) < 0 && errno == EINTR)
        continue;
    if (ready == 0)
        return ddpi_error_set(err, DDP_E_TIMEOUT, "the warm process has not answered within %d ms",
                              ANSWER_MS);
    ssize_t len = recv(warm_fd, text, sizeof text - 1, MSG_DONTWAIT);
    int64_t pid;
    if (len <= 0)
        return ddpi_error_set(err, DDP_E_CLOSED, "the warm process has ended");
    if (ddpi_parse_int(text, 1, INT32_MAX, &pid, NULL) != DDP_OK)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the warm process could not fork");
    *ret_pid = (pid_t)pid;
    return DDP_OK;
}

/* What was imported is not trusted: no process but a child of ours is taken for the worker. */
static ddp_status adopt(const struct spawn_request *request, pid_t pid,
                        struct spawn_child *ret_child, struct ddp_error *err)
{
    struct ddpi_proc_stat stat;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return ddpi_error_sys(err, errno, "cannot watch the worker that was forked (pid %d)",
                              (int)pid);
    if (!ddpi_proc_stat_read(pid, &stat) || stat.parent != getpid()) {
        close(pidfd);
        return ddpi_error_set(
            err, DDP_E_PROTOCOL,
            "the warm process has answered with pid %d, which is no child of the agent", (int)pid);
    }
    if (request->cpus != NULL && sched_setaffinity(pid, request->cpus_size, request->cpus) != 0) {
        int bind_errno = errno;
        close(pidfd);
        return ddpi_error_sys(err, bind_errno, "cannot bind the worker to its processors");
    }
    *ret_child = (struct spawn_child){.pid = pid, .pidfd = pidfd, .forked = true};
    return DDP_OK;
}

static bool put_words(struct ddpi_buf *buf, char *const *words, uint32_t *ret_count)
{
    *ret_count = 0;
    for (; *words != NULL; words++, ++*ret_count)
        if (!ddpi_buf_append(buf, *words, strlen(*words) + 1))
            return false;
    return true;
}

static ddp_status send_all(int channel, const void *bytes, size_t len, struct ddp_error *err)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t sent = send(channel, at, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return ddpi_error_sys(err, errno, "cannot send a forked worker its arguments");
        at += sent;
        len -= (size_t)sent;
    }
    return DDP_OK;
}

/* The worker begins when it has all of it. */
static ddp_status send_words(int channel, const struct spawn_request *request,
                             struct ddp_error *err)
{
    struct ddpi_buf words;
    uint32_t head[2], entries;
    ddpi_buf_init(&words, WORDS_MAX);
    bool fits =
        put_words(&words, request->argv, &head[0]) && put_words(&words, request->envp, &entries);
    head[1] = (uint32_t)ddpi_buf_len(&words);
    ddp_status status =
        fits ? send_all(channel, head, sizeof head, err)
             : ddpi_error_set(err, DDP_E_NOMEM, "no memory for the arguments of a forked worker");
    if (status == DDP_OK)
        status = send_all(channel, ddpi_buf_head(&words), ddpi_buf_len(&words), err);
    ddpi_buf_finish(&words);
    return status;
}

/* Only the worker keeps its end of @channel, so that the agent learns of its end. */
static ddp_status ask_for_worker(int channel[2], const struct spawn_request *request,
                                 pid_t *ret_pid, struct ddp_error *err)
{
    struct parcel parcel;
    pack_request(&parcel, request, channel[1]);
    ddp_status status = send_parcel(request->warm_fd, &parcel, err);
    close(channel[1]);
    return status == DDP_OK ? receive_pid(request->warm_fd, ret_pid, err) : status;
}

static ddp_status fork_worker(const struct spawn_request *request, struct spawn_child *ret_child,
                              struct ddp_error *err)
{
    const struct timeval limit = {.tv_sec = ANSWER_MS / 1000};
    int channel[2];
    pid_t pid = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0)
        return ddpi_error_sys(err, errno, "cannot make a socket for a forked worker");
    setsockopt(channel[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    ddp_status status = ask_for_worker(channel, request, &pid, err);
    if (status == DDP_OK)
        status = adopt(request, pid, ret_child, err);
    if (status == DDP_OK) {
        (void)DDPI_FAILPOINT("warm.words"); /* for tests that kill the agent here */
        status = send_words(channel[0], request, err);
        if (status != DDP_OK) {
            kill(pid, SIGKILL); /* it has not begun; it is reaped as any orphan is */
            close(ret_child->pidfd);
        }
    }
    close(channel[0]);
    return status;
}

ddp_status warm_fork_or_spawn(const struct spawn_request *request, struct spawn_child *ret_child,
                              struct ddp_error *err)
{
    struct ddp_error why;
    if (fork_worker(request, ret_child, err) == DDP_OK)
        return DDP_OK;
    shutdown(request->warm_fd, SHUT_RDWR); /* it ends, and nobody waits for it again */
    ddp_status status = spawn_process(request, ret_child, &why);
    if (status != DDP_OK && err != NULL)
        *err = why;
    return status;
}
