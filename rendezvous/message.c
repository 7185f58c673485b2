/*
 * message.c - names of operations, and packed lists of keys. Allocates nothing of its own.
 */
#include "message.h"

const char *ddpi_op_name(enum ddpi_op op)
{
    static const char *const names[] = {
#define DDPI_MESSAGE(symbol, type, name, request, reply) name,
#include "proto.def"
#undef DDPI_MESSAGE
    };
    return op < DDPI_OP_COUNT ? names[op] : "unknown";
}

bool ddpi_keys_put(struct ddpi_buf *buf, struct ddpi_bytes key)
{
    size_t len;
    if (key.len > UINT32_MAX || __builtin_add_overflow(key.len, sizeof(uint32_t), &len) ||
        ddpi_buf_reserve(buf, len) == NULL)
        return false;
    return ddpi_buf_put_u32(buf, (uint32_t)key.len) && ddpi_buf_append(buf, key.data, key.len);
}

bool ddpi_keys_next(struct ddpi_keys *keys, struct ddpi_bytes *ret_key)
{
    if (keys->count == 0)
        return false;
    struct ddpi_rd rd = ddpi_rd_of(keys->packed, keys->packed_len);
    size_t len = ddpi_rd_u32(&rd);
    const void *data = ddpi_rd_bytes(&rd, len);
    if (rd.failed)
        return false;
    *ret_key = ddpi_bytes_of(data, len);
    *keys = (struct ddpi_keys){.packed = rd.at, .packed_len = rd.left, .count = keys->count - 1};
    return true;
}
