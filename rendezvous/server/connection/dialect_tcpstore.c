/*
 * dialect_tcpstore.c - the dialect of PyTorch's TCPStore clients (dialect_tcpstore.h describes it),
 * versions 2.4 to 2.15. Bytes <-> struct ddpi_message; no I/O; keeps no bytes.
 *
 * A request does not carry its length; each of its strings does. The state remembers how far the
 * request has been scanned, so that one that arrives in many pieces is scanned once. It becomes a
 * message, and takes effect, when its last byte has arrived.
 */
#include "dialect_tcpstore.h"

#include "dialect.h"
#include "error.h"

#include <string.h>

enum phase { HELLO, OPEN };

/* What follows the strings. */
enum tail { TAIL_NONE = 0, TAIL_NUMBER = 8, TAIL_NONCE = 4 };

/* Requests whose strings follow a count: keys, or pairs of key and value. */
enum strings { KEYS = 10, PAIRS = 20 };

struct row {
    const char *name;
    enum ddpi_op op;
    unsigned strings; /* 0 to 3, of which the first is a key; or enum strings */
    enum tail tail;
};

static const struct row rows[DDPI_TCPSTORE_TYPES] = {
    [DDPI_TCPSTORE_VALIDATE] = {"VALIDATE", DDPI_OP_COUNT, 0, TAIL_NONCE},
    [DDPI_TCPSTORE_SET] = {"SET", DDPI_OP_SET, 2, TAIL_NONE},
    [DDPI_TCPSTORE_COMPARE_SET] = {"COMPARE_SET", DDPI_OP_COMPARE_SET, 3, TAIL_NONE},
    [DDPI_TCPSTORE_GET] = {"GET", DDPI_OP_TRY_GET, 1, TAIL_NONE},
    [DDPI_TCPSTORE_ADD] = {"ADD", DDPI_OP_ADD_WRAP, 1, TAIL_NUMBER},
    [DDPI_TCPSTORE_CHECK] = {"CHECK", DDPI_OP_CHECK, KEYS, TAIL_NONE},
    [DDPI_TCPSTORE_WAIT] = {"WAIT", DDPI_OP_WAIT_EACH, KEYS, TAIL_NONE},
    [DDPI_TCPSTORE_GETNUMKEYS] = {"GETNUMKEYS", DDPI_OP_COUNT_KEYS, 0, TAIL_NONE},
    [DDPI_TCPSTORE_DELETE_KEY] = {"DELETE_KEY", DDPI_OP_DELETE, 1, TAIL_NONE},
    [DDPI_TCPSTORE_APPEND] = {"APPEND", DDPI_OP_APPEND, 2, TAIL_NONE},
    [DDPI_TCPSTORE_MULTI_GET] = {"MULTI_GET", DDPI_OP_GET_MANY, KEYS, TAIL_NONE},
    [DDPI_TCPSTORE_MULTI_SET] = {"MULTI_SET", DDPI_OP_SET_MANY, PAIRS, TAIL_NONE},
    [DDPI_TCPSTORE_CANCEL_WAIT] = {"CANCEL_WAIT", DDPI_OP_CANCEL, 0, TAIL_NONE},
    [DDPI_TCPSTORE_PING] = {"PING", DDPI_OP_COUNT, 0, TAIL_NONCE},
    [DDPI_TCPSTORE_QUEUE_PUSH] = {"QUEUE_PUSH", DDPI_OP_PUSH, 2, TAIL_NONE},
    [DDPI_TCPSTORE_QUEUE_POP] = {"QUEUE_POP", DDPI_OP_POP, 1, TAIL_NONE},
    [DDPI_TCPSTORE_QUEUE_LEN] = {"QUEUE_LEN", DDPI_OP_QUEUE_LEN, 1, TAIL_NONE},
    [DDPI_TCPSTORE_LIST_KEYS] = {"LIST_KEYS", DDPI_OP_LIST, 0, TAIL_NONE},
    [DDPI_TCPSTORE_BARRIER] = {"BARRIER", DDPI_OP_ARRIVE, 1, TAIL_NUMBER},
};

enum { LEN_SIZE = 8, LIST_HEADER = 1 + LEN_SIZE };

