/*
 * native.c - fuzzes what a client of the native dialect may send: preamble, HELLO,
 * requests, in any pieces. A decoded request encodes to the bytes it came from; what the server
 * says is well-formed.
 */
#include "conversation.h"
#include "fuzz.h"
#include "proto.h"

#include <string.h>

static void encodes_to(const struct ddpi_message *request, const uint8_t *bytes, size_t len)
{
    struct ddpi_buf again;
    ddpi_buf_init(&again, len);
    HOLDS(ddpi_request_put(&again, request));
    HOLDS(ddpi_buf_len(&again) == len && memcmp(ddpi_buf_head(&again), bytes, len) == 0);
    ddpi_buf_finish(&again);
    struct ddpi_keys keys = request->keys;
    struct ddpi_bytes key;
    while (ddpi_keys_next(&keys, &key))
        HOLDS((const uint8_t *)key.data + key.len <= bytes + len);
    HOLDS(keys.count == 0 && keys.packed_len == 0);
}

/* The preamble, WELCOME, replies, BYE: whole frames and nothing else. */
static void check_output(const struct conversation *talk)
{
    struct ddpi_rd rd = ddpi_rd_of(ddpi_buf_head(&talk->out), ddpi_buf_len(&talk->out));
    struct ddpi_preamble preamble;
    if (rd.left == 0)
        return;
    const uint8_t *greeting = ddpi_rd_bytes(&rd, DDPI_PREAMBLE_SIZE);
    HOLDS(greeting != NULL && ddpi_preamble_get(greeting, &preamble));
    for (bool welcomed = false; rd.left > 0; welcomed = true) {
        const uint8_t *header = ddpi_rd_bytes(&rd, DDPI_FRAME_HEADER_SIZE);
        struct ddpi_frame frame;
        struct ddpi_message reply;
        struct ddpi_welcome welcome;
        HOLDS(header != NULL && ddpi_frame_get(header, &frame));
        const uint8_t *payload = ddpi_rd_bytes(&rd, frame.payload_len);
        HOLDS(!rd.failed);
        if (frame.type == DDPI_FRAME_BYE)
            HOLDS(rd.left == 0 && ddpi_refusal_get(payload, frame.payload_len, &(uint64_t){0},
                                                   &(struct ddpi_bytes){0}));
        else if (!welcomed)
            HOLDS(frame.type == DDPI_FRAME_HELLO &&
                  ddpi_welcome_get(payload, frame.payload_len, &welcome));
        else
            HOLDS(ddpi_reply_get(&frame, payload, &reply, NULL) == DDP_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conversation talk = converse(&ddpi_dialect_native, encodes_to, data, size);
    check_output(&talk);
    conversation_finish(&talk);
    return 0;
}
