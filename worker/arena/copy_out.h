/*
 * copy_out.h - copies that are too large for the caches.
 */
#ifndef DDPI_COPY_OUT_H
#define DDPI_COPY_OUT_H

#include <stddef.h>

/* memcpy() with stores that bypass the caches where the processor has them: the memory written to
 * is not read first, and what others still need stays in the caches. */
void ddpi_copy_out(void *to, const void *from, size_t len);

#endif
