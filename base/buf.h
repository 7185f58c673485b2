/*
 * buf.h - a bounded byte buffer with a read cursor, and the only offset arithmetic on wire bytes.
 *
 * Appending grows it up to its limit; consuming moves the cursor and gives space back. Integers
 * on the wire are little-endian. A `ddpi_rd` reads a received frame: after the first short read it
 * stays failed, so a decoder checks once at its end.
 */
#ifndef DDPI_BUF_H
#define DDPI_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddpi_buf {
    uint8_t *data;
    size_t head;  /* first unread byte */
    size_t tail;  /* end of the bytes that are there */
    size_t size;  /* allocated */
    size_t limit; /* unread bytes never exceed this */
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

/* Room for @len more bytes behind the tail; NULL if the limit or the heap forbids it. The bytes
 * count only after ddpi_buf_added(). Pointers into the buffer are void afterwards. */
uint8_t *ddpi_buf_reserve(struct ddpi_buf *buf, size_t len);
void ddpi_buf_added(struct ddpi_buf *buf, size_t len);

/* false, with nothing changed, if the limit or the heap forbids it. */
bool ddpi_buf_append(struct ddpi_buf *buf, const void *bytes, size_t len);
bool ddpi_buf_put_u8(struct ddpi_buf *buf, uint8_t value);
bool ddpi_buf_put_u16(struct ddpi_buf *buf, uint16_t value);
bool ddpi_buf_put_u32(struct ddpi_buf *buf, uint32_t value);
bool ddpi_buf_put_u64(struct ddpi_buf *buf, uint64_t value);

/* Forget the first @len unread bytes. An emptied buffer that had grown large is given back. */
void ddpi_buf_consume(struct ddpi_buf *buf, size_t len);

/* Forget all but the first @len unread bytes, of which there are at least so many. */
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

/* Zero or NULL once failed. */
uint8_t ddpi_rd_u8(struct ddpi_rd *rd);
uint16_t ddpi_rd_u16(struct ddpi_rd *rd);
uint32_t ddpi_rd_u32(struct ddpi_rd *rd);
uint64_t ddpi_rd_u64(struct ddpi_rd *rd);
const uint8_t *ddpi_rd_bytes(struct ddpi_rd *rd, size_t len);

/* Everything was there and nothing is left over. */
static inline bool ddpi_rd_done(const struct ddpi_rd *rd)
{
    return !rd->failed && rd->left == 0;
}

#endif
