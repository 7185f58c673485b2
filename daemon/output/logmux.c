/*
 * logmux.c - moves the workers' output. Owns the reading ends of the pipes and the log files;
 * console.c writes to the consoles.
 *
 * When a pipe is readable, one chunk is read; its lines go to the console's queue, its bytes to the
 * file and the tail. If the console is slow, all pipes pause until it has caught up. If it is
 * closed, console.c drops the output. If the file cannot be written, file_errno keeps the first
 * error for the report.
 */
#include "logmux.h"

#include "error.h"
#include "failpoint.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STDERR_CONSOLE = 1, SAID_MAX = 8192 };

static void on_stream_read(uv_stream_t *handle, ssize_t len, const uv_buf_t *buf);
static void watch_unfinished(struct logmux *mux);

static void on_stream_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct logmux_stream *stream = handle->data;
    *buf = uv_buf_init(stream->mux->chunk, sizeof stream->mux->chunk);
}

static void set_reading(struct logmux_stream *stream, bool on)
{
    if (stream->reading == on || stream->closing)
        return;
    stream->reading = on;
    if (on)
        uv_read_start((uv_stream_t *)&stream->pipe, on_stream_alloc, on_stream_read);
    else
        uv_read_stop((uv_stream_t *)&stream->pipe);
}

/* Pause every pipe while a console is full, resume when none is. */
static void balance(struct logmux *mux)
{
    bool full =
        !mux->taking_rest && (console_full(&mux->consoles[0]) || console_full(&mux->consoles[1]));
    if (full == mux->paused)
        return;
    mux->paused = full;
    if (!full)
        mux->resumed_ms = ddpi_now_ms(mux->clock);
    ddpi_list_for_each (node, &mux->open) {
        set_reading(ddpi_container_of(node, struct logmux_stream, node), !full);
    }
    watch_unfinished(mux);
}

static void on_console_drained(void *ctx)
{
    struct logmux *mux = ctx;
    balance(mux);
    if (mux->idle != NULL)
        mux->idle(mux->ctx);
}

