/*
 * mem.h - the one door to the heap. Tests replace memhook.c to make the Nth call fail.
 * Array sizes are multiplied with overflow checks; an overflow is reported as lack of memory.
 */
#ifndef DDPI_MEM_H
#define DDPI_MEM_H

#include <stddef.h>

/* @count elements of @size bytes, zeroed; NULL when they cannot be had. ddpi_free() it. */
void *ddpi_calloc(size_t count, size_t size) __attribute__((malloc, warn_unused_result));

/* Resize @old (NULL allowed) to @count elements of @size bytes; on NULL @old is unchanged. New
 * bytes are not initialised. */
void *ddpi_realloc(void *old, size_t count, size_t size) __attribute__((warn_unused_result));

/* A NUL-terminated copy of @len bytes, or NULL. */
char *ddpi_strndup(const char *text, size_t len) __attribute__((malloc, warn_unused_result));
char *ddpi_strdup(const char *text) __attribute__((malloc, warn_unused_result));

/* printf into a fresh string, or NULL. */
char *ddpi_asprintf(const char *format, ...)
    __attribute__((malloc, warn_unused_result, format(printf, 1, 2)));

/* NULL is allowed. */
void ddpi_free(void *ptr);

/* Give what was freed back to the system, wherever in the heap it lies; looks at all of it. */
void ddpi_heap_trim(void);

#endif
