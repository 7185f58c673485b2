/*
 * segments.c - lists of buffers. Owns nothing: what a check allocates it frees. Must not wait for
 * anything.
 */
#include "segments.h"

#include "bytes.h"
#include "error.h"
#include "mem.h"
#include "parts.h"

#include <stdlib.h>
#include <string.h>

static const void *source_of(const struct ddpi_segments *segments, const struct ddp_buffer *buffer)
{
    return segments->in_place ? buffer->recv : buffer->send;
}

/* ---- which lists there can be ---- */

static ddp_status measure_list(const struct ddpi_segments *segments, size_t *ret_count,
                               struct ddp_error *err)
{
    size_t count = 0, bytes;
    for (size_t i = 0; i < segments->nbuffers; i++) {
        const struct ddp_buffer *buffer = &segments->buffers[i];
        const void *send = source_of(segments, buffer);
        if (buffer->count > 0 && (send == NULL || buffer->recv == NULL))
            return ddpi_error_set(
                err, DDP_E_INVALID, "buffer %zu of %zu has %zu elements, but its %s is NULL", i,
                segments->nbuffers, buffer->count, buffer->recv == NULL ? "recv" : "send");
        if (__builtin_add_overflow(count, buffer->count, &count) ||
            __builtin_mul_overflow(count, segments->element_size, &bytes) || bytes > PTRDIFF_MAX)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "the elements of %zu buffers, of %zu bytes each, are too many: "
                                  "buffer %zu has %zu",
                                  segments->nbuffers, segments->element_size, i, buffer->count);
    }
    *ret_count = count;
    return DDP_OK;
}

/* Memory of a buffer. */
struct range {
    uintptr_t first, end;
    size_t index; /* of the buffer */
};

static size_t add_range(struct range *ranges, const void *first, size_t len, size_t index)
{
    uintptr_t at = (uintptr_t)first;
    *ranges = (struct range){.first = at, .end = at + len, .index = index};
    return 1;
}

static size_t find_ranges(const struct ddpi_segments *segments, struct range *ranges)
{
    size_t count = 0;
    for (size_t i = 0; i < segments->nbuffers; i++) {
        const struct ddp_buffer *buffer = &segments->buffers[i];
        const void *send = source_of(segments, buffer);
        size_t len = buffer->count * segments->element_size;
        if (len == 0)
            continue;
        count += add_range(ranges + count, buffer->recv, len, i);
        if (send != buffer->recv)
            count += add_range(ranges + count, send, len, i);
    }
    return count;
}

static int compare_ranges(const void *a_at, const void *b_at)
{
    const struct range *a = a_at, *b = b_at;
    return a->first < b->first ? -1 : a->first > b->first;
}

static bool are_sorted(const struct range *ranges, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (ranges[i].first < ranges[i - 1].first)
            return false;
    return true;
}

static ddp_status check_overlap(const struct ddpi_segments *segments, struct ddp_error *err)
{
    size_t most = 2 * segments->nbuffers;
    struct range *ranges = most > 0 ? ddpi_calloc(most, sizeof *ranges) : NULL;
    ddp_status status = DDP_OK;
    if (most > 0 && ranges == NULL)
        return ddpi_error_nomem(err, most * sizeof *ranges);
    size_t count = ranges != NULL ? find_ranges(segments, ranges) : 0;
    if (!are_sorted(ranges, count))
        qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < count && status == DDP_OK; i++)
        if (ranges[i].first < ranges[i - 1].end)
            status = ddpi_error_set(err, DDP_E_INVALID,
                                    "buffers %zu and %zu of %zu overlap; in place, send and recv "
                                    "of a buffer are equal",
                                    ranges[i - 1].index, ranges[i].index, segments->nbuffers);
    ddpi_free(ranges);
    return status;
}

ddp_status ddpi_segments_check(const struct ddpi_segments *segments, size_t *ret_count,
                               struct ddp_error *err)
{
    ddp_status status = measure_list(segments, ret_count, err);
    return status == DDP_OK ? check_overlap(segments, err) : status;
}

uint32_t ddpi_segments_digest(const struct ddpi_segments *segments)
{
    uint32_t digest = DDPI_DIGEST32_NONE;
    for (size_t i = 0; i < segments->nbuffers; i++)
        digest =
            ddpi_digest32(digest, &segments->buffers[i].count, sizeof segments->buffers[i].count);
    return ddpi_digest_end(digest);
}

/* ---- what lies where ---- */

bool ddpi_segments_next(const struct ddpi_segments *segments, struct ddpi_spot *spot, size_t most,
                        struct ddpi_segment *ret_segment)
{
    for (; spot->index < segments->nbuffers && most > 0; spot->index++, spot->offset = 0) {
        const struct ddp_buffer *buffer = &segments->buffers[spot->index];
        size_t left = buffer->count * segments->element_size - spot->offset;
        if (left == 0)
            continue;
        *ret_segment = (struct ddpi_segment){.send = (const uint8_t *)source_of(segments, buffer) +
                                                     spot->offset,
                                             .recv = (uint8_t *)buffer->recv + spot->offset,
                                             .len = left < most ? left : most};
        spot->offset += ret_segment->len;
        return true;
    }
    return false;
}

void ddpi_segments_skip(const struct ddpi_segments *segments, struct ddpi_spot *spot, size_t len)
{
    struct ddpi_segment segment;
    for (; ddpi_segments_next(segments, spot, len, &segment); len -= segment.len)
        ;
}

void ddpi_segments_pack(const struct ddpi_segments *segments, uint8_t *to)
{
    struct ddpi_spot spot = {0};
    struct ddpi_segment segment;
    for (; ddpi_segments_next(segments, &spot, SIZE_MAX, &segment); to += segment.len)
        memcpy(to, segment.send, segment.len);
}

void ddpi_segments_unpack(const struct ddpi_segments *segments, const uint8_t *from)
{
    struct ddpi_spot spot = {0};
    struct ddpi_segment segment;
    for (; ddpi_segments_next(segments, &spot, SIZE_MAX, &segment); from += segment.len)
        memcpy(segment.recv, from, segment.len);
}
