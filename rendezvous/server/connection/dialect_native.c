/*
 * dialect_native.c - the server's side of the native dialect: preamble, HELLO, CHALLENGE and PROOF
 * if the client has a key, then requests. The codec is proto.c, the cryptography proof.c; this file
 * checks the order of messages.
 */
#include "dialect.h"
#include "error.h"
#include "proto.h"

#include <string.h>

enum phase { PREAMBLE, HELLO, PROOF, OPEN };

static ddp_status answered(struct ddpi_dialect_step *step, bool put, struct ddp_error *err)
{
    if (!put)
        return ddpi_error_set(err, DDP_E_NOMEM, "no memory for an answer");
    step->kind = DDPI_DIALECT_ANSWERED;
    return DDP_OK;
}

static ddp_status next_preamble(struct ddpi_dialect_state *state, const uint8_t *bytes, size_t len,
                                struct ddpi_buf *out, struct ddpi_dialect_step *step,
                                struct ddp_error *err)
{
    static const struct ddpi_preamble ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_preamble theirs;
    bool plausible = ddpi_preamble_plausible(bytes, len);
    if (plausible && len < DDPI_PREAMBLE_SIZE)
        return ddpi_dialect_step_more(step, DDPI_PREAMBLE_SIZE);
    if (!plausible || !ddpi_preamble_get(bytes, &theirs))
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the first bytes are not those of a ddprun client");
    size_t before = ddpi_buf_len(out);
    bool put = ddpi_preamble_put(out, &ours);
    if (ddpi_version_choose(&ours, &theirs) == 0)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the client speaks protocol versions %u to %u, this server %u to %u",
                              theirs.version_min, theirs.version_max, ours.version_min,
                              ours.version_max);
    if (put) {
        state->phase = HELLO;
        ddpi_handshake_begin(&state->handshake);
        ddpi_handshake_add(&state->handshake, bytes, DDPI_PREAMBLE_SIZE);
        ddpi_handshake_add(&state->handshake, ddpi_buf_head(out) + before, DDPI_PREAMBLE_SIZE);
    }
    step->used = DDPI_PREAMBLE_SIZE;
    return answered(step, put, err);
}

/* Write the proof at the end of the WELCOME that begins @before bytes after the head of @out; all
 * later frames are sealed. */
static void prove(struct ddpi_dialect_state *state, struct ddpi_buf *out, size_t before)
{
    uint8_t proof[DDPI_PROOF_SIZE];
    size_t end = ddpi_buf_len(out) - sizeof proof;
    ddpi_handshake_add(&state->handshake, ddpi_buf_head(out) + before, end - before);
    ddpi_handshake_prove(&state->handshake, DDPI_SIDE_SERVER, proof);
    ddpi_buf_truncate(out, end);
    (void)ddpi_buf_append(out, proof, sizeof proof); /* cannot fail: there is room */
    ddpi_seals_begin(&state->seals, &state->handshake, DDPI_SIDE_SERVER);
}

/* An agent of no job may write keys of rounds, so it is told at least their limits. */
static bool put_welcome(struct ddpi_dialect_state *state, uint64_t id, struct ddpi_buf *out)
{
    const struct ddpi_identity *identity = &state->identity;
    bool agent = identity->job[0] == '\0' && identity->role == DDPI_ROLE_AGENT;
    struct ddpi_welcome welcome = {.key_max = state->limits->key_len,
                                   .value_max = state->limits->value_len,
                                   .many_max = state->limits->keys_per_wait,
                                   .incarnation = state->incarnation};
    if (agent && welcome.key_max < DDPI_KV_RESERVED_KEY_MAX)
        welcome.key_max = DDPI_KV_RESERVED_KEY_MAX;
    if (agent && welcome.value_max < DDPI_KV_RESERVED_VALUE_MAX)
        welcome.value_max = DDPI_KV_RESERVED_VALUE_MAX;
    size_t before = ddpi_buf_len(out);
    if (!ddpi_welcome_put(out, id, &welcome))
        return false;
    if (state->identity.proven)
        prove(state, out, before);
    ddpi_wipe(&state->handshake, sizeof state->handshake);
    state->phase = OPEN;
    state->open = true;
    return true;
}

static ddp_status finish_handshake(struct ddpi_dialect_state *state, uint64_t id,
                                   struct ddpi_buf *out, struct ddpi_dialect_step *step,
                                   struct ddp_error *err)
{
    ddp_status status = ddpi_dialect_admit(state, err);
    if (status != DDP_OK && state->identity.proven)
        ddpi_seals_begin(&state->seals, &state->handshake, DDPI_SIDE_SERVER);
    if (status != DDP_OK)
        return status;
    return answered(step, put_welcome(state, id, out), err);
}

