/*
 * client_greet.h - the client's side of the greeting: preamble and HELLO out, preamble and WELCOME
 * in. Pure: bytes in, bytes out; the connection and its deadlines are the caller's.
 */
#ifndef DDPI_CLIENT_GREET_H
#define DDPI_CLIENT_GREET_H

#include "proto.h"

/* One greeting; a new connection begins a new one. */
struct ddpi_greet {
    unsigned phase;
    struct ddpi_welcome welcome; /* once it is done */
};

/* Put what the client says first into @out. DDP_E_NOMEM: @out does not take it. */
ddp_status ddpi_greet_begin(struct ddpi_greet *greet, struct ddpi_buf *out, struct ddp_error *err);

/*
 * Take from @in what has come, and put into @out what is to be said to it.
 *
 * On DDP_OK *@ret_need is 0 if the greeting is done, and what is left in @in is no part of it; else
 * how many bytes @in must have before it makes sense to call again. Any other status is the
 * connection's end: the server's own reason, or DDP_E_PROTOCOL.
 */
ddp_status ddpi_greet_take(struct ddpi_greet *greet, struct ddpi_buf *in, struct ddpi_buf *out,
                           size_t *ret_need, struct ddp_error *err);

#endif
