/*
 * logfile.c - writes log lines. Owns the file's descriptor. A line that cannot be written at once
 * is left out and counted, as the loop must not wait for a terminal or a pipe. While a FIFO has no
 * reader there is no descriptor, and each line tries to open it again.
 */
#include "logfile.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_SIZE = 1024 + 64, /* the longest line of ddpi_log(), with time and level */
    FILE_MODE = 0640,
    COST_US = 1000000 / LOGFILE_RATE,
};

/* "2026-07-25T03:16:45.123Z " */
static int put_time(char *text, size_t size)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    int len = (int)strftime(text, size, "%Y-%m-%dT%H:%M:%S", &utc);
    return len + snprintf(text + len, size - (size_t)len, ".%03ldZ ", now.tv_nsec / 1000000);
}

static bool is_fifo(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISFIFO(status.st_mode);
}

/* *@ret_fd becomes -1 for a FIFO without a reader, which is no error. */
static ddp_status open_path(const char *path, int *ret_fd, struct ddp_error *err)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = path != NULL ? open(path, flags, FILE_MODE) : STDERR_FILENO;
    int cause = errno;
    if (fd < 0 && !(cause == ENXIO && is_fifo(path)))
        return ddpi_error_sys(err, cause, "cannot write to the log file '%s'", path);
    *ret_fd = fd;
    return DDP_OK;
}

/* A pipe that poll() reports as writable takes a line without blocking. */
static bool write_line(struct logfile *file, enum ddpi_log_level level, const char *line)
{
    if (file->fd < 0)
        (void)!open_path(file->path, &file->fd, NULL);
    char text[LINE_SIZE];
    struct pollfd ready = {.fd = file->fd, .events = POLLOUT};
    int len = put_time(text, sizeof text);
    len +=
        snprintf(text + len, sizeof text - (size_t)len, "%s: %s", ddpi_log_level_name(level), line);
    len = len < LINE_SIZE - 1 ? len : LINE_SIZE - 1;
    text[len++] = '\n';
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 &&
           write(file->fd, text, (size_t)len) == len;
}

static bool write_left_out(struct logfile *file)
{
    char line[64];
    if (file->left_out == 0)
        return true;
    snprintf(line, sizeof line, "%" PRIu64 " lines of the log were left out", file->left_out);
    if (!write_line(file, DDPI_LOG_WARN, line))
        return false;
    file->left_out = 0;
    return true;
}

static bool may_write(struct logfile *file, enum ddpi_log_level level)
{
    const uint64_t most = (uint64_t)LOGFILE_BURST * COST_US;
    uint64_t now = ddpi_now_us(file->clock), gained = now - file->credited_us;
    file->credited_us = now;
    file->credit_us = gained < most - file->credit_us ? file->credit_us + gained : most;
    if (level == DDPI_LOG_ERROR)
        return true;
    if (file->credit_us < COST_US)
        return false;
    file->credit_us -= COST_US;
    return true;
}

static void on_line(void *ctx, enum ddpi_log_level level, const char *line)
{
    struct logfile *file = ctx;
    if (!may_write(file, level) || !write_left_out(file) || !write_line(file, level, line))
        file->left_out++;
}

ddp_status logfile_open(struct logfile *file, const char *path, enum ddpi_log_level max_level,
                        const struct ddpi_clock *clock, struct ddp_error *err)
{
    int fd;
    ddp_status status = open_path(path, &fd, err);
    if (status != DDP_OK)
        return status;
    *file = (struct logfile){
        .log = {.write = on_line, .ctx = file, .max_level = max_level},
        .clock = clock,
        .path = path,
        .fd = fd,
        .credit_us = (uint64_t)LOGFILE_BURST * COST_US,
        .credited_us = ddpi_now_us(clock),
    };
    return DDP_OK;
}

ddp_status logfile_reopen(struct logfile *file, struct ddp_error *err)
{
    int fd, old = file->fd;
    ddp_status status = open_path(file->path, &fd, err);
    if (status != DDP_OK || file->path == NULL)
        return status;
    file->fd = fd;
    if (old >= 0)
        close(old);
    return DDP_OK;
}

void logfile_close(struct logfile *file)
{
    (void)write_left_out(file);
    if (file->path != NULL && file->fd >= 0)
        close(file->fd);
    *file = (struct logfile){.fd = -1};
}
