/*
 * linebuf.h - cuts a stream of bytes into lines, whatever pieces it arrives in. Pure.
 */
#ifndef DAEMON_LINEBUF_H
#define DAEMON_LINEBUF_H

#include "buf.h"

/* Beyond this a line without an end is handed out in pieces. */
enum { LINEBUF_LINE_MAX = 16 * 1024 * 1024 };

struct linebuf {
    struct ddpi_buf partial; /* the beginning of a line whose end has not come */
    uint64_t since_ms;       /* when the first byte of it came that is still here */
    bool split_at_cr;        /* '\r' ends a line too: progress bars on a terminal */
};

/* @text is the line with its end; @len counts it. What is flushed may have no end. */
typedef void (*linebuf_emit)(void *ctx, const char *text, size_t len);

void linebuf_init(struct linebuf *lines, bool split_at_cr);
void linebuf_finish(struct linebuf *lines);

/* Hand out every line that @bytes complete, and keep the rest, which has come @now_ms. Lines that
 * lie whole in @bytes are not copied. When memory runs out a line comes in two pieces: late or torn
 * beats lost. */
void linebuf_feed(struct linebuf *lines, const char *bytes, size_t len, uint64_t now_ms,
                  linebuf_emit emit, void *ctx);

/* Something is kept, and since when. */
bool linebuf_holds(const struct linebuf *lines, uint64_t *ret_since_ms);

/* Hand out what is kept, without an end; what is fed next may continue it. */
void linebuf_flush(struct linebuf *lines, linebuf_emit emit, void *ctx);

#endif