static bool put_challenge(struct ddpi_dialect_state *state, const struct ddpi_frame *frame,
                          const uint8_t *bytes, struct ddpi_buf *out)
{
    struct ddpi_challenge challenge = {.store = state->incarnation};
    size_t before = ddpi_buf_len(out);
    state->gate->random(challenge.nonce, sizeof challenge.nonce);
    if (!ddpi_challenge_put(out, frame->id, &challenge))
        return false;
    ddpi_handshake_add(&state->handshake, bytes, DDPI_FRAME_HEADER_SIZE + frame->payload_len);
    ddpi_handshake_add(&state->handshake, ddpi_buf_head(out) + before, ddpi_buf_len(out) - before);
    state->phase = PROOF;
    return true;
}

/* Whether the HELLO is allowed. The reason for a refusal is not secret. */
static ddp_status check_hello(const struct ddpi_dialect_state *state,
                              const struct ddpi_hello *hello, struct ddp_error *err)
{
    if (state->needs_tls)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "this server speaks TLS with other machines: give --tls, or set "
                              "DDPRUN_TLS=1");
    if (hello->auth == DDPI_AUTH_NONE && state->must_authenticate && state->other_user)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "without a token, this server admits only processes of its own user "
                              "and of root, and this connection is of another user, or of a "
                              "process that has ended; give its token, --token-file=FILE, or "
                              "start the server with --trust-local-users");
    if (hello->auth == DDPI_AUTH_NONE && state->must_authenticate)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "this server requires authentication with its token: give "
                              "--token-file=FILE, or set DDPRUN_TOKEN_FILE");
    if (hello->auth == DDPI_AUTH_HMAC && state->gate->token == NULL)
        return ddpi_error_set(
            err, DDP_E_DENIED,
            "this server has no token, so it can neither check the client's nor prove that it is "
            "the right server; give it the token, or connect without one (--no-auth)");
    if (hello->auth != DDPI_AUTH_NONE && hello->auth != DDPI_AUTH_HMAC)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "this server does not know the authentication method %u",
                              hello->auth);
    return DDP_OK;
}

static ddp_status finish_hello(struct ddpi_dialect_state *state, const struct ddpi_frame *frame,
                               const uint8_t *bytes, struct ddpi_buf *out,
                               struct ddpi_dialect_step *step, struct ddp_error *err)
{
    struct ddpi_hello hello;
    if (!ddpi_hello_get(bytes + DDPI_FRAME_HEADER_SIZE, frame->payload_len, &hello))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed HELLO");
    ddp_status status = check_hello(state, &hello, err);
    if (status != DDP_OK)
        return status;
    state->identity = hello.identity;
    memcpy(state->vouches_for, hello.vouches_for, sizeof state->vouches_for);
    if (hello.auth == DDPI_AUTH_NONE)
        return finish_handshake(state, frame->id, out, step, err);
    return answered(step, put_challenge(state, frame, bytes, out), err);
}

static ddp_status finish_proof(struct ddpi_dialect_state *state, const struct ddpi_frame *frame,
                               const uint8_t *bytes, struct ddpi_buf *out,
                               struct ddpi_dialect_step *step, struct ddp_error *err)
{
    uint8_t proof[DDPI_PROOF_SIZE];
    struct ddpi_identity *identity = &state->identity;
    if (!ddpi_proof_get(bytes + DDPI_FRAME_HEADER_SIZE, frame->payload_len, proof))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed PROOF");
    identity->store = state->incarnation;
    ddp_status status =
        ddpi_credential_key(state->gate->token, identity, state->handshake.key, err);
    if (status != DDP_OK)
        return status;
    if (!ddpi_handshake_check(&state->handshake, DDPI_SIDE_CLIENT, proof)) {
        step->kind = DDPI_DIALECT_DENIED;
        return ddpi_error_set(
            err, DDP_E_DENIED,
            "it claimed to be %s of job '%s' in epoch %llu, but its key does not match: its token "
            "differs from that of this server, or its key is for another identity; 'ddpctl token "
            "show-path' here prints the file to copy there",
            ddpi_role_name(identity->role), identity->job, (unsigned long long)identity->epoch);
    }
    identity->proven = true;
    ddpi_handshake_add(&state->handshake, bytes, DDPI_FRAME_HEADER_SIZE + frame->payload_len);
    return finish_handshake(state, frame->id, out, step, err);
}

static bool put_refusal(struct ddpi_dialect_state *state, struct ddpi_buf *out, uint8_t type,
                        uint64_t id, ddp_status status, const char *text)
{
    size_t before = ddpi_buf_len(out);
    return ddpi_seals_put(
        &state->seals, out, before,
        ddpi_refusal_put(out, type, id, status, 0, ddpi_bytes_of(text, strlen(text))));
}

static ddp_status finish_request(struct ddpi_dialect_state *state, const struct ddpi_frame *frame,
                                 const uint8_t *bytes, struct ddpi_buf *out,
                                 struct ddpi_dialect_step *step, struct ddp_error *err)
{
    struct ddp_error why;
    size_t size = DDPI_FRAME_HEADER_SIZE + frame->payload_len;
    if (state->seals.on && !ddpi_seals_check(&state->seals, bytes, size)) {
        step->kind = DDPI_DIALECT_DENIED;
        return ddpi_error_set(err, DDP_E_DENIED,
                              "a frame of type %u failed its integrity check: it was changed, "
                              "dropped or repeated on the way",
                              frame->type);
    }
    ddp_status status =
        ddpi_request_get(frame, bytes + DDPI_FRAME_HEADER_SIZE, &step->request, &why);
    if (status == DDP_E_LIMIT) /* the frame is well-formed: only this request fails */
        return answered(step, put_refusal(state, out, frame->type, frame->id, status, why.msg),
                        err);
    if (status != DDP_OK)
        return ddpi_error_set(err, status, "%s", why.msg);
    step->kind = DDPI_DIALECT_REQUEST;
    return DDP_OK;
}

