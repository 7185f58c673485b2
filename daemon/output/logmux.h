/*
 * logmux.h - what the workers print, from their pipes to the console, to files, and into the tails
 * that the failure report quotes.
 *
 * On the console a line carries its worker's prefix and appears whole, as soon as it is complete;
 * one that stays without an end for HOLD_MS, a prompt or a progress bar, is shown as far as it has
 * come, and continued (console_cursor.h says what happens when others have lines meanwhile). A last
 * line without an end gets one. A file gets the worker's bytes untouched. While the console's
 * reader is slower than the workers, their pipes are left full, so that they wait as they would
 * without a launcher; nothing is dropped and memory stays bounded. What workers leave behind in
 * their pipes when they have ended waits in the console's queue instead.
 */
#ifndef DAEMON_LOGMUX_H
#define DAEMON_LOGMUX_H

#include "clock.h"
#include "console.h"
#include "console_cursor.h"
#include "line_filter.h"
#include "linebuf.h"
#include "list.h"
#include "tail.h"
#include "worker_pty.h"

#include <ddprun/status.h>
#include <uv.h>

enum { LOGMUX_HOLD_MS = 200 };

struct logmux {
    uv_loop_t *loop;
    const struct ddpi_clock *clock;
    struct console consoles[2];       /* stdout and stderr of the agent */
    struct console_cursor cursors[2]; /* where each of them stands */
    bool one_console;                 /* both are the same file: all goes to the first */
    uv_timer_t hold;                  /* until the first unfinished line is to be shown */
    struct ddpi_list open;            /* stream::node, those that have not seen their end */
    bool paused;
    uint64_t resumed_ms;     /* when it ended last: what was held meanwhile is held again */
    bool taking_rest;        /* of workers that have ended: never paused */
    void (*idle)(void *ctx); /* some stream ended, or some output was written; may be NULL */
    void *ctx;
    struct line_filter filters[2]; /* of stdout and stderr, for all streams that want them */
    char chunk[64 * 1024];         /* shared by all reads: each is dealt with before the next */
};

/* One pipe from one worker. Zeroed, it is a stream that is not open. */
struct logmux_stream {
    struct ddpi_list node;
    uv_pipe_t pipe;
    struct logmux *mux;
    struct linebuf lines;
    struct line_filter *filter; /* borrowed; gets whole lines; NULL: none */
    struct linebuf filtered;
    struct tail tail;
    const char *prefix; /* borrowed; lives as long as the stream */
    int console;        /* 0 stdout, 1 stderr, -1 none: hidden */
    int file_fd;        /* owned; -1 none */
    int file_errno;     /* why writing the file stopped, 0 if it did not */
    bool keep_tail;
    bool terminal; /* the pipe is one */
    bool reading;
    bool open;    /* the handle exists */
    bool closing; /* uv_close was called */
};

struct logmux_sink {
    const char *prefix;
    int console;
    int file_fd; /* the stream takes it over */
    bool keep_tail;
    bool terminal;              /* instead of a pipe */
    struct line_filter *filter; /* NULL: none */
};

void logmux_init(struct logmux *mux, uv_loop_t *loop);

/* Make a pipe or terminal, read its one end into @stream, and return the other in *@ret_write_fd,
 * which the caller hands to the worker and closes. On failure the file of @sink is the caller's
 * still. */
DDP_MUST_CHECK ddp_status logmux_open(struct logmux *mux, struct logmux_stream *stream,
                                      const struct logmux_sink *sink, int *ret_write_fd,
                                      struct ddp_error *err);

/* The size of a terminal whose lines are shown behind @prefix. */
struct winsize logmux_size(struct logmux *mux, int console, const char *prefix);

/* Tell it to the terminals of all streams: ours has another size. */
void logmux_resize(struct logmux *mux);

/* Show the lines that have been without an end for LOGMUX_HOLD_MS. The loop does it by itself. */
void logmux_show_unfinished(struct logmux *mux);

/* Show a text that is not a worker's, whole lines, in order with theirs. */
void logmux_print(struct logmux *mux, int console, const char *text, size_t len);

/* One line of the agent's own on stderr. */
void logmux_say(struct logmux *mux, const char *format, ...) DDP_PRINTF(2, 3);

/* Nobody reads the consoles any more, or nobody should wait for it: the streams run on. */
void logmux_discard(struct logmux *mux);

/* Nobody writes any more: read what the pipes still hold, however full the consoles are, so that
 * the streams end without waiting for their reader. It is at most what the pipes have room for. */
void logmux_take_rest(struct logmux *mux);

/* Give up on a stream whose writers cannot be killed; what has arrived is still shown. */
void logmux_abandon(struct logmux_stream *stream);

/* Forget a stream that has ended: its tail and its buffers. */
void logmux_stream_finish(struct logmux_stream *stream);

/* Every pipe has seen its end. */
bool logmux_streams_ended(const struct logmux *mux);

/* Everything has been written to the console. */
bool logmux_flushed(const struct logmux *mux);

/* Close the handles; logmux_finish() once the loop has turned. */
void logmux_close(struct logmux *mux);
void logmux_finish(struct logmux *mux);

#endif
