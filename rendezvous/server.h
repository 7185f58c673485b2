/*
 * server.h - the store's server on the caller's libuv loop: a listener, its connections and the
 * key-value core. It never runs the loop and never blocks it.
 */
#ifndef DDPI_SERVER_H
#define DDPI_SERVER_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ddpi_log;
struct ddpi_server;

/* Zero means the default, everywhere. */
struct ddpi_server_options {
    const char *host;         /* address or name to listen on; NULL: 127.0.0.1 */
    uint16_t port;            /* 0: a free one */
    uint32_t max_connections; /* 65,536, and never more than the limit of open files allows */
    size_t max_keys;          /* 1 M */
    size_t max_bytes;         /* 1 GiB: all keys and values */
    uint32_t max_value_len;   /* 16 MiB, which is also the most */

    /* What PyTorch's TCPStore clients, who cannot say to which job they belong, see of the store:
     * the keys with this prefix, which they see without it. */
    const char *tcpstore_prefix;     /* "tcp/" */
    uint32_t tcpstore_max_key_len;   /* 8 KiB, the prefix not counted; at most 1 MiB */
    uint32_t tcpstore_max_value_len; /* 8 MiB; at most 16 MiB */
    uint32_t tcpstore_max_keys;      /* in one request: 131,072, which is also the most */

    uint32_t handshake_ms;      /* 5 s: until a connection has said who it is */
    uint32_t frame_ms;          /* 60 s: until a request that was begun is there */
    uint32_t output_ms;         /* 60 s: how long replies above the soft limit may lie unread */
    size_t output_soft;         /* 8 MiB */
    size_t output_hard;         /* 32 MiB */
    const struct ddpi_log *log; /* NULL: none; lives as long as the server */
};

struct ddpi_server_stats {
    uint64_t accepted; /* connections */
    uint64_t refused;  /* connections: too many, or no file descriptor or memory for them */
    uint64_t requests;
    size_t connections; /* now */
    size_t keys;
    size_t bytes;
    size_t waits; /* requests that wait now */
};

enum { DDPI_ENDPOINT_MAX = 300 };

/* Begin to listen. On failure nothing is left but maybe handles that close in the next turns of
 * the loop. When the address is in use, @err->sys_errno is EADDRINUSE. */
ddp_status ddpi_server_create(uv_loop_t *loop, const struct ddpi_server_options *options,
                              struct ddpi_server **ret, struct ddp_error *err);

/* "127.0.0.1:29400", "[::1]:29400": where it listens; lives as long as the server. */
const char *ddpi_server_endpoint(const struct ddpi_server *server);
uint16_t ddpi_server_port(const struct ddpi_server *server);

/* Remove all keys that begin with @prefix, such as those of an old generation; how many. */
size_t ddpi_server_delete_prefix(struct ddpi_server *server, const char *prefix);

/* Let TCPStore clients see the keys with @prefix from now on, such as those of a new generation.
 * Those who are connected are closed, as they belong to the old one. The old keys stay. Fails with
 * nothing changed, and only for lack of memory. */
ddp_status ddpi_server_set_tcpstore_prefix(struct ddpi_server *server, const char *prefix,
                                           struct ddp_error *err);

struct ddpi_server_stats ddpi_server_stats(const struct ddpi_server *server);

/* Stop, tell the clients, free everything, then call @cb (may be NULL) from the loop. */
void ddpi_server_close(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx);

#endif
