/*
 * logfile.h - writes a daemon's log lines to stderr or a file, each with time and level, at a
 * bounded rate. Never waits for a reader.
 */
#ifndef CMD_LOGFILE_H
#define CMD_LOGFILE_H

#include "clock.h"
#include "log.h"

/* Lines per second, and lines at once. Errors are not limited. */
enum { LOGFILE_RATE = 50, LOGFILE_BURST = 200 };

struct logfile {
    struct ddpi_log log; /* the sink for callers */
    const struct ddpi_clock *clock;
    const char *path;   /* NULL: stderr */
    int fd;             /* -1: a FIFO without a reader */
    uint64_t credit_us; /* time not yet used by lines */
    uint64_t credited_us;
    uint64_t left_out; /* lines since the last written one */
};

/* @path (NULL: stderr) must outlive the log file. A FIFO without a reader is no error: lines are
 * left out until it has one. On DDP_OK the caller ends with logfile_close(). */
DDP_MUST_CHECK ddp_status logfile_open(struct logfile *file, const char *path,
                                       enum ddpi_log_level max_level,
                                       const struct ddpi_clock *clock, struct ddp_error *err);

/* Open the path again after the file was renamed; on failure the old file stays in use. */
DDP_MUST_CHECK ddp_status logfile_reopen(struct logfile *file, struct ddp_error *err);

void logfile_close(struct logfile *file);

#endif
