/*
 * keeper_link.c - see keeper_link.h. Owns the socket.
 */
#include "keeper_link.h"

#include "error.h"
#include "keeper_server.h"
#include "keeper_status.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SILENCE_MS = 3000 };

static void on_silence(uv_timer_t *timer)
{
    struct keeper_link *link = timer->data;
    link->kept(link->ctx, "", 0);
}

static void on_kept(struct keeper_link *link, const char *text, size_t len)
{
    uv_timer_again(&link->silence);
    link->kept(link->ctx, text, len);
}

static void take_job(struct keeper_link *link, const char *name, size_t len)
{
    char job[DDPI_JOB_MAX + 1];
    if (!ddpi_job_valid(name, len))
        return;
    snprintf(job, sizeof job, "%.*s", (int)len, name);
    link->job(link->ctx, job);
}

static void on_packet(uv_poll_t *poll, int status, int events)
{
    struct keeper_link *link = poll->data;
    char packet[1 + DDPI_KEEPER_STATUS_MAX];
    (void)status;
    (void)events;
    ssize_t len;
    while ((len = recv(link->fd, packet, sizeof packet, MSG_DONTWAIT)) > 0) {
        if (packet[0] == KEEPER_SAYS_STATUS)
            link->status(link->ctx, packet + 1, (size_t)len - 1);
        else if (packet[0] == KEEPER_SAYS_JOB)
            take_job(link, packet + 1, (size_t)len - 1);
        else if (packet[0] == KEEPER_SAYS_OPEN)
            link->open(link->ctx);
        else if (packet[0] == KEEPER_SAYS_KEPT)
            on_kept(link, packet + 1, (size_t)len - 1);
        if (link->fd == 0)
            return; /* that was the end */
    }
    if (len == 0) /* the keeper is dead, and the kernel ends this process */
        uv_poll_stop(poll);
}

ddp_status keeper_link_open(struct keeper_link *link, uv_loop_t *loop, int fd,
                            struct ddp_error *err)
{
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--keeper-fd=%d is no socket of a keeper; only 'ddprund --cluster' "
                              "gives this option",
                              fd);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    link->fd = fd;
    link->poll.data = link->silence.data = link;
    uv_poll_init(loop, &link->poll, fd);
    uv_poll_start(&link->poll, UV_READABLE, on_packet);
    uv_timer_init(loop, &link->silence);
    uv_timer_start(&link->silence, on_silence, SILENCE_MS, SILENCE_MS);
    return DDP_OK;
}

static void tell(const struct keeper_link *link, char packet)
{
    if (link->fd != 0)
        (void)send(link->fd, &packet, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void keeper_link_ready(const struct keeper_link *link)
{
    tell(link, KEEPER_HEARS_READY);
}

void keeper_link_over(const struct keeper_link *link)
{
    tell(link, KEEPER_HEARS_OVER);
}

void keeper_link_close(struct keeper_link *link)
{
    if (link->fd == 0)
        return;
    uv_close((uv_handle_t *)&link->silence, NULL);
    uv_close((uv_handle_t *)&link->poll, NULL); /* libuv is done with the descriptor at once */
    close(link->fd);
    link->fd = 0;
}
