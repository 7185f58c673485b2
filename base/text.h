/*
 * text.h - makes text from untrusted sources safe to display.
 *
 * Control characters could control a terminal or fake further lines: C0 except the tab, DEL, and C1
 * (0x80 to 0x9f). C1 counts both as U+0080 to U+009F in UTF-8 and as a single byte outside a UTF-8
 * character, as terminals differ in which of them they obey.
 */
#ifndef DDPI_TEXT_H
#define DDPI_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the first character of @text, which has @len bytes, at least one. A byte that begins no
 * valid character counts as a character of its own. */
size_t ddpi_text_char(const char *text, size_t len, bool *ret_control);

/* Remove colour sequences (CSI ... m) from the @len bytes at @text. Returns the new length. */
size_t ddpi_text_plain(char *text, size_t len);

/* Replace the bytes of control characters by '?'. */
void ddpi_text_mask(char *text);

#endif
