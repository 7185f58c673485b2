/*
 * linebuf.h - cuts a stream of bytes into lines. Pure.
 */
#ifndef DAEMON_LINEBUF_H
#define DAEMON_LINEBUF_H

#include "buf.h"

/* A longer line is emitted in pieces. */
enum { LINEBUF_LINE_MAX = 16 * 1024 * 1024 };

struct linebuf {
    struct ddpi_buf partial; /* the beginning of a line whose end has not arrived */
    uint64_t since_ms;       /* when the first byte in @partial arrived */
    bool split_at_cr;        /* '\r' ends a line too: progress bars on a terminal */
};

/* @text of @len bytes is the line with its end. Flushed text may have no end. */
typedef void (*linebuf_emit)(void *ctx, const char *text, size_t len);

void linebuf_init(struct linebuf *lines, bool split_at_cr);
void linebuf_finish(struct linebuf *lines);

/* Emit every line that @bytes complete, and keep the rest, which arrived at @now_ms. Lines that are
 * whole in @bytes are not copied. Without memory a line is emitted in two pieces, not lost. */
void linebuf_feed(struct linebuf *lines, const char *bytes, size_t len, uint64_t now_ms,
                  linebuf_emit emit, void *ctx);

/* Whether a partial line is kept, and since when. */
bool linebuf_holds(const struct linebuf *lines, uint64_t *ret_since_ms);

/* Emit the partial line; what is fed next may continue it. */
void linebuf_flush(struct linebuf *lines, linebuf_emit emit, void *ctx);

#endif
