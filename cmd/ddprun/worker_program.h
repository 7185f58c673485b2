/*
 * worker_program.h - what a worker executes: a binary, a script, or Python with a script or module.
 */
#ifndef CMD_WORKER_PROGRAM_H
#define CMD_WORKER_PROGRAM_H

#include <ddprun/status.h>
#include <stdbool.h>

struct program {
    char *path;      /* to execute */
    char **argv;     /* NULL-terminated; entries are borrowed from the command line */
    bool interprets; /* it is a Python that runs a script or module */
};

/*
 * @operands are the program and its arguments as the user gave them. "x.py" runs under
 * "python3 -u", @module under "python3 -u -m"; anything else, or all with @no_python, is executed:
 * a name without '/' is looked up in PATH.
 *
 * Which Python: $PYTHON_EXEC; else that of the environment which is active,
 * $VIRTUAL_ENV/bin/python3; else that of the environment (of venv or conda) into whose bin folder
 * this program is installed; else python3 in PATH.
 *
 * A failure other than DDP_E_NOMEM: it does not exist, is a directory, or may not be executed; the
 * sentence says which, and what to try. On DDP_OK the caller gives it back with program_finish().
 */
DDP_MUST_CHECK ddp_status program_resolve(char **operands, bool module, bool no_python,
                                          struct program *ret_program, struct ddp_error *err);

void program_finish(struct program *program);

#endif
