/*
 * mem.c - all heap allocations of the project. Owns nothing. Tests that fail the Nth allocation
 * replace memhook.c, not this file.
 */
#include "mem.h"

#include "memhook.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *ddpi_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || !ddpi_alloc_allowed())
        return NULL;
    return calloc(count, size);
}

void *ddpi_realloc(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || !ddpi_alloc_allowed())
        return NULL;
    return realloc(old, bytes > 0 ? bytes : 1);
}

char *ddpi_strndup(const char *text, size_t len)
{
    size_t size;
    char *copy = __builtin_add_overflow(len, 1, &size) ? NULL : ddpi_calloc(size, 1);
    if (copy != NULL && len > 0)
        memcpy(copy, text, len);
    return copy;
}

char *ddpi_strdup(const char *text)
{
    return ddpi_strndup(text, strlen(text));
}

char *ddpi_asprintf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = len < 0 ? NULL : ddpi_calloc((size_t)len + 1, 1);
    if (text == NULL)
        return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)len + 1, format, args);
    va_end(args);
    return text;
}

void ddpi_free(void *ptr)
{
    free(ptr);
}

void ddpi_heap_trim(void)
{
    malloc_trim(0);
}
