/*
 * gathering.h - how the ranks of a world find each other: rank 0 gathers them.
 *
 * One key is in the store while they do, of the NAME of the communicator:
 *
 *     comm/NAME/host    the card of rank 0 (peer_card.h)
 *
 *     rank 0                                the others
 *       sets the key               ......     wait for it, connect to rank 0 and prove themselves
 *                                  <-- CARD   (greeting.h), each with its card
 *       all have come: removes
 *       the key
 *       next's and prev's card     CARD -->   connect to the next rank, let in the previous one
 *       does the same              <-- STANDS
 *       all stand                  GO   -->   and so do we: from here on the ring has the word
 *
 * Until then rank 0 is the judge. Whose connection to it ends has died; who gives up says why
 * before it leaves (FAILED); and rank 0 tells all who are there the first of these causes, in the
 * same words. So a survivor never names another one: whose neighbour is gone waits for that word.
 * When the connection to rank 0 ends, it is rank 0 that has died. A rank that rank 0 has not let in
 * yet waits for another rank 0: one that nobody finds at its key is dead, and the key is removed.
 *
 * This is what both sides have in common: the ring, and one wait for all. Nothing outlives it but
 * the edges of the ring.
 */
#ifndef DDPI_GATHERING_H
#define DDPI_GATHERING_H

#include "communicator.h"

#include <ddprun/store.h>

struct ddpi_gathering;

/* What the two sides do each in its own way. Anything but DDP_OK ends the gathering. */
struct ddpi_gathering_role {
    /* A rank has connected to join; takes @edge over in any case. */
    ddp_status (*arrive)(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                         struct ddp_error *err);
    /* @memo has come over @edge; it is none of those that mean the same everywhere. */
    ddp_status (*take)(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                       const struct ddpi_memo *memo, struct ddp_error *err);
    /* The time is up: @wake_ms is to be later now. */
    ddp_status (*overdue)(struct ddpi_gathering *gathering, struct ddp_error *err);
};

struct ddpi_gathering {
    const struct ddpi_gathering_role *role;
    struct ddp_comm *comm;
    const struct ddpi_config *config;
    ddp_store *store;
    struct ddpi_meeting *meeting; /* the communicator's */
    uint64_t deadline_ms;
    uint64_t wake_ms;    /* when role->overdue() is called */
    uint64_t suspect_ms; /* a neighbour is gone: until then rank 0 may say on whose account */
    int events;          /* an epoll descriptor for all edges to those who join, and the meeting */
    bool over;           /* nobody is heard any more */
    bool judged;         /* what has failed is another rank, which the sentence names */
};

/* Fill the edges of the ring and the spin limit of @comm, and return when all ranks have done so.
 * @store stays open. */
ddp_status ddpi_gather(struct ddp_comm *comm, const struct ddpi_config *config, ddp_store *store,
                       uint64_t deadline_ms, struct ddp_error *err);

/* ---- gathering_host.c and gathering_join.c: rank 0, and each other one ---- */

/* Each has its own copy of @common, and gives its role. On failure @err is complete, with advice.
 */
ddp_status ddpi_gather_host(const struct ddpi_gathering *common, struct ddp_error *err);
ddp_status ddpi_gather_join(const struct ddpi_gathering *common, struct ddp_error *err);

/* ---- gathering.c, for these ---- */

enum { DDPI_HOST_KEY = 160 /* a name has at most 128 characters */ };
void ddpi_gathering_key(const struct ddpi_gathering *gathering, char key[DDPI_HOST_KEY]);
/* Remove the key if it is the card that these @len bytes are. */
ddp_status ddpi_gathering_remove_key(const struct ddpi_gathering *gathering, const void *card,
                                     size_t len, struct ddp_error *err);
uint32_t ddpi_gathering_left_ms(const struct ddpi_gathering *gathering);

/* From now on, hear what comes over @edge; who wants to come in. */
ddp_status ddpi_gathering_watch(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                                struct ddp_error *err);
ddp_status ddpi_gathering_watch_door(struct ddpi_gathering *gathering, struct ddp_error *err);

/* Say @notice over @edge, which may be NULL: to nobody. */
void ddpi_gathering_say(struct ddpi_edge *edge, enum ddpi_notice notice, uint32_t tag);
void ddpi_gathering_say_card(const struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                             uint32_t rank);
/* @err, which this rank fails with, on its own account or not. */
void ddpi_gathering_say_failed(const struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                               const struct ddp_error *err);

/* Read all that has come over @edge. */
ddp_status ddpi_gathering_hear(struct ddpi_gathering *gathering, struct ddpi_edge *edge,
                               struct ddp_error *err);

/* Sleep until something happens, or the time is up, and see to it. */
ddp_status ddpi_gathering_turn(struct ddpi_gathering *gathering, struct ddp_error *err);

/* Begin to connect to the next rank; whether both edges of the ring stand. */
ddp_status ddpi_gathering_begin_ring(struct ddpi_gathering *gathering, struct ddp_error *err);
bool ddpi_gathering_stands(const struct ddpi_gathering *gathering);

#endif
