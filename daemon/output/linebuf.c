/*
 * linebuf.c - cuts a stream into lines. Owns the unfinished line only; does no I/O.
 */
#include "linebuf.h"

#include <string.h>

void linebuf_init(struct linebuf *lines, bool split_at_cr)
{
    ddpi_buf_init(&lines->partial, LINEBUF_LINE_MAX);
    lines->split_at_cr = split_at_cr;
}

void linebuf_finish(struct linebuf *lines)
{
    ddpi_buf_finish(&lines->partial);
}

/* One past the end of the first line in @bytes, or NULL if none is complete. A "\r" as the last
 * byte may be half of "\r\n", so it does not count yet. */
static const char *line_end(const struct linebuf *lines, const char *bytes, size_t len)
{
    const char *newline = memchr(bytes, '\n', len);
    if (!lines->split_at_cr)
        return newline != NULL ? newline + 1 : NULL;
    size_t before = newline != NULL ? (size_t)(newline - bytes) : len;
    const char *cr = before > 0 ? memchr(bytes, '\r', before) : NULL;
    if (cr != NULL && cr + 1 < bytes + before)
        return cr + 1;
    return newline != NULL ? newline + 1 : NULL;
}

static void keep_partial(struct linebuf *lines, const char *bytes, size_t len, linebuf_emit emit,
                         void *ctx)
{
    if (len == 0 || ddpi_buf_append(&lines->partial, bytes, len))
        return;
    linebuf_flush(lines, emit, ctx);
    if (!ddpi_buf_append(&lines->partial, bytes, len))
        emit(ctx, bytes, len);
}

static void emit_line(struct linebuf *lines, const char *bytes, size_t len, linebuf_emit emit,
                      void *ctx)
{
    if (ddpi_buf_len(&lines->partial) == 0) {
        emit(ctx, bytes, len);
        return;
    }
    keep_partial(lines, bytes, len, emit, ctx);
    linebuf_flush(lines, emit, ctx);
}

void linebuf_feed(struct linebuf *lines, const char *bytes, size_t len, uint64_t now_ms,
                  linebuf_emit emit, void *ctx)
{
    /* A kept '\r' ends the line by itself unless '\n' follows. */
    size_t kept = ddpi_buf_len(&lines->partial);
    if (lines->split_at_cr && kept > 0 && len > 0 && bytes[0] != '\n' &&
        ddpi_buf_head(&lines->partial)[kept - 1] == '\r')
        linebuf_flush(lines, emit, ctx);

    const char *end;
    bool new_line = ddpi_buf_len(&lines->partial) == 0;
    while ((end = line_end(lines, bytes, len)) != NULL) {
        new_line = true;
        size_t line = (size_t)(end - bytes);
        emit_line(lines, bytes, line, emit, ctx);
        bytes = end;
        len -= line;
    }
    if (new_line)
        lines->since_ms = now_ms;
    keep_partial(lines, bytes, len, emit, ctx);
}

bool linebuf_holds(const struct linebuf *lines, uint64_t *ret_since_ms)
{
    *ret_since_ms = lines->since_ms;
    return ddpi_buf_len(&lines->partial) > 0;
}

void linebuf_flush(struct linebuf *lines, linebuf_emit emit, void *ctx)
{
    size_t len = ddpi_buf_len(&lines->partial);
    if (len == 0)
        return;
    emit(ctx, (const char *)ddpi_buf_head(&lines->partial), len);
    ddpi_buf_consume(&lines->partial, len);
}
