/*
 * multi_node.h - membership of this node in a job of several nodes, at a store. The store is a
 * ddprund's or another node's; if neither listens and the endpoint is an address of this machine,
 * this process hosts it.
 */
#ifndef CMD_MULTI_NODE_H
#define CMD_MULTI_NODE_H

#include "guard.h"
#include "membership.h"
#include "store_host.h"
#include "store_kept.h"
#include "tf_cluster.h"

#include <ddprun/round.h>
#include <uv.h>

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
    struct store_host host;           /* the store in this process, if it is here */
    char host_job[DDPI_JOB_MAX + 1];  /* whose ddprun hosts the store, if it is not ours; "" */
    uv_timer_t long_wait; /* to say why nodes do not meet; at the end, why this one stays */
    uv_poll_t keeper;     /* the socket at which the keeper says that it is ready */
    bool begun;           /* the look-up, or joining */
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
