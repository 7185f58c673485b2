/*
 * greeting.c - fuzzes what a rank hears on a new connection (greeting.h), over a socket pair.
 * Nobody is taken for a rank who has not the key, on neither side, whatever was true until then.
 *
 * The input's first byte says which side we are (its lowest bit), how far the other one has been a
 * rank before the rest of the input comes from it (the next two bits), and whether it joins.
 */
#include "greeting.h"
#include "fuzz.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ACCEPTS = 1, JOINS = 8, INPUT_MAX = 512 /* always fits the socket */ };

static const uint8_t ids[2][DDPI_CARD_ID] = {"who connects", "who accepts"};

static void read_ready(struct ddpi_greeting *greeting)
{
    HOLDS(ddpi_greeting_read(greeting) == DDPI_GREETING_READY);
}

/* One message of ours is there. true: it was what it has to be. */
static bool take(struct ddpi_greeting *ours, const struct ddpi_greeting_terms *terms)
{
    struct ddp_error err;
    switch (ours->stage) {
    case DDPI_GREETING_HELLO:
        return ddpi_greeting_take_hello(ours) && ddpi_greeting_challenge(ours, terms);
    case DDPI_GREETING_CHALLENGE:
        return ddpi_greeting_is_proven(ours) && ddpi_greeting_reply(ours, NULL, 0, &err) == DDP_OK;
    case DDPI_GREETING_PROOF:
        return ddpi_greeting_take_proof(ours);
    case DDPI_GREETING_OFFER:
        return ddpi_greeting_is_offer(ours, 2);
    case DDPI_GREETING_ANSWER:
        return ddpi_greeting_is_answer(ours, 1);
    default:
        return false;
    }
}

static void hear(struct ddpi_greeting *greeting, const struct ddpi_greeting_terms *terms)
{
    read_ready(greeting);
    HOLDS(take(greeting, terms));
}

/* The other one is a rank for some messages, and we have heard them. */
static void be_a_rank(struct ddpi_greeting *ours, struct ddpi_greeting *theirs, uint8_t how,
                      const struct ddpi_greeting_terms *terms)
{
    bool accepts = (how & ACCEPTS) != 0, joins = (how & JOINS) != 0;
    unsigned messages = how >> 1 & 3;
    const struct ddpi_hello hello = {.kind = joins ? DDPI_GREET_JOIN : DDPI_GREET_SHM,
                                     .link = joins ? DDPI_LINK_JOIN : DDPI_LINK_RING,
                                     .from = 1};
    if (!accepts || messages > 0)
        HOLDS(ddpi_greeting_begin(accepts ? theirs : ours, &hello, terms, NULL) == DDP_OK);
    if (messages == 0)
        return;
    hear(accepts ? ours : theirs, terms);
    if (!accepts) {
        hear(ours, terms);
    } else if (messages > 1) {
        hear(theirs, terms);
        hear(ours, terms);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    if (size == 0)
        return 0;
    struct ddpi_rank_key key = {.given = true, .bytes = "of all ranks"};
    const struct ddpi_greeting_terms terms = {&key, ids[0], ids[1]};
    struct ddpi_greeting ours, theirs;
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    ddpi_greeting_clear(&ours);
    ddpi_greeting_clear(&theirs);
    ours.fd = fds[0];
    theirs.fd = fds[1];
    ours.local = theirs.local = true;
    bool accepts = (data[0] & ACCEPTS) != 0;
    be_a_rank(&ours, &theirs, data[0], &terms);

    size_t len = size - 1 < INPUT_MAX ? size - 1 : INPUT_MAX;
    HOLDS(len == 0 || send(theirs.fd, data + 1, len, 0) == (ssize_t)len);
    shutdown(theirs.fd, SHUT_WR);
    enum ddpi_greeting_news news;
    bool good = true, proven = false;
    while (good && (news = ddpi_greeting_read(&ours)) == DDPI_GREETING_READY) {
        proven |= ours.stage != DDPI_GREETING_HELLO;
        good = take(&ours, &terms);
        HOLDS(!(good && proven)); /* a hello is the only thing that anybody can make */
    }
    HOLDS(!good || news == DDPI_GREETING_ENDED || ours.stage == DDPI_GREETING_OVER);
    HOLDS(ours.nfds == 0 && ours.got < sizeof ours.inbox);
    HOLDS(accepts || ours.stage != DDPI_GREETING_HELLO);
    ddpi_greeting_drop(&ours);
    ddpi_greeting_drop(&theirs);
    HOLDS(ours.fd == -1);
    return 0;
}
