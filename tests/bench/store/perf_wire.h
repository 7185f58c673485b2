/*
 * perf_wire.h - encodes the requests of the load generator, in the native protocol and in RESP, the
 * protocol of Redis, and finds the end of replies. Pure.
 */
#ifndef TESTS_BENCH_PERF_WIRE_H
#define TESTS_BENCH_PERF_WIRE_H

#include "message.h"

enum perf_op {
    PERF_SET,
    PERF_GET,     /* of a key that exists */
    PERF_WAIT,    /* a get that waits until its key exists; not in RESP */
    PERF_BARRIER, /* not in RESP */
    PERF_WATCH,   /* of one key; not in RESP */
    PERF_LIST,    /* of all keys with the script's prefix; not in RESP */
    PERF_SESSION, /* opens one; not in RESP */
};

struct perf_request {
    enum perf_op op;
    uint64_t id;
    struct ddpi_bytes key;
    struct ddpi_bytes value; /* of PERF_SET */
    uint32_t arrivals;       /* of PERF_BARRIER */
};

struct perf_wire {
    /* The first message of a client; its answer shows that the server accepts the client. */
    bool (*put_greeting)(struct ddpi_buf *out);
    /* false: it does not fit, or the protocol has no such request. */
    bool (*put)(struct ddpi_buf *out, const struct perf_request *request);
    /* The length of the answer to the greeting, or to a request, at the beginning of @bytes. 0: it
     * is incomplete; -1: it is negative or malformed. */
    ptrdiff_t (*greeting_len)(const uint8_t *bytes, size_t len);
    ptrdiff_t (*reply_len)(const uint8_t *bytes, size_t len);
};

extern const struct perf_wire perf_wire_native;
extern const struct perf_wire perf_wire_resp;

/* Requests encoded before the measurement: @count of @each bytes, all of one kind. */
struct perf_script {
    struct ddpi_buf bytes;
    size_t each;
    uint32_t count;
};

/* Selects the keys of a script: request i has key number (first + i * step) % keys. */
struct perf_pattern {
    enum perf_op op;
    const char *prefix;
    uint64_t first;
    uint64_t step;
    uint64_t keys;
    uint32_t arrivals;
};

enum { PERF_VALUE_LEN = 64 };

/* false: out of memory, or @wire has no such request. The caller ends with perf_script_finish() in
 * any case. */
bool perf_script_init(struct perf_script *script, const struct perf_wire *wire,
                      const struct perf_pattern *pattern, uint32_t count);
void perf_script_finish(struct perf_script *script);

#endif
