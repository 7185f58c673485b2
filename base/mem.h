/*
 * mem.h - all heap allocations of the project. Tests replace memhook.c to make the Nth one fail.
 * The product @count * @size is checked; an overflow is reported as lack of memory.
 */
#ifndef DDPI_MEM_H
#define DDPI_MEM_H

#include <stddef.h>

/* Allocate @count elements of @size bytes, zeroed, for ddpi_free(). NULL if memory is short. */
void *ddpi_calloc(size_t count, size_t size) __attribute__((malloc, warn_unused_result));

/* Resize @old, which may be NULL, to @count elements of @size bytes. Returns NULL, with @old
 * unchanged, if memory is short. New bytes are not initialised. */
void *ddpi_realloc(void *old, size_t count, size_t size) __attribute__((warn_unused_result));

/* A NUL-terminated copy of @len bytes; NULL if memory is short. */
char *ddpi_strndup(const char *text, size_t len) __attribute__((malloc, warn_unused_result));
char *ddpi_strdup(const char *text) __attribute__((malloc, warn_unused_result));

/* printf into a new string; NULL if memory is short. */
char *ddpi_asprintf(const char *format, ...)
    __attribute__((malloc, warn_unused_result, format(printf, 1, 2)));

/* NULL is allowed. */
void ddpi_free(void *ptr);

/* The first multiple of @unit that is not below @size. */
static inline size_t ddpi_round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* For a large local variable of a function in a hurry, which is written before it is read: the
 * compiler sets all others to zero (-ftrivial-auto-var-init). */
#if defined(__has_attribute) && __has_attribute(uninitialized)
#define DDPI_UNINITIALIZED __attribute__((uninitialized))
#else
#define DDPI_UNINITIALIZED
#endif

/* Return freed memory to the system. Scans the whole heap. */
void ddpi_heap_trim(void);

#endif
