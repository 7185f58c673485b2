/*
 * console_cursor.c - decides what stands between two texts on one console. Owns nothing, writes
 * nothing.
 */
#include "console_cursor.h"

struct cursor_lead cursor_show(struct cursor *cursor, const void *owner, const char *text,
                               size_t len, bool returns)
{
    bool ends = text[len - 1] == '\n';
    bool returned = returns && text[len - 1] == '\r';
    bool own = cursor->owner == owner;
    bool open = cursor->owner != NULL && !cursor->returned;
    /* The '\n' of a "\r\n" whose '\r' has been shown already. */
    bool late_end = own && cursor->returned && len == 1 && ends;
    struct cursor_lead lead = {
        .newline = cursor->owner != NULL && !own && (open || !returned),
        .prefix = !(own && (open || late_end)),
    };
    *cursor = (struct cursor){.owner = ends ? NULL : owner, .returned = returned};
    return lead;
}

bool cursor_is_open(const struct cursor *cursor, const void *owner)
{
    return cursor->owner == owner && !cursor->returned;
}

bool cursor_leave(struct cursor *cursor, const void *owner)
{
    bool own = cursor->owner == owner;
    if (own)
        *cursor = (struct cursor){0};
    return own;
}
