/*
 * excerpt.c - compares texts line by line. Owns nothing.
 */
#include "excerpt.h"

#include <ctype.h>
#include <string.h>

static const char heading[] = "Traceback (most recent call last):";

struct line {
    const char *at;
    size_t len;
    size_t next; /* offset of the next line */
};

static struct line line_at(const char *text, size_t len, size_t from)
{
    const char *newline = memchr(text + from, '\n', len - from);
    size_t end = newline != NULL ? (size_t)(newline - text) : len;
    return (struct line){text + from, end - from, newline != NULL ? end + 1 : len};
}

/* Without "[rankN]: ", or "[rankN]:" on an empty line. */
static struct line without_rank(struct line line)
{
    static const char rank[] = "[rank";
    size_t at = sizeof rank - 1;
    if (line.len <= at || memcmp(line.at, rank, at) != 0)
        return line;
    while (at < line.len && isdigit((unsigned char)line.at[at]))
        at++;
    if (at == sizeof rank - 1 || at + 1 >= line.len || line.at[at] != ']' || line.at[at + 1] != ':')
        return line;
    at += 2;
    at += at < line.len && line.at[at] == ' ';
    return (struct line){line.at + at, line.len - at, line.next};
}

static bool is_line(struct line line, const char *text, size_t len)
{
    return line.len == len && memcmp(line.at, text, len) == 0;
}

static bool is_heading(struct line line)
{
    return is_line(line, heading, sizeof heading - 1);
}

/* The lines from @from on equal those of @wanted; *@ret_to is the end of them. */
static bool matches(const char *text, size_t len, size_t from, const char *wanted,
                    size_t wanted_len, size_t *ret_to)
{
    for (size_t at = 0; at < wanted_len;) {
        if (from >= len)
            return false;
        struct line expected = line_at(wanted, wanted_len, at);
        struct line line = without_rank(line_at(text, len, from));
        if (!is_line(line, expected.at, expected.len))
            return false;
        at = expected.next;
        from = line.next;
    }
    *ret_to = from;
    return true;
}

bool excerpt_find(const char *text, size_t len, const char *traceback, struct excerpt *ret)
{
    size_t wanted_len = strlen(traceback);
    struct line first = line_at(traceback, wanted_len, 0);
    size_t skipped = is_heading(first) ? first.next : 0;
    bool under_heading = false;
    size_t heading_at = 0;
    if (skipped == wanted_len)
        return false;
    for (size_t from = 0; from < len;) {
        struct line line = line_at(text, len, from);
        if (is_heading(without_rank(line))) {
            under_heading = true;
            heading_at = from;
        }
        if (matches(text, len, from, traceback + skipped, wanted_len - skipped, &ret->to)) {
            ret->from = skipped > 0 && under_heading ? heading_at : from;
            return true;
        }
        from = line.next;
    }
    return false;
}

static bool ends_like(const char *name, size_t len, const char *end)
{
    size_t end_len = strlen(end);
    return len >= end_len && memcmp(name + len - end_len, end, end_len) == 0;
}

/* The length of the exception's name, with its module, at the begin of @line; 0: none is there. */
static size_t exception_len(struct line line)
{
    size_t len = 0;
    while (len < line.len &&
           (isalnum((unsigned char)line.at[len]) || line.at[len] == '_' || line.at[len] == '.'))
        len++;
    bool whole = len == line.len || line.at[len] == ':';
    bool is_one = ends_like(line.at, len, "Error") || ends_like(line.at, len, "Exception");
    return whole && is_one ? len : 0;
}

bool excerpt_last_exception(const char *text, size_t len, struct excerpt *ret)
{
    bool found = false;
    for (size_t from = 0; from < len;) {
        struct line line = line_at(text, len, from), bare = without_rank(line);
        size_t name_len = exception_len(bare);
        from = line.next;
        if (name_len == 0)
            continue;
        const char *dot = memrchr(bare.at, '.', name_len);
        ret->to = (size_t)(bare.at - text) + name_len;
        ret->from = (size_t)((dot != NULL ? dot + 1 : bare.at) - text);
        found = true;
    }
    return found;
}
