/*
 * pmix_relay.c - two sockets for each rank, and a block of bytes on its way in each direction. A
 * side that has ended ends the other when what it sent has been written.
 */
#include "pmix_relay.h"

#include "error.h"
#include "mem.h"
#include "parse.h"
#include "peer_owner.h"

#include <arpa/inet.h>

enum { RELAY_BLOCK = 64 * 1024, RELAY_BACKLOG = 1024 };

struct relayed;

/* One of the two sockets, and what has been read from it and not been written to the other. */
struct relay_side {
    uv_tcp_t tcp;
    struct relayed *pair;
    uv_write_t write; /* of @block, to the other side */
    char block[RELAY_BLOCK];
};

/* A rank's connection. */
struct relayed {
    struct relay_side rank, server;
    uv_connect_t connect;
    int open; /* sockets that are not closed yet */
};

static struct relay_side *other_side(struct relay_side *side)
{
    return side == &side->pair->rank ? &side->pair->server : &side->pair->rank;
}

static void on_side_closed(uv_handle_t *handle)
{
    struct relayed *pair = ((struct relay_side *)handle->data)->pair;
    if (--pair->open == 0)
        ddpi_free(pair);
}

static void close_pair(struct relayed *pair)
{
    if (uv_is_closing((uv_handle_t *)&pair->rank.tcp))
        return;
    uv_close((uv_handle_t *)&pair->rank.tcp, on_side_closed);
    uv_close((uv_handle_t *)&pair->server.tcp, on_side_closed);
}

static void on_side_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct relay_side *side = handle->data;
    (void)suggested;
    *buf = uv_buf_init(side->block, sizeof side->block);
}

static void on_side_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf);

static void on_side_written(uv_write_t *write, int uv_status)
{
    struct relay_side *side = write->data;
    if (uv_status != 0 ||
        uv_read_start((uv_stream_t *)&side->tcp, on_side_alloc, on_side_read) != 0)
        close_pair(side->pair);
}

static void on_side_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct relay_side *side = stream->data;
    (void)buf;
    if (count == 0)
        return;
    if (count < 0) {
        close_pair(side->pair);
        return;
    }
    uv_read_stop(stream);
    const uv_buf_t bytes = uv_buf_init(side->block, (unsigned)count);
    if (uv_write(&side->write, (uv_stream_t *)&other_side(side)->tcp, &bytes, 1, on_side_written) !=
        0)
        close_pair(side->pair);
}

static void on_server_reached(uv_connect_t *connect, int uv_status)
{
    struct relayed *pair = connect->data;
    if (uv_status == UV_ECANCELED)
        return;
    struct relay_side *sides[] = {&pair->rank, &pair->server};
    for (int i = 0; i < 2 && uv_status == 0; i++)
        uv_status = uv_read_start((uv_stream_t *)&sides[i]->tcp, on_side_alloc, on_side_read);
    if (uv_status != 0)
        close_pair(pair);
}

static bool is_of_our_user(const uv_tcp_t *tcp)
{
    uv_os_fd_t fd;
    return uv_fileno((const uv_handle_t *)tcp, &fd) == 0 && ddpi_owners_peer_is_ours(fd);
}

static struct relayed *make_pair(uv_loop_t *loop)
{
    struct relayed *pair = ddpi_calloc(1, sizeof *pair);
    if (pair == NULL)
        return NULL;
    struct relay_side *sides[] = {&pair->rank, &pair->server};
    for (int i = 0; i < 2; i++) {
        uv_tcp_init(loop, &sides[i]->tcp);
        sides[i]->tcp.data = sides[i]->write.data = sides[i];
        sides[i]->pair = pair;
    }
    pair->open = 2;
    pair->connect.data = pair;
    return pair;
}

static void connect_pair(struct pmix_relay *relay, struct relayed *pair)
{
    if (!is_of_our_user(&pair->rank.tcp) ||
        uv_tcp_connect(&pair->connect, &pair->server.tcp, (struct sockaddr *)&relay->server,
                       on_server_reached) != 0)
        close_pair(pair);
}

static void on_rank(uv_stream_t *listener, int uv_status)
{
    struct relayed *pair = uv_status == 0 ? make_pair(listener->loop) : NULL;
    if (pair == NULL)
        return;
    if (uv_accept(listener, (uv_stream_t *)&pair->rank.tcp) == 0)
        connect_pair(listener->data, pair);
    else
        close_pair(pair);
}

ddp_status pmix_relay_adopt(struct pmix_relay *relay, int fd, struct ddp_error *err)
{
    struct relayed *pair = make_pair(relay->listener.loop);
    if (pair == NULL)
        return ddpi_error_nomem(err, sizeof *pair);
    int uv_status = uv_tcp_open(&pair->rank.tcp, fd);
    if (uv_status != 0) {
        close_pair(pair);
        return ddpi_error_sys(err, -uv_status, "cannot use the first rank's connection");
    }
    connect_pair(relay, pair);
    return DDP_OK;
}

static bool parse_server(const char *text, struct sockaddr_in *ret)
{
    struct ddpi_endpoint server;
    *ret = (struct sockaddr_in){.sin_family = AF_INET};
    if (ddpi_parse_endpoint(text, &server, NULL) != DDP_OK || !server.has_port)
        return false;
    ret->sin_port = htons(server.port);
    return inet_pton(AF_INET, server.host, &ret->sin_addr) == 1;
}

ddp_status pmix_relay_open(struct pmix_relay *relay, uv_loop_t *loop, int fd, const char *server,
                           struct ddp_error *err)
{
    if (!parse_server(server, &relay->server))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "libpmix listens at '%s', which is no address",
                              server);
    uv_tcp_init(loop, &relay->listener);
    relay->listener.data = relay;
    int uv_status = uv_tcp_open(&relay->listener, fd);
    if (uv_status == 0)
        uv_status = uv_listen((uv_stream_t *)&relay->listener, RELAY_BACKLOG, on_rank);
    return uv_status == 0 ? DDP_OK
                          : ddpi_error_sys(err, -uv_status, "cannot accept connections of ranks");
}
