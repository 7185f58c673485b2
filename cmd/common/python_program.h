/*
 * python_program.h - what Python runs though its name does not end in .py, and which Python does.
 */
#ifndef CMD_PYTHON_PROGRAM_H
#define CMD_PYTHON_PROGRAM_H

#include <stdbool.h>

enum python_kind {
    PYTHON_NONE,
    PYTHON_FILE, /* a text that cannot be executed, and is no script of another interpreter */
    PYTHON_PARTS /* a folder or a zip archive that has a __main__.py */
};

/* What Python makes of the file @path, whose name does not end in .py. Another suffix, such as .sh
 * or .txt, says that it is no script of Python. */
enum python_kind python_program_kind(const char *path);

/* The interpreter of the environment that is active: of VIRTUAL_ENV, or of CONDA_PREFIX if PATH has
 * the bin folders of both and that of conda comes first, as it was activated later; else of the one
 * that ddprun is installed in. The caller frees it; NULL: there is none, or no memory. */
char *python_program_of_environment(void);

/* Whether @path is a file that the user may execute. */
bool program_is_executable(const char *path);

#endif
