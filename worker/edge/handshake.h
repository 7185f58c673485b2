/*
 * handshake.h - two ranks that have each other's cards become an edge. Nothing here blocks: the
 * caller waits for what ddpi_meeting_wait_fd() says, together with whatever else it waits for.
 *
 * Who needs an edge first connects, and the other one accepts as soon as it listens. Shared memory:
 * one connection over an abstract Unix socket, which carries the memory file and both bells and
 * stays open as the control socket. TCP: one connection for control and one for data. If two ranks
 * connect to each other, the attempt of the lower one counts, and the higher one gives its own up
 * as soon as it has accepted.
 *
 * As the listener of a rank lives as long as its communicator, an attempt sees at once when the
 * rank dies, whether or not it has accepted yet. One that is merely sent away tries again.
 *
 * Whoever connects is a stranger until it has proven that it is a rank of this world (greeting.h).
 * Other users of the machine are not even heard.
 */
#ifndef DDPI_HANDSHAKE_H
#define DDPI_HANDSHAKE_H

#include "edge.h"
#include "greeting.h"
#include "list.h"

enum ddpi_attempt_stage {
    DDPI_ATTEMPT_NONE,
    DDPI_ATTEMPT_QUEUE,   /* try at retry_ms: nobody may stand in line now, or we were sent away */
    DDPI_ATTEMPT_CONNECT, /* TCP is at work */
    DDPI_ATTEMPT_ANSWER,  /* greeted; the peer has to prove itself, and to accept */
    DDPI_ATTEMPT_GONE,    /* the peer is, and edge.broken says so */
};

/* An edge that this rank has asked for. */
struct ddpi_attempt {
    enum ddpi_attempt_stage stage;
    enum ddpi_link link;
    bool local;                /* over a Unix socket */
    struct ddpi_card card;     /* of the peer */
    struct ddpi_edge edge;     /* stands for the one to come where somebody waits for it */
    struct ddpi_greeting main; /* on the connection for control */
    struct ddpi_greeting data; /* without a connection where memory is shared */
    struct ddpi_shm_segment *segment;
    uint64_t retry_ms;
    uint32_t turn; /* how often it has been tried */
};

enum { DDPI_STRANGERS_MAX = 16 };

/* Where a rank meets others. */
struct ddpi_meeting {
    struct ddpi_card card; /* its own */
    struct ddpi_rank_key key;
    uint32_t rank;
    uint32_t world_size;
    int bell; /* borrowed from the communicator */
    uint8_t
        *cards; /* a slot (peer_card.h) for each rank; zeros: not known, or not needed any more */
    int events; /* an epoll descriptor for all of this */
    int tcp_listener;                 /* -1: none */
    int local_listener;               /* -1: no shared memory */
    struct ddpi_shm_segment *segment; /* for the first attempt; NULL: it makes its own */
    struct ddpi_list visitors;        /* of struct visitor: who has connected to us */
    uint32_t visitor_count;
    uint32_t stranger_count; /* of them, who has not proven itself; at most DDPI_STRANGERS_MAX */
    uint64_t deaf_until_ms;  /* out of descriptors: nobody is let in before; 0: not so */
    bool ring_stands;        /* the previous rank has its edge */
    bool gathers;            /* ranks of which nothing is known may join; else none */
    bool needs_all;          /* who wants in is waited for: not to have room for it is a failure */
    const struct ddpi_tls_engine *tls; /* for data through TCP; NULL: it goes in clear */
    struct ddpi_attempt attempt;       /* one at a time */
};

/* Make @meeting such that it can be finished. */
void ddpi_meeting_clear(struct ddpi_meeting *meeting);

/* Listen on @address (NULL: nowhere; its port is ignored) and, with @use_shm, on an abstract
 * socket, and fill the card. Where shared memory cannot be had, the card says so and nothing fails.
 * On failure ddpi_meeting_finish() is still to be called. */
ddp_status ddpi_meeting_init(struct ddpi_meeting *meeting, uint32_t rank, uint32_t world_size,
                             int bell, const struct ddpi_rank_key *key,
                             const struct sockaddr_storage *address, bool use_shm,
                             struct ddp_error *err);
void ddpi_meeting_finish(struct ddpi_meeting *meeting);

static inline uint8_t *ddpi_meeting_slot(const struct ddpi_meeting *meeting, uint32_t rank)
{
    return meeting->cards + (size_t)rank * DDPI_CARD_SLOT;
}

/* Begin to connect to @peer, whose card is known; no attempt may be under way. */
ddp_status ddpi_meeting_ask(struct ddpi_meeting *meeting, uint32_t peer, enum ddpi_link link,
                            struct ddp_error *err);

/* An edge that has come of it all; edge NULL: none. */
struct ddpi_arrival {
    struct ddpi_edge *edge;
    enum ddpi_link link;
    bool asked; /* we have asked for it, the peer has not */
};

/* Go on until an edge is there, or until there is nothing to do now. Any failure ends the attempt;
 * that its peer is gone is none, but breaks the edge that stands for it. */
ddp_status ddpi_meeting_advance(struct ddpi_meeting *meeting, struct ddpi_arrival *ret_arrival,
                                struct ddp_error *err);

/* Readable when ddpi_meeting_advance() has something to do; and when it has so without that. */
static inline int ddpi_meeting_wait_fd(const struct ddpi_meeting *meeting)
{
    return meeting->events;
}

uint64_t ddpi_meeting_wake_ms(const struct ddpi_meeting *meeting);

/* ---- handshake_dial.c: the connecting side, for handshake.c ---- */

void ddpi_attempt_clear(struct ddpi_attempt *attempt);
void ddpi_attempt_drop(struct ddpi_meeting *meeting);
/* Go on with the attempt as far as that is possible now. */
ddp_status ddpi_attempt_push(struct ddpi_meeting *meeting, struct ddpi_edge **ret_edge,
                             struct ddp_error *err);
/* Give @edge, to @peer, its names. */
struct ddpi_edge *ddpi_edge_name(struct ddpi_edge *edge, uint32_t peer,
                                 const struct ddpi_card *card);

#endif
