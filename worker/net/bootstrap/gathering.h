/*
 * gathering.h - how the ranks of a world find each other: rank 0 gathers them.
 *
 * Meanwhile a directory (directory.h) has the card of rank 0 (peer_card.h):
 *
 *     rank 0                                the other ranks
 *       publishes its card         ......     find it, connect to rank 0 and prove themselves
 *                                  <-- CARD   (greeting.h); each sends its card
 *       all have joined: withdraws
 *       its card
 *       cards of both neighbours   CARD -->   connect to the next rank, accept the previous one
 *       does the same              <-- STANDS
 *       all stand                  GO   -->   continue over the ring
 *
 * Until then rank 0 judges. A rank whose connection to it ends has died; a rank that gives up tells
 * it why (FAILED); and rank 0 tells all ranks the first of these causes, in the same words. So
 * survivors never name different ranks: one whose neighbour is gone waits for that message. If the
 * connection to rank 0 ends, rank 0 has died. A rank that rank 0 has not accepted yet waits for
 * another rank 0: if nothing listens at the address in the card, that rank 0 is dead, and the card
 * is withdrawn.
 *
 * This file is what both sides share: the ring, and one wait for everything. Only the edges of the
 * ring outlive it.
 */
#ifndef DDPI_GATHERING_H
#define DDPI_GATHERING_H

#include "communicator.h"
#include "directory.h"

struct ddpi_gathering;

/* The functions in which the two sides differ. Anything but DDP_OK ends the gathering. */
struct ddpi_gathering_role {
    /* A rank has connected to join; takes @edge over in any case. */
    ddp_status (*arrive)(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                         struct ddp_error *err);
    /* @memo has come over @edge. */
    ddp_status (*take)(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                       const struct ddpi_memo *memo, struct ddp_error *err);
    /* @wake_ms has passed; set a later one. */
    ddp_status (*overdue)(struct ddpi_gathering *gathering, struct ddp_error *err);
};

struct ddpi_gathering {
    const struct ddpi_gathering_role *role;
    struct ddp_comm *comm;
    const struct ddpi_config *config;
    struct ddpi_directory *directory;
    struct ddpi_meeting *meeting; /* the communicator's */
    uint64_t deadline_ms;
    uint64_t wake_ms;    /* when role->overdue() is called */
    uint64_t suspect_ms; /* a neighbour is gone: wait until then for rank 0 to tell why */
    uint64_t look_ms;    /* when rank 0 looks whether its card is still in the directory */
    int events;          /* an epoll descriptor of all edges to joining ranks, and of the meeting */
    bool over;           /* read no more messages */
    bool judged;         /* the failure is that of another rank, which the sentence names */
};

/* ---- gathering_host.c: rank 0; gathering_join.c: the other ranks ---- */

/* Each has its own copy of @common, with its role. On failure @err is complete, with advice. */
ddp_status ddpi_gather_host(const struct ddpi_gathering *common, struct ddp_error *err);
ddp_status ddpi_gather_join(const struct ddpi_gathering *common, struct ddp_error *err);

/* ---- gathering.c, for these ---- */

uint32_t ddpi_gathering_left_ms(const struct ddpi_gathering *gathering);

/* Watch @edge for messages; watch the listeners. */
ddp_status ddpi_gathering_watch(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                                struct ddp_error *err);
ddp_status ddpi_gathering_watch_listeners(struct ddpi_gathering *gathering, struct ddp_error *err);

/* Send @notice over @edge; NULL: send nothing. */
void ddpi_gathering_send(struct ddpi_edge *edge, enum ddpi_notice notice, uint32_t tag);
void ddpi_gathering_send_card(const struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                              uint32_t rank);
/* Send @err, with which this rank fails. */
void ddpi_gathering_send_failed(const struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                                const struct ddp_error *err);

/* Handle all messages that have come over @edge. */
ddp_status ddpi_gathering_read(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                               struct ddp_error *err);

/* Sleep until something happens or @wake_ms passes, and handle it. */
ddp_status ddpi_gathering_turn(struct ddpi_gathering *gathering, struct ddp_error *err);

/* Begin to connect to the next rank; whether both ring edges exist. */
ddp_status ddpi_gathering_begin_ring(struct ddpi_gathering *gathering, struct ddp_error *err);
bool ddpi_gathering_stands(const struct ddpi_gathering *gathering);

#endif
