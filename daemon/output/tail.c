/*
 * tail.c - the last bytes of a stream in a ring. Owns the ring. Without memory the tail stays
 * empty.
 */
#include "tail.h"

#include "mem.h"

#include <string.h>

void tail_add(struct tail *tail, const char *bytes, size_t len)
{
    if (len == 0)
        return;
    if (tail->ring == NULL && (tail->ring = ddpi_calloc(1, TAIL_SIZE)) == NULL)
        return;
    if (len > TAIL_SIZE) { /* keep its end only */
        tail->total += len - TAIL_SIZE;
        bytes += len - TAIL_SIZE;
        len = TAIL_SIZE;
    }
    size_t at = (size_t)(tail->total % TAIL_SIZE);
    size_t first = len < TAIL_SIZE - at ? len : TAIL_SIZE - at;
    memcpy(tail->ring + at, bytes, first);
    memcpy(tail->ring, bytes + first, len - first);
    tail->total += len;
}

void tail_clear(struct tail *tail)
{
    ddpi_free(tail->ring);
    *tail = (struct tail){0};
}

size_t tail_copy(const struct tail *tail, char *out)
{
    if (tail->ring == NULL)
        return 0;
    if (tail->total <= TAIL_SIZE) {
        memcpy(out, tail->ring, (size_t)tail->total);
        return (size_t)tail->total;
    }
    size_t at = (size_t)(tail->total % TAIL_SIZE);
    memcpy(out, tail->ring + at, TAIL_SIZE - at);
    memcpy(out + TAIL_SIZE - at, tail->ring, at);
    return TAIL_SIZE;
}

size_t tail_last_lines(const char *text, size_t len, unsigned lines)
{
    size_t at = len;
    if (at > 0 && text[at - 1] == '\n')
        at--; /* the last newline begins no line */
    while (at > 0) {
        if (text[at - 1] == '\n' && --lines == 0)
            return at;
        at--;
    }
    return 0;
}
