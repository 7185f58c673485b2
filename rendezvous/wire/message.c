/*
 * message.c - names of operations, and packed lists of keys and of clauses. Owns nothing; allocates
 * only in the caller's buffer.
 */
#include "message.h"

const char *ddpi_op_name(enum ddpi_op op)
{
    static const char *const names[] = {
#define DDPI_MESSAGE(symbol, type, name, role, request, reply) name,
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

bool ddpi_clauses_put(struct ddpi_buf *buf, const struct ddpi_clause *clause)
{
    size_t len = sizeof(uint8_t) + sizeof(uint64_t) + 2 * sizeof(uint32_t);
    if (clause->key.len > UINT32_MAX || clause->value.len > UINT32_MAX ||
        __builtin_add_overflow(len, clause->key.len, &len) ||
        __builtin_add_overflow(len, clause->value.len, &len) || ddpi_buf_reserve(buf, len) == NULL)
        return false;
    return ddpi_buf_put_u8(buf, clause->kind) && ddpi_buf_put_u64(buf, clause->version) &&
           ddpi_keys_put(buf, clause->key) && ddpi_keys_put(buf, clause->value);
}

static struct ddpi_bytes clause_take_bytes(struct ddpi_rd *rd)
{
    size_t len = ddpi_rd_u32(rd);
    return ddpi_bytes_of(ddpi_rd_bytes(rd, len), len);
}

bool ddpi_clauses_next(struct ddpi_clauses *clauses, struct ddpi_clause *ret_clause)
{
    if (clauses->count == 0)
        return false;
    struct ddpi_rd rd = ddpi_rd_of(clauses->packed, clauses->packed_len);
    struct ddpi_clause clause = {.kind = ddpi_rd_u8(&rd)};
    clause.version = ddpi_rd_u64(&rd);
    clause.key = clause_take_bytes(&rd);
    clause.value = clause_take_bytes(&rd);
    if (rd.failed)
        return false;
    *ret_clause = clause;
    clauses->packed = rd.at;
    clauses->packed_len = rd.left;
    clauses->count--;
    return true;
}
