/*
 * server.h - the store's server on the caller's libuv loop: listeners, their connections and one
 * key-value core. It never runs the loop; only resolving the name of a host to listen on blocks it.
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

struct ddpi_rounds_summary;
struct ddpi_server;

/* Which clients must authenticate. PyTorch's TCPStore clients cannot; a client that would have to
 * is admitted if an authenticated agent is connected from the same host. */
enum ddpi_server_auth {
    DDPI_SERVER_AUTH_DEFAULT, /* from other machines, and of other users of this one */
    DDPI_SERVER_AUTH_ALWAYS,
    DDPI_SERVER_AUTH_NEVER,
};

#define DDPI_SERVER_NO_BUSY_POLL UINT32_MAX

/* Zero means the default, everywhere. */
struct ddpi_server_options {
    const char *host; /* for ddpi_server_create(): NULL: 127.0.0.1 */
    uint16_t port;    /* the same; 0: a free one */
    /* With which clients and the server authenticate to each other; copied. NULL: none, and then
     * only NEVER allows addresses that other machines can reach. */
    const struct ddpi_credential *token;
    enum ddpi_server_auth auth;
    /* No user of this machine has to authenticate on loopback; else only the user of this process
     * and root do not have to. */
    bool trust_local_users;
    /* The owner runs the rounds of its job itself, shows them by ddpi_server_show(), and is told
     * which keys clients change below those of rounds. Must not call into the server. NULL: the
     * server runs the rounds. */
    void (*rounds_elsewhere)(void *ctx, struct ddpi_bytes key, bool set);
    /* The state of a job's rounds has changed; its members hear of it after this call, which must
     * not change the server. */
    void (*job_changed)(void *ctx, const char *job, const struct ddpi_rounds_summary *now);
    void *rounds_ctx; /* of these two */
    /* This server's owner vouches for this user's TCPStore clients on this machine. */
    bool vouches;
    bool tls;                   /* required from other machines, except from ... */
    bool tcpstore_in_clear;     /* ... TCPStore clients, which are denied without this */
    uint32_t max_connections;   /* 65,536, and never more than the limit of open files allows */
    uint32_t max_half_open;     /* 4,096: connections that are not admitted yet */
    uint32_t connection_rate;   /* 20 a second: failures that each address is allowed */
    uint32_t max_data_ports;    /* 256: opened by clients */
    size_t max_keys;            /* 1 M */
    size_t max_bytes;           /* 1 GiB: all keys and values */
    uint32_t max_key_len;       /* 4 KiB, which is also the most */
    uint32_t max_value_len;     /* 16 MiB, which is also the most */
    uint32_t max_waits;         /* 1,024: waiting requests of one connection */
    uint32_t max_keys_per_wait; /* 4,096, which is also the most */
    uint32_t max_watches;       /* 1,024: of one connection */
    size_t max_sessions;        /* 65,536, and as many more for agents of no job */
    size_t max_job_keys;        /* these three: of one job; unlimited ... */
    size_t max_job_bytes;
    size_t max_job_sessions;
    bool fair_shares;       /* ... or, if this is set, a share of what is free */
    bool named_jobs_only;   /* nodes that gave their job no name are refused */
    size_t reserve;         /* 64 MiB: more bytes, for keys and sessions of rounds */
    size_t history_changes; /* 65,536: changes that watches can go back to ... */
    size_t history_bytes;   /* ... 32 MiB: their keys and values */

    /* PyTorch's TCPStore clients cannot name their job. They see the keys with this prefix, without
     * the prefix. */
    const char *tcpstore_prefix;     /* "tcp/" */
    uint32_t tcpstore_max_key_len;   /* 8 KiB, the prefix not counted; at most 1 MiB */
    uint32_t tcpstore_max_value_len; /* 8 MiB; at most 16 MiB */
    uint32_t tcpstore_max_keys;      /* in one request: 131,072, which is also the most */

    uint32_t handshake_ms;      /* 5 s: for the handshake of a connection */
    uint32_t frame_ms;          /* 60 s: from the first byte of a request to its last */
    uint32_t output_ms;         /* 60 s: how long unread replies may exceed output_soft */
    size_t output_soft;         /* 8 MiB */
    size_t output_hard;         /* 32 MiB */
    size_t output_total;        /* 1 GiB: of all connections, without the first 16 KiB of each */
    size_t input_total;         /* 512 MiB: the same, of incomplete requests */
    uint32_t busy_poll_us;      /* 100: see busy_poll.h; DDPI_SERVER_NO_BUSY_POLL: none */
    const struct ddpi_log *log; /* NULL: none; lives as long as the server */
};

/* Create a server that listens on one address. After a failure, handles may remain that close in
 * the next turns of the loop. If the address is in use, @err->sys_errno is EADDRINUSE. */
ddp_status ddpi_server_create(uv_loop_t *loop, const struct ddpi_server_options *options,
                              struct ddpi_server **ret, struct ddp_error *err);

/* Create one that does not listen yet. */
ddp_status ddpi_server_create_unbound(uv_loop_t *loop, const struct ddpi_server_options *options,
                                      struct ddpi_server **ret, struct ddp_error *err);

/* Listen on one more address, for all jobs (@job NULL) or as a data port: TCPStore clients on it
 * belong to @job. @host is an address, or a name of which the first address is used; an IPv6
 * address accepts IPv6 only. A failed call changes nothing. DDP_E_DENIED: the address needs a
 * token. */
