/*
 * edge_tcp.c - edges through TCP: one connection for control, and one or several for data
 * (stripes.h). Owns their sockets and a staging buffer.
 *
 * Data to reduce is received into the staging buffer, as much at a time as has arrived; data to
 * store is received straight to its place, unless it is short.
 */
#include "edge.h"

#include "data_tls.h"
#include "error.h"
#include "list.h"
#include "mem.h"
#include "stripes.h"

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
    UNSTAGED_MIN =
        32 * 1024, /* below this, a larger read into the stage saves the next system call */
};

struct data_socket {
    int fd;
    struct ddpi_data_tls tls; /* tls.tls NULL: plaintext */
};

struct tcp_edge {
    struct ddpi_edge edge;
    uint64_t sent, received; /* bytes so far; what comes next goes over the socket of its stripe */
    unsigned count;          /* of sockets */
    struct data_socket sockets[DDPI_SOCKETS_MAX];
    size_t head, tail; /* stage[head, tail) has arrived and was not consumed */
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

static struct data_socket *socket_at(struct tcp_edge *tcp, uint64_t at)
{
    return &tcp->sockets[ddpi_stripe_socket(at, tcp->count)];
}

static size_t socket_send(struct data_socket *data, const void *bytes, size_t len,
                          const char **ret_broken)
{
    if (data->tls.tls != NULL)
        return ddpi_data_tls_send(&data->tls, data->fd, bytes, len, ret_broken);
    ssize_t sent = send(data->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
        return (size_t)sent;
    if (!tcp_would_block(errno))
        *ret_broken = "has lost its data connection";
    return 0;
}

/* Until a socket has no more room. */
static size_t tcp_send(struct ddpi_edge *edge, const void *bytes, size_t len)
{
    struct tcp_edge *tcp = tcp_of(edge);
    size_t done = 0, part, sent;
    do {
        if (edge->broken != NULL)
            return done;
        part = ddpi_stripe_part(tcp->sent, len - done, tcp->count);
        sent = socket_send(socket_at(tcp, tcp->sent), (const uint8_t *)bytes + done, part,
                           &edge->broken);
        tcp->sent += sent;
        done += sent;
    } while (sent == part && done < len);
    return done;
}

static size_t socket_receive(struct data_socket *data, void *dst, size_t len,
                             const char **ret_broken)
{
    if (data->tls.tls != NULL && (*ret_broken == NULL || ddpi_buf_len(&data->tls.arrived) > 0))
        return ddpi_data_tls_receive(&data->tls, data->fd, dst, len, ret_broken);
    if (*ret_broken != NULL)
        return 0;
    ssize_t got = recv(data->fd, dst, len, MSG_DONTWAIT);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        *ret_broken = "has closed its data connection";
    else if (!tcp_would_block(errno))
        *ret_broken = "has lost its data connection";
    return 0;
}

/* Until a socket has no more. */
static size_t tcp_receive(struct tcp_edge *tcp, void *dst, size_t len)
{
    size_t done = 0, part, got;
    do {
        part = ddpi_stripe_part(tcp->received, len - done, tcp->count);
        got = socket_receive(socket_at(tcp, tcp->received), (uint8_t *)dst + done, part,
                             &tcp->edge.broken);
        tcp->received += got;
        done += got;
    } while (got == part && done < len);
    return done;
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
    if (tcp_staged(tcp) == 0 && len >= UNSTAGED_MIN)
        return tcp_receive(tcp, dst, len);
    const uint8_t *bytes;
    size_t there = tcp_peek(edge, 1, &bytes);
    if (len > there)
        len = there;
    memcpy(dst, bytes, len);
    tcp_consume(edge, len);
    return len;
}

static struct pollfd socket_poll(const struct data_socket *data, bool receives, bool sends)
{
    short events = (short)((receives ? POLLIN : 0) | (sends ? POLLOUT : 0));
    if (data->tls.tls != NULL)
        events = ddpi_data_tls_events(&data->tls, receives, sends);
    return (struct pollfd){.fd = data->fd, .events = events};
}

/* Whether there are as many, or all of a stripe, after which another socket has more. */
static bool has_arrived(struct tcp_edge *tcp, size_t bytes)
{
    size_t decrypted = ddpi_buf_len(&socket_at(tcp, tcp->received)->tls.arrived);
    return tcp_staged(tcp) + decrypted >= bytes ||
           decrypted >= ddpi_stripe_part(tcp->received, SIZE_MAX, tcp->count);
}

static bool tcp_arm(struct ddpi_edge *edge, size_t recv_bytes, bool send,
                    struct pollfd ret_polls[DDPI_EDGE_POLLS])
{
    struct tcp_edge *tcp = tcp_of(edge);
    const struct data_socket *in = socket_at(tcp, tcp->received), *out = socket_at(tcp, tcp->sent);
    if (edge->broken == NULL && (recv_bytes > 0 || in == out))
        ret_polls[0] = socket_poll(in, recv_bytes > 0, send && in == out);
    if (edge->broken == NULL && send && in != out)
        ret_polls[1] = socket_poll(out, false, true);
    return recv_bytes > 0 && has_arrived(tcp, recv_bytes);
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
    const struct tcp_edge *tcp = tcp_of(edge);
    for (unsigned i = 0; i < tcp->count; i++)
        (void)setsockopt(tcp->sockets[i].fd, IPPROTO_TCP, TCP_CONGESTION, name, sizeof name - 1);
}

/* A connection that is broken keeps what it has: nothing will take it. */
static size_t tcp_untaken(struct ddpi_edge *edge)
{
    const struct tcp_edge *tcp = tcp_of(edge);
    size_t sum = 0;
    for (unsigned i = 0; i < tcp->count && edge->broken == NULL; i++) {
        const struct data_socket *data = &tcp->sockets[i];
        int queued = 0;
        if (ioctl(data->fd, SIOCOUTQ, &queued) == 0 && queued > 0)
            sum += (size_t)queued;
        sum += data->tls.owed;
    }
    return sum;
}

static void tcp_destroy(struct ddpi_edge *edge)
{
    struct tcp_edge *tcp = tcp_of(edge);
    ddpi_control_finish(&edge->control);
    for (unsigned i = 0; i < tcp->count; i++) {
        ddpi_data_tls_finish(&tcp->sockets[i].tls);
        close(tcp->sockets[i].fd);
    }
    ddpi_free(tcp);
}

ddp_status ddpi_edge_tcp_hide(struct ddpi_edge *edge, unsigned index,
                              const struct ddpi_tls_engine *engine, const struct ddpi_seals *seals,
                              bool connects, struct ddp_error *err)
{
    struct data_socket *data = &tcp_of(edge)->sockets[index];
    return ddpi_data_tls_init(&data->tls, engine, seals, connects, data->fd, err);
}

struct ddpi_edge *ddpi_edge_tcp(const int *data_fds, unsigned count, int control_fd,
                                struct ddp_error *err)
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
        for (unsigned i = 0; i < count; i++)
            close(data_fds[i]);
        return NULL;
    }
    tcp->edge.ops = &ops;
    ddpi_control_init(&tcp->edge.control, control_fd);
    tcp->edge.process.pidfd = -1;
    tcp->count = count;
    for (unsigned i = 0; i < count; i++)
        tcp->sockets[i].fd = data_fds[i];
    return &tcp->edge;
}
