/*
 * greeting.c - greetings to bytes and back. Owns the connection of a greeting that is coming in,
 * and the descriptors that came with it, until somebody takes them out.
 */
#include "greeting.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { GREETING_MAGIC = 0x47504444 /* "DDPG" */ };

ddp_status ddpi_greet(int fd, enum ddpi_greeting_kind kind, enum ddpi_link link, uint32_t rank,
                      const struct ddpi_card *card, const int *fds, size_t nfds,
                      struct ddp_error *err)
{
    struct ddpi_greeting greeting = {.magic = htole32(GREETING_MAGIC),
                                     .kind = htole32((uint32_t)kind),
                                     .rank = htole32(rank),
                                     .link = htole32((uint32_t)link)};
    memcpy(greeting.token, card->token, sizeof greeting.token);
    return ddpi_send_fds(fd, &greeting, sizeof greeting, fds, nfds, err);
}

enum ddpi_incoming_state ddpi_incoming_read(struct ddpi_incoming *incoming)
{
    struct ddpi_greeting *greeting = &incoming->greeting;
    char *at = (char *)greeting + incoming->got;
    size_t left = sizeof *greeting - incoming->got;
    ssize_t got;
    do {
        got = incoming->local
                  ? ddpi_recv_fds(incoming->fd, at, left, incoming->fds, &incoming->nfds)
                  : recv(incoming->fd, at, left, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return DDPI_INCOMING_MORE;
    if (got <= 0)
        return DDPI_INCOMING_ENDED;
    incoming->got += (size_t)got;
    if (incoming->got < sizeof *greeting)
        return DDPI_INCOMING_MORE;
    greeting->magic = le32toh(greeting->magic);
    greeting->kind = le32toh(greeting->kind);
    greeting->rank = le32toh(greeting->rank);
    greeting->link = le32toh(greeting->link);
    return DDPI_INCOMING_COMPLETE;
}

void ddpi_incoming_drop(struct ddpi_incoming *incoming)
{
    for (size_t i = 0; i < incoming->nfds; i++)
        close(incoming->fds[i]);
    incoming->nfds = 0;
    if (incoming->fd >= 0)
        close(incoming->fd);
    incoming->fd = -1;
}

/* All bytes are compared, so that time tells nothing about them. */
static bool same_token(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;
    for (size_t i = 0; i < DDPI_TOKEN_SIZE; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

bool ddpi_incoming_valid(const struct ddpi_incoming *incoming, const struct ddpi_card *card)
{
    return incoming->greeting.magic == GREETING_MAGIC &&
           same_token(incoming->greeting.token, card->token);
}
