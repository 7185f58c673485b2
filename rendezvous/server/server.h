/*
 * server.h - the store's server on the caller's libuv loop: listeners, their connections and one
 * key-value core. It never runs the loop and, but for resolving a name to listen on, never blocks
 * it.
 */
#ifndef DDPI_SERVER_H
#define DDPI_SERVER_H

#include "listener.h"
#include "proof.h"
#include "server_stats.h"
#include "sink.h"

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ddpi_server;

/* Who has to prove who he is. PyTorch's TCPStore clients cannot: where it would be asked of them,
 * they are admitted from hosts from which a proven agent is connected. */
enum ddpi_server_auth {
    DDPI_SERVER_AUTH_DEFAULT, /* whoever comes from another machine, or is another user of this one
                               */
    DDPI_SERVER_AUTH_ALWAYS,
    DDPI_SERVER_AUTH_NEVER, /* who wants to may */
};

#define DDPI_SERVER_NO_BUSY_POLL UINT32_MAX

/* Zero means the default, everywhere. */
struct ddpi_server_options {
    const char *host; /* for ddpi_server_create(): NULL: 127.0.0.1 */
    uint16_t port;    /* the same; 0: a free one */
    /* By which clients prove who they are, and this server to them; not kept. NULL: none, and then
     * only NEVER allows addresses that other machines can reach. */
    const struct ddpi_credential *token;
    enum ddpi_server_auth auth;
    /* Other users of this machine count as the one whose process this is, who needs no proof on
     * loopback, nor does root. */
    bool trust_local_users;
    /* The owner of this server vouches for this user's TCPStore clients on this machine. */
    bool vouches;
    bool tls;                   /* with all that come from other machines, but for ... */
    bool tcpstore_in_clear;     /* ... TCPStore clients, who cannot, and else are not let in */
    uint32_t max_connections;   /* 65,536, and never more than the limit of open files allows */
    uint32_t max_half_open;     /* 4,096: whose peers have not been admitted */
    uint32_t connection_rate;   /* 20 a second: connections of one address that may fail */
    uint32_t max_data_ports;    /* 256: opened by clients */
    size_t max_keys;            /* 1 M */
    size_t max_bytes;           /* 1 GiB: all keys and values */
    uint32_t max_key_len;       /* 4 KiB, which is also the most */
    uint32_t max_value_len;     /* 16 MiB, which is also the most */
    uint32_t max_waits;         /* 1,024: requests of one connection that wait */
    uint32_t max_keys_per_wait; /* 4,096, which is also the most */
    uint32_t max_watches;       /* 1,024: of one connection */
    size_t max_sessions;        /* 65,536; agents of no job have as many beside these */
    size_t max_job_keys;        /* these three: of one job; any number ... */
    size_t max_job_bytes;
    size_t max_job_sessions;
    bool fair_shares;       /* ... or, where this is set, as much as is free */
    size_t reserve;         /* 64 MiB: bytes beside max_bytes for keys and sessions of rounds */
    size_t history_changes; /* 65,536: what watches can go back to ... */
    size_t history_bytes;   /* ... 32 MiB: its keys and values */

    /* What PyTorch's TCPStore clients, who cannot say to which job they belong, see of the store:
     * the keys with this prefix, which they see without it. */
    const char *tcpstore_prefix;     /* "tcp/" */
    uint32_t tcpstore_max_key_len;   /* 8 KiB, the prefix not counted; at most 1 MiB */
    uint32_t tcpstore_max_value_len; /* 8 MiB; at most 16 MiB */
    uint32_t tcpstore_max_keys;      /* in one request: 131,072, which is also the most */

    uint32_t handshake_ms; /* 5 s: until a connection has said who it is */
    uint32_t frame_ms;     /* 60 s: until a request that was begun is there */
    uint32_t output_ms;    /* 60 s: how long replies above the soft limit may lie unread */
    size_t output_soft;    /* 8 MiB */
    size_t output_hard;    /* 32 MiB */
    size_t output_total;   /* 1 GiB: of all connections; the first 16 KiB of each are free ... */
    size_t input_total;    /* ... 512 MiB: the same for requests that are not complete */
    uint32_t busy_poll_us; /* 100: see busy_poll.h; DDPI_SERVER_NO_BUSY_POLL: none */
    const struct ddpi_log *log; /* NULL: none; lives as long as the server */
};

