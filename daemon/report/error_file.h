/*
 * error_file.h - the error file that PyTorch's @record decorator writes (TORCHELASTIC_ERROR_FILE):
 * that of a worker, and that of ddprun itself, which whoever started it reads.
 *
 * {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, ...}}} and {"message": TEXT}
 * are known; any other text is a message as it is. Everything in it is the worker's word: shown,
 * never trusted.
 */
#ifndef DAEMON_ERROR_FILE_H
#define DAEMON_ERROR_FILE_H

#include <ddprun/status.h>

struct error_file {
    char *message;
    char *traceback; /* or NULL */
    char *copy;      /* the whole as JSON, with the exit code in it; NULL: no memory */
};

/* @exit_code is the worker's, -N for signal N. DDP_E_NOT_FOUND: there is no such file, or nothing
 * in it: the usual case. DDP_E_INVALID: it is too large, or no regular file. On DDP_OK the caller
 * gives it back with error_file_finish(). */
DDP_MUST_CHECK ddp_status error_file_read(const char *path, int exit_code,
                                          struct error_file *ret_file, struct ddp_error *err);

/* Make @path, our own error file, of @copy; what is there already is replaced. */
DDP_MUST_CHECK ddp_status error_file_write(const char *path, const char *copy,
                                           struct ddp_error *err);

void error_file_finish(struct error_file *file);

#endif
