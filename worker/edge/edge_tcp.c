/*
 * edge_tcp.c - edges through a TCP connection. Owns the data socket, the control socket and a
 * staging buffer.
 *
 * Data to reduce is received into the staging buffer, as much at a time as has arrived; data to
 * store is received straight to its place, unless it is short.
 */
#include "edge.h"

#include "data_tls.h"
#include "error.h"
#include "list.h"
#include "mem.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STAGE_SIZE = 256 * 1024,
    LINGER_MS = 1000,
    DIRECT_MIN =
        32 * 1024, /* below this, a larger read into the stage saves the next system call */
};

struct tcp_edge {
    struct ddpi_edge edge;
    int fd;
    struct ddpi_data_tls tls; /* tls.tls NULL: plaintext */
    size_t head, tail;        /* stage[head, tail) has arrived and was not consumed */
    uint8_t stage[STAGE_SIZE];
};

static struct tcp_edge *tcp_of(struct ddpi_edge *edge)
{
    return ddpi_container_of(edge, struct tcp_edge, edge);
}

static bool tcp_would_block(int error)
{
    return error == EAGAIN || error == EINTR;
}

static size_t tcp_send(struct ddpi_edge *edge, const void *bytes, size_t len)
{
    struct tcp_edge *tcp = tcp_of(edge);
    if (edge->broken != NULL)
        return 0;
    if (tcp->tls.tls != NULL)
        return ddpi_data_tls_send(&tcp->tls, tcp->fd, bytes, len, &edge->broken);
    ssize_t sent = send(tcp->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
        return (size_t)sent;
    if (!tcp_would_block(errno))
        edge->broken = "has lost its data connection";
    return 0;
}

static size_t tcp_receive(struct tcp_edge *tcp, void *dst, size_t len)
{
    if (tcp->tls.tls != NULL && (tcp->edge.broken == NULL || ddpi_buf_len(&tcp->tls.arrived) > 0))
        return ddpi_data_tls_receive(&tcp->tls, tcp->fd, dst, len, &tcp->edge.broken);
    if (tcp->edge.broken != NULL)
        return 0;
    ssize_t got = recv(tcp->fd, dst, len, MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        tcp->edge.broken = "has closed its data connection";
    else if (!tcp_would_block(errno))
        tcp->edge.broken = "has lost its data connection";
    return 0;
}

static size_t tcp_staged(const struct tcp_edge *tcp)
{
    return tcp->tail - tcp->head;
}

static size_t tcp_peek(struct ddpi_edge *edge, size_t want, const uint8_t **ret_bytes)
{
    struct tcp_edge *tcp = tcp_of(edge);
    if (tcp_staged(tcp) < want) {
        memmove(tcp->stage, tcp->stage + tcp->head, tcp_staged(tcp)); /* fewer than 64 bytes */
        tcp->tail = tcp_staged(tcp);
        tcp->head = 0;
        tcp->tail += tcp_receive(tcp, tcp->stage + tcp->tail, STAGE_SIZE - tcp->tail);
    }
    *ret_bytes = tcp->stage + tcp->head;
    return tcp_staged(tcp);
}

static void tcp_consume(struct ddpi_edge *edge, size_t len)
{
    tcp_of(edge)->head += len;
}

static size_t tcp_recv(struct ddpi_edge *edge, void *dst, size_t len)
{
    struct tcp_edge *tcp = tcp_of(edge);
    if (tcp_staged(tcp) == 0 && len >= DIRECT_MIN)
        return tcp_receive(tcp, dst, len);
    const uint8_t *bytes;
    size_t there = tcp_peek(edge, 1, &bytes);
    if (len > there)
        len = there;
    memcpy(dst, bytes, len);
    tcp_consume(edge, len);
    return len;
}

static bool tcp_arm(struct ddpi_edge *edge, size_t recv_bytes, bool send, struct pollfd *ret_poll)
{
    struct tcp_edge *tcp = tcp_of(edge);
    short events = (short)((recv_bytes > 0 ? POLLIN : 0) | (send ? POLLOUT : 0));
    if (tcp->tls.tls != NULL)
        events = ddpi_data_tls_events(&tcp->tls, recv_bytes > 0, send);
    *ret_poll = (struct pollfd){.fd = edge->broken == NULL ? tcp->fd : -1, .events = events};
    return recv_bytes > 0 && tcp_staged(tcp) + ddpi_buf_len(&tcp->tls.arrived) >= recv_bytes;
}

static void tcp_disarm(struct ddpi_edge *edge)
{
    (void)edge;
}

/* The system's congestion control may pace packets by timers, as BBR does. That spares a network,
 * and costs almost half the rate where there is none. Every kernel has Reno, which does not. */
static void tcp_stay_on_machine(struct ddpi_edge *edge)
{
    static const char name[] = "reno";
    (void)setsockopt(tcp_of(edge)->fd, IPPROTO_TCP, TCP_CONGESTION, name, sizeof name - 1);
}

/* A connection that is broken keeps what it has: nothing will take it. */
static size_t tcp_untaken(struct ddpi_edge *edge)
{
    struct tcp_edge *tcp = tcp_of(edge);
    int queued = 0;
    if (edge->broken != NULL || ioctl(tcp->fd, SIOCOUTQ, &queued) != 0 || queued < 0)
        return 0;
    return (size_t)queued + tcp->tls.owed;
}

static void tcp_destroy(struct ddpi_edge *edge)
{
    struct tcp_edge *tcp = tcp_of(edge);
    ddpi_control_finish(&edge->control);
    ddpi_data_tls_finish(&tcp->tls);
    close(tcp->fd);
    ddpi_free(tcp);
}

ddp_status ddpi_edge_tcp_hide(struct ddpi_edge *edge, const struct ddpi_tls_engine *engine,
                              const struct ddpi_seals *seals, bool connects, struct ddp_error *err)
{
    struct tcp_edge *tcp = tcp_of(edge);
    return ddpi_data_tls_init(&tcp->tls, engine, seals, connects, tcp->fd, err);
}

struct ddpi_edge *ddpi_edge_tcp(int data_fd, int control_fd, struct ddp_error *err)
{
    static const struct ddpi_edge_ops ops = {
        .name = "TCP",
        .linger_ms = LINGER_MS,
        .send = tcp_send,
        .recv = tcp_recv,
        .peek = tcp_peek,
        .consume = tcp_consume,
        .untaken = tcp_untaken,
        .stay_on_machine = tcp_stay_on_machine,
        .arm = tcp_arm,
        .disarm = tcp_disarm,
        .destroy = tcp_destroy,
    };
    struct tcp_edge *tcp = ddpi_calloc(1, sizeof *tcp);
    if (tcp == NULL) {
        ddpi_error_nomem(err, sizeof *tcp);
        close(control_fd);
        close(data_fd);
        return NULL;
    }
    tcp->edge.ops = &ops;
    ddpi_control_init(&tcp->edge.control, control_fd);
    tcp->edge.process.pidfd = -1;
    tcp->fd = data_fd;
    return &tcp->edge;
}
