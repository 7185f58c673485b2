/*
 * program.c - finds what a worker executes, before anything is started: so that a wrong name is one
 * sentence, and not one failure per worker. Owns the path and the array.
 */
#include "program.h"

#include "error.h"
#include "mem.h"
#include "parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PYTHON_WORDS = 3 }; /* python3 -u -m */

static bool is_executable_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* @name in the directories of PATH; NULL if it is in none, or memory ran out. */
static char *search_path(const char *name)
{
    const char *path = getenv("PATH");
    const char *item;
    size_t len;
    for (const char *cursor = path != NULL ? path : "/usr/local/bin:/usr/bin:/bin";
         ddpi_parse_list_next(&cursor, ':', &item, &len);) {
        char *candidate = ddpi_asprintf("%.*s%s%s", (int)len, item, len > 0 ? "/" : "", name);
        if (candidate != NULL && is_executable_file(candidate))
            return candidate;
        ddpi_free(candidate);
    }
    return NULL;
}

static ddp_status describe_missing(const char *name, struct ddp_error *err)
{
    if (strchr(name, '/') != NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "the program '%s' does not exist", name);
    struct stat st;
    bool here = stat(name, &st) == 0 && S_ISREG(st.st_mode);
    return ddpi_error_set(err, DDP_E_INVALID,
                          here ? "there is no program '%s' in PATH; did you mean './%s'?"
                               : "there is no program '%s' in PATH; give its path, such as './%s'",
                          name, name);
}

static ddp_status check_program(const char *path, struct ddp_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOENT
                   ? describe_missing(path, err)
                   : ddpi_error_sys(err, errno, "cannot look at the program '%s'", path);
    if (S_ISDIR(st.st_mode))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is a directory, not a program", path);
    if (!S_ISREG(st.st_mode))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not a regular file", path);
    if (access(path, X_OK) != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not executable; 'chmod +x %s' makes it so, and a Python "
                              "script needs a name that ends in .py",
                              path, path);
    return DDP_OK;
}

static ddp_status resolve_path(const char *name, char **ret_path, struct ddp_error *err)
{
    char *path;
    if (strchr(name, '/') != NULL) {
        ddp_status status = check_program(name, err);
        if (status != DDP_OK)
            return status;
        path = ddpi_strdup(name);
        if (path == NULL)
            return ddpi_error_nomem(err, strlen(name));
    } else if ((path = search_path(name)) == NULL) {
        return describe_missing(name, err);
    }
    *ret_path = path;
    return DDP_OK;
}

static ddp_status check_script(const char *path, struct ddp_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return ddpi_error_sys(err, errno, "cannot read the script '%s'", path);
    if (S_ISDIR(st.st_mode))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is a directory, not a script", path);
    if (access(path, R_OK) != 0)
        return ddpi_error_sys(err, errno, "cannot read the script '%s'", path);
    return DDP_OK;
}

static bool ends_in(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len > end_len && strcmp(text + len - end_len, end) == 0;
}

static const char *python_name(void)
{
    const char *name = getenv("PYTHON_EXEC");
    return name != NULL && *name != '\0' ? name : "python3";
}

ddp_status program_resolve(char **operands, bool module, bool no_python,
                           struct program *ret_program, struct ddp_error *err)
{
    static char unbuffered[] = "-u", as_module[] = "-m";
    bool python = module || (!no_python && ends_in(operands[0], ".py"));
    ddp_status status = python && !module ? check_script(operands[0], err) : DDP_OK;
    char *path = NULL;
    if (status == DDP_OK)
        status = resolve_path(python ? python_name() : operands[0], &path, err);
    if (status != DDP_OK)
        return python && path == NULL && status == DDP_E_INVALID
                   ? ddpi_error_wrap(err, status, "to run '%s'", operands[0])
                   : status;

    size_t count = 0, used = 0;
    while (operands[count] != NULL)
        count++;
    char **argv = ddpi_calloc(count + PYTHON_WORDS + 1, sizeof *argv);
    if (argv == NULL) {
        ddpi_free(path);
        return ddpi_error_nomem(err, count * sizeof *argv);
    }
    if (python) {
        argv[used++] = path;
        argv[used++] = unbuffered;
        if (module)
            argv[used++] = as_module;
    }
    memcpy(argv + used, operands, count * sizeof *operands);
    *ret_program = (struct program){.path = path, .argv = argv};
    return DDP_OK;
}

void program_finish(struct program *program)
{
    ddpi_free(program->path);
    ddpi_free(program->argv);
    *program = (struct program){0};
}