/* With "2>&1" two queues for the same file would mix lines and change their order. */
static bool same_file(int a, int b)
{
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* The console of stdout (0) or stderr (1). */
static int shown_on(const struct logmux *mux, int stream)
{
    return mux->one_console ? 0 : stream;
}

static struct console *console_of(struct logmux *mux, int stream)
{
    return &mux->consoles[shown_on(mux, stream)];
}

/* Show a line of @owner, or a piece of one. */
static void show_text(struct logmux *mux, int stream, const void *owner, const char *prefix,
                      const char *text, size_t len)
{
    int at = shown_on(mux, stream);
    struct console_cursor_lead lead =
        console_cursor_show(&mux->cursors[at], owner, text, len, mux->consoles[at].terminal);
    if (lead.newline)
        console_add(&mux->consoles[at], "", 0, "\n", 1);
    console_add(&mux->consoles[at], prefix, lead.prefix ? strlen(prefix) : 0, text, len);
}

void logmux_init(struct logmux *mux, uv_loop_t *loop)
{
    mux->loop = loop;
    mux->clock = &ddpi_clock_monotonic;
    mux->paused = false;
    mux->resumed_ms = 0;
    mux->taking_rest = false;
    mux->idle = NULL;
    mux->voice = VOICE_NORMAL;
    uv_timer_init(loop, &mux->hold);
    mux->hold.data = mux;
    mux->one_console = same_file(STDOUT_FILENO, STDERR_FILENO);
    ddpi_list_init(&mux->open);
    for (int i = 0; i < 2; i++) {
        console_init(&mux->consoles[i], loop, STDOUT_FILENO + i);
        mux->consoles[i].drained = on_console_drained;
        mux->consoles[i].ctx = mux;
        mux->cursors[i] = (struct console_cursor){0};
        mux->filters[i] = (struct line_filter){.fd = -1};
    }
}

static void show_line(void *ctx, const char *text, size_t len)
{
    struct logmux_stream *stream = ctx;
    show_text(stream->mux, stream->console, stream, stream->prefix, text, len);
}

/* Show an unfinished line; later output continues it. */
static void show_held(struct logmux_stream *stream)
{
    linebuf_flush(&stream->lines, show_line, stream);
    console_flush(console_of(stream->mux, stream->console));
}

/* ---- lines without an end ---- */

static bool holds(const struct logmux_stream *stream, uint64_t *ret_due_ms)
{
    uint64_t since_ms;
    if (stream->console < 0 || stream->closing || !linebuf_holds(&stream->lines, &since_ms))
        return false;
    if (since_ms < stream->mux->resumed_ms)
        since_ms = stream->mux->resumed_ms;
    *ret_due_ms = since_ms + LOGMUX_HOLD_MS;
    return true;
}

/* The pipe holds more, which is about to be read. */
static bool has_more(const struct logmux_stream *stream)
{
    int queued = 0;
    uv_os_fd_t fd;
    return uv_fileno((const uv_handle_t *)&stream->pipe, &fd) == 0 &&
           ioctl(fd, FIONREAD, &queued) == 0 && queued > 0;
}

static void on_hold_over(uv_timer_t *timer)
{
    logmux_show_unfinished(timer->data);
}

/* Wake when the first unfinished line is due. While reading is paused the ends of lines may be in
 * the pipes, so unfinished lines stay held. */
static void watch_unfinished(struct logmux *mux)
{
    uint64_t first_ms = UINT64_MAX, due_ms, now_ms = ddpi_now_ms(mux->clock);
    ddpi_list_for_each (node, &mux->open) {
        if (holds(ddpi_container_of(node, struct logmux_stream, node), &due_ms) &&
            due_ms < first_ms)
            first_ms = due_ms;
    }
    if (mux->paused || first_ms == UINT64_MAX)
        uv_timer_stop(&mux->hold);
    else
        uv_timer_start(&mux->hold, on_hold_over, first_ms > now_ms ? first_ms - now_ms : 1, 0);
}

void logmux_show_unfinished(struct logmux *mux)
{
    uint64_t due_ms, now_ms = ddpi_now_ms(mux->clock);
    ddpi_list_for_each (node, &mux->open) {
        struct logmux_stream *stream = ddpi_container_of(node, struct logmux_stream, node);
        if (!mux->paused && holds(stream, &due_ms) && due_ms <= now_ms && !has_more(stream))
            show_held(stream);
    }
    watch_unfinished(mux);
}

/* ---- one stream ---- */

static void write_log_file(struct logmux_stream *stream, const char *bytes, size_t len)
{
    while (stream->file_fd >= 0 && len > 0) {
        ssize_t written = write(stream->file_fd, bytes, len);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            stream->file_errno = errno;
            close(stream->file_fd);
            stream->file_fd = -1;
            return;
        }
        bytes += written;
        len -= (size_t)written;
    }
}

static void on_stream_closed(uv_handle_t *handle)
{
    struct logmux_stream *stream = handle->data;
    struct logmux *mux = stream->mux;
    stream->open = false;
    ddpi_list_remove(&stream->node);
    if (mux->taking_rest && logmux_streams_ended(mux)) {
        mux->taking_rest = false; /* later streams pause again */
        balance(mux);
    }
    if (mux->idle != NULL)
        mux->idle(mux->ctx);
}

static void filter_one(void *ctx, const char *text, size_t len)
{
    struct logmux_stream *stream = ctx;
    line_filter_line(stream->filter, stream->prefix, text, len);
}

static void end_stream(struct logmux_stream *stream)
{
    if (stream->console >= 0) {
        linebuf_flush(&stream->lines, show_line, stream);
        if (console_cursor_leave(&stream->mux->cursors[shown_on(stream->mux, stream->console)],
                                 stream))
            console_add(console_of(stream->mux, stream->console), "", 0, "\n", 1);
        console_flush(console_of(stream->mux, stream->console));
    }
    if (stream->filter != NULL)
        linebuf_flush(&stream->filtered, filter_one, stream);
    if (stream->file_fd >= 0)
        close(stream->file_fd);
    stream->file_fd = -1;
    stream->reading = false;
    stream->closing = true;
    uv_close((uv_handle_t *)&stream->pipe, on_stream_closed);
}

