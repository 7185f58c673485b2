/*
 * native.c - the server's side of the native dialect: preamble, HELLO, then requests. The codec is
 * proto.c; here is only what may follow what.
 */
#include "dialect.h"
#include "error.h"
#include "proto.h"

#include <string.h>

enum phase { PREAMBLE, HELLO, OPEN };

static ddp_status close_step(struct ddpi_step *step, ddp_status status)
{
    step->kind = DDPI_STEP_CLOSE;
    return status;
}

static ddp_status more(struct ddpi_step *step, size_t need)
{
    step->kind = DDPI_STEP_MORE;
    step->need = need;
    return DDP_OK;
}

static ddp_status answered(struct ddpi_step *step, size_t used, bool put, struct ddp_error *err)
{
    if (!put)
        return close_step(step, ddpi_error_set(err, DDP_E_NOMEM, "no memory for an answer"));
    step->kind = DDPI_STEP_ANSWERED;
    step->used = used;
    return DDP_OK;
}

static ddp_status next_preamble(struct ddpi_session *session, const uint8_t *bytes, size_t len,
                                struct ddpi_buf *out, struct ddpi_step *step, struct ddp_error *err)
{
    static const struct ddpi_preamble ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_preamble theirs;
    bool plausible = ddpi_preamble_plausible(bytes, len);
    if (plausible && len < DDPI_PREAMBLE_SIZE)
        return more(step, DDPI_PREAMBLE_SIZE);
    if (!plausible || !ddpi_preamble_get(bytes, &theirs))
        return close_step(step, ddpi_error_set(err, DDP_E_PROTOCOL,
                                               "the first bytes are not those of a ddprun client"));
    bool put = ddpi_preamble_put(out, &ours);
    if (ddpi_version_choose(&ours, &theirs) == 0)
        return close_step(
            step, ddpi_error_set(err, DDP_E_PROTOCOL,
                                 "the client speaks versions %u to %u, this server %u to %u",
                                 theirs.version_min, theirs.version_max, ours.version_min,
                                 ours.version_max));
    if (put)
        session->phase = HELLO;
    return answered(step, DDPI_PREAMBLE_SIZE, put, err);
}

static ddp_status finish_hello(struct ddpi_session *session, const struct ddpi_frame *frame,
                               const uint8_t *payload, struct ddpi_buf *out, struct ddpi_step *step,
                               struct ddp_error *err)
{
    struct ddpi_hello hello;
    if (!ddpi_hello_get(payload, frame->payload_len, &hello))
        return close_step(step, ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed HELLO"));
    if (hello.auth != DDPI_AUTH_NONE)
        return close_step(step,
                          ddpi_error_set(err, DDP_E_DENIED,
                                         "this server does not know the authentication method %u",
                                         hello.auth));
    struct ddpi_welcome welcome = {.key_max = session->limits->key_len,
                                   .value_max = session->limits->value_len,
                                   .many_max = session->limits->keys_per_wait,
                                   .incarnation = session->incarnation};
    session->phase = OPEN;
    session->open = true;
    return answered(step, DDPI_FRAME_HEADER_SIZE + frame->payload_len,
                    ddpi_welcome_put(out, frame->id, &welcome), err);
}

static ddp_status finish_request(const struct ddpi_frame *frame, const uint8_t *payload,
                                 struct ddpi_buf *out, struct ddpi_step *step,
                                 struct ddp_error *err)
{
    struct ddp_error why;
    ddp_status status = ddpi_request_get(frame, payload, &step->request, &why);
    size_t used = DDPI_FRAME_HEADER_SIZE + frame->payload_len;
    if (status == DDP_E_LIMIT) /* the frame is sound: only this request fails */
        return answered(step, used,
                        ddpi_refusal_put(out, frame->type, frame->id, status, 0,
                                         ddpi_bytes_of(why.msg, strlen(why.msg))),
                        err);
    if (status != DDP_OK)
        return close_step(step, ddpi_error_set(err, status, "%s", why.msg));
    step->kind = DDPI_STEP_REQUEST;
    step->used = used;
    return DDP_OK;
}

/* The longest payload that a frame with this header may have in this phase. */
static ddp_status payload_max(const struct ddpi_session *session, const struct ddpi_frame *frame,
                              size_t *ret_max, struct ddp_error *err)
{
    enum ddpi_op op;
    if (session->phase == HELLO && frame->type == DDPI_FRAME_HELLO)
        *ret_max = DDPI_HELLO_MAX;
    else if (session->phase == OPEN && ddpi_op_of_type(frame->type, &op))
        *ret_max = ddpi_request_max(op);
    else
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a frame of type %u, which has no place here",
                              frame->type);
    return DDP_OK;
}

