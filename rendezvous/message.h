/*
 * message.h - what can be asked of the store and what it answers, whatever the dialect on the
 * wire. Codecs fill these, the key-value core (kv.h) reads them.
 *
 * A message owns nothing: its bytes lie in a received frame, or in the core, and are valid for as
 * long as the call that hands it over.
 */
#ifndef DDPI_MESSAGE_H
#define DDPI_MESSAGE_H

#include "buf.h"

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ddpi_op {
#define DDPI_MESSAGE(symbol, type, name, request, reply) DDPI_OP_##symbol,
#include "proto.def"
#undef DDPI_MESSAGE
    DDPI_OP_COUNT
};

/* The members of struct ddpi_message, in the order in which they stand on the wire. */
enum ddpi_field {
    DDPI_KEY = 1,      /* also a prefix (list) and a name (barrier) */
    DDPI_KEYS = 2,     /* several keys */
    DDPI_VALUE = 4,    /* */
    DDPI_VERSION = 8,  /* */
    DDPI_NUMBER = 16,  /* what to add, the sum */
    DDPI_COUNT = 32,   /* how many make a barrier full */
    DDPI_TIMEOUT = 64, /* milliseconds */
    DDPI_TEXT = 128,   /* a sentence for a person: failures only */
};

struct ddpi_bytes {
    const void *data;
    size_t len;
};

/* @count keys one behind the other, each a little-endian u32 length and its bytes. */
struct ddpi_keys {
    const void *packed;
    size_t packed_len;
    uint32_t count;
};

struct ddpi_message {
    enum ddpi_op op;
    uint64_t id;       /* chosen by who asks; its reply carries the same */
    ddp_status status; /* of a reply */
    struct ddpi_bytes key;
    struct ddpi_keys keys;
    struct ddpi_bytes value;
    uint64_t version;
    int64_t number;
    uint32_t count;
    uint32_t timeout_ms;
    struct ddpi_bytes text;
};

static inline struct ddpi_bytes ddpi_bytes_of(const void *data, size_t len)
{
    return (struct ddpi_bytes){.data = data, .len = len};
}

/* "set", "compare-and-swap". */
const char *ddpi_op_name(enum ddpi_op op);

/* Append one key to a packed list; false, with nothing changed, if @buf does not take it. */
bool ddpi_keys_put(struct ddpi_buf *buf, struct ddpi_bytes key);

/* Take the first key off @keys; false at the end, and where the list is malformed. */
bool ddpi_keys_next(struct ddpi_keys *keys, struct ddpi_bytes *ret_key);

#endif
