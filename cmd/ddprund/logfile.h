/*
 * logfile.h - where a daemon's log lines go: stderr or a file, a line each with time and level, at
 * a bounded rate, and never at the price of waiting for whoever reads them.
 */
#ifndef CMD_LOGFILE_H
#define CMD_LOGFILE_H

#include "clock.h"
#include "log.h"

/* Lines a second, but for errors, which always get through; and how many may come at once. */
enum { LOGFILE_RATE = 50, LOGFILE_BURST = 200 };

struct logfile {
    struct ddpi_log log; /* to be handed to those who log */
    const struct ddpi_clock *clock;
    const char *path;   /* NULL: stderr */
    int fd;             /* -1: a FIFO that nobody reads yet */
    uint64_t credit_us; /* time not used up by lines */
    uint64_t credited_us;
    uint64_t left_out; /* lines since the last that was written */
};

/* @path (NULL: stderr) must outlive the log file. A FIFO that nobody reads is no error: its lines
 * are left out until somebody does. On DDP_OK the caller ends with logfile_close(). */
DDP_MUST_CHECK ddp_status logfile_open(struct logfile *file, const char *path,
                                       enum ddpi_log_level max_level,
                                       const struct ddpi_clock *clock, struct ddp_error *err);

/* Open the file by its name again, after it was moved away; on failure the old one stays. */
DDP_MUST_CHECK ddp_status logfile_reopen(struct logfile *file, struct ddp_error *err);

void logfile_close(struct logfile *file);

#endif
