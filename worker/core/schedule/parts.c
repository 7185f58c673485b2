/*
 * parts.c - parts of a buffer. Pure.
 */
#include "parts.h"

#include "bytes.h"

struct ddpi_chunk ddpi_parts_at(const struct ddpi_parts *parts, size_t count, uint32_t rank)
{
    if (parts->counts == NULL)
        return (struct ddpi_chunk){.first = rank * count, .count = count};
    struct ddpi_chunk part = {.count = parts->counts[rank]};
    if (parts->offsets != NULL)
        part.first = parts->offsets[rank];
    else
        for (uint32_t before = 0; before < rank; before++)
            part.first += parts->counts[before];
    return part;
}

bool ddpi_parts_span(const struct ddpi_parts *parts, size_t count, uint32_t nranks,
                     size_t *ret_span, size_t *ret_sum)
{
    size_t span = 0, sum = 0;
    if (parts->counts == NULL) {
        bool fits = !__builtin_mul_overflow(count, nranks, &sum);
        *ret_span = *ret_sum = sum;
        return fits;
    }
    for (uint32_t rank = 0; rank < nranks; rank++) {
        size_t first = parts->offsets != NULL ? parts->offsets[rank] : sum, end;
        if (__builtin_add_overflow(first, parts->counts[rank], &end) ||
            __builtin_add_overflow(sum, parts->counts[rank], &sum))
            return false;
        if (end > span && parts->counts[rank] > 0)
            span = end;
    }
    *ret_span = span;
    *ret_sum = sum;
    return true;
}

uint32_t ddpi_digest_end(uint32_t digest)
{
    return digest > 1 ? digest : 2;
}

uint32_t ddpi_parts_digest(const struct ddpi_parts *parts, uint32_t nranks)
{
    if (parts->counts == NULL)
        return 0;
    return ddpi_digest_end(
        ddpi_digest32(DDPI_DIGEST32_NONE, parts->counts, nranks * sizeof *parts->counts));
}

bool ddpi_parts_overlap(const struct ddpi_parts *parts, uint32_t nranks, uint32_t *ret_a,
                        uint32_t *ret_b)
{
    if (parts->counts == NULL || parts->offsets == NULL)
        return false;
    for (uint32_t a = 0; a < nranks; a++)
        for (uint32_t b = 0; b < a; b++) {
            size_t first_a = parts->offsets[a], first_b = parts->offsets[b];
            if (parts->counts[a] == 0 || parts->counts[b] == 0 ||
                first_a >= first_b + parts->counts[b] || first_b >= first_a + parts->counts[a])
                continue;
            *ret_a = b;
            *ret_b = a;
            return true;
        }
    return false;
}
