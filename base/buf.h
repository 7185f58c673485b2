/*
 * buf.h - a bounded byte buffer with a read cursor. No other file computes offsets of wire bytes.
 *
 * Appending grows the buffer up to its limit; consuming moves the cursor and frees space. Integers
 * on the wire are little-endian. A `ddpi_rd` reads a received frame: after the first short read it
 * stays failed, so a decoder checks only once, at its end.
 */
#ifndef DDPI_BUF_H
#define DDPI_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddpi_buf {
    uint8_t *data;
    size_t head;  /* first unread byte */
    size_t tail;  /* end of the unread bytes */
    size_t size;  /* allocated */
    size_t limit; /* most unread bytes */
};

void ddpi_buf_init(struct ddpi_buf *buf, size_t limit);
void ddpi_buf_finish(struct ddpi_buf *buf);

static inline size_t ddpi_buf_len(const struct ddpi_buf *buf)
{
    return buf->tail - buf->head;
}

static inline const uint8_t *ddpi_buf_head(const struct ddpi_buf *buf)
{
    return buf->data + buf->head;
}

/* Reserve @len bytes after the tail. Returns NULL if that exceeds the limit or memory is short. The
 * bytes count only after ddpi_buf_added(). Earlier pointers into the buffer become invalid. */
uint8_t *ddpi_buf_reserve(struct ddpi_buf *buf, size_t len);
void ddpi_buf_added(struct ddpi_buf *buf, size_t len);

/* Return false, with the buffer unchanged, if that exceeds the limit or memory is short. */
bool ddpi_buf_append(struct ddpi_buf *buf, const void *bytes, size_t len);
bool ddpi_buf_put_u8(struct ddpi_buf *buf, uint8_t value);
bool ddpi_buf_put_u16(struct ddpi_buf *buf, uint16_t value);
bool ddpi_buf_put_u32(struct ddpi_buf *buf, uint32_t value);
bool ddpi_buf_put_u64(struct ddpi_buf *buf, uint64_t value);

/* Drop the first @len unread bytes. A large buffer that becomes empty frees its memory. */
void ddpi_buf_consume(struct ddpi_buf *buf, size_t len);

/* Keep only the first @len unread bytes. There must be at least @len. */
void ddpi_buf_truncate(struct ddpi_buf *buf, size_t len);

struct ddpi_rd {
    const uint8_t *at;
    size_t left;
    bool failed;
};

static inline struct ddpi_rd ddpi_rd_of(const void *bytes, size_t len)
{
    return (struct ddpi_rd){.at = bytes, .left = len, .failed = false};
}

/* Return 0 or NULL once failed. */
uint8_t ddpi_rd_u8(struct ddpi_rd *rd);
uint16_t ddpi_rd_u16(struct ddpi_rd *rd);
uint32_t ddpi_rd_u32(struct ddpi_rd *rd);
uint64_t ddpi_rd_u64(struct ddpi_rd *rd);
const uint8_t *ddpi_rd_bytes(struct ddpi_rd *rd, size_t len);

/* True if all reads succeeded and no bytes remain. */
static inline bool ddpi_rd_done(const struct ddpi_rd *rd)
{
    return !rd->failed && rd->left == 0;
}

#endif