static uint64_t number_at(const uint8_t *bytes)
{
    struct ddpi_rd rd = ddpi_rd_of(bytes, LEN_SIZE);
    return ddpi_rd_u64(&rd);
}

static ddp_status next_hello(struct ddpi_dialect_state *state, const uint8_t *bytes, size_t len,
                             struct ddpi_dialect_step *step, struct ddp_error *err)
{
    size_t there = len < DDPI_TCPSTORE_HELLO_SIZE ? len : DDPI_TCPSTORE_HELLO_SIZE;
    if (memcmp(bytes, DDPI_TCPSTORE_HELLO, there) != 0)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the first bytes are not those of PyTorch's TCPStore");
    if (there < DDPI_TCPSTORE_HELLO_SIZE)
        return ddpi_dialect_step_more(step, DDPI_TCPSTORE_HELLO_SIZE);
    ddp_status status = ddpi_dialect_admit(state, err);
    if (status != DDP_OK)
        return status;
    state->phase = OPEN;
    state->open = true;
    step->kind = DDPI_DIALECT_ANSWERED;
    step->used = DDPI_TCPSTORE_HELLO_SIZE;
    return DDP_OK;
}

/* Begin to scan a request: find how many strings it has, and where the first is. */
static ddp_status begin_request(struct ddpi_dialect_state *state, const struct row *row,
                                const uint8_t *bytes, size_t len, struct ddpi_dialect_step *step,
                                struct ddp_error *err)
{
    uint64_t max = state->limits->tcpstore_many;
    if (row->strings != KEYS && row->strings != PAIRS) {
        state->strings = row->strings;
        state->scanned = 1;
        return DDP_OK;
    }
    if (len < LIST_HEADER)
        return ddpi_dialect_step_more(step, LIST_HEADER);
    uint64_t count = number_at(bytes + 1);
    if (count > max)
        return ddpi_error_set(err, DDP_E_LIMIT, "%s of %llu keys; at most %llu are allowed",
                              row->name, (unsigned long long)count, (unsigned long long)max);
    state->strings = (uint32_t)count * (row->strings == PAIRS ? 2 : 1);
    state->scanned = LIST_HEADER;
    return DDP_OK;
}

/* Whether the next string is a key. */
static bool key_is_next(const struct ddpi_dialect_state *state, const struct row *row)
{
    return row->strings == KEYS || (row->strings == PAIRS && state->strings % 2 == 0) ||
           state->strings == row->strings;
}

/* Scan to the end of the request. The `need` of MORE is the least that the whole request can take,
 * so that a list of many short strings does not stop at each of them. */
static ddp_status scan_strings(struct ddpi_dialect_state *state, const struct row *row,
                               const uint8_t *bytes, size_t len, struct ddpi_dialect_step *step,
                               struct ddp_error *err)
{
    for (; state->strings > 0; state->strings--) {
        size_t least = state->scanned + (size_t)state->strings * LEN_SIZE + row->tail;
        if (len - state->scanned < LEN_SIZE)
            return ddpi_dialect_step_more(step, least);
        uint64_t string_len = number_at(bytes + state->scanned);
        bool is_key = key_is_next(state, row);
        uint64_t max = is_key ? state->limits->tcpstore_key_len : state->limits->tcpstore_value_len;
        if (string_len > max)
            return ddpi_error_set(
                err, DDP_E_LIMIT, "%s with a %s of %llu bytes; at most %llu are allowed", row->name,
                is_key ? "key" : "value", (unsigned long long)string_len, (unsigned long long)max);
        least += string_len;
        if (least > DDPI_TCPSTORE_REQUEST_MAX)
            return ddpi_error_set(err, DDP_E_LIMIT,
                                  "%s of %zu bytes or more; at most %u are allowed", row->name,
                                  least, DDPI_TCPSTORE_REQUEST_MAX);
        if (len - state->scanned - LEN_SIZE < string_len)
            return ddpi_dialect_step_more(step, least);
        state->scanned += LEN_SIZE + string_len;
    }
    return len - state->scanned < row->tail
               ? ddpi_dialect_step_more(step, state->scanned + row->tail)
               : DDP_OK;
}

