/*
 * server_door.c - who comes in. Owns the list of the half-open: connections whose peers have not
 * been admitted.
 *
 * Whoever knocks while there are as many of these as there may be takes the place of the one that
 * came first. Honest peers say at once who they are, so those who hold connections open displace
 * each other, and keep nobody out. Who has failed too often is turned away until some time has
 * passed (rate.h). What is refused is counted by its kind, and the log hears of each kind so and so
 * often.
 */
#include "error.h"
#include "proto.h"
#include "server_impl.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    LINES = 10, /* of each kind of refusal, in so many milliseconds: */
    LINES_MS = 10000,
};

/* --- counting and telling --- */

static void log_unlogged(struct ddpi_server *server, enum refusal refusal)
{
    struct hush *hush = &server->hushes[refusal];
    if (hush->unlogged == 0)
        return;
    switch (refusal) {
#define LINE(counter, words)                                          \
    case REFUSAL_##counter:                                           \
        ddpi_log(&server->log, DDPI_LOG_WARN, words, hush->unlogged); \
        break;
        SERVER_REFUSALS(LINE)
#undef LINE
    case REFUSALS:
        break;
    }
    hush->unlogged = 0;
}

static void count(struct ddpi_server *server, enum refusal refusal)
{
    uint64_t *const counters[] = {
#define COUNTER(counter, words) &server->counts.counter,
        SERVER_REFUSALS(COUNTER)
#undef COUNTER
    };
    ++*counters[refusal];
}

bool ddpi_server_refuse(struct ddpi_server *server, enum refusal refusal)
{
    struct hush *hush = &server->hushes[refusal];
    uint64_t now_ms = uv_now(server->env.loop);
    count(server, refusal);
    if (hush->logged == 0 || now_ms - hush->since_ms >= LINES_MS) {
        log_unlogged(server, refusal);
        *hush = (struct hush){.since_ms = now_ms};
    }
    bool room = hush->logged < LINES;
    hush->logged += room;
    hush->unlogged += !room;
    return room;
}

void ddpi_server_log_refusals(struct ddpi_server *server)
{
    for (unsigned refusal = 0; refusal < REFUSALS; refusal++)
        log_unlogged(server, (enum refusal)refusal);
}

bool ddpi_server_on_fault(void *owner, const struct ddpi_conn *conn)
{
    return ddpi_server_refuse(owner, conn->denied       ? REFUSAL_denied
                                     : conn->overloaded ? REFUSAL_overloaded
                                                        : REFUSAL_dismissed);
}

void ddpi_server_on_shed(void *owner)
{
    struct ddpi_server *server = owner;
    if (ddpi_server_refuse(server, REFUSAL_refused))
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "refused a connection: no file descriptor is left (raise ulimit -n)");
}

/* --- the half-open --- */

/* Not loopback, where it is open: all workers of this machine share its address, while who means
 * harm can take another one of 127.0.0.0/8 for each connection. */
static bool is_throttled(const struct ddpi_server *server, const struct ddpi_address *address)
{
    return !(server->env.gate.open_to_loopback && ddpi_address_is_loopback(address));
}

void ddpi_server_not_half_open(struct ddpi_server *server, struct ddpi_conn *conn)
{
    if (ddpi_list_empty(&conn->of_half_open))
        return;
    ddpi_list_remove(&conn->of_half_open);
    server->counts.half_open--;
}

void ddpi_server_charge(struct ddpi_server *server, const struct ddpi_conn *conn)
{
    if (!ddpi_list_empty(&conn->of_half_open) && is_throttled(server, &conn->address))
        ddpi_rate_charge(&server->rate, &conn->address, uv_now(server->env.loop));
}

static void displace(struct ddpi_server *server)
{
    struct ddpi_conn *conn =
        ddpi_container_of(server->half_open.next, struct ddpi_conn, of_half_open);
    if (ddpi_server_refuse(server, REFUSAL_displaced)) {
        char host[DDPI_ADDRESS_CHARS];
        ddpi_address_format(&conn->address, host);
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "connection from %s port %u closed: it has not said whose it is, and gives way to "
                 "a newer one",
                 host, conn->port);
    }
    ddpi_conn_close(conn, DDP_E_LIMIT, "too many connections have not said whose they are");
    ddpi_server_not_half_open(server, conn);
}

/* --- who knocks --- */

/* A few bytes into an empty socket buffer: they fit, or the peer does without. */
static void refuse(struct ddpi_server *server, int fd)
{
    static const struct ddpi_preamble ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    static const char text[] = "the server has as many connections as it may have";
    struct ddpi_buf out;
    ddpi_buf_init(&out, 1024);
    if (ddpi_preamble_put(&out, &ours) && ddpi_refusal_put(&out, DDPI_FRAME_BYE, 0, DDP_E_LIMIT, 0,
                                                           ddpi_bytes_of(text, sizeof text - 1)))
        (void)!send(fd, ddpi_buf_head(&out), ddpi_buf_len(&out), MSG_NOSIGNAL | MSG_DONTWAIT);
    ddpi_buf_finish(&out);
    close(fd);
    if (ddpi_server_refuse(server, REFUSAL_refused))
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "refused a connection: there are %" PRIu64 ", which is the limit",
                 server->counts.connections);
}

static void turn_away(struct ddpi_server *server, int fd, const struct ddpi_address *address)
{
    close(fd);
    if (ddpi_server_refuse(server, REFUSAL_throttled)) {
        char host[DDPI_ADDRESS_CHARS];
        ddpi_address_format(address, host);
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "refused a connection from %s: too many others from there have failed", host);
    }
}

static void begin(struct ddpi_server *server, const struct ddpi_listener *listener, int fd,
                  const struct sockaddr *peer)
{
    struct ddp_error err;
    struct ddpi_conn *conn = NULL;
    ddp_status status = ddpi_conn_create(&server->env, fd, peer, &conn, &err);
    if (conn != NULL) {
        memcpy(conn->job, listener->job, sizeof conn->job);
        ddpi_list_append(&server->conns, &conn->of_server);
        ddpi_list_append(&server->half_open, &conn->of_half_open);
        server->counts.connections++;
        server->counts.half_open++;
    }
    if (status == DDP_OK) {
        server->counts.accepted++;
        return;
    }
    if (ddpi_server_refuse(server, REFUSAL_refused))
        ddpi_log(&server->log, DDPI_LOG_WARN, "lost a connection: %s", err.msg);
    if (conn != NULL)
        ddpi_conn_close(conn, status, err.msg);
}

void ddpi_server_on_connected(void *owner, const struct ddpi_listener *listener, int fd,
                              const struct sockaddr *peer)
{
    struct ddpi_server *server = owner;
    struct ddpi_address address = ddpi_address_of(peer);
    bool full = server->counts.connections >= server->max_connections;
    if (is_throttled(server, &address) &&
        !ddpi_rate_permits(&server->rate, &address, uv_now(server->env.loop))) {
        turn_away(server, fd, &address);
    } else if (full && server->counts.half_open == 0) {
        refuse(server, fd);
    } else {
        if (full || server->counts.half_open >= server->max_half_open)
            displace(server);
        begin(server, listener, fd, peer);
    }
}