/* The longest payload allowed for a frame of this type in this phase. */
static ddp_status payload_max(const struct ddpi_dialect_state *state,
                              const struct ddpi_frame *frame, size_t *ret_max,
                              struct ddp_error *err)
{
    enum ddpi_op op;
    if (state->phase == HELLO && frame->type == DDPI_FRAME_HELLO)
        *ret_max = DDPI_HELLO_MAX;
    else if (state->phase == PROOF && frame->type == DDPI_FRAME_PROOF)
        *ret_max = DDPI_PROOF_SIZE;
    else if (state->phase == OPEN && ddpi_op_of_type(frame->type, &op))
        *ret_max = ddpi_request_max(op);
    else
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a frame of type %u, which is not allowed here",
                              frame->type);
    return DDP_OK;
}

static ddp_status next_frame(struct ddpi_dialect_state *state, const uint8_t *bytes, size_t len,
                             struct ddpi_buf *out, struct ddpi_dialect_step *step,
                             struct ddp_error *err)
{
    struct ddpi_frame frame;
    if (len < DDPI_FRAME_HEADER_SIZE)
        return ddpi_dialect_step_more(step, DDPI_FRAME_HEADER_SIZE);
    if (!ddpi_frame_get(bytes, &frame))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed frame header");
    size_t max = 0;
    ddp_status status = payload_max(state, &frame, &max, err);
    if (status != DDP_OK)
        return status;
    if (frame.payload_len > max)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "a frame of type %u with %u bytes; at most %zu are allowed",
                              frame.type, frame.payload_len, max);
    size_t need = DDPI_FRAME_HEADER_SIZE + frame.payload_len + ddpi_seals_size(&state->seals);
    if (len < need)
        return ddpi_dialect_step_more(step, need);
    step->used = need;
    static ddp_status (*const finish[])(
        struct ddpi_dialect_state * state, const struct ddpi_frame *frame, const uint8_t *bytes,
        struct ddpi_buf *out, struct ddpi_dialect_step *step, struct ddp_error *err) = {
        [HELLO] = finish_hello, [PROOF] = finish_proof, [OPEN] = finish_request};
    return finish[state->phase](state, &frame, bytes, out, step, err);
}

static ddp_status native_next(struct ddpi_dialect_state *state, const uint8_t *bytes, size_t len,
                              struct ddpi_buf *out, struct ddpi_dialect_step *step,
                              struct ddp_error *err)
{
    *step = (struct ddpi_dialect_step){.kind = DDPI_DIALECT_CLOSE};
    return state->phase == PREAMBLE ? next_preamble(state, bytes, len, out, step, err)
                                    : next_frame(state, bytes, len, out, step, err);
}

static ddp_status native_put_reply(struct ddpi_dialect_state *state, struct ddpi_buf *out,
                                   const struct ddpi_message *reply)
{
    size_t before = ddpi_buf_len(out);
    bool put = ddpi_seals_put(&state->seals, out, before, ddpi_reply_put(out, reply));
    return put ? DDP_OK : DDP_E_NOMEM;
}

static void native_put_farewell(struct ddpi_dialect_state *state, struct ddpi_buf *out,
                                ddp_status status, const char *text)
{
    bool sealed_early = state->seals.on && !state->open;
    /* Before the preambles are exchanged, the peer may not understand a frame. */
    if (state->phase != PREAMBLE)
        (void)put_refusal(state, out, sealed_early ? DDPI_FRAME_REFUSAL : DDPI_FRAME_BYE, 0, status,
                          text);
}

static size_t native_peek(const struct ddpi_dialect_state *state, const uint8_t *bytes, size_t len,
                          struct ddpi_bytes *ret_key)
{
    struct ddpi_frame frame;
    if (state->phase != OPEN || len < DDPI_FRAME_HEADER_SIZE || !ddpi_frame_get(bytes, &frame) ||
        frame.payload_len > len - DDPI_FRAME_HEADER_SIZE ||
        !ddpi_request_key(&frame, bytes + DDPI_FRAME_HEADER_SIZE, ret_key))
        return 0;
    size_t size = DDPI_FRAME_HEADER_SIZE + frame.payload_len + ddpi_seals_size(&state->seals);
    return size <= len ? size : 0;
}

const struct ddpi_dialect ddpi_dialect_native = {
    .first_byte = 'D',
    .next = native_next,
    .peek = native_peek,
    .put_reply = native_put_reply,
    .put_farewell = native_put_farewell,
};
