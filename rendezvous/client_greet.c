/*
 * client_greet.c - the client's side of the greeting. Nothing is kept between two connections.
 */
#include "client_greet.h"

#include "client_frame.h"
#include "error.h"

enum phase { PREAMBLE, WELCOME, DONE };

static const struct ddpi_preamble ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};

ddp_status ddpi_greet_begin(struct ddpi_greet *greet, struct ddpi_buf *out, struct ddp_error *err)
{
    static const struct ddpi_hello hello = {.auth = DDPI_AUTH_NONE};
    *greet = (struct ddpi_greet){.phase = PREAMBLE};
    if (!ddpi_preamble_put(out, &ours) || !ddpi_hello_put(out, 0, &hello))
        return ddpi_error_nomem(err, DDPI_HELLO_MAX);
    return DDP_OK;
}

static ddp_status take_preamble(struct ddpi_greet *greet, struct ddpi_buf *in, size_t *ret_need,
                                struct ddp_error *err)
{
    struct ddpi_preamble theirs;
    size_t len = ddpi_buf_len(in);
    if (len > 0 && !ddpi_preamble_plausible(ddpi_buf_head(in), len))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "what answers is not a ddprun store");
    *ret_need = DDPI_PREAMBLE_SIZE;
    if (len < DDPI_PREAMBLE_SIZE)
        return DDP_OK;
    if (!ddpi_preamble_get(ddpi_buf_head(in), &theirs))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "what answers is not a ddprun store");
    if (ddpi_version_choose(&ours, &theirs) == 0)
        return ddpi_error_set(
            err, DDP_E_PROTOCOL, "the server speaks versions %u to %u, this library %u to %u",
            theirs.version_min, theirs.version_max, ours.version_min, ours.version_max);
    ddpi_buf_consume(in, DDPI_PREAMBLE_SIZE);
    greet->phase = WELCOME;
    return DDP_OK;
}

static ddp_status take_welcome(struct ddpi_greet *greet, struct ddpi_buf *in, size_t *ret_need,
                               struct ddp_error *err)
{
    struct ddpi_client_frame frame;
    ddp_status status = ddpi_client_frame_next(in, &frame, ret_need, err);
    if (status != DDP_OK || *ret_need > 0)
        return status;
    if (frame.header.status != DDP_OK)
        return ddpi_client_frame_refusal(&frame, err);
    if (frame.header.type != DDPI_FRAME_HELLO ||
        !ddpi_welcome_get(frame.payload, frame.header.payload_len, &greet->welcome))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed answer to HELLO");
    ddpi_buf_consume(in, frame.size);
    greet->phase = DONE;
    return DDP_OK;
}

ddp_status ddpi_greet_take(struct ddpi_greet *greet, struct ddpi_buf *in, struct ddpi_buf *out,
                           size_t *ret_need, struct ddp_error *err)
{
    (void)out;
    ddp_status status = DDP_OK;
    *ret_need = 0;
    if (greet->phase == PREAMBLE)
        status = take_preamble(greet, in, ret_need, err);
    if (status == DDP_OK && greet->phase == WELCOME)
        status = take_welcome(greet, in, ret_need, err);
    return status;
}
