/*
 * message.h - requests to the store and its replies, in any dialect on the wire. Codecs fill them,
 * and the key-value core (kv.h) reads them.
 *
 * A message owns nothing: its bytes are in a received frame, or in the core, and are valid only
 * during the call that passes it.
 */
#ifndef DDPI_MESSAGE_H
#define DDPI_MESSAGE_H

#include "buf.h"
#include "bytes.h"

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * X(symbol, name) for the operations of PyTorch's clients that the native dialect does not have.
 * None of them has a timeout.
 *
 *   COMPARE_SET  key, expected, value -> value: sets @value if the key has the value @expected, or
 *                if there is no key and @expected is empty (kv/apply.c has the reply)
 *   ADD_WRAP     key, number -> number: reads the old value as strtoll does, and wraps around
 *   CHECK        keys -> DDP_E_NOT_FOUND if one of them is missing
 *   WAIT_EACH    keys: waits until each of them has existed, if only for a moment; replaces the
 *                client's other waiting requests
 *   ARRIVE       key, number: ADD_WRAP of 1; waits until the sum is @number, or the key is written
 *   CANCEL       drops the client's waiting requests
 *   COUNT_KEYS   -> number
 *   APPEND       key, value
 *   GET_MANY     keys -> value: one reply for each key, empty if there is no such key
 *   SET_MANY     keys: a key, its value, the next key and so on
 *   PUSH         key, value: appends to the queue of that name
 *   POP          key -> number, value: the length that the queue had; if not 0, its first value
 *   QUEUE_LEN    key -> number
 *
 * Queues and keys have separate names, but for CHECK and WAIT_EACH a queue that is not empty is a
 * key.
 */
#define DDPI_OPS_BEYOND_NATIVE(X) \
    X(COMPARE_SET, "compare-set") \
    X(ADD_WRAP, "add")            \
    X(CHECK, "check")             \
    X(WAIT_EACH, "wait")          \
    X(ARRIVE, "barrier")          \
    X(CANCEL, "cancel-wait")      \
    X(COUNT_KEYS, "count-keys")   \
    X(APPEND, "append")           \
    X(GET_MANY, "multi-get")      \
    X(SET_MANY, "multi-set")      \
    X(PUSH, "queue-push")         \
    X(POP, "queue-pop")           \
    X(QUEUE_LEN, "queue-len")

enum ddpi_op {
#define DDPI_MESSAGE(symbol, type, name, role, request, reply) DDPI_OP_##symbol,
#include "proto.def"
#undef DDPI_MESSAGE
    DDPI_OP_NATIVE_COUNT,
    DDPI_OP_NATIVE_LAST = DDPI_OP_NATIVE_COUNT - 1,
#define DDPI_OP(symbol, name) DDPI_OP_##symbol,
    DDPI_OPS_BEYOND_NATIVE(DDPI_OP)
#undef DDPI_OP
        DDPI_OP_COUNT
};

/* The members of struct ddpi_message, in their order on the native wire. */
enum ddpi_field {
    DDPI_KEY = 1,  /* also a prefix (list, watch) and a name (barrier) */
    DDPI_KEYS = 2, /* several keys */
    DDPI_VALUE = 4,
    DDPI_VERSION = 8,
    DDPI_NUMBER = 16,   /* a summand, a sum; the kind of a change; the id of a watch or request */
    DDPI_COUNT = 32,    /* how many open a barrier; flags of a watch; ms of a lease */
    DDPI_TIMEOUT = 64,  /* milliseconds */
    DDPI_TEXT = 128,    /* a sentence that says what failed */
    DDPI_CLAUSES = 256, /* of a transaction */
    DDPI_SESSION = 512, /* a token */
};

/* @count keys in a row, each a little-endian length, u32 or u64, and its bytes. */
struct ddpi_keys {
    const void *packed;
    size_t packed_len;
    uint32_t count;
    bool wide; /* u64 */
};

enum { DDPI_SESSION_SIZE = 24 }; /* bytes of a token */

/* In the number of a reply to WATCH. */
enum ddpi_change_kind {
    DDPI_CHANGE_NONE = 0, /* the first reply: the watch has begun, at this version */
    DDPI_CHANGE_SET = 1,
    DDPI_CHANGE_DELETE = 2
};

/* In the count of WATCH. */
enum ddpi_watch_flags { DDPI_WATCH_PREFIX = 1 };

/* A transaction has conditions, then changes. */
enum ddpi_clause_kind {
    DDPI_IF_VERSION = 1, /* @key has this version; 0: it does not exist */
    DDPI_IF_VALUE = 2,   /* @key exists with this value */
    DDPI_THEN_SET = 3,
    DDPI_THEN_DELETE = 4 /* if it exists */
};

struct ddpi_clause {
    uint8_t kind; /* enum ddpi_clause_kind, or a value that is not known */
    uint64_t version;
    struct ddpi_bytes key;
    struct ddpi_bytes value;
};

/* @count clauses in a row, each a u8 kind, a u64 version, a key and a value. */
struct ddpi_clauses {
    const void *packed;
    size_t packed_len;
    uint32_t count;
};

struct ddpi_message {
    enum ddpi_op op;
    uint64_t id;       /* chosen by the client; the reply has the same */
    ddp_status status; /* of a reply */
    struct ddpi_bytes key;
    struct ddpi_keys keys;
    struct ddpi_bytes value;
    struct ddpi_bytes expected;
    uint64_t version;
    int64_t number;
    uint32_t count;
    uint32_t timeout_ms;
    struct ddpi_bytes text;
    struct ddpi_clauses clauses;
    struct ddpi_bytes session;
};

/* "set", "compare-and-swap". */
const char *ddpi_op_name(enum ddpi_op op);

/* Appends one key to a packed list that is not wide; false, with nothing changed, if @buf cannot
 * hold it. */
bool ddpi_keys_put(struct ddpi_buf *buf, struct ddpi_bytes key);

/* Takes the first key off @keys; false at the end, and where the list is malformed. */
bool ddpi_keys_next(struct ddpi_keys *keys, struct ddpi_bytes *ret_key);

/* As the two above, for clauses. */
bool ddpi_clauses_put(struct ddpi_buf *buf, const struct ddpi_clause *clause);
bool ddpi_clauses_next(struct ddpi_clauses *clauses, struct ddpi_clause *ret_clause);

#endif
