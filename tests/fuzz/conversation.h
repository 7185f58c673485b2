/*
 * conversation.h - one client of a dialect, from its first byte to its end, on a core of its own:
 * what a connection does with steps and replies, without a network.
 */
#ifndef TESTS_FUZZ_CONVERSATION_H
#define TESTS_FUZZ_CONVERSATION_H

#include "dialect.h"

/* What a conversation came to; a function of the bytes alone, however they were split. */
struct conversation {
    struct ddpi_buf out;
    size_t requests;
    size_t used;       /* bytes of the input, up to where it was closed or fell silent */
    bool closed;       /* by the server */
    ddp_status status; /* of the close */
};

/* Asked about each request that the dialect has made of the @len bytes at @bytes. */
typedef void check_request(const struct ddpi_message *request, const uint8_t *bytes, size_t len);

/* The input's first byte says how the others arrive: 0, one by one; else in pieces of up to so
 * many. Played once so and once in one piece; both must come to the same. The caller gives the
 * result back with conversation_finish(). */
struct conversation converse(const struct ddpi_dialect *dialect, check_request *check,
                             const uint8_t *data, size_t size);
void conversation_finish(struct conversation *talk);

#endif
