/*
 * console.c - one slow output. Owns the queue and the poll handle; the caller owns the descriptor.
 *
 * A pipe that polls as writable has room for at least PIPE_BUF bytes, so a write of that many does
 * not block; that is why the pieces are small. A terminal makes no such promise: a write blocks
 * when it is stopped or its line is dead. So the terminal is opened a second time, as an open file
 * of our own, which can be non-blocking without affecting the shell.
 */
#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FULL_BYTES = 1024 * 1024, FILE_PIECE = 256 * 1024 };

static void reopen_terminal(struct console *console)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", console->fd);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return; /* another user's terminal, after "su": writes may block */
    console->fd = fd;
    console->reopened = true;
}

void console_init(struct console *console, uv_loop_t *loop, int fd)
{
    *console = (struct console){.fd = fd, .terminal = isatty(fd) == 1};
    ddpi_buf_init(&console->queue, CONSOLE_QUEUE_MAX);
    if (console->terminal)
        reopen_terminal(console);
    fd = console->fd;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        console->gone = true; /* the user closed it: "ddprun ... 2>&-" */
        return;
    }
    if (S_ISREG(st.st_mode))
        return;
    /* Some character devices (/dev/null) cannot be polled; they do not block either. */
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || uv_poll_init(loop, &console->poll, fd) != 0)
        return;
    fcntl(fd, F_SETFL, flags); /* libuv has made it non-blocking for the shell as well: undo that */
    console->poll.data = console;
    console->pollable = true;
}

/* Queue the whole text, or nothing. */
static bool queue(struct console *console, const char *prefix, size_t prefix_len, const char *text,
                  size_t len)
{
    return ddpi_buf_reserve(&console->queue, prefix_len + len) != NULL &&
           ddpi_buf_append(&console->queue, prefix, prefix_len) &&
           ddpi_buf_append(&console->queue, text, len);
}

/* The notice stands where output is missing, so nothing is queued before it. */
static void queue_notice(struct console *console)
{
    char notice[160];
    if (!console->lost)
        return;
    int len = snprintf(notice, sizeof notice, "ddprun: some output is missing here: %s\n",
                       console->failed_errno != 0 ? strerrordesc_np(console->failed_errno)
                                                  : "the queue was full, as nothing had been read");
    console->lost = !queue(console, "", 0, notice, (size_t)len);
}

void console_add(struct console *console, const char *prefix, size_t prefix_len, const char *text,
                 size_t len)
{
    if (console->gone)
        return;
    queue_notice(console);
    /* The log files are complete. */
    console->lost = console->lost || !queue(console, prefix, prefix_len, text, len);
}

static bool writable_now(const struct console *console)
{
    struct pollfd pollfd = {.fd = console->fd, .events = POLLOUT};
    return poll(&pollfd, 1, 0) > 0;
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct console *console = poll->data;
    console_flush(console);
    if (console->drained != NULL)
        console->drained(console->ctx);
}

static void watch_writable(struct console *console, bool on)
{
    if (!console->pollable || console->polling == on)
        return;
    console->polling = on;
    if (on)
        uv_poll_start(&console->poll, UV_WRITABLE, on_writable);
    else
        uv_poll_stop(&console->poll);
}

/* A reader that is gone does not come back. A file is made smaller, or its disk gets room. */
static bool may_have_room_again(int sys_errno)
{
    return sys_errno == ENOSPC || sys_errno == EDQUOT || sys_errno == EFBIG;
}

/* Returns false when no more can be written now. */
static bool write_piece(struct console *console)
{
    size_t len = ddpi_buf_len(&console->queue);
    size_t piece = console->pollable ? PIPE_BUF : FILE_PIECE;
    if (console->pollable && !writable_now(console))
        return false;
    ssize_t written = write(console->fd, ddpi_buf_head(&console->queue), len < piece ? len : piece);
    if (written > 0) {
        ddpi_buf_consume(&console->queue, (size_t)written);
        return true;
    }
    if (written < 0 && (errno == EAGAIN || errno == EINTR))
        return errno == EINTR;
    if (written < 0 && errno != EPIPE)
        console->failed_errno = errno;
    if (written < 0 && may_have_room_again(errno)) {
        ddpi_buf_consume(&console->queue, len);
        console->lost = true;
    } else {
        console_discard(console);
    }
    return false;
}

void console_discard(struct console *console)
{
    console->gone = true;
    console->lost = false;
    ddpi_buf_consume(&console->queue, ddpi_buf_len(&console->queue));
    watch_writable(console, false);
}

void console_flush(struct console *console)
{
    do
        queue_notice(console);
    while (ddpi_buf_len(&console->queue) > 0 && write_piece(console));
    watch_writable(console, ddpi_buf_len(&console->queue) > 0);
}

bool console_full(const struct console *console)
{
    return ddpi_buf_len(&console->queue) > FULL_BYTES;
}

bool console_idle(const struct console *console)
{
    return ddpi_buf_len(&console->queue) == 0;
}

void console_close(struct console *console)
{
    console_discard(console);
    if (console->pollable)
        uv_close((uv_handle_t *)&console->poll, NULL);
    console->pollable = false;
    if (console->reopened)
        close(console->fd);
    console->reopened = false;
}

void console_finish(struct console *console)
{
    ddpi_buf_finish(&console->queue);
}
