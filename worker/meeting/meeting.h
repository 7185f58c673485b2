/*
 * meeting.h - turns two ranks that have each other's cards into an edge. Nothing here blocks: the
 * caller waits on ddpi_meeting_wait_fd(), together with whatever else it waits for.
 *
 * The rank that needs an edge connects; its peer accepts when it looks at its listeners next.
 * Shared memory takes one connection over an abstract Unix socket: it carries the memory file and
 * both bells, and stays open as the control socket. TCP takes two connections, for control and for
 * data. If two ranks connect to each other, the attempt of the lower rank wins; the higher rank
 * gives its own attempt up as soon as it has accepted.
 *
 * The listener of a rank lives as long as its communicator. So an attempt sees at once when the
 * rank dies, whether or not it has accepted yet. An attempt whose connection is merely closed tries
 * again.
 *
 * A connection is a stranger's until its peer has proven that it is a rank of this world
 * (greeting.h). Connections of other users of the machine are closed unread.
 */
#ifndef DDPI_MEETING_H
#define DDPI_MEETING_H

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
    bool local;                /* over a Unix socket */
    struct ddpi_card card;     /* of the peer */
    struct ddpi_edge edge;     /* a stand-in to wait for until the real edge exists */
    struct ddpi_greeting main; /* on the connection for control */
    struct ddpi_greeting data; /* without a connection where memory is shared */
    struct ddpi_shm_segment *segment;
    uint64_t retry_ms;
    uint32_t turn; /* how often it has been tried */
};

enum { DDPI_STRANGERS_MAX = 16 };

/* Where a rank accepts connections of others, and connects to them. */
struct ddpi_meeting {
    struct ddpi_card card; /* its own */
    struct ddpi_rank_key key;
    uint32_t rank;
    uint32_t world_size;
    int bell;       /* borrowed from the communicator */
    uint8_t *cards; /* a slot (peer_card.h) for each rank; zeros: unknown, or not needed any more */
    int events;     /* an epoll descriptor for all sockets of the meeting */
    int tcp_listener;                 /* -1: none */
    int local_listener;               /* -1: no shared memory */
    struct ddpi_shm_segment *segment; /* for the first attempt; NULL: the attempt makes its own */
    struct ddpi_list visitors;        /* of struct visitor (visitors.c): accepted connections */
    uint32_t stranger_count;          /* visitors that are not proven; at most DDPI_STRANGERS_MAX */
    uint64_t paused_until_ms;         /* out of descriptors: accept nothing before; 0: accept */
    bool ring_stands;                 /* the edge from the previous rank exists */
    bool takes_joiners;               /* accept ranks whose cards are unknown */
    bool needs_all;                   /* to have no room for a connection is a failure */
    const struct ddpi_tls_engine *tls; /* for data over TCP; NULL: plaintext */
    struct ddpi_attempt attempt;       /* one at a time */
};

/* Make @meeting such that it can be finished. */
void ddpi_meeting_clear(struct ddpi_meeting *meeting);

/* Listen on @address (NULL: nowhere; its port is ignored) and, with @use_shm, on an abstract
 * socket, and fill the card. If shared memory does not work here, the card says so and nothing
 * fails. Call ddpi_meeting_finish() after a failure, too. */
ddp_status ddpi_meeting_init(struct ddpi_meeting *meeting, uint32_t rank, uint32_t world_size,
                             int bell, const struct ddpi_rank_key *key,
                             const struct sockaddr_storage *address, bool use_shm,
                             struct ddp_error *err);
void ddpi_meeting_finish(struct ddpi_meeting *meeting);

static inline uint8_t *ddpi_meeting_slot(const struct ddpi_meeting *meeting, uint32_t rank)
{
    return meeting->cards + (size_t)rank * DDPI_CARD_SLOT;
}

/* Begin to connect to @peer, whose card is known. No attempt may be in progress. */
ddp_status ddpi_meeting_ask(struct ddpi_meeting *meeting, uint32_t peer, enum ddpi_link link,
                            struct ddp_error *err);

/* A new edge; edge NULL: none. */
struct ddpi_arrival {
    struct ddpi_edge *edge;
    enum ddpi_link link;
    bool asked; /* this rank has asked for it, not the peer */
};

/* Go on until an edge exists, or until there is nothing to do now. A failure ends the attempt. That
 * the peer is gone is no failure: it marks attempt.edge as broken. */
ddp_status ddpi_meeting_advance(struct ddpi_meeting *meeting, struct ddpi_arrival *ret_arrival,
                                struct ddp_error *err);

/* Readable when ddpi_meeting_advance() has something to do. */
static inline int ddpi_meeting_wait_fd(const struct ddpi_meeting *meeting)
{
    return meeting->events;
}

/* When ddpi_meeting_advance() has something to do although the descriptor is not readable. */
uint64_t ddpi_meeting_wake_ms(const struct ddpi_meeting *meeting);

#endif
