/*
 * buf.c - the bounded byte buffer. Owns its bytes; does not interpret them.
 */
#include "buf.h"

#include "mem.h"

#include <endian.h>
#include <string.h>

enum { FIRST_SIZE = 256, KEEP_SIZE = 64 * 1024 };

void ddpi_buf_init(struct ddpi_buf *buf, size_t limit)
{
    *buf = (struct ddpi_buf){.limit = limit};
}

void ddpi_buf_finish(struct ddpi_buf *buf)
{
    ddpi_free(buf->data);
    *buf = (struct ddpi_buf){.limit = buf->limit};
}

static bool grow(struct ddpi_buf *buf, size_t needed)
{
    size_t size = buf->size > 0 ? buf->size : FIRST_SIZE;
    while (size < needed)
        if (__builtin_mul_overflow(size, 2, &size))
            return false;
    uint8_t *data = ddpi_realloc(buf->data, size, 1);
    if (data == NULL)
        return false;
    buf->data = data;
    buf->size = size;
    return true;
}

uint8_t *ddpi_buf_reserve(struct ddpi_buf *buf, size_t len)
{
    size_t used = ddpi_buf_len(buf);
    size_t needed;
    if (__builtin_add_overflow(used, len, &needed) || needed > buf->limit)
        return NULL;
    if (buf->size - buf->tail < len) {
        if (buf->head > 0) {
            memmove(buf->data, buf->data + buf->head, used);
            buf->head = 0;
            buf->tail = used;
        }
        if (buf->size < needed && !grow(buf, needed))
            return NULL;
    }
    /* A new buffer has no memory yet; reserving 0 bytes of it must not return NULL. */
    return buf->data != NULL || grow(buf, 1) ? buf->data + buf->tail : NULL;
}

void ddpi_buf_added(struct ddpi_buf *buf, size_t len)
{
    buf->tail += len;
}

bool ddpi_buf_append(struct ddpi_buf *buf, const void *bytes, size_t len)
{
    uint8_t *room = ddpi_buf_reserve(buf, len);
    if (room == NULL)
        return false;
    if (len > 0)
        memcpy(room, bytes, len);
    buf->tail += len;
    return true;
}

static bool put_le(struct ddpi_buf *buf, uint64_t value, size_t bytes)
{
    const uint64_t wire = htole64(value);
    return ddpi_buf_append(buf, &wire, bytes);
}

bool ddpi_buf_put_u8(struct ddpi_buf *buf, uint8_t value)
{
    return put_le(buf, value, 1);
}

bool ddpi_buf_put_u16(struct ddpi_buf *buf, uint16_t value)
{
    return put_le(buf, value, 2);
}

bool ddpi_buf_put_u32(struct ddpi_buf *buf, uint32_t value)
{
    return put_le(buf, value, 4);
}

bool ddpi_buf_put_u64(struct ddpi_buf *buf, uint64_t value)
{
    return put_le(buf, value, 8);
}

void ddpi_buf_consume(struct ddpi_buf *buf, size_t len)
{
    buf->head += len;
    if (buf->head < buf->tail)
        return;
    buf->head = buf->tail = 0;
    if (buf->size > KEEP_SIZE) {
        ddpi_free(buf->data);
        buf->data = NULL;
        buf->size = 0;
    }
}

void ddpi_buf_truncate(struct ddpi_buf *buf, size_t len)
{
    buf->tail = buf->head + len;
}

const uint8_t *ddpi_rd_bytes(struct ddpi_rd *rd, size_t len)
{
    if (rd->failed || rd->left < len) {
        rd->failed = true;
        return NULL;
    }
    const uint8_t *bytes = rd->at;
    rd->at += len;
    rd->left -= len;
    return bytes;
}

static uint64_t get_le(struct ddpi_rd *rd, size_t bytes)
{
    const uint8_t *wire = ddpi_rd_bytes(rd, bytes);
    uint64_t value = 0;
    if (wire != NULL)
        memcpy(&value, wire, bytes);
    return le64toh(value);
}

uint8_t ddpi_rd_u8(struct ddpi_rd *rd)
{
    return (uint8_t)get_le(rd, 1);
}

uint16_t ddpi_rd_u16(struct ddpi_rd *rd)
{
    return (uint16_t)get_le(rd, 2);
}

uint32_t ddpi_rd_u32(struct ddpi_rd *rd)
{
    return (uint32_t)get_le(rd, 4);
}

uint64_t ddpi_rd_u64(struct ddpi_rd *rd)
{
    return get_le(rd, 8);
}
