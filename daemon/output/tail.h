/*
 * tail.h - the last few KiB of a stream, for the failure report. Pure.
 */
#ifndef DAEMON_TAIL_H
#define DAEMON_TAIL_H

#include <stddef.h>
#include <stdint.h>

enum { TAIL_SIZE = 16 * 1024 };

/* A zeroed struct is an empty tail; the first byte allocates its memory. */
struct tail {
    char *ring;
    uint64_t total; /* bytes seen so far */
};

void tail_add(struct tail *tail, const char *bytes, size_t len);
void tail_clear(struct tail *tail);

/* Copy the kept bytes, oldest first, to @out of TAIL_SIZE bytes. Returns how many. */
size_t tail_copy(const struct tail *tail, char *out);

/* The offset of the last @lines lines of @text; 0 if it has fewer. */
size_t tail_last_lines(const char *text, size_t len, unsigned lines);

#endif
