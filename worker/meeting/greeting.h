/*
 * greeting.h - what two ranks say on a new connection, until each knows that the other one is who
 * it says it is.
 *
 *     who connects                        who accepts
 *       hello: who I am, whom I want,
 *       for what, a nonce            -->
 *                                    <--  challenge: its nonce, and its proof
 *       proof                        -->
 *       offer: the memory file and
 *       the bell (shared memory)     -->
 *                                    <--  answer: this is an edge now (with its bell)
 *
 * Both prove that they have the key of the ranks (rank_key.h) by an HMAC over everything that is
 * above, with the ids of both cards (zeros for one that is not known yet: who joins hands its card
 * over afterwards, sealed). Who accepts proves first, and nobody takes a descriptor from
 * anybody before that has proven itself. Where data has a connection of its own, that ends with the
 * proof; the other one has the answer.
 */
#ifndef DDPI_GREETING_H
#define DDPI_GREETING_H

#include "peer_card.h"
#include "rank_key.h"
#include "sockets.h"

/* What a connection is for. */
enum ddpi_greeting_kind {
    DDPI_GREET_SHM = 1, /* all of an edge in shared memory */
    DDPI_GREET_CONTROL,
    DDPI_GREET_DATA,
    DDPI_GREET_JOIN, /* words to rank 0, which gathers */
};

/* What an edge is for. */
enum ddpi_link {
    DDPI_LINK_RING, /* from a rank to the next one */
    DDPI_LINK_PEER, /* between any two, for send and recv */
    DDPI_LINK_JOIN, /* to rank 0, until all have met; it does not know the card of who connects */
};

struct ddpi_hello {
    uint32_t magic;
    uint32_t kind;
    uint32_t link;
    uint32_t from;
    uint32_t to;
    uint32_t attempt; /* the connections of one edge have the same */
    uint8_t nonce[DDPI_NONCE_SIZE];
};

struct ddpi_challenge {
    uint8_t nonce[DDPI_NONCE_SIZE];
    uint8_t proof[DDPI_PROOF_SIZE];
};

/* What comes next. */
enum ddpi_greeting_stage {
    DDPI_GREETING_HELLO,
    DDPI_GREETING_CHALLENGE,
    DDPI_GREETING_PROOF,
    DDPI_GREETING_OFFER,
    DDPI_GREETING_ANSWER,
    DDPI_GREETING_OVER,
};

/* What both sides know already, and each proves. */
struct ddpi_greeting_terms {
    const struct ddpi_rank_key *key;
    const uint8_t *connector_id; /* of the cards */
    const uint8_t *acceptor_id;
};

/* One side of it. Owns the connection, and the descriptors that came, until somebody takes them. */
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
    struct ddpi_hello hello; /* in this machine's order */
    struct ddpi_handshake handshake;
    struct ddpi_seals seals; /* for what follows, once both have proven themselves */
    int fds[DDPI_FDS_MAX];
    size_t nfds;
};

/* One that may be dropped. */
void ddpi_greeting_clear(struct ddpi_greeting *greeting);
/* Closes what it owns, and wipes what it knows. */
void ddpi_greeting_drop(struct ddpi_greeting *greeting);

enum ddpi_greeting_news {
    DDPI_GREETING_MORE,    /* of this message is to come */
    DDPI_GREETING_READY,   /* it is there: call what belongs to the stage */
    DDPI_GREETING_STARVED, /* this process may have no more descriptors */
    DDPI_GREETING_ENDED,
};

/* Read on what has come. */
enum ddpi_greeting_news ddpi_greeting_read(struct ddpi_greeting *greeting);

/* ---- who connects, on @greeting->fd ---- */

ddp_status ddpi_greeting_begin(struct ddpi_greeting *greeting, const struct ddpi_hello *hello,
                               const struct ddpi_greeting_terms *terms, struct ddp_error *err);

/* The challenge is there. false: it proves nothing. */
bool ddpi_greeting_is_proven(const struct ddpi_greeting *greeting);

/* It is good: prove, too, and offer the @nfds descriptors. */
ddp_status ddpi_greeting_reply(struct ddpi_greeting *greeting, const int *fds, size_t nfds,
                               struct ddp_error *err);

/* The answer is there: is it the one, with @nfds descriptors? */
bool ddpi_greeting_is_answer(const struct ddpi_greeting *greeting, size_t nfds);

/* ---- who accepts ---- */

/* The hello is there: is it one of this version? It is in @greeting->hello then. */
bool ddpi_greeting_take_hello(struct ddpi_greeting *greeting);

/* false: who connected has gone. */
bool ddpi_greeting_challenge(struct ddpi_greeting *greeting,
                             const struct ddpi_greeting_terms *terms);

/* The proof is there, and good, or not. */
bool ddpi_greeting_take_proof(struct ddpi_greeting *greeting);

/* The offer is there, and is one with @nfds descriptors. */
bool ddpi_greeting_is_offer(const struct ddpi_greeting *greeting, size_t nfds);

/* false: who connected has gone. */
bool ddpi_greeting_answer(struct ddpi_greeting *greeting, const int *fds, size_t nfds);

static inline bool ddpi_greeting_is(const struct ddpi_greeting *greeting, uint32_t rank,
                                    enum ddpi_link link)
{
    return greeting->hello.from == rank && greeting->hello.link == (uint32_t)link;
}

#endif