ddp_status ddpi_server_listen(struct ddpi_server *server, const char *host, uint16_t port,
                              const char *job, struct ddp_error *err);

/* The same with an existing listening socket. On success @fd belongs to the server; on failure it
 * may have been closed, except with DDP_E_DENIED. */
ddp_status ddpi_server_adopt(struct ddpi_server *server, int fd, struct ddp_error *err);

/* Admit no client, but tell each that authenticates, or need not, that this store is a standby, and
 * that the leader is @leader, such as "10.0.0.1:29400"; "": none is known. They get DDP_E_CLOSED
 * before WELCOME, so they may try another endpoint. @number: of the store that both have, or 0: not
 * known. Can be called again when the leader changes. */
void ddpi_server_stand_by(struct ddpi_server *server, const char *leader, uint64_t number);
/* Admit clients from now on. Contents must be restored before. */
void ddpi_server_stand_in(struct ddpi_server *server);

/* The store is for @job, a valid name, and over with it. When the job has had a result, its last
 * member has left, and that is durable, the server stands by, so that nobody comes any more, and
 * @over is called from the loop, once. That happens at once if an earlier server with the same
 * contents has seen it, and also when the job has had no member for ten minutes; but not while
 * another job has members. */
void ddpi_server_end_with(struct ddpi_server *server, const char *job, void (*over)(void *ctx),
                          void *ctx);

/* What other keepers of this store's list are told (cmd/keeper) for the next second; copied. A
 * standby admits keepers that prove the token, and answers this to them only. DDP_E_NOMEM: the last
 * one stays. */
enum { DDPI_SERVER_KEEPER_STATUS_MS = 1000 };
ddp_status ddpi_server_set_keeper_status(struct ddpi_server *server, const char *text, size_t len,
                                         struct ddp_error *err);

/* Set the token for new connections. DDP_E_INVALID: it is the key of one role. */
ddp_status ddpi_server_set_token(struct ddpi_server *server, const struct ddpi_credential *token,
                                 struct ddp_error *err);

/* The number of its store, to which the keys of roles are bound. Valid after the contents are
 * restored. */
uint64_t ddpi_server_number(const struct ddpi_server *server);

/* An address that it listens on, such as "127.0.0.1:29400" or "[::1]:29400", in the order in which
 * they were added; NULL beyond the last. Valid until the server is drained or closed. */
const char *ddpi_server_endpoint_at(const struct ddpi_server *server, size_t index);

/* The job whose data port that is; "": none. */
const char *ddpi_server_job_at(const struct ddpi_server *server, size_t index);

/* The first of them. */
const char *ddpi_server_endpoint(const struct ddpi_server *server);
uint16_t ddpi_server_port(const struct ddpi_server *server);

/* Restore what a sink has stored, before the server listens: all mutations in the order that kv.h
 * names, then the mark. */
ddp_status ddpi_server_restore(struct ddpi_server *server, const struct ddpi_mutation *mutation,
                               struct ddp_error *err);
void ddpi_server_restore_mark(struct ddpi_server *server, const struct ddpi_mark *mark);

/*
 * Pass all changes to @sink, which is copied. The changes of a turn of the loop are committed at
 * its end, and no reply leaves before the changes that it may depend on are durable. While a commit
 * is under way requests are served, and their changes belong to the next one. If a commit fails,
 * all connections are closed without a reply, and @failed is called from the loop, once: close the
 * server then, since its memory holds changes that no client was told of. The sink must not report
 * the end of a commit after the server was closed.
 */
void ddpi_server_set_sink(struct ddpi_server *server, const struct ddpi_sink *sink,
                          void (*failed)(void *ctx, const struct ddp_error *why), void *ctx);

/* Set @key for clients to read, within the limits or not. DDP_E_NOMEM. */
ddp_status ddpi_server_show(struct ddpi_server *server, const char *key, const void *value,
                            size_t len, struct ddp_error *err);

/* Delete all keys that begin with @prefix, at once. Returns their number. */
size_t ddpi_server_delete_prefix(struct ddpi_server *server, const char *prefix);

/* Delete all keys that begin with @prefix, such as those of an old generation. If there are many,
 * watches receive the deletions in the following turns. */
void ddpi_server_detach(struct ddpi_server *server, const char *prefix);

/* Change the prefix of TCPStore clients, as for a new generation. Their connections are closed,
 * since they belong to the old one; the old keys stay. Fails only if memory is short, and then
 * changes nothing. */
ddp_status ddpi_server_set_tcpstore_prefix(struct ddpi_server *server, const char *prefix,
                                           struct ddp_error *err);

/* TCPStore clients on addresses of no job belong to @job, a valid name, so that its generations
 * need no data port. */
void ddpi_server_set_tcpstore_job(struct ddpi_server *server, const char *job);

/* Stop accepting connections; existing connections are served as before. @cb is called from the
 * loop, once, when no request is waiting and all replies have been sent. A client can delay that
 * forever: close the server, from @cb or earlier. */
void ddpi_server_drain(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx);

/* The name of a job with members that is not @job, until the loop turns; NULL: there is none. */
const char *ddpi_server_other_job(const struct ddpi_server *server, const char *job);

/* Call @cb from the loop, once, when no job has members. */
void ddpi_server_when_idle(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx);

/* Stop listening, notify the clients, free everything, then call @cb (or NULL) from the loop. */
void ddpi_server_close(struct ddpi_server *server, void (*cb)(void *ctx), void *ctx);

#endif
