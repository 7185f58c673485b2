/*
 * print_message.c - prints one line. Owns nothing.
 */
#include "launcher.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>

enum { SAID_MAX = 8192 };

void print_message(const char *format, ...)
{
    char text[SAID_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ddpi_text_mask(text);
    fprintf(stderr, "ddprun: %s\n", text);
}
