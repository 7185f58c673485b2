/*
 * text.h - text that came from outside, made fit to be shown to a person.
 *
 * A control character is one that could drive a terminal or pretend to be several lines: C0 but the
 * tab, DEL, and C1 (0x80 to 0x9f), both as U+0080 to U+009F in UTF-8 and as a byte that is no part
 * of a character of UTF-8, as terminals differ in what they take for C1.
 */
#ifndef DDPI_TEXT_H
#define DDPI_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the character at the beginning of @text, of @len bytes, at least one. A byte that
 * begins none is one by itself. */
size_t ddpi_text_char(const char *text, size_t len, bool *ret_control);

/* Take what only sets colours (CSI ... m) out of @text of @len bytes; the new length. */
size_t ddpi_text_plain(char *text, size_t len);

/* Replace the bytes of control characters by '?'. */
void ddpi_text_mask(char *text);

#endif
