/*
 * python_program.c - looks at files and at the environment variables of activated environments.
 * Owns nothing.
 */
#include "python_program.h"

#include "mem.h"
#include "parse.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where a zip archive has the names of its files, if these are few. */
enum { ZIP_END = 64 * 1024, HEAD = 512 };

bool program_is_executable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool exists_below(const char *folder, const char *name)
{
    char *path = ddpi_asprintf("%s/%s", folder, name);
    bool exists = path != NULL && access(path, F_OK) == 0;
    ddpi_free(path);
    return exists;
}

/* ---- what is a program of Python ---- */

static bool has_text(const char *bytes, size_t len, const char *text)
{
    return memmem(bytes, len, text, strlen(text)) != NULL;
}

static bool is_zip_with_main(int fd, off_t size)
{
    off_t from = size > ZIP_END ? size - ZIP_END : 0;
    char *end = ddpi_calloc(1, ZIP_END);
    ssize_t len = end != NULL ? pread(fd, end, ZIP_END, from) : 0;
    bool is_one = len > 0 && has_text(end, (size_t)len, "PK\5\6") &&
                  has_text(end, (size_t)len, "__main__.py");
    ddpi_free(end);
    return is_one;
}

/* Its first bytes are text; if they name an interpreter, that is Python. */
static bool begins_like_python(int fd)
{
    char head[HEAD];
    ssize_t len = pread(fd, head, sizeof head, 0);
    if (len <= 0 || memchr(head, '\0', (size_t)len) != NULL)
        return false;
    if (len < 2 || memcmp(head, "#!", 2) != 0)
        return true;
    const char *newline = memchr(head, '\n', (size_t)len);
    return has_text(head, newline != NULL ? (size_t)(newline - head) : (size_t)len, "python");
}

static bool has_suffix(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return *name != '\0' && strchr(name + 1, '.') != NULL;
}

static enum python_kind kind_of_file(const char *path, off_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return PYTHON_NONE;
    enum python_kind kind = is_zip_with_main(fd, size)                    ? PYTHON_PARTS
                            : !has_suffix(path) && begins_like_python(fd) ? PYTHON_FILE
                                                                          : PYTHON_NONE;
    close(fd);
    return kind;
}

enum python_kind python_program_kind(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return PYTHON_NONE;
    if (S_ISDIR(st.st_mode))
        return exists_below(path, "__main__.py") ? PYTHON_PARTS : PYTHON_NONE;
    bool executable = !S_ISREG(st.st_mode) || access(path, X_OK) == 0;
    return executable ? PYTHON_NONE : kind_of_file(path, st.st_size);
}

/* ---- which Python ---- */

/* The Python of the environment @folder; NULL: none. */
static char *python_below(const char *folder)
{
    static const char *const names[] = {"python3", "python"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = ddpi_asprintf("%s/bin/%s", folder, names[i]);
        if (path != NULL && program_is_executable(path))
            return path;
        ddpi_free(path);
    }
    return NULL;
}

/* The Python of the environment in whose bin directory ddprun is. A system directory such as
 * /usr/bin is no environment; there the user's PATH decides. */
static char *python_next_to_ddprun(void)
{
    char folder[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (len <= 0)
        return NULL;
    folder[len] = '\0';
    for (int level = 0; level < 2; level++) { /* .../bin/ddprun */
        char *slash = strrchr(folder, '/');
        if (slash == NULL)
            return NULL;
        *slash = '\0';
    }
    bool environment = exists_below(folder, "pyvenv.cfg") || exists_below(folder, "conda-meta");
    return environment ? python_below(folder) : NULL;
}

static const char *environment_of(const char *variable)
{
    const char *folder = getenv(variable);
    return folder != NULL && *folder != '\0' ? folder : NULL;
}

/* The place of @folder/bin in PATH, from 1; 0: it is not there. */
static unsigned place_in_path(const char *folder)
{
    const char *cursor = getenv("PATH"), *item;
    size_t len, folder_len = strlen(folder);
    unsigned place = 0;
    while (cursor != NULL && ddpi_parse_list_next(&cursor, ':', &item, &len)) {
        place++;
        if (len == folder_len + strlen("/bin") && memcmp(item, folder, folder_len) == 0 &&
            memcmp(item + folder_len, "/bin", strlen("/bin")) == 0)
            return place;
    }
    return 0;
}

/* Each activation puts its folder before all others. */
static bool is_later(const char *conda, const char *venv)
{
    unsigned conda_at = place_in_path(conda), venv_at = place_in_path(venv);
    return conda_at != 0 && conda_at < venv_at;
}

char *python_program_of_environment(void)
{
    const char *venv = environment_of("VIRTUAL_ENV"), *conda = environment_of("CONDA_PREFIX");
    const char *active = venv != NULL && conda != NULL && is_later(conda, venv) ? conda : venv;
    char *path = active != NULL ? python_below(active) : NULL;
    return path != NULL ? path : python_next_to_ddprun();
}
