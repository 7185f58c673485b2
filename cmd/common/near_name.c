/*
 * near_name.c - see near_name.h.
 */
#include "near_name.h"

enum { NAME_MAX_LEN = 64, EDITS_MAX = 2 };

static char with_dash(char c)
{
    return c == '_' ? '-' : c;
}

bool name_begins(const char *full, const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (full[i] == '\0' || full[i] != with_dash(name[i]))
            return false;
    return true;
}

static size_t minimum(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein distance, one row at a time. */
static size_t edit_distance(const char *a, const char *b, size_t b_len)
{
    size_t row[NAME_MAX_LEN + 1];
    b_len = b_len < NAME_MAX_LEN ? b_len : NAME_MAX_LEN;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; *a != '\0'; a++, i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t above = row[j];
            row[j] = minimum(above + 1, row[j - 1] + 1, diagonal + (*a != with_dash(b[j - 1])));
            diagonal = above;
        }
    }
    return row[b_len];
}

struct near_name near_name_begin(const char *written, size_t len)
{
    size_t least = len < 2 ? 0 : len < 4 ? 2 : EDITS_MAX + 1; /* more than it may be away */
    return (struct near_name){.written = written, .len = len, .least = least};
}

bool near_name_try(struct near_name *near, const char *full)
{
    if (near->least == 0)
        return false;
    bool begins = near->len > 2 && name_begins(full, near->written, near->len);
    size_t distance = begins ? 0 : edit_distance(full, near->written, near->len);
    if (distance >= near->least)
        return false;
    near->least = distance;
    return true;
}
