/*
 * debug.c - lines for a user who has set DDP_DEBUG.
 */
#include "debug.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ddpi_debug(uint32_t rank, const char *format, ...)
{
    const char *level = getenv("DDP_DEBUG");
    if (level == NULL || (strcmp(level, "INFO") != 0 && strcmp(level, "TRACE") != 0))
        return;
    char text[DDP_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "ddprun: rank %u: %s\n", rank, text);
}
