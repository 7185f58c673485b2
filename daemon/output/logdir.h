/*
 * logdir.h - the directory tree of one job's log and error files.
 *
 * With --log-dir, or when streams go to files, it is torchrun's tree, and is kept:
 *     <log-dir>/<run id>_<6 random>/attempt_<restart count>/<local rank>/{stdout,stderr}.log
 *                                                                       /error.json
 *                                                       /filtered_{stdout,stderr}.log
 *     <log-dir>/latest  leads to the one that was made last
 * Otherwise there are error files only, which are removed at the end:
 *     <TMPDIR>/ddprun-<uid>/<6 random>_<restart count>_<local rank>.json
 * That directory stays, for the user's next job. If the name belongs to something else, it is
 * ddprun_<6 random>, which is removed. With --log-dir=/dev/null there is no directory at all.
 */
#ifndef DAEMON_LOGDIR_H
#define DAEMON_LOGDIR_H

#include "safe_dir.h"

#include <ddprun/status.h>
#include <stdbool.h>
#include <stdint.h>

/* What logdir_close() leaves. */
enum logdir_end {
    LOGDIR_KEPT,    /* the tree */
    LOGDIR_CLEARED, /* the directory, without this job's error files */
    LOGDIR_REMOVED, /* nothing */
};

struct logdir {
    char *path; /* NULL: no files are written */
    int fd;     /* of @path; -1: none */
    enum logdir_end end;
    char job[SAFE_DIR_LETTERS + 1]; /* begins the names of error files that are not kept */
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

/* Close it, and remove what is not kept. */
void logdir_close(struct logdir *dir);

#endif
