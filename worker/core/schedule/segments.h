/*
 * segments.h - a list of buffers as one array: their elements lie one after the other, in the order
 * of the list. Says what lies at which byte of that array, and copies between the two. The list and
 * the buffers are the caller's.
 */
#ifndef DDPI_SEGMENTS_H
#define DDPI_SEGMENTS_H

#include <ddprun/comm.h>
#include <stdbool.h>

struct ddpi_segments {
    const struct ddp_buffer *buffers;
    size_t nbuffers;
    size_t element_size;
    bool in_place; /* what is sent is in recv, too; send is not used */
};

/* Whether the list is one that an operation can use: buffers with elements are there and do not
 * overlap, and all bytes together fit into a size_t. Sets *@ret_count to all elements.
 * DDP_E_INVALID: the sentence names the buffer. DDP_E_NOMEM. */
ddp_status ddpi_segments_check(const struct ddpi_segments *segments, size_t *ret_count,
                               struct ddp_error *err);

/* Tells lists apart whose buffers have other lengths; at least 2. */
uint32_t ddpi_segments_digest(const struct ddpi_segments *segments);

/* A place in the array: byte @offset of buffer @index. Zeros: its start. */
struct ddpi_spot {
    size_t index, offset;
};

/* Bytes that lie in one buffer. */
struct ddpi_segment {
    const uint8_t *send;
    uint8_t *recv;
    size_t len;
};

/* The next bytes from *@spot on, at most @most; *@spot is behind them afterwards. false: there are
 * none. */
bool ddpi_segments_next(const struct ddpi_segments *segments, struct ddpi_spot *spot, size_t most,
                        struct ddpi_segment *ret_segment);

/* Move *@spot by @len bytes, or to the end. */
void ddpi_segments_skip(const struct ddpi_segments *segments, struct ddpi_spot *spot, size_t len);

/* Copy all that is sent to @to, and all of @from to where it is received. */
void ddpi_segments_pack(const struct ddpi_segments *segments, uint8_t *to);
void ddpi_segments_unpack(const struct ddpi_segments *segments, const uint8_t *from);

#endif
