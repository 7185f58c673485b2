/*
 * replies.c - fuzzes what a store may send to a native client: preamble, WELCOME, replies, BYE, as
 * the client core decodes them. What is decoded encodes to the bytes it came from.
 */
#include "fuzz.h"
#include "proto.h"

#include <stdlib.h>
#include <string.h>

static void same_bytes(struct ddpi_buf *again, const uint8_t *bytes, size_t len)
{
    HOLDS(ddpi_buf_len(again) == len && memcmp(ddpi_buf_head(again), bytes, len) == 0);
    ddpi_buf_consume(again, len);
}

static void check_preamble(const uint8_t *bytes, struct ddpi_buf *again)
{
    static const struct ddpi_preamble ours = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_preamble theirs;
    for (size_t len = 0; len <= DDPI_PREAMBLE_SIZE; len++)
        HOLDS(ddpi_preamble_plausible(bytes, len) || !ddpi_preamble_get(bytes, &theirs));
    if (!ddpi_preamble_get(bytes, &theirs))
        return;
    HOLDS(ddpi_preamble_put(again, &theirs));
    same_bytes(again, bytes, DDPI_PREAMBLE_SIZE);
    uint16_t version = ddpi_version_choose(&ours, &theirs);
    HOLDS(version == ddpi_version_choose(&theirs, &ours));
    HOLDS(version == 0 || (version >= theirs.version_min && version <= theirs.version_max));
}

static void check_list(struct ddpi_keys keys)
{
    struct ddpi_bytes key;
    while (ddpi_keys_next(&keys, &key)) {
    }
    HOLDS(keys.count == 0 && keys.packed_len == 0);
}

/* HELLO and BYE are of the connection; later versions may append to WELCOME. */
static void check_own(const struct ddpi_frame *frame, const uint8_t *payload,
                      struct ddpi_buf *again)
{
    struct ddpi_welcome welcome;
    struct ddpi_bytes text;
    uint64_t version;
    if (frame->status == DDP_OK && ddpi_welcome_get(payload, frame->payload_len, &welcome)) {
        HOLDS(ddpi_welcome_put(again, frame->id, &welcome));
        HOLDS(memcmp(ddpi_buf_head(again) + DDPI_FRAME_HEADER_SIZE, payload, 20) == 0);
        ddpi_buf_consume(again, ddpi_buf_len(again));
    }
    if (ddpi_refusal_get(payload, frame->payload_len, &version, &text)) {
        HOLDS(ddpi_refusal_put(again, frame->type, frame->id, frame->status, version, text));
        same_bytes(again, payload - DDPI_FRAME_HEADER_SIZE,
                   DDPI_FRAME_HEADER_SIZE + frame->payload_len);
    }
}

static void check_reply(const struct ddpi_frame *frame, const uint8_t *payload,
                        struct ddpi_buf *again)
{
    struct ddpi_message reply = {.id = ~frame->id};
    struct ddp_error err;
    ddp_status status = ddpi_reply_get(frame, payload, &reply, &err);
    if (status != DDP_OK) {
        fuzz_check_error(&err, status);
        HOLDS(reply.id == ~frame->id);
        return;
    }
    HOLDS(reply.id == frame->id && ddpi_type_of_op(reply.op) == frame->type);
    check_list(reply.keys);
    HOLDS(ddpi_reply_put(again, &reply));
    same_bytes(again, payload - DDPI_FRAME_HEADER_SIZE,
               DDPI_FRAME_HEADER_SIZE + frame->payload_len);
}

/* The first frame; returns how many bytes it has, 0 where there is none. */
static size_t check_frame(const uint8_t *bytes, size_t len, struct ddpi_buf *again)
{
    struct ddpi_frame frame;
    if (len < DDPI_FRAME_HEADER_SIZE || !ddpi_frame_get(bytes, &frame) ||
        frame.payload_len > len - DDPI_FRAME_HEADER_SIZE)
        return 0;
    size_t whole = DDPI_FRAME_HEADER_SIZE + frame.payload_len;
    uint8_t *exact = fuzz_copy(bytes, whole);
    const uint8_t *payload = exact + DDPI_FRAME_HEADER_SIZE;
    if (frame.type == DDPI_FRAME_HELLO || frame.type == DDPI_FRAME_BYE)
        check_own(&frame, payload, again);
    else
        check_reply(&frame, payload, again);
    free(exact);
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < DDPI_PREAMBLE_SIZE)
        return 0;
    struct ddpi_buf again;
    ddpi_buf_init(&again, 1024 + size);
    check_preamble(data, &again);
    size_t at = DDPI_PREAMBLE_SIZE;
    for (size_t used = 1; used > 0; at += used)
        used = check_frame(data + at, size - at, &again);
    ddpi_buf_finish(&again);
    return 0;
}
