/*
 * client_greet.c - the client's side of the greeting. Keeps no state between connections.
 */
#include "client_greet.h"

#include "client_frame.h"
#include "error.h"

#include <assert.h>
#include <stdio.h>

enum phase { PREAMBLE, CHALLENGE, WELCOME, DONE };

static const struct ddpi_preamble ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};

/* Write preamble and HELLO, and keep the HELLO for the transcript. */
static bool put_hello(struct ddpi_greet *greet, const struct ddpi_hello *hello,
                      struct ddpi_buf *out)
{
    size_t before = ddpi_buf_len(out);
    if (!ddpi_preamble_put(out, &ours) || !ddpi_hello_put(out, 0, hello))
        return false;
    const uint8_t *preamble = ddpi_buf_head(out) + before;
    ddpi_handshake_begin(&greet->handshake);
    ddpi_handshake_add(&greet->handshake, preamble, DDPI_PREAMBLE_SIZE);
    greet->hello_len = ddpi_buf_len(out) - before - DDPI_PREAMBLE_SIZE;
    assert(greet->hello_len <= sizeof greet->hello);
    memcpy(greet->hello, preamble + DDPI_PREAMBLE_SIZE, greet->hello_len);
    return true;
}

ddp_status ddpi_greet_begin(struct ddpi_greet *greet, const struct ddpi_greet_terms *terms,
                            struct ddpi_buf *out, struct ddp_error *err)
{
    struct ddpi_hello hello = {.auth = DDPI_AUTH_NONE, .identity = *terms->identity};
    *greet = (struct ddpi_greet){
        .phase = PREAMBLE, .credential = terms->credential, .identity = *terms->identity};
    if (terms->vouches_for != NULL)
        snprintf(hello.vouches_for, sizeof hello.vouches_for, "%s", terms->vouches_for);
    if (terms->credential != NULL) {
        ddp_status status = ddpi_credential_fits(terms->credential, terms->identity, err);
        if (status != DDP_OK)
            return status;
        hello.auth = DDPI_AUTH_HMAC;
        terms->random(hello.nonce, sizeof hello.nonce);
    }
    if (!put_hello(greet, &hello, out))
        return ddpi_error_nomem(err, sizeof greet->hello);
    return DDP_OK;
}

static ddp_status take_preamble(struct ddpi_greet *greet, struct ddpi_buf *in, size_t *ret_need,
                                struct ddp_error *err)
{
    struct ddpi_preamble theirs;
    size_t len = ddpi_buf_len(in);
    if (len > 0 && !ddpi_preamble_plausible(ddpi_buf_head(in), len))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the server is not a ddprun store");
    *ret_need = DDPI_PREAMBLE_SIZE;
    if (len < DDPI_PREAMBLE_SIZE)
        return DDP_OK;
    if (!ddpi_preamble_get(ddpi_buf_head(in), &theirs))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the server is not a ddprun store");
    greet->version = ddpi_version_choose(&ours, &theirs);
    if (greet->version == 0)
        return ddpi_error_set(
            err, DDP_E_PROTOCOL, "the server speaks versions %u to %u, this library %u to %u",
            theirs.version_min, theirs.version_max, ours.version_min, ours.version_max);
    ddpi_handshake_add(&greet->handshake, ddpi_buf_head(in), DDPI_PREAMBLE_SIZE);
    ddpi_handshake_add(&greet->handshake, greet->hello, greet->hello_len);
    ddpi_buf_consume(in, DDPI_PREAMBLE_SIZE);
    *ret_need = 0;
    greet->phase = greet->credential != NULL ? CHALLENGE : WELCOME;
    return DDP_OK;
}

/* The server seals a refusal that answers the client's proof. */
static bool is_sealed(const struct ddpi_greet *greet, const struct ddpi_buf *in)
{
    struct ddpi_frame header;
    return greet->phase == WELCOME && greet->credential != NULL &&
           ddpi_buf_len(in) >= DDPI_FRAME_HEADER_SIZE &&
           ddpi_frame_get(ddpi_buf_head(in), &header) && header.type == DDPI_FRAME_REFUSAL;
}

