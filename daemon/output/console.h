/*
 * console.h - one output of the agent (its stdout or stderr), which may be slow or gone.
 *
 * Lines are queued whole and written as fast as the reader takes them, without making the
 * descriptor non-blocking: it is shared with the user's shell. While too much is queued, whoever
 * produces should pause (console_full). A reader that has gone away loses what follows; the job
 * goes on. One that never comes while more and more is added loses it as well, beyond
 * CONSOLE_QUEUE_MAX, and is told so in its place.
 */
#ifndef DAEMON_CONSOLE_H
#define DAEMON_CONSOLE_H

#include "buf.h"

#include <uv.h>

enum { CONSOLE_QUEUE_MAX = 256 * 1024 * 1024 };

struct console {
    uv_poll_t poll;
    struct ddpi_buf queue;
    int fd;
    bool terminal;
    bool reopened; /* fd is ours: a terminal, opened once more so that it need not block */
    bool pollable; /* a pipe, terminal or socket; a file never blocks for long */
    bool polling;
    bool lost;                  /* there was no room for something, which is still to be said */
    bool gone;                  /* EPIPE or another error: drop everything */
    void (*drained)(void *ctx); /* the loop has written some of the queue; may be NULL */
    void *ctx;
};

/* @fd stays the caller's. */
void console_init(struct console *console, uv_loop_t *loop, int fd);

/* Take one piece of text: the prefix, then the line. Nothing is written yet. */
void console_add(struct console *console, const char *prefix, size_t prefix_len, const char *text,
                 size_t len);

/* Write what the reader takes without waiting; the loop writes the rest. */
void console_flush(struct console *console);

bool console_full(const struct console *console);
bool console_idle(const struct console *console);

/* Nobody will read it any more: drop what is queued and all that follows. */
void console_discard(struct console *console);

/* Stop for good; what is still queued is lost. The handle is closed when the loop has turned. */
void console_close(struct console *console);
void console_finish(struct console *console);

#endif
