/*
 * report.h - the failure report: what a person reads at night. Pure: facts in, text out.
 *
 * The first failure in full, then the others in a line each. Text that came from a worker is
 * shown with its control characters spelled out, so that it cannot drive the terminal.
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
    bool by_us;  /* it ended because the job was being stopped */
    bool forced; /* it had to be killed */
    bool oom;    /* the kernel's out-of-memory killer has struck */
    uint64_t ran_us;
    uint64_t after_root_us; /* how long after the first failure it ended */
    const char *stderr_tail;
    size_t stderr_tail_len;
    const char *stderr_log;
    const char *stdout_log;
    const char *error_message; /* from its error file */
    const char *error_traceback;
    const char *error_file_note; /* why its error file could not be read */
    const char *gpus;            /* that it used */
};

struct report {
    const char *host;
    const char *interpreter; /* that ran the script or module; NULL: none */
    const struct report_worker *root;
    const struct report_worker *others;
    size_t others_count;
    const char *gpu_faults; /* whole lines, indented */
    size_t gpu_faults_len;
};

/* Append the report to @out. Returns false when memory ran out on the way. */
bool report_failure(const struct report *report, struct ddpi_buf *out);

/* "exit code 3", "killed by SIGSEGV (Segmentation fault), core dumped". */
void report_cause(const struct report_worker *worker, char *text, size_t size);

/* "12.0 ms". */
void report_duration(uint64_t us, char *text, size_t size);

#endif