/* Parse the next frame, which must have @type or be a refusal; *@ret_need: 0 if it is complete. */
static ddp_status next_frame(struct ddpi_greet *greet, const struct ddpi_buf *in,
                             enum ddpi_frame_type type, struct ddpi_client_frame *ret,
                             size_t *ret_need, struct ddp_error *err)
{
    struct ddpi_seals seals = {0};
    bool sealed = is_sealed(greet, in);
    if (sealed)
        ddpi_seals_begin(&seals, &greet->handshake, DDPI_SIDE_CLIENT);
    ddp_status status = ddpi_client_frame_next(in, &seals, ret, ret_need, err);
    ddpi_wipe(&seals, sizeof seals);
    if (status != DDP_OK || *ret_need > 0)
        return status;
    greet->refusal_proven = sealed;
    if (ret->header.status != DDP_OK)
        return ddpi_client_frame_refusal(ret, err);
    if (ret->header.type != type)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed answer to HELLO");
    return DDP_OK;
}

static ddp_status take_challenge(struct ddpi_greet *greet, struct ddpi_buf *in,
                                 struct ddpi_buf *out, size_t *ret_need, struct ddp_error *err)
{
    struct ddpi_client_frame frame;
    struct ddpi_challenge challenge;
    uint8_t proof[DDPI_PROOF_SIZE];
    ddp_status status = next_frame(greet, in, DDPI_FRAME_CHALLENGE, &frame, ret_need, err);
    if (status != DDP_OK || *ret_need > 0)
        return status;
    if (!ddpi_challenge_get(frame.payload, frame.header.payload_len, &challenge))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed CHALLENGE");
    greet->identity.store = challenge.store;
    status = ddpi_credential_key(greet->credential, &greet->identity, greet->handshake.key, err);
    if (status != DDP_OK)
        return status;
    ddpi_handshake_add(&greet->handshake, ddpi_buf_head(in), frame.size);
    ddpi_buf_consume(in, frame.size);
    ddpi_handshake_prove(&greet->handshake, DDPI_SIDE_CLIENT, proof);
    size_t before = ddpi_buf_len(out);
    if (!ddpi_proof_put(out, 0, proof))
        return ddpi_error_nomem(err, sizeof proof);
    ddpi_handshake_add(&greet->handshake, ddpi_buf_head(out) + before, ddpi_buf_len(out) - before);
    greet->phase = WELCOME;
    return DDP_OK;
}

/* The server must prove that it has the same key. */
static ddp_status check_server(struct ddpi_greet *greet, const struct ddpi_client_frame *frame,
                               struct ddp_error *err)
{
    ddpi_handshake_add(&greet->handshake, frame->payload - DDPI_FRAME_HEADER_SIZE,
                       frame->size - DDPI_PROOF_SIZE);
    if (!ddpi_handshake_check(&greet->handshake, DDPI_SIDE_SERVER, greet->welcome.proof))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the server cannot prove that it has this token: it is the wrong "
                              "server, or the connection is being intercepted");
    ddpi_seals_begin(&greet->seals, &greet->handshake, DDPI_SIDE_CLIENT);
    return DDP_OK;
}

static ddp_status take_welcome(struct ddpi_greet *greet, struct ddpi_buf *in, size_t *ret_need,
                               struct ddp_error *err)
{
    struct ddpi_client_frame frame;
    ddp_status status = next_frame(greet, in, DDPI_FRAME_HELLO, &frame, ret_need, err);
    if (status != DDP_OK || *ret_need > 0)
        return status;
    if (!ddpi_welcome_get(frame.payload, frame.header.payload_len, &greet->welcome))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed answer to HELLO");
    if (greet->credential != NULL)
        status = check_server(greet, &frame, err);
    if (status != DDP_OK)
        return status;
    ddpi_buf_consume(in, frame.size);
    ddpi_wipe(&greet->handshake, sizeof greet->handshake);
    greet->phase = DONE;
    return DDP_OK;
}

ddp_status ddpi_greet_take(struct ddpi_greet *greet, struct ddpi_buf *in, struct ddpi_buf *out,
                           size_t *ret_need, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    *ret_need = 0;
    if (greet->phase == PREAMBLE)
        status = take_preamble(greet, in, ret_need, err);
    if (status == DDP_OK && greet->phase == CHALLENGE)
        status = take_challenge(greet, in, out, ret_need, err);
    if (status == DDP_OK && *ret_need == 0 && greet->phase == WELCOME)
        status = take_welcome(greet, in, ret_need, err);
    return status;
}
