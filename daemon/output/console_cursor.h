/*
 * console_cursor.h - the owner of the console's current line, so that pieces of one worker's line
 * are joined, and never mixed with another's. Pure.
 *
 *     free       the next text begins a line, with its prefix
 *     open       the line has no end yet: its owner continues it without a prefix; text of another
 *                owner ends the line first
 *     returned   the line ended with '\r', on a terminal: another such line overwrites it, and any
 *                other text begins a line below it
 */
#ifndef DAEMON_CONSOLE_CURSOR_H
#define DAEMON_CONSOLE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>

/* A zeroed struct is free. */
struct console_cursor {
    const void *owner; /* NULL: free. Never dereferenced */
    bool returned;
};

/* To be written before a text. */
struct console_cursor_lead {
    bool newline;
    bool prefix;
};

/* @owner writes @text, one line or a piece of one, of at least one byte. @returns: '\r' ends a line
 * too. */
struct console_cursor_lead console_cursor_show(struct console_cursor *cursor, const void *owner,
                                               const char *text, size_t len, bool returns);

/* @owner's next text continues its line. */
bool console_cursor_is_open(const struct console_cursor *cursor, const void *owner);

/* @owner writes nothing more. Returns true if its line needs an end. */
bool console_cursor_leave(struct console_cursor *cursor, const void *owner);

#endif
