/*
 * greeting.h - the greeting of two ranks on a new connection: each proves to be the rank that it
 * says it is.
 *
 *     the connecting rank                 the accepting rank
 *       hello: its rank, the peer's
 *       rank, the purpose, a nonce   -->
 *                                    <--  challenge: its nonce, and its proof
 *       proof                        -->
 *       offer: the memory file and
 *       the bell (shared memory)     -->
 *                                    <--  answer: this is an edge now (with its bell)
 *
 * Both prove that they have the key of the ranks (rank_key.h) by an HMAC over everything above,
 * with the ids of both cards (zeros for an unknown one: a rank that joins sends its card
 * afterwards, sealed, and where it knows only an address it has no card of rank 0). The accepting
 * rank proves first, and neither takes a descriptor before the other has proven itself. A
 * connection for data ends its greeting with the proof; the connection for control has the answer.
 */
#ifndef DDPI_GREETING_H
#define DDPI_GREETING_H

#include "peer_card.h"
#include "rank_key.h"
#include "sockets.h"

/* The purpose of a connection. */
enum ddpi_greeting_kind {
    DDPI_GREET_SHM = 1, /* all of an edge in shared memory */
    DDPI_GREET_CONTROL,
    DDPI_GREET_DATA,
    DDPI_GREET_JOIN, /* messages to rank 0, which gathers */
};

/* The purpose of an edge. */
enum ddpi_link {
    DDPI_LINK_RING, /* from a rank to the next one */
    DDPI_LINK_PEER, /* between any two ranks, for send and recv */
    DDPI_LINK_JOIN, /* to rank 0 until all ranks have joined; rank 0 does not know the card of the
                        connecting rank */
    DDPI_LINK_BACK, /* the edge of DDPI_LINK_RING, but from a rank to the previous one */
    DDPI_LINK_SURVIVOR, /* messages of a rank that looks for survivors, to the lowest of them */
    DDPI_LINK_LINKS,
};

/* Whether the connection is for messages alone. */
static inline bool ddpi_link_is_bare(enum ddpi_link link)
{
    return link == DDPI_LINK_JOIN || link == DDPI_LINK_SURVIVOR;
}

/* By which link the peer would ask for the same edge. */
static inline enum ddpi_link ddpi_link_mirror(enum ddpi_link link)
{
    return link == DDPI_LINK_RING ? DDPI_LINK_BACK : link == DDPI_LINK_BACK ? DDPI_LINK_RING : link;
}

struct ddpi_hello {
    uint32_t magic;
    uint32_t kind;
    uint32_t link;
    uint32_t from;
    uint32_t to;
    uint32_t attempt; /* the same for all connections of one edge */
    uint32_t socket;  /* of a connection for data: which one of its edge, from 0; else 0 */
    uint8_t nonce[DDPI_NONCE_SIZE];
};

struct ddpi_challenge {
    uint8_t nonce[DDPI_NONCE_SIZE];
    uint8_t proof[DDPI_PROOF_SIZE];
};

/* The message that comes next. */
enum ddpi_greeting_stage {
    DDPI_GREETING_HELLO,
    DDPI_GREETING_CHALLENGE,
    DDPI_GREETING_PROOF,
    DDPI_GREETING_OFFER,
    DDPI_GREETING_ANSWER,
    DDPI_GREETING_OVER,
};

/* Both sides know this before the greeting, and prove it. */
struct ddpi_greeting_terms {
    const struct ddpi_rank_key *key;
    const uint8_t *connector_id; /* of the cards */
    const uint8_t *acceptor_id;
};

/* One side of a greeting. Owns the connection, and descriptors that came, until they are taken. */
struct ddpi_greeting {
    int fd; /* -1 = none */
    bool local;
    enum ddpi_greeting_stage stage;
    size_t got;
    union {
        struct ddpi_hello hello;
        struct ddpi_challenge challenge;
        uint8_t proof[DDPI_PROOF_SIZE];
        uint8_t seal[DDPI_SEAL_SIZE];
        uint8_t bytes[sizeof(struct ddpi_challenge)];
    } inbox;                 /* its first @got bytes are there */
    struct ddpi_hello hello; /* in host byte order */
    struct ddpi_handshake handshake;
    struct ddpi_seals seals; /* for later messages, once both sides are proven */
    int fds[DDPI_FDS_MAX];
    size_t nfds;
};

/* Make @greeting such that it can be dropped. */
void ddpi_greeting_clear(struct ddpi_greeting *greeting);
/* Close what it owns, and wipe its secrets. */
void ddpi_greeting_drop(struct ddpi_greeting *greeting);

enum ddpi_greeting_news {
    DDPI_GREETING_MORE,    /* the message is not complete */
    DDPI_GREETING_READY,   /* the message is complete: call the function of the stage */
    DDPI_GREETING_STARVED, /* this process may not have more descriptors */
    DDPI_GREETING_ENDED,
};

/* Read what has come. */
enum ddpi_greeting_news ddpi_greeting_read(struct ddpi_greeting *greeting);

/* ---- the connecting side, on @greeting->fd ---- */

ddp_status ddpi_greeting_begin(struct ddpi_greeting *greeting, const struct ddpi_hello *hello,
                               const struct ddpi_greeting_terms *terms, struct ddp_error *err);

/* Whether the challenge that has come proves that the peer has the key. */
bool ddpi_greeting_is_proven(const struct ddpi_greeting *greeting);

/* Then send the proof, and offer the @nfds descriptors. */
ddp_status ddpi_greeting_reply(struct ddpi_greeting *greeting, const int *fds, size_t nfds,
                               struct ddp_error *err);

/* Whether the answer that has come is valid, with @nfds descriptors. */
bool ddpi_greeting_is_answer(const struct ddpi_greeting *greeting, size_t nfds);

/* ---- the accepting side ---- */

/* Whether the hello that has come is of this version; then it is in @greeting->hello. */
bool ddpi_greeting_take_hello(struct ddpi_greeting *greeting);

/* false: the peer is gone. */
bool ddpi_greeting_challenge(struct ddpi_greeting *greeting,
                             const struct ddpi_greeting_terms *terms);

/* Whether the proof that has come is good. */
bool ddpi_greeting_take_proof(struct ddpi_greeting *greeting);

/* Whether the offer that has come is valid, with @nfds descriptors. */
bool ddpi_greeting_is_offer(const struct ddpi_greeting *greeting, size_t nfds);

/* false: the peer is gone. */
bool ddpi_greeting_answer(struct ddpi_greeting *greeting, const int *fds, size_t nfds);

static inline bool ddpi_greeting_is(const struct ddpi_greeting *greeting, uint32_t rank,
                                    enum ddpi_link link)
{
    return greeting->hello.from == rank && greeting->hello.link == (uint32_t)link;
}

#endif
