/*
 * logdir.h - the directory tree of one job's log and error files.
 *
 * With --log-dir, or when streams go to files, it is torchrun's tree, and is kept:
 *     <log-dir>/<run id>_<6 random>/attempt_<restart count>/<local rank>/{stdout,stderr}.log
 *                                                                       /error.json
 *                                                       /filtered_{stdout,stderr}.log
 *     <log-dir>/latest  leads to the one that was made last
 * Otherwise only error files are kept, in a directory below TMPDIR that is removed at the end. With
 * --log-dir=/dev/null there is no directory at all.
 */
#ifndef DAEMON_LOGDIR_H
#define DAEMON_LOGDIR_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stdint.h>

struct logdir {
    char *path; /* of this job; NULL: no files are written */
    int fd;     /* of @path; -1: none */
    bool kept;
};

/* @base is --log-dir, NULL or "" for none; @keep: some stream goes to a file. @err names the
 * directory that could not be made. */
DDP_MUST_CHECK ddp_status logdir_open(struct logdir *dir, const char *base, const char *run_id,
                                      bool keep, struct ddp_error *err);

/* Make the directory of one worker of one attempt. *@ret_error_file is the path of its error file,
 * "" for none; the caller's to ddpi_free(). */
DDP_MUST_CHECK ddp_status logdir_worker(const struct logdir *dir, uint32_t attempt,
                                        uint32_t local_rank, char **ret_error_file,
                                        struct ddp_error *err);

/* Open the log file of @stream (0 stdout, 1 stderr) for appending. The path is the caller's to
 * ddpi_free(). */
DDP_MUST_CHECK ddp_status logdir_stream(const struct logdir *dir, uint32_t attempt,
                                        uint32_t local_rank, int stream, char **ret_path,
                                        int *ret_fd, struct ddp_error *err);

/* Open the file of the filtered lines of @stream, for all workers of one attempt. */
DDP_MUST_CHECK ddp_status logdir_filtered(const struct logdir *dir, uint32_t attempt, int stream,
                                          int *ret_fd, struct ddp_error *err);

/* Close it, and remove it if it is temporary. */
void logdir_close(struct logdir *dir);

#endif
