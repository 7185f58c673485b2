/*
 * client_frame.h - where the client cuts what the server sends into frames: the one place that
 * knows where a frame ends.
 */
#ifndef DDPI_CLIENT_FRAME_H
#define DDPI_CLIENT_FRAME_H

#include "proto.h"

/* One whole frame at the head of a buffer, into which it points. */
struct ddpi_client_frame {
    struct ddpi_frame header;
    const uint8_t *payload;
    size_t size; /* of all of it, in the buffer, seal included */
};

/* What @in begins with, where frames are as @seals says; each is to be asked for once only, as its
 * seal counts. *@ret_need is 0 if a whole frame is there, and then *@ret is it; else how
 * many bytes @in must have before it makes sense to look again. DDP_E_PROTOCOL: it is no frame.
 * DDP_E_DENIED: it is not what the server has sent at this place. */
ddp_status ddpi_client_frame_next(const struct ddpi_buf *in, struct ddpi_seals *seals,
                                  struct ddpi_client_frame *ret, size_t *ret_need,
                                  struct ddp_error *err);

/* The server's "no", as an error with its status and its sentence. */
ddp_status ddpi_client_frame_refusal(const struct ddpi_client_frame *frame, struct ddp_error *err);

#endif
