/*
 * fuzz.c - the few functions that every fuzz target needs. Owns nothing.
 */
#include "fuzz.h"

#include <ctype.h>
#include <ddprun/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void fuzz_violated(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, condition);
    abort();
}

uint8_t *fuzz_copy(const void *bytes, size_t len)
{
    uint8_t *copy = malloc(len);
    HOLDS(copy != NULL || len == 0);
    if (len > 0)
        memcpy(copy, bytes, len);
    return copy;
}

char *fuzz_text(const void *bytes, size_t len)
{
    const char *end = len > 0 ? memchr(bytes, '\0', len) : NULL;
    size_t text_len = end != NULL ? (size_t)(end - (const char *)bytes) : len;
    char *text = malloc(text_len + 1);
    HOLDS(text != NULL);
    if (text_len > 0)
        memcpy(text, bytes, text_len);
    text[text_len] = '\0';
    return text;
}

void fuzz_check_error(const struct ddp_error *err, int status)
{
    HOLDS(status != DDP_OK);
    HOLDS((int)err->status == status);
    size_t len = strnlen(err->msg, sizeof err->msg);
    HOLDS(len > 0 && len < sizeof err->msg);
    for (size_t i = 0; i < len; i++)
        HOLDS(!iscntrl((unsigned char)err->msg[i]) || err->msg[i] == '\t');
}
