/*
 * perf_load.c - the load generator. Owns its sockets. Sending blocks, so as not to flood a server
 * that reads no input; receiving never blocks.
 *
 * After receiving answers, a connection sends as many new requests in one call. So the pipelining
 * that a server sees depends on its own speed, for all contenders in the same way.
 */
#include "perf_load.h"

#include "clock.h"
#include "error.h"
#include "mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STALL_S = 20,          /* without an answer for this long, the server has failed */
    GREETING_WINDOW = 512, /* connections not yet greeted by the server: below its backlog */
    EVENTS_PER_TURN = 256,
    SCRATCH_SIZE = 64 * 1024,
    REPLIES_MAX = 1024 * 1024, /* bytes of an incomplete reply */
};

struct perf_conn {
    int fd;
    bool greeted;
    struct ddpi_buf in; /* an incomplete reply */
    uint64_t sent;      /* in this play */
    uint64_t answered;
};

static bool send_all(const struct perf_conn *conn, const uint8_t *bytes, size_t len,
                     struct ddp_error *err)
{
    while (len > 0) {
        ssize_t sent = send(conn->fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return !ddpi_error_sys(err, errno, "cannot send to the server");
        bytes += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* ---- playing ---- */

static const struct perf_script *script_of(const struct perf_play *play, size_t index)
{
    return &play->scripts[play->shared ? 0 : index];
}

/* The number of requests that @conn sends now. */
static uint64_t due(const struct perf_load *load, const struct perf_conn *conn,
                    const struct perf_script *script, uint64_t now)
{
    const struct perf_play *play = load->play;
    uint64_t room = play->in_flight - (conn->sent - conn->answered);
    if (play->duration_ns > 0)
        return now < load->end_ns ? room : 0;
    uint64_t left = script->count - conn->sent;
    return left < room ? left : room;
}

static bool top_up(struct perf_load *load, struct perf_conn *conn, uint64_t now,
                   struct ddp_error *err)
{
    const struct perf_play *play = load->play;
    size_t index = (size_t)(conn - load->conns);
    const struct perf_script *script = script_of(play, index);
    uint64_t *stamps = &load->stamps[index * play->in_flight];
    for (uint64_t want; (want = due(load, conn, script, now)) > 0;) {
        uint64_t at = conn->sent % script->count;
        uint64_t n = want < script->count - at ? want : script->count - at;
        for (uint64_t i = 0; i < n; i++)
            stamps[(conn->sent + i) % play->in_flight] = now;
        conn->sent += n;
        load->outstanding += n;
        if (!send_all(conn, ddpi_buf_head(&script->bytes) + at * script->each, n * script->each,
                      err))
            return false;
    }
    return true;
}

static void count_reply(struct perf_load *load, struct perf_conn *conn, uint64_t now)
{
    const struct perf_play *play = load->play;
    load->outstanding--;
    load->answered++;
    if (play == NULL)
        return;
    size_t slot = (size_t)(conn - load->conns) * play->in_flight + conn->answered % play->in_flight;
    conn->answered++;
    if (play->latencies != NULL)
        perf_histogram_add(play->latencies, now - load->stamps[slot]);
}

/* ---- receiving ---- */

/* Take all complete replies at the beginning of @bytes; *@ret_used is their length. */
static bool take_replies(struct perf_load *load, struct perf_conn *conn, const uint8_t *bytes,
                         size_t len, uint64_t now, size_t *ret_used, struct ddp_error *err)
{
    size_t used = 0;
    while (used < len) {
        ptrdiff_t reply = conn->greeted ? load->wire->reply_len(bytes + used, len - used)
                                        : load->wire->greeting_len(bytes + used, len - used);
        if (reply < 0)
            return !ddpi_error_set(err, DDP_E_PROTOCOL, "the server refused a request");
        if (reply == 0)
            break;
        used += (size_t)reply;
        if (conn->greeted)
            count_reply(load, conn, now);
        else
            load->outstanding--;
        conn->greeted = true;
    }
    *ret_used = used;
    return true;
}

static bool load_receive(struct perf_load *load, struct perf_conn *conn, struct ddp_error *err)
{
    uint8_t *scratch = load->scratch;
    ssize_t got = recv(conn->fd, scratch, SCRATCH_SIZE, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got < 0)
        return !ddpi_error_sys(err, errno, "cannot receive from the server");
    if (got == 0)
        return !ddpi_error_set(err, DDP_E_CLOSED, "the server closed a connection");
    uint64_t now = ddpi_monotonic_ns();
    size_t used, len = (size_t)got;
    if (ddpi_buf_len(&conn->in) == 0) {
        if (!take_replies(load, conn, scratch, len, now, &used, err))
            return false;
        if (!ddpi_buf_append(&conn->in, scratch + used, len - used))
            return !ddpi_error_nomem(err, len - used);
    } else {
        if (!ddpi_buf_append(&conn->in, scratch, len))
            return !ddpi_error_nomem(err, len);
        if (!take_replies(load, conn, ddpi_buf_head(&conn->in), ddpi_buf_len(&conn->in), now, &used,
                          err))
            return false;
        ddpi_buf_consume(&conn->in, used);
    }
    return load->play == NULL || top_up(load, conn, now, err);
}

/* Receive until at most @leave answers are outstanding. */
static bool pump(struct perf_load *load, uint64_t leave, struct ddp_error *err)
{
    struct epoll_event events[EVENTS_PER_TURN];
    while (load->outstanding > leave) {
        int count = epoll_wait(load->epoll_fd, events, EVENTS_PER_TURN, STALL_S * 1000);
        if (count < 0 && errno != EINTR)
            return !ddpi_error_sys(err, errno, "epoll_wait");
        if (count == 0)
            return !ddpi_error_set(err, DDP_E_TIMEOUT, "the server has not answered for %d s",
                                   STALL_S);
        for (int i = 0; i < count; i++)
            if (!load_receive(load, &load->conns[events[i].data.u32], err))
                return false;
    }
    return true;
}

static bool play_all(struct perf_load *load, struct ddp_error *err)
{
    uint64_t posted = load->outstanding;
    for (uint32_t i = 0; i < load->count; i++) {
        load->conns[i].sent = load->conns[i].answered = 0;
        if (!top_up(load, &load->conns[i], ddpi_monotonic_ns(), err))
            return false;
    }
    return pump(load, posted, err);
}

bool perf_load_play(struct perf_load *load, const struct perf_play *play, struct perf_result *ret,
                    struct ddp_error *err)
{
    size_t slots = (size_t)load->count * play->in_flight;
    load->stamps = ddpi_calloc(slots, sizeof *load->stamps);
    if (load->stamps == NULL)
        return !ddpi_error_nomem(err, slots * sizeof *load->stamps);
    load->play = play;
    load->answered = 0;
    uint64_t begin = ddpi_monotonic_ns();
    load->end_ns = begin + play->duration_ns;
    bool done = play_all(load, err);
    *ret = (struct perf_result){load->answered, (double)(ddpi_monotonic_ns() - begin) / 1e3};
    load->play = NULL;
    ddpi_free(load->stamps);
    load->stamps = NULL;
    return done;
}

bool perf_load_post(struct perf_load *load, const struct perf_play *play, struct ddp_error *err)
{
    for (uint32_t i = 0; i < load->count; i++) {
        const struct perf_script *script = script_of(play, i);
        load->outstanding += script->count;
        if (!send_all(&load->conns[i], ddpi_buf_head(&script->bytes), ddpi_buf_len(&script->bytes),
                      err))
            return false;
    }
    return true;
}

bool perf_load_await(struct perf_load *load, struct ddp_error *err)
{
    return pump(load, 0, err);
}

/* ---- connecting ---- */

static bool connect_one(struct perf_load *load, uint16_t port, struct ddp_error *err)
{
    struct perf_conn *conn = &load->conns[load->count];
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn->fd < 0)
        return !ddpi_error_sys(err, errno, "connection %u", load->count + 1);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = load->count++};
    ddpi_buf_init(&conn->in, REPLIES_MAX);
    const int on = 1;
    const struct timeval stall = {.tv_sec = STALL_S};
    const struct linger reset = {.l_onoff = 1}; /* leaves no port in TIME_WAIT */
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(conn->fd, SOL_SOCKET, SO_SNDTIMEO, &stall, sizeof stall);
    setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (connect(conn->fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) != 0)
        return !ddpi_error_sys(err, errno, "connection %u to port %u", load->count, port);
    return true;
}

static bool connect_all(struct perf_load *load, uint16_t port, uint32_t count,
                        const struct ddpi_buf *greeting, struct ddp_error *err)
{
    while (load->count < count) {
        if (!connect_one(load, port, err))
            return false;
        load->outstanding++;
        if (!send_all(&load->conns[load->count - 1], ddpi_buf_head(greeting),
                      ddpi_buf_len(greeting), err))
            return false;
        if (load->outstanding >= GREETING_WINDOW && !pump(load, GREETING_WINDOW / 2, err))
            return false;
    }
    return pump(load, 0, err);
}

bool perf_load_open(struct perf_load *load, const struct perf_wire *wire, uint16_t port,
                    uint32_t count, double *ret_elapsed_us, struct ddp_error *err)
{
    *load = (struct perf_load){.wire = wire, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    if (load->epoll_fd < 0)
        return !ddpi_error_sys(err, errno, "epoll_create1");
    load->conns = ddpi_calloc(count, sizeof *load->conns);
    load->scratch = ddpi_calloc(SCRATCH_SIZE, 1);
    if (load->conns == NULL || load->scratch == NULL)
        return !ddpi_error_nomem(err, SCRATCH_SIZE + count * sizeof *load->conns);
    struct ddpi_buf greeting;
    ddpi_buf_init(&greeting, SCRATCH_SIZE);
    uint64_t begin = ddpi_monotonic_ns();
    bool done = wire->put_greeting(&greeting) ? connect_all(load, port, count, &greeting, err)
                                              : !ddpi_error_nomem(err, SCRATCH_SIZE);
    *ret_elapsed_us = (double)(ddpi_monotonic_ns() - begin) / 1e3;
    ddpi_buf_finish(&greeting);
    return done;
}

void perf_load_close(struct perf_load *load)
{
    for (uint32_t i = 0; i < load->count; i++) {
        close(load->conns[i].fd);
        ddpi_buf_finish(&load->conns[i].in);
    }
    if (load->epoll_fd > 0) /* a zeroed one was never opened */
        close(load->epoll_fd);
    ddpi_free(load->conns);
    ddpi_free(load->scratch);
    *load = (struct perf_load){0};
}
