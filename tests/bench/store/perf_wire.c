/*
 * perf_wire.c - the two protocols of the load generator, and scripts. Owns the bytes of a script.
 */
#include "perf_wire.h"

#include "proto.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    WAIT_MS = 600000, /* longer than any measurement */
    SCRIPT_MAX = 64 * 1024 * 1024,
    NUMBER_MAX = 9, /* digits of a length in a reply */
};

/* ---- native ---- */

static bool native_put_greeting(struct ddpi_buf *out)
{
    static const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    static const struct ddpi_hello hello = {.auth = DDPI_AUTH_NONE};
    return ddpi_preamble_put(out, &preamble) && ddpi_hello_put(out, 0, &hello);
}

static bool native_put(struct ddpi_buf *out, const struct perf_request *request)
{
    static const enum ddpi_op ops[] = {
        [PERF_SET] = DDPI_OP_SET,
        [PERF_GET] = DDPI_OP_TRY_GET,
        [PERF_WAIT] = DDPI_OP_GET,
        [PERF_BARRIER] = DDPI_OP_BARRIER,
        [PERF_WATCH] = DDPI_OP_WATCH,
        [PERF_LIST] = DDPI_OP_LIST,
        [PERF_SESSION] = DDPI_OP_SESSION_OPEN,
    };
    const struct ddpi_message message = {
        .op = ops[request->op],
        .id = request->id,
        .key = request->key,
        .value = request->value,
        .count = request->op == PERF_SESSION ? WAIT_MS : request->arrivals, /* the lease */
        .timeout_ms = WAIT_MS,
    };
    return ddpi_request_put(out, &message);
}

static ptrdiff_t native_reply_len(const uint8_t *bytes, size_t len)
{
    struct ddpi_frame frame;
    if (len < DDPI_FRAME_HEADER_SIZE)
        return 0;
    if (!ddpi_frame_get(bytes, &frame) || frame.status != DDP_OK || frame.type == DDPI_FRAME_BYE)
        return -1;
    size_t whole = DDPI_FRAME_HEADER_SIZE + (size_t)frame.payload_len;
    return len >= whole ? (ptrdiff_t)whole : 0;
}

static ptrdiff_t native_greeting_len(const uint8_t *bytes, size_t len)
{
    struct ddpi_preamble preamble;
    if (len < DDPI_PREAMBLE_SIZE)
        return 0;
    if (!ddpi_preamble_get(bytes, &preamble))
        return -1;
    ptrdiff_t welcome = native_reply_len(bytes + DDPI_PREAMBLE_SIZE, len - DDPI_PREAMBLE_SIZE);
    return welcome > 0 ? DDPI_PREAMBLE_SIZE + welcome : welcome;
}

const struct perf_wire perf_wire_native = {
    .put_greeting = native_put_greeting,
    .put = native_put,
    .greeting_len = native_greeting_len,
    .reply_len = native_reply_len,
};

/* ---- RESP ---- */

static bool put_text(struct ddpi_buf *out, const char *text)
{
    return ddpi_buf_append(out, text, strlen(text));
}

static bool resp_put_greeting(struct ddpi_buf *out)
{
    return put_text(out, "*1\r\n$4\r\nPING\r\n");
}

static bool put_bulk(struct ddpi_buf *out, struct ddpi_bytes bytes)
{
    char head[32];
    snprintf(head, sizeof head, "$%zu\r\n", bytes.len);
    return put_text(out, head) && ddpi_buf_append(out, bytes.data, bytes.len) &&
           put_text(out, "\r\n");
}

static bool resp_put(struct ddpi_buf *out, const struct perf_request *request)
{
    switch (request->op) {
    case PERF_SET:
        return put_text(out, "*3\r\n$3\r\nSET\r\n") && put_bulk(out, request->key) &&
               put_bulk(out, request->value);
    case PERF_GET:
        return put_text(out, "*2\r\n$3\r\nGET\r\n") && put_bulk(out, request->key);
    default:
        return false;
    }
}

/* The number from @text to @end; -1: not a number. */
static ptrdiff_t number_in(const uint8_t *text, const uint8_t *end)
{
    ptrdiff_t number = 0;
    if (text == end || end - text > NUMBER_MAX)
        return -1;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        number = number * 10 + (*text - '0');
    }
    return number;
}

/* A simple string ("+OK") or a bulk string ("$64"); others are errors, or say "no such key". */
static ptrdiff_t resp_reply_len(const uint8_t *bytes, size_t len)
{
    if (len == 0)
        return 0;
    if (*bytes != '+' && *bytes != '$')
        return -1;
    const uint8_t *feed = memchr(bytes, '\n', len);
    if (feed == NULL)
        return 0;
    ptrdiff_t line = feed + 1 - bytes;
    if (line < 3 || feed[-1] != '\r')
        return -1;
    if (*bytes == '+')
        return line;
    ptrdiff_t number = number_in(bytes + 1, feed - 1);
    if (number < 0)
        return -1;
    ptrdiff_t whole = line + number + 2;
    return len >= (size_t)whole ? whole : 0;
}

const struct perf_wire perf_wire_resp = {
    .put_greeting = resp_put_greeting,
    .put = resp_put,
    .greeting_len = resp_reply_len,
    .reply_len = resp_reply_len,
};

/* ---- scripts ---- */

bool perf_script_init(struct perf_script *script, const struct perf_wire *wire,
                      const struct perf_pattern *pattern, uint32_t count)
{
    char key[64], value[PERF_VALUE_LEN];
    memset(value, 'v', sizeof value);
    struct perf_request request = {.op = pattern->op,
                                   .value = ddpi_bytes_of(value, sizeof value),
                                   .arrivals = pattern->arrivals};
    *script = (struct perf_script){.count = count};
    ddpi_buf_init(&script->bytes, SCRIPT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t number = (pattern->first + i * pattern->step) % pattern->keys;
        int len = pattern->op == PERF_LIST
                      ? snprintf(key, sizeof key, "%s", pattern->prefix)
                      : snprintf(key, sizeof key, "%s%09" PRIu64, pattern->prefix, number);
        request.key = ddpi_bytes_of(key, (size_t)len);
        request.id = ((uint64_t)pattern->op << 32) + i + 1;
        if (!wire->put(&script->bytes, &request))
            return false;
    }
    /* Keys, values and ids have fixed lengths, so requests of one kind do, too. */
    script->each = count > 0 ? ddpi_buf_len(&script->bytes) / count : 0;
    return true;
}

void perf_script_finish(struct perf_script *script)
{
    ddpi_buf_finish(&script->bytes);
    *script = (struct perf_script){0};
}
