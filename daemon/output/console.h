/*
 * console.h - one output of the agent (its stdout or stderr), which may be slow or gone.
 *
 * Lines are queued whole and written as fast as the reader takes them. The descriptor stays
 * blocking: it is shared with the user's shell. Producers should pause while console_full() says
 * so. If the reader goes away, further output is dropped and the job goes on. If the queue reaches
 * CONSOLE_QUEUE_MAX, or a disk is full, output is dropped and a notice takes its place.
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
    bool reopened; /* fd is ours: the terminal, opened a second time, non-blocking */
    bool pollable; /* a pipe, terminal or socket; a file never blocks for long */
    bool polling;
    bool lost;                  /* output was dropped, and the notice is not queued yet */
    bool gone;                  /* EPIPE or another error: drop everything */
    int failed_errno;           /* of the last write that lost output; 0: none has */
    void (*drained)(void *ctx); /* the loop has written some of the queue; may be NULL */
    void *ctx;
};

/* The caller keeps @fd. */
void console_init(struct console *console, uv_loop_t *loop, int fd);

/* Queue one piece of text: the prefix, then the line. */
void console_add(struct console *console, const char *prefix, size_t prefix_len, const char *text,
                 size_t len);

/* Write as much as possible without blocking; the loop writes the rest. */
void console_flush(struct console *console);

bool console_full(const struct console *console);
bool console_idle(const struct console *console);

/* Drop the queue and all further output. */
void console_discard(struct console *console);

/* Stop and drop the queue. The handle closes while the loop turns. */
void console_close(struct console *console);
void console_finish(struct console *console);

#endif