static void show_bytes(struct logmux_stream *stream, const char *base, size_t bytes)
{
    linebuf_feed(&stream->lines, base, bytes, ddpi_now_ms(stream->mux->clock), show_line, stream);
    struct logmux *mux = stream->mux;
    if (console_cursor_is_open(&mux->cursors[shown_on(mux, stream->console)], stream))
        linebuf_flush(&stream->lines, show_line, stream); /* does not split another line */
    console_flush(console_of(mux, stream->console));
    balance(mux);
    uint64_t due_ms;
    if (holds(stream, &due_ms) && !uv_is_active((const uv_handle_t *)&mux->hold))
        watch_unfinished(mux);
}

static void take_output(struct logmux_stream *stream, const char *base, size_t bytes)
{
    if (stream->keep_tail)
        tail_add(&stream->tail, base, bytes);
    if (stream->shared != NULL)
        tail_add(stream->shared, base, bytes);
    write_log_file(stream, base, bytes);
    if (stream->filter != NULL)
        linebuf_feed(&stream->filtered, base, bytes, 0, filter_one, stream);
    if (stream->console >= 0)
        show_bytes(stream, base, bytes);
}

static void take_stream_bytes(struct logmux_stream *stream, const char *base, size_t bytes)
{
    const struct logmux_opening opening = stream->opening;
    size_t before = bytes;
    if (opening.found == NULL) {
        take_output(stream, base, bytes);
    } else if (opening.found(opening.ctx, base, bytes, &before)) {
        stream->opening.found = NULL;
        if (before < bytes)
            take_output(stream, base + before, bytes - before);
    }
}

void logmux_show(struct logmux_stream *stream, int console)
{
    char text[TAIL_SIZE];
    size_t len = tail_copy(&stream->tail, text);
    linebuf_finish(&stream->lines);
    linebuf_init(&stream->lines, console_of(stream->mux, console)->terminal);
    stream->console = console;
    if (len > 0)
        show_bytes(stream, text, len);
}

/* libuv takes a hang-up for the end when a read does not fill its buffer, but one read from a
 * terminal returns at most 4 KiB. */
static void take_what_a_terminal_holds(struct logmux_stream *stream)
{
    char *chunk = stream->mux->chunk;
    uv_os_fd_t fd;
    ssize_t len;
    if (uv_fileno((uv_handle_t *)&stream->pipe, &fd) != 0)
        return;
    while ((len = read(fd, chunk, sizeof stream->mux->chunk)) > 0)
        take_stream_bytes(stream, chunk, (size_t)len);
}

static void on_stream_read(uv_stream_t *handle, ssize_t len, const uv_buf_t *buf)
{
    struct logmux_stream *stream = handle->data;
    if (len >= 0) {
        take_stream_bytes(stream, buf->base, (size_t)len);
        return;
    }
    if (len == UV_EOF)
        take_what_a_terminal_holds(stream);
    end_stream(stream); /* the end, or an error */
}

static ddp_status make_pipe(int ends[2], struct ddp_error *err)
{
    int pipe_errno = DDPI_FAILPOINT("logmux.pipe");
    if (pipe_errno == 0 && pipe2(ends, O_CLOEXEC) != 0)
        pipe_errno = errno;
    return pipe_errno == 0
               ? DDP_OK
               : ddpi_error_advise(
                     err,
                     ddpi_error_sys(err, pipe_errno, "cannot make a pipe for a worker's output"),
                     "raise the limit on open files, 'ulimit -n', or start fewer workers");
}

struct winsize logmux_size(struct logmux *mux, int console, const char *prefix)
{
    return worker_pty_size(console >= 0 ? console_of(mux, console)->fd : -1, strlen(prefix));
}

static void resize_stream(struct logmux_stream *stream)
{
    uv_os_fd_t fd;
    if (stream->terminal && !stream->closing &&
        uv_fileno((const uv_handle_t *)&stream->pipe, &fd) == 0)
        worker_pty_resize(fd, logmux_size(stream->mux, stream->console, stream->prefix));
}

void logmux_resize(struct logmux *mux)
{
    ddpi_list_for_each (node, &mux->open)
        resize_stream(ddpi_container_of(node, struct logmux_stream, node));
}

