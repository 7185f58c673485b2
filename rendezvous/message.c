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
#define DDPI_OP(symbol, name) name,
        DDPI_OPS_BEYOND_NATIVE(DDPI_OP)
#undef DDPI_OP
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
    size_t len = keys->wide ? ddpi_rd_u64(&rd) : ddpi_rd_u32(&rd);
    const void *data = ddpi_rd_bytes(&rd, len);
    if (rd.failed)
        return false;
    *ret_key = ddpi_bytes_of(data, len);
    keys->packed = rd.at;
    keys->packed_len = rd.left;
    keys->count--;
    return true;
}
