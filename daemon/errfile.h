/*
 * errfile.h - the error file that PyTorch's @record decorator writes (TORCHELASTIC_ERROR_FILE).
 *
 * Accepted: {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, ...}}} and
 * {"message": TEXT}. Everything in it is the worker's word: shown, never trusted.
 */
#ifndef DAEMON_ERRFILE_H
#define DAEMON_ERRFILE_H

#include <ddprun/status.h>

struct errfile {
    char *message;
    char *traceback; /* or NULL */
};

/* DDP_E_NOT_FOUND: there is no such file, the usual case. DDP_E_INVALID: it is not what @record
 * writes; the sentence says why. On DDP_OK the caller gives it back with errfile_finish(). */
DDP_MUST_CHECK ddp_status errfile_read(const char *path, struct errfile *ret_file,
                                       struct ddp_error *err);

void errfile_finish(struct errfile *file);

#endif
