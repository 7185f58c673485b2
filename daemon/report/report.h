/*
 * report.h - formats the failure report. Pure.
 *
 * It has the first failure in full; a line for each worker that had ended well before, as the
 * others may have waited for it; then a line for each other failure. Of many workers it counts the
 * rest. In a worker's text control characters are replaced by escapes, so that it cannot control
 * the terminal.
 */
#ifndef DAEMON_REPORT_H
#define DAEMON_REPORT_H

#include "buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* How one worker ended. Strings are borrowed; NULL means "not known" or "none". */
struct report_worker {
    uint32_t rank;
    uint32_t local_rank;
    pid_t pid;
    int wait_status;
    bool by_us;          /* stopped by ddprun */
    bool forced;         /* it had to be killed */
    bool oom;            /* killed by the kernel's out-of-memory killer */
    uint64_t oom_others; /* processes that it killed before, such as children of this worker */
    uint64_t ran_us;
    uint64_t after_root_us;  /* how long after the first failure it ended */
    uint64_t before_root_us; /* or before it */
    const char *stderr_tail;
    size_t stderr_tail_len;
    const char *stderr_log;
    const char *stdout_log;
    bool log_full;             /* the file system of @stderr_log has no space left */
    const char *error_message; /* from its error file */
    const char *error_traceback;
    const char *error_file_note; /* why its error file could not be read */
    const char *gpus;            /* used by it */
};

struct report {
    const char *host;
    const char *interpreter; /* that ran the script or module; NULL: none */
    bool colours;            /* a terminal reads it, which shows them */
    const struct report_worker *root;
    const struct report_worker *earlier; /* ended with exit code 0, the last one first */
    size_t earlier_count;
    const struct report_worker *others;
    size_t others_count;
    const char *gpu_faults; /* whole lines, indented */
    size_t gpu_faults_len;
};

/* Append the report to @out. Returns false when memory has run out. */
bool report_failure(const struct report *report, struct ddpi_buf *out);

/* Append the report of a node check that has not passed, which @what says, and its @output. Returns
 * false when memory has run out. */
bool report_node_check(const char *what, const char *output, size_t len, struct ddpi_buf *out);

/* "exit code 3", "killed by SIGSEGV (Segmentation fault), core dumped". */
void report_cause(const struct report_worker *worker, char *text, size_t size);

/* "12.0 ms". */
void report_duration(uint64_t us, char *text, size_t size);

#endif