static struct ddpi_bytes take_string(struct ddpi_rd *rd)
{
    size_t len = ddpi_rd_u64(rd);
    return ddpi_bytes_of(ddpi_rd_bytes(rd, len), len);
}

/* All @len bytes of the request have arrived, and their lengths are checked. */
static struct ddpi_message read_request(const struct row *row, const uint8_t *bytes, size_t len)
{
    struct ddpi_message request = {.op = row->op};
    struct ddpi_rd rd = ddpi_rd_of(bytes + 1, len - 1);
    if (row->strings == KEYS || row->strings == PAIRS) {
        uint32_t count = (uint32_t)ddpi_rd_u64(&rd);
        request.keys = (struct ddpi_keys){.packed = rd.at,
                                          .packed_len = rd.left,
                                          .count = row->strings == PAIRS ? 2 * count : count,
                                          .wide = true};
        return request;
    }
    if (row->strings > 0)
        request.key = take_string(&rd);
    if (row->strings > 2)
        request.expected = take_string(&rd);
    if (row->strings > 1)
        request.value = take_string(&rd);
    if (row->tail == TAIL_NUMBER)
        request.number = (int64_t)ddpi_rd_u64(&rd);
    return request;
}

/* Each key of a MULTI_GET, which is @at in the bytes, becomes a request of its own: the values of
 * all of them may be more than a client may leave unread, and the owner serves no further request
 * of a client that has much to read. So values that are long together may be of different moments,
 * but not a value by itself. */
static ddp_status next_of_many(struct ddpi_dialect_state *state, const uint8_t *bytes, size_t at,
                               struct ddpi_dialect_step *step)
{
    size_t len = LEN_SIZE + number_at(bytes + at);
    state->keys--;
    step->kind = DDPI_DIALECT_REQUEST;
    step->used = at + len;
    step->request = (struct ddpi_message){
        .op = DDPI_OP_GET_MANY,
        .keys = {.packed = bytes + at, .packed_len = len, .count = 1, .wide = true}};
    return DDP_OK;
}

/* PING does not concern the core, and is answered here. */
static ddp_status finish_request(const struct row *row, const uint8_t *bytes, size_t len,
                                 struct ddpi_buf *out, struct ddpi_dialect_step *step,
                                 struct ddp_error *err)
{
    step->used = len;
    if (row->op < DDPI_OP_COUNT) {
        step->kind = DDPI_DIALECT_REQUEST;
        step->request = read_request(row, bytes, len);
        return DDP_OK;
    }
    if (row == &rows[DDPI_TCPSTORE_VALIDATE])
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a second VALIDATE");
    if (!ddpi_buf_append(out, bytes + 1, TAIL_NONCE))
        return ddpi_error_set(err, DDP_E_NOMEM, "no memory for an answer");
    step->kind = DDPI_DIALECT_ANSWERED;
    return DDP_OK;
}

static ddp_status tcpstore_next(struct ddpi_dialect_state *state, const uint8_t *bytes, size_t len,
                                struct ddpi_buf *out, struct ddpi_dialect_step *step,
                                struct ddp_error *err)
{
    *step = (struct ddpi_dialect_step){.kind = DDPI_DIALECT_CLOSE};
    if (state->phase == HELLO)
        return next_hello(state, bytes, len, step, err);
    if (state->keys > 0)
        return next_of_many(state, bytes, 0, step);
    if (bytes[0] >= DDPI_TCPSTORE_TYPES)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "no operation has the type %u", bytes[0]);
    const struct row *row = &rows[bytes[0]];
    ddp_status status = DDP_OK;
    if (state->scanned == 0)
        status = begin_request(state, row, bytes, len, step, err);
    if (status == DDP_OK && step->kind != DDPI_DIALECT_MORE)
        status = scan_strings(state, row, bytes, len, step, err);
    if (status != DDP_OK || step->kind == DDPI_DIALECT_MORE)
        return status;
    size_t whole = state->scanned + row->tail;
    state->scanned = 0;
    if (row == &rows[DDPI_TCPSTORE_MULTI_GET])
        state->keys = (uint32_t)number_at(bytes + 1);
    if (state->keys > 0)
        return next_of_many(state, bytes, LIST_HEADER, step);
    return finish_request(row, bytes, whole, out, step, err);
}

