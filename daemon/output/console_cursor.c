/*
 * console_cursor.c - decides what separates two texts on one console. Owns nothing, writes nothing.
 */
#include "console_cursor.h"

struct console_cursor_lead console_cursor_show(struct console_cursor *cursor, const void *owner,
                                               const char *text, size_t len, bool returns)
{
    bool ends = text[len - 1] == '\n';
    bool returned = returns && text[len - 1] == '\r';
    bool own = cursor->owner == owner;
    bool open = cursor->owner != NULL && !cursor->returned;
    /* The '\n' of a "\r\n" whose '\r' has been written already. */
    bool late_end = own && cursor->returned && len == 1 && ends;
    struct console_cursor_lead lead = {
        .newline = cursor->owner != NULL && !own && (open || !returned),
        .prefix = !(own && (open || late_end)),
    };
    *cursor = (struct console_cursor){.owner = ends ? NULL : owner, .returned = returned};
    return lead;
}

bool console_cursor_is_open(const struct console_cursor *cursor, const void *owner)
{
    return cursor->owner == owner && !cursor->returned;
}

bool console_cursor_leave(struct console_cursor *cursor, const void *owner)
{
    bool own = cursor->owner == owner;
    if (own)
        *cursor = (struct console_cursor){0};
    return own;
}
