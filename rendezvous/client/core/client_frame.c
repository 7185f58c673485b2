/*
 * client_frame.c - parses frames in the client's input. Owns nothing. A length that the server
 * announces is checked before bytes are awaited for it.
 */
#include "client_frame.h"

#include "error.h"

static size_t payload_max(uint8_t type)
{
    enum ddpi_op op;
    return ddpi_op_of_type(type, &op) ? ddpi_reply_max(op) : DDPI_HELLO_MAX + DDP_ERROR_TEXT;
}

ddp_status ddpi_client_frame_next(const struct ddpi_buf *in, struct ddpi_seals *seals,
                                  struct ddpi_client_frame *ret, size_t *ret_need,
                                  struct ddp_error *err)
{
    struct ddpi_client_frame frame = {.size = DDPI_FRAME_HEADER_SIZE};
    const uint8_t *bytes = ddpi_buf_head(in);
    *ret_need = frame.size;
    if (ddpi_buf_len(in) < frame.size)
        return DDP_OK;
    if (!ddpi_frame_get(bytes, &frame.header) ||
        frame.header.payload_len > payload_max(frame.header.type))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed frame header");
    size_t sealed = frame.size + frame.header.payload_len;
    frame.size = *ret_need = sealed + ddpi_seals_size(seals);
    if (ddpi_buf_len(in) < frame.size)
        return DDP_OK;
    if (seals->on && !ddpi_seals_check(seals, bytes, sealed))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "a frame failed its integrity check: it was changed, dropped or "
                              "repeated on the way");
    frame.payload = bytes + DDPI_FRAME_HEADER_SIZE;
    *ret = frame;
    *ret_need = 0;
    return DDP_OK;
}

ddp_status ddpi_client_frame_refusal(const struct ddpi_client_frame *frame, struct ddp_error *err)
{
    uint64_t version;
    struct ddpi_bytes text;
    if (!ddpi_refusal_get(frame->payload, frame->header.payload_len, &version, &text))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed BYE");
    return ddpi_error_set(err, frame->header.status, "%.*s", (int)text.len,
                          (const char *)text.data);
}
