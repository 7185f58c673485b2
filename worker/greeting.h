/*
 * greeting.h - the first words on a connection between two ranks: who I am, whom I want, for what.
 *
 * A greeting carries the token from the card of whom it greets, so a connection from somebody who
 * has not read the cards is turned away; the answer carries the token of the one who connected.
 */
#ifndef DDPI_GREETING_H
#define DDPI_GREETING_H

#include "card.h"
#include "sockets.h"

enum ddpi_greeting_kind {
    DDPI_GREET_SHM = 1, /* with the memory file and the bell of who connects */
    DDPI_GREET_CONTROL,
    DDPI_GREET_DATA,
    DDPI_GREET_ANSWER, /* of who accepted; with its bell where memory is shared */
};

/* What an edge is for. */
enum ddpi_link {
    DDPI_LINK_RING, /* from a rank to the next one */
    DDPI_LINK_PEER, /* between any two, for send and recv */
};

struct ddpi_greeting {
    uint32_t magic;
    uint32_t kind;
    uint32_t rank;
    uint32_t link;
    uint8_t token[DDPI_TOKEN_SIZE];
};

/* One that is coming in. */
struct ddpi_incoming {
    int fd; /* owned; -1 = none */
    bool local;
    size_t got;
    struct ddpi_greeting greeting; /* in this machine's order once it is complete */
    int fds[DDPI_FDS_MAX];
    size_t nfds;
};

enum ddpi_incoming_state { DDPI_INCOMING_MORE, DDPI_INCOMING_COMPLETE, DDPI_INCOMING_ENDED };

/* Say @kind as @rank to the owner of @card. */
ddp_status ddpi_greet(int fd, enum ddpi_greeting_kind kind, enum ddpi_link link, uint32_t rank,
                      const struct ddpi_card *card, const int *fds, size_t nfds,
                      struct ddp_error *err);

/* Read on what has come. */
enum ddpi_incoming_state ddpi_incoming_read(struct ddpi_incoming *incoming);
void ddpi_incoming_drop(struct ddpi_incoming *incoming);

/* A complete greeting is one of this version, and for the owner of @card. */
bool ddpi_incoming_valid(const struct ddpi_incoming *incoming, const struct ddpi_card *card);

static inline bool ddpi_incoming_is(const struct ddpi_incoming *incoming, uint32_t rank,
                                    enum ddpi_link link)
{
    return incoming->greeting.rank == rank && incoming->greeting.link == (uint32_t)link;
}

#endif
