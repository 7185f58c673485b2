/*
 * text.c - masks control characters and removes colour sequences. Pure.
 */
#include "text.h"

#include <stdint.h>
#include <string.h>

/* The length of a character that begins with @lead; 1 if @lead begins no longer one. */
static size_t utf8_length(unsigned char lead)
{
    return lead >= 0xc2 && lead <= 0xdf   ? 2
           : (lead & 0xf0) == 0xe0        ? 3
           : lead >= 0xf0 && lead <= 0xf4 ? 4
                                          : 1;
}

/* The character that the @len bytes, 2 to 4, encode; 0 if they are invalid. */
static uint32_t utf8_decode(const char *text, size_t len)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = (unsigned char)text[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | ((unsigned char)text[i] & 0x3f);
    }
    return c >= smallest[len] ? c : 0;
}

size_t ddpi_text_char(const char *text, size_t len, bool *ret_control)
{
    unsigned char first = (unsigned char)text[0];
    size_t size = utf8_length(first);
    uint32_t c = size > 1 && size <= len ? utf8_decode(text, size) : 0;
    if (c == 0) {
        size = 1;
        c = first;
    }
    *ret_control = (c < 0x20 && c != '\t') || (c >= 0x7f && c <= 0x9f);
    return size;
}

/* Length of the colour sequence at @text; 0 if there is none. */
static size_t colour_length(const char *text, size_t len)
{
    size_t at = 2;
    if (len < 3 || text[0] != '\x1b' || text[1] != '[')
        return 0;
    while (at < len && ((text[at] >= '0' && text[at] <= '9') || text[at] == ';' || text[at] == ':'))
        at++;
    return at < len && text[at] == 'm' ? at + 1 : 0;
}

size_t ddpi_text_plain(char *text, size_t len)
{
    size_t used = 0;
    for (size_t at = 0; at < len;) {
        size_t colour = colour_length(text + at, len - at);
        if (colour == 0)
            text[used++] = text[at++];
        at += colour;
    }
    return used;
}

void ddpi_text_mask(char *text)
{
    bool control;
    for (size_t left = strlen(text), size; left > 0; text += size, left -= size) {
        size = ddpi_text_char(text, left, &control);
        if (control)
            memset(text, '?', size);
    }
}
