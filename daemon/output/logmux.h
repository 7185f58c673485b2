/*
 * logmux.h - the workers' output: from their pipes to the console, to files, and to the tails that
 * the failure report quotes.
 *
 * On the console a line has its worker's prefix and appears whole, as soon as it is complete. A
 * line without an end, such as a prompt or a progress bar, is shown after LOGMUX_HOLD_MS and
 * continued later; console_cursor.h describes what other workers' lines do to it. The last line
 * gets an end. A file gets the worker's bytes unchanged. While the console's reader is slow, the
 * pipes are left full, so that the workers block as they would without a launcher; nothing is
 * dropped and memory stays bounded. After the workers have ended, the rest of their pipes goes to
 * the console's queue.
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
#include "voice.h"
#include "worker_pty.h"

#include <ddprun/status.h>
#include <stdarg.h>
#include <uv.h>

enum { LOGMUX_HOLD_MS = 200 };

struct logmux {
    uv_loop_t *loop;
    const struct ddpi_clock *clock;
    struct console consoles[2];       /* stdout and stderr of the agent */
    struct console_cursor cursors[2]; /* the current line of each */
    bool one_console;                 /* both are the same file: all output goes to the first */
    enum voice voice;
    uv_timer_t hold;       /* until the next unfinished line is shown */
    struct ddpi_list open; /* logmux_stream::node, streams that have not ended */
    bool paused;
    uint64_t resumed_ms;     /* when the last pause ended: hold times begin again then */
    bool taking_rest;        /* the workers have ended: do not pause */
    void (*idle)(void *ctx); /* a stream has ended, or output was written; may be NULL */
    void *ctx;
    struct line_filter filters[2]; /* of stdout and stderr, shared by the streams */
    char chunk[64 * 1024];         /* shared by all reads */
};

/* Looks for the place where a stream's output begins, in what arrives. Returns true, with the
 * number of bytes before it, when it has found that; until then nothing is output. */
struct logmux_opening {
    bool (*found)(void *ctx, const char *bytes, size_t len, size_t *ret_before);
    void *ctx;
};

/* One pipe from one worker. A zeroed struct is not open. */
struct logmux_stream {
    struct ddpi_list node;
    uv_pipe_t pipe;
    struct logmux *mux;
    struct linebuf lines;
    struct line_filter *filter; /* borrowed; receives whole lines; NULL: none */
    struct linebuf filtered;
    struct tail tail;
    struct logmux_opening opening; /* found NULL: the output has begun */
    const char *prefix;            /* borrowed, valid while the stream exists */
    int console;                   /* 0 stdout, 1 stderr, -1 none: hidden */
    int file_fd;                   /* owned; -1: none */
    int file_errno;                /* the error that ended writing the file; 0: none */
    bool keep_tail;
    struct tail *shared; /* borrowed: the end of this stream and others; NULL: none */
    bool terminal;       /* the pipe is one */
    bool reading;
    bool open;    /* the handle exists */
    bool closing; /* uv_close was called */
};

struct logmux_sink {
    const char *prefix;
    int console;
    int file_fd; /* owned by the stream once it is open */
    bool keep_tail;
    struct tail *shared;        /* NULL: none */
    bool terminal;              /* instead of a pipe */
    struct line_filter *filter; /* NULL: none */
    struct logmux_opening opening;
};

void logmux_init(struct logmux *mux, uv_loop_t *loop);

/* Make a pipe or terminal. @stream reads one end; the other, *@ret_write_fd, is the caller's to
 * give to the worker and close. On failure the caller keeps the file of @sink. */
DDP_MUST_CHECK ddp_status logmux_open(struct logmux *mux, struct logmux_stream *stream,
                                      const struct logmux_sink *sink, int *ret_write_fd,
                                      struct ddp_error *err);

/* Show a stream that was hidden, and has a tail: first what that holds. */
void logmux_show(struct logmux_stream *stream, int console);

/* The size of a terminal whose lines are shown after @prefix. */
struct winsize logmux_size(struct logmux *mux, int console, const char *prefix);

/* Our terminal has another size: resize those of all streams. */
void logmux_resize(struct logmux *mux);

/* Show lines that have had no end for LOGMUX_HOLD_MS. The loop calls it by itself. */
void logmux_show_unfinished(struct logmux *mux);

/* Show whole lines of our own, in order with those of the workers. */
void logmux_print(struct logmux *mux, int console, const char *text, size_t len);

/* Show one line of our own on stderr: always; unless ddprun is to be quiet; only if it is to be
 * verbose. */
void logmux_say(struct logmux *mux, const char *format, ...) DDP_PRINTF(2, 3);
void logmux_vsay(struct logmux *mux, const char *format, va_list args) DDP_PRINTF(2, 0);
void logmux_note(struct logmux *mux, const char *format, ...) DDP_PRINTF(2, 3);
void logmux_vnote(struct logmux *mux, const char *format, va_list args) DDP_PRINTF(2, 0);
void logmux_detail(struct logmux *mux, const char *format, ...) DDP_PRINTF(2, 3);

/* Drop all further console output; the streams go on. */
void logmux_discard(struct logmux *mux);

/* The workers have ended: read what the pipes hold, even if the consoles are full, so that the
 * streams end without waiting for the reader. It is no more than the pipes' capacity. */
void logmux_take_rest(struct logmux *mux);

/* End a stream whose writers cannot be killed; show what has arrived. */
void logmux_abandon(struct logmux_stream *stream);

/* Free the tail and the buffers of a stream that has ended. */
void logmux_stream_finish(struct logmux_stream *stream);

/* Every stream has ended. */
bool logmux_streams_ended(const struct logmux *mux);

/* All output has been written to the consoles. */
bool logmux_flushed(const struct logmux *mux);

/* Close the handles; logmux_finish() once the loop has turned. */
void logmux_close(struct logmux *mux);
void logmux_finish(struct logmux *mux);

#endif
