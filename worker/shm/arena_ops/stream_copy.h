/*
 * stream_copy.h - copies that bypass the caches.
 */
#ifndef DDPI_STREAM_COPY_H
#define DDPI_STREAM_COPY_H

#include <stddef.h>

/* memcpy() with stores that bypass the caches where the processor has them: the memory written to
 * is not read first, nor asked of a processor that has it, and what others still need stays in the
 * caches. */
void ddpi_stream_copy(void *to, const void *from, size_t len);

/* Whether the processor has them. */
#if defined(__x86_64__)
enum { DDPI_CAN_STREAM = 1 };
#else
enum { DDPI_CAN_STREAM = 0 };
#endif

#endif
