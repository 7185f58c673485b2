/*
 * dump_pickle.c - see dump_pickle.h. The opcodes are those of Python's Lib/pickletools.py. A pickle
 * of these opcodes makes plain values only: loading it runs no code.
 */
#include "dump_pickle.h"

#include <string.h>

enum {
    OP_PROTO = 0x80,
    OP_STOP = '.',
    OP_MARK = '(',
    OP_NONE = 'N',
    OP_TRUE = 0x88,
    OP_FALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_FLOAT = 'G',
    OP_TEXT = 'X',
    OP_LIST = ']',
    OP_APPENDS = 'e',
    OP_DICT = '}',
    OP_SETITEMS = 'u',
};

static bool put_le32(struct ddpi_buf *out, uint32_t value)
{
    const uint8_t bytes[] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                             (uint8_t)(value >> 24)};
    return ddpi_buf_append(out, bytes, sizeof bytes);
}

static bool put_text(struct ddpi_buf *out, const char *text, size_t len)
{
    return len <= UINT32_MAX && ddpi_buf_put_u8(out, OP_TEXT) && put_le32(out, (uint32_t)len) &&
           ddpi_buf_append(out, text, len);
}

/* Eight bytes in two's complement, the lowest first. */
static bool put_integer(struct ddpi_buf *out, json_int_t value)
{
    uint64_t bits = (uint64_t)value;
    return ddpi_buf_put_u8(out, OP_LONG1) && ddpi_buf_put_u8(out, 8) &&
           put_le32(out, (uint32_t)bits) && put_le32(out, (uint32_t)(bits >> 32));
}

static bool put_real(struct ddpi_buf *out, double value)
{
    uint64_t bits;
    uint8_t bytes[sizeof bits]; /* the highest first, unlike in integers */
    memcpy(&bits, &value, sizeof bits);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(bits >> (56 - 8 * i));
    return ddpi_buf_put_u8(out, OP_FLOAT) && ddpi_buf_append(out, bytes, sizeof bytes);
}

static bool put_value(struct ddpi_buf *out, const json_t *json);

static bool put_array(struct ddpi_buf *out, const json_t *json)
{
    bool ok = ddpi_buf_put_u8(out, OP_LIST) && ddpi_buf_put_u8(out, OP_MARK);
    for (size_t i = 0; i < json_array_size(json) && ok; i++)
        ok = put_value(out, json_array_get(json, i));
    return ok && ddpi_buf_put_u8(out, OP_APPENDS);
}

static bool put_object(struct ddpi_buf *out, const json_t *json)
{
    bool ok = ddpi_buf_put_u8(out, OP_DICT) && ddpi_buf_put_u8(out, OP_MARK);
    json_t *object = (json_t *)(uintptr_t)json; /* jansson's iterators are not const */
    for (void *at = json_object_iter(object); at != NULL && ok;
         at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        ok = put_text(out, key, strlen(key)) && put_value(out, json_object_iter_value(at));
    }
    return ok && ddpi_buf_put_u8(out, OP_SETITEMS);
}

/* What @json may be is not nested deeply: dump_json.c has made it. */
static bool put_value(struct ddpi_buf *out, const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return put_object(out, json);
    case JSON_ARRAY:
        return put_array(out, json);
    case JSON_STRING:
        return put_text(out, json_string_value(json), json_string_length(json));
    case JSON_INTEGER:
        return put_integer(out, json_integer_value(json));
    case JSON_REAL:
        return put_real(out, json_real_value(json));
    case JSON_TRUE:
        return ddpi_buf_put_u8(out, OP_TRUE);
    case JSON_FALSE:
        return ddpi_buf_put_u8(out, OP_FALSE);
    default:
        return ddpi_buf_put_u8(out, OP_NONE);
    }
}

bool dump_pickle(const json_t *json, struct ddpi_buf *out)
{
    return ddpi_buf_put_u8(out, OP_PROTO) && ddpi_buf_put_u8(out, 2) && put_value(out, json) &&
           ddpi_buf_put_u8(out, OP_STOP);
}
