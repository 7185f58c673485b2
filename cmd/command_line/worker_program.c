/*
 * worker_program.c - finds the program of the workers before anything is started, so that a wrong
 * name is one error and not one failure per worker. Owns the path and the array.
 */
#include "worker_program.h"

#include "bytes.h"
#include "error.h"
#include "mem.h"
#include "parse.h"
#include "python_program.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* From the folder of ddprun. */
#define BESIDE    "ddprun-pmix"
#define INSTALLED "../" LIBRARIES "/ddprun-pmix"

enum {
    OUR_WORDS = 4, /* python3 -u -m, and an argument */
    CUT_MARK = sizeof " ... #01234567",
};

/* Find @name in PATH; NULL: not found, or out of memory. */
static char *search_path(const char *name)
{
    const char *path = getenv("PATH");
    const char *item;
    size_t len;
    for (const char *cursor = path != NULL ? path : "/usr/local/bin:/usr/bin:/bin";
         ddpi_parse_list_next(&cursor, ':', &item, &len);) {
        char *candidate = ddpi_asprintf("%.*s%s%s", (int)len, item, len > 0 ? "/" : "", name);
        if (candidate != NULL && program_is_executable(candidate))
            return candidate;
        ddpi_free(candidate);
    }
    return NULL;
}

/* Describe the failure of stat() on a file, from errno. */
static ddp_status cannot_find(const char *what, const char *path, struct ddp_error *err)
{
    char here[256];
    ddp_status status =
        errno == ENOENT
            ? ddpi_error_set(err, DDP_E_NOT_FOUND, "the %s '%s' does not exist", what, path)
            : ddpi_error_sys(err, errno, "cannot read the %s '%s'", what, path);
    if (*path == '/' || getcwd(here, sizeof here) == NULL)
        return ddpi_error_advise(err, status, "check its path");
    return ddpi_error_advise(err, status, "check its path, which is relative to '%s'", here);
}

static ddp_status describe_missing(const char *name, struct ddp_error *err)
{
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
        return cannot_find("program", path, err);
    if (S_ISDIR(st.st_mode))
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "'%s' is a directory without a __main__.py, not a program; name a file in it", path);
    if (!S_ISREG(st.st_mode))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is a device or pipe, not a program; name a regular file", path);
    if (access(path, X_OK) != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is not executable; run 'chmod +x %s', or give a Python script "
                              "a name that ends in .py",
                              path, path);
    return DDP_OK;
}

ddp_status program_find(const char *name, char **ret_path, struct ddp_error *err)
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
    if (strchr(path, '$') != NULL)
        return DDP_OK; /* ${local_rank}: another file for each worker */
    if (stat(path, &st) != 0 || access(path, R_OK) != 0)
        return cannot_find("script", path, err);
    if (S_ISDIR(st.st_mode) && python_program_kind(path) == PYTHON_NONE)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "'%s' is a directory without a __main__.py, not a script; name a file in it", path);
    return DDP_OK;
}

static bool ends_in(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len > end_len && strcasecmp(text + len - end_len, end) == 0;
}

static ddp_status resolve_python(const char *script, char **ret_path, struct ddp_error *err)
{
    const char *name = getenv("PYTHON_EXEC");
    bool given = name != NULL && *name != '\0';
    char *path = given ? NULL : python_program_of_environment();
    if (path != NULL) {
        *ret_path = path;
        return DDP_OK;
    }
    ddp_status status = program_find(given ? name : "python3", ret_path, err);
    if (status == DDP_OK || status == DDP_E_NOMEM)
        return status;
    return ddpi_error_set(err, status,
                          given
                              ? "'%s' cannot be run: PYTHON_EXEC='%s' is not a program; set it to "
                                "an interpreter, or unset it to use python3"
                              : "'%s' cannot be run: there is no active environment, and no "
                                "python3 in PATH; install it, or set PYTHON_EXEC to an interpreter",
                          script, name);
}

/* As torchrun runs it. A program that PATH has comes before a file of that name. */
static enum python_kind kind_of(const char *name)
{
    if (ends_in(name, ".py"))
        return python_program_kind(name) == PYTHON_PARTS ? PYTHON_PARTS : PYTHON_FILE;
    char *path = strchr(name, '/') == NULL ? search_path(name) : NULL;
    enum python_kind kind = path == NULL ? python_program_kind(name) : PYTHON_NONE;
    ddpi_free(path);
    return kind;
}

ddp_status program_resolve(char **operands, char *argument, bool module, bool no_python,
                           struct program *ret_program, struct ddp_error *err)
{
    static char unbuffered[] = "-u", as_module[] = "-m";
    enum python_kind kind = no_python || module ? PYTHON_NONE : kind_of(operands[0]);
    bool python = module || kind != PYTHON_NONE;
    if (*operands[0] == '\0')
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the name of the program is empty (''); is the shell variable that "
                              "should hold it unset?");
    ddp_status status = kind != PYTHON_NONE ? check_script(operands[0], err) : DDP_OK;
    char *path = NULL;
    if (status == DDP_OK)
        status = python ? resolve_python(operands[0], &path, err)
                        : program_find(operands[0], &path, err);
    if (status != DDP_OK)
        return status;

    size_t count = 0, used = 0;
    while (operands[count] != NULL)
        count++;
    char **argv = ddpi_calloc(count + OUR_WORDS + 1, sizeof *argv);
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
    argv[used++] = operands[0];
    if (argument != NULL)
        argv[used++] = argument;
    memcpy(argv + used, operands + 1, (count - 1) * sizeof *operands);
    *ret_program = (struct program){
        .path = path, .argv = argv, .interprets = python, .script = kind == PYTHON_FILE};
    return DDP_OK;
}

static void put_word(char *text, size_t size, size_t *used, const char *word)
{
    for (const char *at = word; *at != '\0' && *used < size - 1; at++)
        text[(*used)++] = iscntrl((unsigned char)*at) ? '?' : *at;
    text[*used] = '\0';
}

void program_describe(char *const *operands, bool module, char *text, size_t size)
{
    uint32_t hash = DDPI_DIGEST32_NONE; /* of the words and their ends */
    size_t used = 0;
    put_word(text, size, &used, module ? "-m " : "");
    for (size_t i = 0; operands[i] != NULL; i++) {
        hash = ddpi_digest32(hash, operands[i], strlen(operands[i]) + 1);
        put_word(text, size, &used, i > 0 ? " " : "");
        put_word(text, size, &used, operands[i]);
    }
    if (used == size - 1)
        snprintf(text + size - CUT_MARK, CUT_MARK, " ... #%08" PRIx32, hash);
}

char *program_find_beside(const char *name)
{
    char folder[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
    char *path = ddpi_asprintf("%s/%s", folder, name);
    if (path != NULL && access(path, X_OK) == 0)
        return path;
    ddpi_free(path);
    return NULL;
}

char *program_find_pmix_server(void)
{
    char *path = program_find_beside(BESIDE);
    return path != NULL ? path : program_find_beside(INSTALLED);
}

void program_finish(struct program *program)
{
    ddpi_free(program->path);
    ddpi_free(program->argv);
    *program = (struct program){0};
}
