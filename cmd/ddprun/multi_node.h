/*
 * multi_node.h - membership of this node in a job of several nodes, at a store. The store is a
 * ddprund's or another node's; if neither listens and the endpoint is an address of this machine,
 * this process hosts it.
 */
#ifndef CMD_MULTI_NODE_H
#define CMD_MULTI_NODE_H

#include "endpoint_mark.h"
#include "guard.h"
#include "membership.h"
#include "parse.h"
#include "server.h"
#include "store_address.h"
#include "store_kept.h"
#include "tf_cluster.h"
#include "worker_keys.h"

#include <ddprun/round.h>
#include <uv.h>

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

struct multi_node_lookup;

struct multi_node {
    const struct multi_node_config *config;
    struct membership *membership;
    const struct guard_agent *guard; /* NULL: there is none */
    struct tf_cluster *cluster;      /* workers start when it is known; NULL: it is not wanted */
    uv_loop_t *loop;
    struct multi_node_lookup *lookup; /* of the endpoint's addresses; NULL: finished */
    ddp_round *round;                 /* NULL before and after */
    struct store_kept kept;           /* its store, if that has several endpoints */
    struct ddpi_server *server;       /* NULL: another process hosts the store */
    struct ddpi_log log;              /* of that server */
    char mark[ENDPOINT_MARK_PATH];    /* of the ddprund that owns the endpoint; "": none */
    char host_job[DDPI_JOB_MAX + 1];  /* whose ddprun hosts the store, if it is not ours; "" */
    struct store_address address;     /* of the endpoint; host "": not known */
    bool everywhere;                  /* this node would host the store on all addresses */
    char busy_host[DDPI_HOST_MAX];    /* this node's, whose port another program has; "": none */
    uv_timer_t try_again;             /* to listen at @busy_host, until there is a connection */
    uv_timer_t long_wait;             /* until a reason to wait is said */
    uv_poll_t keeper;                 /* the socket at which the keeper says that it is ready */
    bool begun;                       /* the look-up, or joining */
    bool connected;
    bool reached;        /* it has been connected */
    bool told;           /* the user, that the connection is lost */
    char early_why[128]; /* why there was none yet, when that was not to be told */
    bool left;
    bool lingering;                     /* only because other nodes need this store */
    void (*met)(void *ctx, int socket); /* connected to the store by @socket; NULL: nobody asks */
    void (*closed)(void *ctx);          /* of multi_node_close() */
    void *ctx;                          /* of both */
};

/* Options of a client that connects to the job's store as an agent, which sees all keys. */
struct ddp_store_options multi_node_store_options(const struct multi_node_config *config);

/* Log of a store in this process: its lines are messages of the job. @ctx: struct membership. */
void multi_node_on_log(void *ctx, enum ddpi_log_level level, const char *line);

/* Look up the endpoint's addresses, host the store if this node should, and connect to it. Returns
 * before the look-up has finished; the member leaves the job if a later step fails. On failure,
 * too, call multi_node_close().
 *
 * @keeper: a socket (replicate.h). If it is not 0, all of this begins when the keeper beside this
 * agent is ready. So a machine that is found unfit before gets no worker. */
DDP_MUST_CHECK ddp_status multi_node_open(struct multi_node *node, uv_loop_t *loop,
                                          const struct multi_node_config *config,
                                          struct membership *membership,
                                          const struct guard_agent *guard, int keeper,
                                          struct ddp_error *err);

/* Send what the member publishes, once there is a connection; the state of its workers; that it
 * leaves. */
void multi_node_publish(struct multi_node *node, const struct ddp_round_member *says);
void multi_node_describe(struct multi_node *node, const char *text);
void multi_node_leave(struct multi_node *node);

/* Close everything once multi_node_leave() has been answered, then call @closed, from the loop or
 * at once. A node that hosts the store waits until all others have left, or for multi_node_hurry().
 * A look-up, which cannot be interrupted, may be left to the loop. */
void multi_node_close(struct multi_node *node, void (*closed)(void *ctx), void *ctx);
void multi_node_hurry(struct multi_node *node);

#endif