/* A server that listens on one address. On failure nothing is left but maybe handles that close in
 * the next turns of the loop. When the address is in use, @err->sys_errno is EADDRINUSE. */
ddp_status ddpi_server_create(uv_loop_t *loop, const struct ddpi_server_options *options,
                              struct ddpi_server **ret, struct ddp_error *err);

/* One that listens nowhere yet. */
ddp_status ddpi_server_create_unbound(uv_loop_t *loop, const struct ddpi_server_options *options,
                                      struct ddpi_server **ret, struct ddp_error *err);

/* Listen on one more address, for all jobs (@job NULL) or as a data port of one, on which TCPStore
 * clients are that job's: @host is an address or a name, of which the first address counts;
 * one of IPv6 takes IPv6 only. Fails with nothing changed. DDP_E_DENIED: there has to be a token.
 */
ddp_status ddpi_server_listen(struct ddpi_server *server, const char *host, uint16_t port,
                              const char *job, struct ddp_error *err);

/* The same with a listening socket that somebody else has made. On success @fd belongs to the
 * server; on failure it may have been closed, but with DDP_E_DENIED it is still the caller's. */
ddp_status ddpi_server_adopt(struct ddpi_server *server, int fd, struct ddp_error *err);

/* Give it a token, or another one for those who come from now on. DDP_E_INVALID: it is the key of
 * one role only. */
ddp_status ddpi_server_set_token(struct ddpi_server *server, const struct ddpi_credential *token,
                                 struct ddp_error *err);

/* The number of its store, for which keys of roles are made; once there is no more to be restored.
 */
uint64_t ddpi_server_number(const struct ddpi_server *server);

/* "127.0.0.1:29400", "[::1]:29400": where it listens, in the order in which that began; NULL beyond
 * the last. They live until the server is drained or closed. */
const char *ddpi_server_endpoint_at(const struct ddpi_server *server, size_t index);

/* The job whose data port that is; "": no such. */
const char *ddpi_server_job_at(const struct ddpi_server *server, size_t index);

/* The first of them. */
const char *ddpi_server_endpoint(const struct ddpi_server *server);
uint16_t ddpi_server_port(const struct ddpi_server *server);

/* Begin with what a sink has kept: all mutations in the order of kv.h, then the mark. The server
 * listens nowhere yet. */
ddp_status ddpi_server_restore(struct ddpi_server *server, const struct ddpi_mutation *mutation,
                               struct ddp_error *err);
void ddpi_server_restore_mark(struct ddpi_server *server, const struct ddpi_mark *mark);

/*
 * Tell @sink, which is copied, of all changes from now on. What has changed in a turn of the loop
 * is committed at its end, and no answer leaves before. If that fails, all connections are closed
 * without an answer, and @failed is called from the loop, once: close the server then, as what it
 * holds in memory is more than it has promised.
 */
void ddpi_server_set_sink(struct ddpi_server *server, const struct ddpi_sink *sink,
                          void (*failed)(void *ctx, const struct ddp_error *why), void *ctx);

/* Remove all keys that begin with @prefix; how many. It takes as long as there are such keys. */
size_t ddpi_server_delete_prefix(struct ddpi_server *server, const char *prefix);

/* All keys that begin with @prefix are gone, such as those of an old generation; if they are many,
 * watches are told of them in the next turns. */
void ddpi_server_detach(struct ddpi_server *server, const char *prefix);

/* Let TCPStore clients see the keys with @prefix from now on, such as those of a new generation.
 * Those who are connected are closed, as they belong to the old one. The old keys stay. Fails with
 * nothing changed, and only for lack of memory. */
ddp_status ddpi_server_set_tcpstore_prefix(struct ddpi_server *server, const char *prefix,
                                           struct ddp_error *err);

/* TCPStore clients that come to the server's own addresses are those of @job, a valid name, from
 * now on; so a generation of that job needs no port of its own. */
void ddpi_server_set_tcpstore_job(struct ddpi_server *server, const char *job);

/* Accept no more connections; those that are there are served as before. @cb is called from the
 * loop once no request waits and all replies have left, which a peer can put off for ever: to end
 * it, close the server, maybe from @cb. */
void ddpi_server_drain(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx);

/* Call @cb, once, from the loop, when no job has members any more. */
void ddpi_server_when_idle(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx);

/* Stop, tell the clients, free everything, then call @cb (may be NULL) from the loop. */
void ddpi_server_close(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx);

#endif
