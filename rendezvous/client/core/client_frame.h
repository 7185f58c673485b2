/*
 * client_frame.h - splits the client's input into frames.
 */
#ifndef DDPI_CLIENT_FRAME_H
#define DDPI_CLIENT_FRAME_H

#include "proto.h"

/* One whole frame at the head of a buffer, into which it points. */
struct ddpi_client_frame {
    struct ddpi_frame header;
    const uint8_t *payload;
    size_t size; /* in the buffer, seal included */
};

/* Parse the frame at the head of @in. Call it once for each frame, as @seals counts them.
 * *@ret_need is 0 if the frame is complete, and then *@ret is it; else the number of bytes that @in
 * must have before the next call. DDP_E_PROTOCOL: this is not a frame. DDP_E_DENIED: its seal is
 * wrong, so it is not the frame that the server has sent here. */
ddp_status ddpi_client_frame_next(const struct ddpi_buf *in, struct ddpi_seals *seals,
                                  struct ddpi_client_frame *ret, size_t *ret_need,
                                  struct ddp_error *err);

/* Set @err to the status and the sentence of a refusal. */
ddp_status ddpi_client_frame_refusal(const struct ddpi_client_frame *frame, struct ddp_error *err);

#endif
