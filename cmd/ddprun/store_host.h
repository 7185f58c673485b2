/*
 * store_host.h - the store of a job of several nodes in this process: whether it is here, and
 * where it listens.
 */
#ifndef CMD_STORE_HOST_H
#define CMD_STORE_HOST_H

#include "endpoint_mark.h"
#include "membership.h"
#include "parse.h"
#include "server.h"
#include "store_address.h"
#include "worker_keys.h"

#include <uv.h>

/* How a node finds the store of its job, or hosts it. */
struct multi_node_config {
    const char *job;
    struct ddpi_endpoint endpoint; /* of the store, as given; of several the first */
    int is_host;            /* host the store: 1 yes, 0 no, -1 if the address is this machine's */
    const char *store;      /* the endpoints as text, "host:port,..." */
    bool is_loopback;       /* all endpoints are addresses of this machine only */
    bool is_replicated;     /* keepers start with the agents, and have the store */
    bool is_launched;       /* another ddprun has chosen them, and started this one */
    const char *token_file; /* NULL: do not authenticate */
    bool token_named;       /* authenticate everywhere; else beyond loopback only */
    enum ddpi_server_auth auth;
    bool trust_local_users;
    bool tls;
    /* If this node hosts the store, TCPStore clients at its endpoint belong to the job. */
    bool is_master;
    uint32_t lease_ms;
    struct worker_keys *worker_keys; /* get the store's number; NULL: there are none */
};

struct store_host {
    const struct multi_node_config *config;
    struct membership *membership; /* hears what goes wrong, and what the server says */
    uv_loop_t *loop;
    struct ddpi_server *server;    /* NULL: another process hosts the store */
    struct ddpi_log log;           /* of that server */
    struct store_address address;  /* of the endpoint; host "": not known */
    bool everywhere;               /* it is, or would be, on all addresses of this node */
    char mark[ENDPOINT_MARK_PATH]; /* of the ddprund that owns the endpoint; "": none */
    char busy_host[DDPI_HOST_MAX]; /* this node's, whose port another program has; "": none */
    uv_timer_t try_again;          /* to listen at @busy_host; the owner closes it */
};

void store_host_init(struct store_host *host, uv_loop_t *loop,
                     const struct multi_node_config *config, struct membership *membership);

/* Host the store if the endpoint is an address of this machine, and nobody else does. @infos: of
 * the endpoint's host; a name that has none yet is not this machine's. DDP_OK also where another
 * process hosts it; an error says why this node cannot do what it was told to. */
DDP_MUST_CHECK ddp_status store_host_open(struct store_host *host, const struct addrinfo *infos,
                                          struct ddp_error *err);

/* Listen at the port that was busy as soon as it is free, while no store answers there; the member
 * leaves the job if that fails. Does nothing if no port was busy. */
void store_host_keep_trying(struct store_host *host);
void store_host_stop_trying(struct store_host *host);

/* Close the server, then call @closed. Without a server nothing is called. */
void store_host_close(struct store_host *host, void (*closed)(void *ctx), void *ctx);

/* Log of a store in this process: its lines are messages of the job. @ctx: struct membership. */
void store_host_on_log(void *ctx, enum ddpi_log_level level, const char *line);

#endif
