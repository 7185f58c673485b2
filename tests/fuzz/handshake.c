/*
 * handshake.c - fuzzes the native handshake with a token, from either side: what a client may send
 * to dialect_native.c, and a server to client_greet.c and, sealed, after it. Their random numbers
 * are always the same here, so the corpus can have handshakes that succeed; nothing else opens
 * anything.
 */
#include "client_frame.h"
#include "client_greet.h"
#include "dialect.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER_MAX = 1024 * 1024, BEFORE_PROOF_MAX = 1024 };

static const struct ddpi_credential token = {.is_token = true,
                                             .secret = "the token of all fuzzers here!!"};

static void no_random(void *bytes, size_t len)
{
    memset(bytes, 7, len);
}

static void play_client(const uint8_t *data, size_t size)
{
    static const struct ddpi_gate gate = {.token = &token, .random = no_random};
    struct ddpi_dialect_state state = {
        .limits = &ddpi_kv_limits_default, .gate = &gate, .must_authenticate = true};
    struct ddpi_buf out;
    struct ddpi_dialect_step step = {.kind = DDPI_DIALECT_ANSWERED};
    ddpi_buf_init(&out, BUFFER_MAX);
    for (size_t at = 0; at < size; at += step.used) {
        struct ddp_error err;
        bool was_open = state.open;
        uint8_t *exact = fuzz_copy(data + at, size - at);
        ddp_status status = ddpi_dialect_native.next(&state, exact, size - at, &out, &step, &err);
        free(exact);
        HOLDS(!state.open || (state.identity.proven && state.seals.on));
        HOLDS(step.kind != DDPI_DIALECT_REQUEST || was_open);
        HOLDS(step.kind != DDPI_DIALECT_MORE || was_open || at + step.need <= BEFORE_PROOF_MAX);
        if (step.kind == DDPI_DIALECT_DENIED)
            HOLDS(status == DDP_E_DENIED);
        if (step.kind == DDPI_DIALECT_CLOSE || step.kind == DDPI_DIALECT_DENIED)
            fuzz_check_error(&err, status);
        if (step.kind != DDPI_DIALECT_REQUEST && step.kind != DDPI_DIALECT_ANSWERED)
            break;
        HOLDS(status == DDP_OK && step.used > 0 && step.used <= size - at);
    }
    ddpi_buf_finish(&out);
}

/* What comes sealed behind the greeting. */
static void take_frames(struct ddpi_greet *greet, struct ddpi_buf *in)
{
    for (;;) {
        struct ddpi_client_frame frame;
        struct ddp_error err;
        size_t need;
        uint64_t before = greet->seals.in.sequence;
        ddp_status status = ddpi_client_frame_next(in, &greet->seals, &frame, &need, &err);
        if (status != DDP_OK) {
            fuzz_check_error(&err, status);
            HOLDS(status == DDP_E_PROTOCOL || status == DDP_E_DENIED);
            return;
        }
        if (need > 0) {
            HOLDS(need > ddpi_buf_len(in));
            return;
        }
        HOLDS(greet->seals.in.sequence == before + 1);
        HOLDS(frame.size <= ddpi_buf_len(in));
        ddpi_buf_consume(in, frame.size);
    }
}

static void play_server(const uint8_t *data, size_t size)
{
    static const struct ddpi_identity identity = {DDPI_ROLE_WORKER, "job", 3, false, 0};
    const struct ddpi_greet_terms terms = {
        .identity = &identity, .credential = &token, .random = no_random};
    struct ddpi_greet greet;
    struct ddpi_buf in, out;
    struct ddp_error err;
    size_t need = 1;
    ddpi_buf_init(&in, BUFFER_MAX);
    ddpi_buf_init(&out, BUFFER_MAX);
    ddp_status status = ddpi_greet_begin(&greet, &terms, &out, &err);
    HOLDS(status == DDP_OK);
    if (size <= BUFFER_MAX && ddpi_buf_append(&in, data, size)) {
        status = ddpi_greet_take(&greet, &in, &out, &need, &err);
        HOLDS(status != DDP_OK || need == 0 || need > ddpi_buf_len(&in));
        HOLDS(greet.seals.on == (status == DDP_OK && need == 0));
        HOLDS(status == DDP_OK || err.status == status); /* the sentence may be the server's own */
        if (status == DDP_OK && need == 0)
            take_frames(&greet, &in);
    }
    ddpi_buf_finish(&in);
    ddpi_buf_finish(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2 == 0)
        play_client(data + 1, size - 1);
    else
        play_server(data + 1, size - 1);
    return 0;
}