static ddp_status next_frame(struct ddpi_session *session, const uint8_t *bytes, size_t len,
                             struct ddpi_buf *out, struct ddpi_step *step, struct ddp_error *err)
{
    struct ddpi_frame frame;
    if (len < DDPI_FRAME_HEADER_SIZE)
        return more(step, DDPI_FRAME_HEADER_SIZE);
    if (!ddpi_frame_get(bytes, &frame))
        return close_step(step, ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed frame header"));
    size_t max;
    ddp_status status = payload_max(session, &frame, &max, err);
    if (status != DDP_OK)
        return close_step(step, status);
    if (frame.payload_len > max)
        return close_step(step, ddpi_error_set(err, DDP_E_LIMIT,
                                               "a frame of type %u with %u bytes; at most %zu are "
                                               "allowed",
                                               frame.type, frame.payload_len, max));
    if (len - DDPI_FRAME_HEADER_SIZE < frame.payload_len)
        return more(step, DDPI_FRAME_HEADER_SIZE + frame.payload_len);
    const uint8_t *payload = bytes + DDPI_FRAME_HEADER_SIZE;
    return session->phase == HELLO ? finish_hello(session, &frame, payload, out, step, err)
                                   : finish_request(&frame, payload, out, step, err);
}

static ddp_status native_next(struct ddpi_session *session, const uint8_t *bytes, size_t len,
                              struct ddpi_buf *out, struct ddpi_step *step, struct ddp_error *err)
{
    *step = (struct ddpi_step){0};
    return session->phase == PREAMBLE ? next_preamble(session, bytes, len, out, step, err)
                                      : next_frame(session, bytes, len, out, step, err);
}

static ddp_status native_put_reply(const struct ddpi_session *session, struct ddpi_buf *out,
                                   const struct ddpi_message *reply)
{
    (void)session;
    return ddpi_reply_put(out, reply) ? DDP_OK : DDP_E_NOMEM;
}

static void native_put_farewell(const struct ddpi_session *session, struct ddpi_buf *out,
                                ddp_status status, const char *text)
{
    /* Before the preambles are exchanged, nobody knows what the peer would make of a frame. */
    if (session->phase != PREAMBLE)
        (void)ddpi_refusal_put(out, DDPI_FRAME_BYE, 0, status, 0,
                               ddpi_bytes_of(text, strlen(text)));
}

static size_t native_peek(const struct ddpi_session *session, const uint8_t *bytes, size_t len,
                          struct ddpi_bytes *ret_key)
{
    struct ddpi_frame frame;
    if (session->phase != OPEN || len < DDPI_FRAME_HEADER_SIZE || !ddpi_frame_get(bytes, &frame) ||
        frame.payload_len > len - DDPI_FRAME_HEADER_SIZE ||
        !ddpi_request_key(&frame, bytes + DDPI_FRAME_HEADER_SIZE, ret_key))
        return 0;
    return DDPI_FRAME_HEADER_SIZE + frame.payload_len;
}

const struct ddpi_dialect ddpi_dialect_native = {
    .first_byte = 'D',
    .next = native_next,
    .peek = native_peek,
    .put_reply = native_put_reply,
    .put_farewell = native_put_farewell,
};
