/*
 * program.h - what a worker executes: a binary, a script, or Python with a script or module.
 */
#ifndef CMD_PROGRAM_H
#define CMD_PROGRAM_H

#include <ddprun/status.h>
#include <stdbool.h>

struct program {
    char *path;  /* to execute */
    char **argv; /* NULL-terminated; entries are borrowed from the command line */
};

/*
 * @operands are the program and its arguments as the user gave them. "x.py" runs under
 * "python3 -u" ($PYTHON_EXEC instead, if set), @module under "python3 -u -m"; anything else, or
 * all with @no_python, is executed: a name without '/' is looked up in PATH.
 *
 * A failure other than DDP_E_NOMEM: it does not exist, is a directory, or may not be executed; the
 * sentence says which, and what to try. On DDP_OK the caller gives it back with program_finish().
 */
DDP_MUST_CHECK ddp_status program_resolve(char **operands, bool module, bool no_python,
                                          struct program *ret_program, struct ddp_error *err);

void program_finish(struct program *program);

#endif