/* ---- replies ---- */

static bool put_string(struct ddpi_buf *out, struct ddpi_bytes string)
{
    return ddpi_buf_reserve(out, LEN_SIZE + string.len) != NULL &&
           ddpi_buf_put_u64(out, string.len) && ddpi_buf_append(out, string.data, string.len);
}

static bool put_value(struct ddpi_buf *out, const struct ddpi_message *reply)
{
    return put_string(out, reply->value);
}

static bool put_number(struct ddpi_buf *out, const struct ddpi_message *reply)
{
    return ddpi_buf_put_u64(out, (uint64_t)reply->number);
}

static bool put_deleted(struct ddpi_buf *out, const struct ddpi_message *reply)
{
    return ddpi_buf_put_u64(out, reply->status == DDP_OK);
}

/* READY and STOP_WAITING are 0, NOT_READY is 1. */
static bool put_ready(struct ddpi_buf *out, const struct ddpi_message *reply)
{
    return ddpi_buf_put_u8(out, reply->status != DDP_OK);
}

static bool put_cancelled(struct ddpi_buf *out, const struct ddpi_message *reply)
{
    (void)reply;
    return ddpi_buf_put_u8(out, 1);
}

static bool put_popped(struct ddpi_buf *out, const struct ddpi_message *reply)
{
    if (reply->number == 0)
        return put_number(out, reply);
    return ddpi_buf_reserve(out, 2 * LEN_SIZE + reply->value.len) != NULL &&
           put_number(out, reply) && put_value(out, reply);
}

static bool put_list(struct ddpi_buf *out, const struct ddpi_message *reply)
{
    struct ddpi_keys keys = reply->keys;
    size_t widened = keys.packed_len + keys.count * (LEN_SIZE - sizeof(uint32_t));
    bool fits = ddpi_buf_reserve(out, LEN_SIZE + widened) != NULL;
    fits = fits && ddpi_buf_put_u64(out, keys.count);
    for (struct ddpi_bytes key; fits && ddpi_keys_next(&keys, &key);)
        fits = put_string(out, key);
    return fits;
}

/* An operation without a row has an empty reply. */
struct reply_row {
    bool (*put)(struct ddpi_buf *out, const struct ddpi_message *reply);
    bool may_miss; /* the protocol can express DDP_E_NOT_FOUND */
};

static const struct reply_row replies[DDPI_OP_COUNT] = {
    [DDPI_OP_COMPARE_SET] = {put_value, false}, [DDPI_OP_TRY_GET] = {put_value, true},
    [DDPI_OP_ADD_WRAP] = {put_number, false},   [DDPI_OP_CHECK] = {put_ready, true},
    [DDPI_OP_WAIT_EACH] = {put_ready, false},   [DDPI_OP_COUNT_KEYS] = {put_number, false},
    [DDPI_OP_DELETE] = {put_deleted, true},     [DDPI_OP_GET_MANY] = {put_value, false},
    [DDPI_OP_CANCEL] = {put_cancelled, false},  [DDPI_OP_POP] = {put_popped, false},
    [DDPI_OP_QUEUE_LEN] = {put_number, false},  [DDPI_OP_LIST] = {put_list, false},
    [DDPI_OP_ARRIVE] = {put_ready, false},
};

static ddp_status tcpstore_put_reply(struct ddpi_dialect_state *state, struct ddpi_buf *out,
                                     const struct ddpi_message *reply)
{
    (void)state;
    const struct reply_row *row = &replies[reply->op];
    if (reply->status != DDP_OK && !(reply->status == DDP_E_NOT_FOUND && row->may_miss))
        return DDP_E_CLOSED;
    return row->put == NULL || row->put(out, reply) ? DDP_OK : DDP_E_NOMEM;
}

const struct ddpi_dialect ddpi_dialect_tcpstore = {
    .first_byte = DDPI_TCPSTORE_VALIDATE,
    .tcpstore = true,
    .next = tcpstore_next,
    .put_reply = tcpstore_put_reply,
};
