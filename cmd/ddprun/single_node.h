/*
 * single_node.h - the rounds of a job of one node: the machine that a store's server runs for many
 * nodes (rounds.h), with its one member in the same process. The store shows what a job of many
 * nodes has there (round_keys.h), so that users see both alike.
 *
 * There are two paths to the machine, as a start of one node must be fast. Over a loopback
 * connection to its own server, as a node of many has it, two times /bin/true take 8.6 to 9.7 ms;
 * this way they take 6.6 to 7.6 (lower quartile and median of 40 starts in turn with each other).
 * What decides, the machine and the member, is the same code in both.
 */
#ifndef CMD_SINGLE_NODE_H
#define CMD_SINGLE_NODE_H

#include "membership.h"
#include "message.h"
#include "rounds.h"

#include <uv.h>

struct single_node {
    struct ddpi_rounds *rounds;
    struct membership *membership; /* the one member; borrowed */
    struct ddp_round_seat seat;    /* to be passed on */
    bool seated;                   /* @seat has not been passed on yet */
    bool changed;                  /* the summary is not shown yet */
    uv_idle_t soon;                /* active: the machine must step */
    uv_timer_t later;              /* active: it must step then */
    /* A generation is about to start: write to *@seat where its workers meet. */
    ddp_status (*begin)(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                        struct ddp_error *err);
    /* Show @value as @key in the store. */
    void (*show)(void *ctx, const char *key, const void *value, size_t len);
    void *ctx;
    const char *job; /* its name among the keys; NULL: show nothing */
    struct ddpi_buf record;
};

/* On failure, too, call single_node_close(). */
DDP_MUST_CHECK ddp_status single_node_init(struct single_node *node, uv_loop_t *loop,
                                           struct membership *membership, struct ddp_error *err);

/* Take what its member publishes. */
void single_node_publish(struct single_node *node, const struct ddp_round_member *says);

/* A client has set or deleted @key below those of rounds: to end the job, or to drain its node. The
 * number of nodes cannot be changed. */
void single_node_asked(struct single_node *node, struct ddpi_bytes key, bool set);

/* The state of its workers as text (worker_status.h). */
void single_node_describe(struct single_node *node, const char *text);

/* Does nothing to a zeroed struct. */
void single_node_close(struct single_node *node);

#endif
