/*
 * console_cursor.h - who has the line on which a console stands, so that pieces of a line of one
 * worker are joined, and never with those of another. Pure.
 *
 *     nobody's   the next text begins a line, with its prefix
 *     open       the line has begun and has no end: its owner goes on without a prefix; who else
 *                has something to show ends the line first
 *     returned   it ended with '\r', on a terminal: who shows such a line next writes over it,
 *                and any other text begins a line below it
 */
#ifndef DAEMON_CONSOLE_CURSOR_H
#define DAEMON_CONSOLE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>

/* A zeroed struct is nobody's line. */
struct console_cursor {
    const void *owner; /* NULL: nobody; else compared only */
    bool returned;
};

/* What is to stand in front of a text. */
struct console_cursor_lead {
    bool newline;
    bool prefix;
};

/* @owner shows @text of @len bytes, at least one: one line or a piece of one. @returns: '\r' ends a
 * line too. */
struct console_cursor_lead console_cursor_show(struct console_cursor *cursor, const void *owner,
                                               const char *text, size_t len, bool returns);

/* @owner's line has begun, and what it shows next continues it. */
bool console_cursor_is_open(const struct console_cursor *cursor, const void *owner);

/* @owner shows nothing more. Returns true when its line needs an end. */
bool console_cursor_leave(struct console_cursor *cursor, const void *owner);

#endif