ddp_status logmux_open(struct logmux *mux, struct logmux_stream *stream,
                       const struct logmux_sink *sink, int *ret_write_fd, struct ddp_error *err)
{
    int ends[2];
    ddp_status status =
        sink->terminal ? worker_pty_open(&ends[0], &ends[1], err) : make_pipe(ends, err);
    if (status != DDP_OK)
        return status;
    int uv_status = uv_pipe_init(mux->loop, &stream->pipe, 0);
    if (uv_status == 0 && (uv_status = uv_pipe_open(&stream->pipe, ends[0])) != 0)
        uv_close((uv_handle_t *)&stream->pipe, NULL);
    if (uv_status != 0) {
        close(ends[0]);
        close(ends[1]);
        return ddpi_error_sys(err, -uv_status, "cannot watch a worker's output");
    }
    stream->mux = mux;
    stream->pipe.data = stream;
    linebuf_init(&stream->lines, sink->console >= 0 && console_of(mux, sink->console)->terminal);
    linebuf_init(&stream->filtered, false);
    stream->filter = sink->filter;
    stream->opening = sink->opening;
    stream->prefix = sink->prefix;
    stream->console = sink->console;
    stream->file_fd = sink->file_fd;
    stream->file_errno = 0;
    stream->keep_tail = sink->keep_tail;
    stream->shared = sink->shared;
    stream->terminal = sink->terminal;
    stream->open = true;
    stream->closing = false;
    ddpi_list_append(&mux->open, &stream->node);
    resize_stream(stream);
    set_reading(stream, !mux->paused);
    *ret_write_fd = ends[1];
    return DDP_OK;
}

void logmux_print(struct logmux *mux, int console, const char *text, size_t len)
{
    show_text(mux, console, mux, "", text, len);
    console_flush(console_of(mux, console));
    balance(mux); /* if this write has failed, the pipes must not stay paused */
}

void logmux_vsay(struct logmux *mux, const char *format, va_list args)
{
    char line[SAID_MAX] = "ddprun: ";
    size_t prefix = strlen(line);
    vsnprintf(line + prefix, sizeof line - prefix - 1, format, args);
    ddpi_text_mask(line);
    size_t len = strlen(line);
    line[len] = '\n';
    logmux_print(mux, STDERR_CONSOLE, line, len + 1);
}

void logmux_say(struct logmux *mux, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    logmux_vsay(mux, format, args);
    va_end(args);
}

void logmux_vnote(struct logmux *mux, const char *format, va_list args)
{
    if (mux->voice != VOICE_QUIET)
        logmux_vsay(mux, format, args);
}

void logmux_note(struct logmux *mux, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    logmux_vnote(mux, format, args);
    va_end(args);
}

void logmux_detail(struct logmux *mux, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (mux->voice == VOICE_VERBOSE)
        logmux_vsay(mux, format, args);
    va_end(args);
}

void logmux_discard(struct logmux *mux)
{
    for (int i = 0; i < 2; i++)
        console_discard(&mux->consoles[i]);
    balance(mux);
}

void logmux_take_rest(struct logmux *mux)
{
    mux->taking_rest = !logmux_streams_ended(mux);
    balance(mux);
}

void logmux_abandon(struct logmux_stream *stream)
{
    if (stream->open && !stream->closing)
        end_stream(stream);
}

void logmux_stream_finish(struct logmux_stream *stream)
{
    if (stream->mux == NULL)
        return; /* never opened */
    linebuf_finish(&stream->lines);
    linebuf_finish(&stream->filtered);
    tail_clear(&stream->tail);
    stream->mux = NULL;
}

bool logmux_streams_ended(const struct logmux *mux)
{
    return ddpi_list_empty(&mux->open);
}

bool logmux_flushed(const struct logmux *mux)
{
    return console_idle(&mux->consoles[0]) && console_idle(&mux->consoles[1]);
}

void logmux_close(struct logmux *mux)
{
    for (int i = 0; i < 2; i++)
        console_close(&mux->consoles[i]);
    uv_close((uv_handle_t *)&mux->hold, NULL);
}

void logmux_finish(struct logmux *mux)
{
    for (int i = 0; i < 2; i++) {
        console_finish(&mux->consoles[i]);
        line_filter_finish(&mux->filters[i]);
    }
}
