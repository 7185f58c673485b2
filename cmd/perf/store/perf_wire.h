/*
 * perf_wire.h - requests of the load generator as bytes, in the native dialect and in RESP, which
 * Redis speaks, and where a reply ends. Pure.
 */
#ifndef CMD_PERF_WIRE_H
#define CMD_PERF_WIRE_H

#include "message.h"

enum perf_op {
    PERF_SET,
    PERF_GET,     /* of a key that is there */
    PERF_WAIT,    /* a get that waits until its key is there; RESP has none */
    PERF_BARRIER, /* RESP has none */
    PERF_WATCH,   /* the key; RESP has none */
    PERF_LIST,    /* of a script: all keys with its prefix; RESP has none */
    PERF_SESSION, /* begins one; RESP has none */
};

struct perf_request {
    enum perf_op op;
    uint64_t id;
    struct ddpi_bytes key;
    struct ddpi_bytes value; /* of PERF_SET */
    uint32_t arrivals;       /* of PERF_BARRIER */
};

struct perf_wire {
    /* What a client says first: its answer tells that the server has taken the connection. */
    bool (*put_greeting)(struct ddpi_buf *out);
    /* false if it does not fit, or if this wire has no words for it. */
    bool (*put)(struct ddpi_buf *out, const struct perf_request *request);
    /* How many bytes at the beginning of @bytes answer the greeting, or one request: 0 when they
     * are not all there yet, -1 if the answer is no, or none at all. */
    ptrdiff_t (*greeting_len)(const uint8_t *bytes, size_t len);
    ptrdiff_t (*reply_len)(const uint8_t *bytes, size_t len);
};

extern const struct perf_wire perf_wire_native;
extern const struct perf_wire perf_wire_resp;

/* Requests that are prepared before the clock runs: @count of @each bytes, all of one kind. */
struct perf_script {
    struct ddpi_buf bytes;
    size_t each;
    uint32_t count;
};

/* Which keys a script names: request i the one with number (first + i * step) % keys. */
struct perf_pattern {
    enum perf_op op;
    const char *prefix;
    uint64_t first;
    uint64_t step;
    uint64_t keys;
    uint32_t arrivals;
};

enum { PERF_VALUE_LEN = 64 };

/* false if memory has run out, or if @wire has no such operation; @script is to be finished then,
 * too. */
bool perf_script_init(struct perf_script *script, const struct perf_wire *wire,
                      const struct perf_pattern *pattern, uint32_t count);
void perf_script_finish(struct perf_script *script);

#endif
