/*
 * meeting_state.h - the state of a meeting, for its two sides.
 */
#ifndef DDPI_MEETING_STATE_H
#define DDPI_MEETING_STATE_H

#include "edge.h"
#include "greeting.h"
#include "list.h"

enum ddpi_attempt_stage {
    DDPI_ATTEMPT_NONE,
    DDPI_ATTEMPT_QUEUE,   /* connect at retry_ms: the peer's backlog was full, or it hung up */
    DDPI_ATTEMPT_CONNECT, /* TCP is connecting */
    DDPI_ATTEMPT_ANSWER,  /* greeted; the peer has to prove itself, and to accept */
    DDPI_ATTEMPT_GONE,    /* the peer is gone, as edge.broken says */
};

/* An edge that this rank has asked for. */
struct ddpi_attempt {
    enum ddpi_attempt_stage stage;
    enum ddpi_link link;
    bool local;                 /* over a Unix socket */
    struct ddpi_card card;      /* of the peer */
    struct ddpi_edge edge;      /* a stand-in to wait for until the real edge exists */
    struct ddpi_greeting main;  /* on the connection for control */
    struct ddpi_greeting *data; /* on those for data; NULL: there are none */
    unsigned data_count;
    struct ddpi_shm_segment *segment;
    uint64_t retry_ms;
    uint32_t turn; /* how often it has been tried */
};

enum { DDPI_UNAUTHENTICATED_MAX = 64 };

/* Where a rank accepts connections of others, and connects to them. */
struct ddpi_meeting {
    struct ddpi_card card; /* its own */
    struct ddpi_rank_key key;
    uint32_t rank;
    uint32_t world_size;
    int bell;                         /* borrowed from the communicator */
    uint8_t *cards;                   /* a slot (peer_card.h) for each rank; zeros: unknown */
    bool *met;                        /* by rank: the edge of DDPI_LINK_PEER exists */
    int events;                       /* an epoll descriptor for all sockets of the meeting */
    int tcp_listener;                 /* -1: none */
    int local_listener;               /* -1: no shared memory */
    int join_listener;                /* where ranks join that have no card of this one; -1: none */
    struct ddpi_shm_segment *segment; /* for the first attempt; NULL: the attempt makes its own */
    struct ddpi_list incoming;        /* of struct incoming (incoming.c): accepted connections */
    uint32_t unauthenticated;         /* how many are so; at most _MAX */
    uint64_t paused_until_ms;         /* out of descriptors: accept nothing before; 0: accept */
    bool prev_stands;                 /* the edge of the ring with the previous rank exists */
    bool next_stands;                 /* with the next one */
    bool takes_joiners;               /* accept ranks whose cards are unknown */
    bool takes_survivors;             /* accept ranks that look for survivors */
    bool needs_all;                   /* to have no room for a connection is a failure */
    const struct ddpi_tls_engine *tls; /* for data over TCP; NULL: plaintext */
    struct ddpi_attempt attempt;       /* one at a time */
};

/* A new edge; edge NULL: none. */
struct ddpi_arrival {
    struct ddpi_edge *edge;
    enum ddpi_link link;
    bool asked; /* this rank has asked for it, not the peer */
};

/* Whether the edge exists for which this rank has @asked @rank by @link, or @rank this one. NULL:
 * there may be any number of such edges. */
static inline bool *ddpi_meeting_stands(struct ddpi_meeting *meeting, uint32_t rank,
                                        enum ddpi_link link, bool asked)
{
    if (link == DDPI_LINK_PEER)
        return &meeting->met[rank];
    if (ddpi_link_is_bare(link))
        return NULL;
    return asked == (link == DDPI_LINK_RING) ? &meeting->next_stands : &meeting->prev_stands;
}

static inline uint8_t *ddpi_meeting_slot(const struct ddpi_meeting *meeting, uint32_t rank)
{
    return meeting->cards + (size_t)rank * DDPI_CARD_SLOT;
}

#endif
