/*
 * worker_program.h - the command of a worker: a binary, a script, or Python with a script or
 * module.
 */
#ifndef CMD_WORKER_PROGRAM_H
#define CMD_WORKER_PROGRAM_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>

struct program {
    char *path;      /* to execute */
    char **argv;     /* NULL-terminated; entries are borrowed from the command line */
    bool interprets; /* path is a Python that runs a script or module */
    bool script;     /* and argv is: Python, "-u", the script, its arguments */
};

/*
 * @operands are the program and its arguments as the user gave them. "x.py", and what else is a
 * program of Python (python_program.h), runs under "python3 -u", with @module anything runs under
 * "python3 -u -m". Other programs, and all with @no_python, are executed; a name without '/' is
 * looked up in PATH.
 *
 * Python is $PYTHON_EXEC; else that of the active environment ($VIRTUAL_ENV, or $CONDA_PREFIX if it
 * was activated later); else that of the environment (venv or conda) in whose bin directory ddprun
 * is installed; else python3 in PATH.
 *
 * A failure other than DDP_E_NOMEM means that the program does not exist, is a directory or is not
 * executable; @err says which, and what to try. @argument, if not NULL, comes before the others.
 * On DDP_OK the caller ends with program_finish().
 */
DDP_MUST_CHECK ddp_status program_resolve(char **operands, char *argument, bool module,
                                          bool no_python, struct program *ret_program,
                                          struct ddp_error *err);

/* Write @operands, behind "-m" if they are a @module, to @text of @size bytes (at least 16). The
 * end of what is too long is left out; a hash of all stands in its place. '?' stands for control
 * characters. */
void program_describe(char *const *operands, bool module, char *text, size_t size);

/* Find the program @name, as a shell would. *@ret_path is the caller's to ddpi_free(). */
DDP_MUST_CHECK ddp_status program_find(const char *name, char **ret_path, struct ddp_error *err);

/* Find the program @name, relative to the folder of this one. NULL: there is none, or no memory.
 * The caller's to ddpi_free(). */
DDP_MUST_CHECK char *program_find_beside(const char *name);

/* Find the PMIx server for programs of Open MPI: beside ddprun, where it is built, or where it is
 * installed. NULL: there is none. The caller's to ddpi_free(). */
DDP_MUST_CHECK char *program_find_pmix_server(void);

void program_finish(struct program *program);

#endif
