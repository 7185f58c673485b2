/*
 * error_file.h - the error file (TORCHELASTIC_ERROR_FILE) of a worker, written by PyTorch's @record
 * decorator, and that of ddprun itself, for the program that started it.
 *
 * Known forms are {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, ...}}} and
 * {"message": TEXT}; any other text is taken as the message. The content is not trusted: it is only
 * shown.
 */
#ifndef DAEMON_ERROR_FILE_H
#define DAEMON_ERROR_FILE_H

#include <ddprun/status.h>

struct error_file {
    char *message;
    char *traceback; /* or NULL */
    char *copy;      /* the whole file as JSON, with the exit code; NULL: no memory */
};

/* @exit_code is the worker's, -N for signal N. DDP_E_NOT_FOUND, the usual case: the file does not
 * exist or is empty. DDP_E_INVALID: it is too large, or no regular file. After DDP_OK call
 * error_file_finish(). */
DDP_MUST_CHECK ddp_status error_file_read(const char *path, int exit_code,
                                          struct error_file *ret_file, struct ddp_error *err);

/* Write @copy to @path, our own error file, replacing its content. */
DDP_MUST_CHECK ddp_status error_file_write(const char *path, const char *copy,
                                           struct ddp_error *err);

void error_file_finish(struct error_file *file);

#endif
