/*
 * logdir.h - the tree of log and error files of one job.
 *
 * With --log-dir, or when streams are redirected to files, it is torchrun's tree and is kept:
 *     <log-dir>/<run id>_<6 random>/attempt_<restart count>/<local rank>/{stdout,stderr}.log
 *                                                                       /error.json
 *                                                       /filtered_{stdout,stderr}.log
 * Otherwise there is just a directory for error files in the temporary directory, which is removed
 * at the end. With --log-dir=/dev/null there is nothing at all.
 */
#ifndef DAEMON_LOGDIR_H
#define DAEMON_LOGDIR_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stdint.h>

struct logdir {
    char *path; /* of this job; NULL = nothing is written */
    int fd;     /* of the same directory; -1 = none */
    bool kept;
};

/* @base is --log-dir, NULL or "" for none; @keep says that some stream goes to a file. The sentence
 * names the directory that could not be made. */
DDP_MUST_CHECK ddp_status logdir_open(struct logdir *dir, const char *base, const char *run_id,
                                      bool keep, struct ddp_error *err);

/* Make what one worker of one attempt needs, and name its error file: the caller's to
 * ddpi_free(), "" where there is none. */
DDP_MUST_CHECK ddp_status logdir_worker(const struct logdir *dir, uint32_t attempt,
                                        uint32_t local_rank, char **ret_error_file,
                                        struct ddp_error *err);

/* Open the log file of @stream (0 stdout, 1 stderr) for appending. The path is the caller's to
 * ddpi_free(). */
DDP_MUST_CHECK ddp_status logdir_stream(const struct logdir *dir, uint32_t attempt,
                                        uint32_t local_rank, int stream, char **ret_path,
                                        int *ret_fd, struct ddp_error *err);

/* Make the file of the filtered lines of @stream of all workers of one attempt. */
DDP_MUST_CHECK ddp_status logdir_filtered(const struct logdir *dir, uint32_t attempt, int stream,
                                          int *ret_fd, struct ddp_error *err);

/* Remove the temporary directory, if it is one, and forget it. */
void logdir_close(struct logdir *dir);

#endif
