/*
 * endpoint_mark.c - creates, removes and finds marks. Owns nothing between calls.
 */
#include "endpoint_mark.h"

#include "error.h"
#include "text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM_DIR "/run/ddprun"

enum { TEXT_MAX = 256, DIRS_MAX = 4 };

/* ---- places ---- */

/* The absolute directory in the environment variable @name, with @suffix; false: not set. */
static bool in_env(const char *name, const char *suffix, char ret[ENDPOINT_MARK_PATH])
{
    const char *value = getenv(name);
    if (value == NULL || value[0] != '/')
        return false;
    size_t len = strcspn(value, ":"); /* a service manager may list several */
    return snprintf(ret, ENDPOINT_MARK_PATH, "%.*s%s", (int)len, value, suffix) <
           ENDPOINT_MARK_PATH;
}

/* The fallback for a user without a runtime directory. */
static bool state_dir(char ret[ENDPOINT_MARK_PATH])
{
    return in_env("XDG_STATE_HOME", "/ddprun", ret) || in_env("HOME", "/.local/state/ddprun", ret);
}

static bool own_mark_dir(char ret[ENDPOINT_MARK_PATH])
{
    if (in_env("RUNTIME_DIRECTORY", "", ret) || in_env("XDG_RUNTIME_DIR", "/ddprun", ret))
        return true;
    if (geteuid() != 0)
        return state_dir(ret);
    snprintf(ret, ENDPOINT_MARK_PATH, "%s", SYSTEM_DIR);
    return true;
}

/* All directories that may hold marks relevant to this user. */
static size_t list_mark_dirs(char dirs[DIRS_MAX][ENDPOINT_MARK_PATH])
{
    size_t count = 0;
    snprintf(dirs[count++], ENDPOINT_MARK_PATH, "%s", SYSTEM_DIR);
    count += in_env("RUNTIME_DIRECTORY", "", dirs[count]);
    count += in_env("XDG_RUNTIME_DIR", "/ddprun", dirs[count]);
    count += state_dir(dirs[count]);
    return count;
}

static bool mark_path(const char *dir, const char *host, uint16_t port,
                      char ret[ENDPOINT_MARK_PATH])
{
    bool v6 = strchr(host, ':') != NULL;
    return snprintf(ret, ENDPOINT_MARK_PATH, v6 ? "%s/store-[%s]:%u" : "%s/store-%s:%u", dir, host,
                    port) < ENDPOINT_MARK_PATH;
}

/* ---- contents ---- */

/* Identify this boot and this network namespace: "UUID net:[NUMBER]". */
static void describe_here(char ret[TEXT_MAX])
{
    char boot[64] = "", net[64] = "";
    (void)ddpi_text_file_read("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    boot[strcspn(boot, "\n")] = '\0';
    ssize_t len = readlink("/proc/self/ns/net", net, sizeof net - 1);
    net[len > 0 ? len : 0] = '\0';
    snprintf(ret, TEXT_MAX, "%s %s\n", boot, net);
}

static ddp_status make_mark_dirs(const char *dir, struct ddp_error *err)
{
    char path[ENDPOINT_MARK_PATH];
    snprintf(path, sizeof path, "%s", dir);
    for (char *at = path; (at = strchr(at + 1, '/')) != NULL; *at = '/') {
        *at = '\0';
        if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST)
            return ddpi_error_sys(err, errno, "cannot make '%s'", path);
    }
    /* All users may read the system's directory. */
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return ddpi_error_sys(err, errno, "cannot make '%s'", path);
    return DDP_OK;
}

ddp_status endpoint_mark_leave(const char *host, uint16_t port, struct ddp_error *err)
{
    char dir[ENDPOINT_MARK_PATH], path[ENDPOINT_MARK_PATH], text[TEXT_MAX];
    if (!own_mark_dir(dir) || !mark_path(dir, host, port, path))
        return ddpi_error_set(
            err, DDP_E_NOT_FOUND,
            "no directory for mark files: neither XDG_RUNTIME_DIR nor HOME is set");
    ddp_status status = make_mark_dirs(dir, err);
    if (status != DDP_OK)
        return status;
    describe_here(text);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0)
        return ddpi_error_sys(err, errno, "cannot open '%s'", path);
    if (fchmod(fd, 0644) != 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        status = ddpi_error_sys(err, errno, "cannot write '%s'", path);
    close(fd);
    return status;
}

void endpoint_mark_remove(const char *host, uint16_t port)
{
    char dir[ENDPOINT_MARK_PATH], path[ENDPOINT_MARK_PATH];
    if (own_mark_dir(dir) && mark_path(dir, host, port, path))
        (void)unlink(path);
}

/* Whether the mark is of this boot and this network namespace. */
static bool is_current_mark(const char *path)
{
    char here[TEXT_MAX], text[TEXT_MAX] = "";
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    describe_here(here);
    return strcmp(text, here) == 0;
}

/* A mark in @dir for any address: who listens on all takes that one, too. */
static bool find_any_mark(const char *dir, uint16_t port, char ret_path[ENDPOINT_MARK_PATH])
{
    char pattern[ENDPOINT_MARK_PATH];
    glob_t found = {0};
    bool current = false;
    if (!mark_path(dir, "*", port, pattern) || glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc && !current; i++)
        current =
            snprintf(ret_path, ENDPOINT_MARK_PATH, "%s", found.gl_pathv[i]) < ENDPOINT_MARK_PATH &&
            is_current_mark(ret_path);
    globfree(&found);
    return current;
}

/* A mark in @dir for @host, or for all addresses of its family. */
static bool find_mark(const char *dir, const char *host, uint16_t port,
                      char ret_path[ENDPOINT_MARK_PATH])
{
    const char *all = strchr(host, ':') != NULL ? "::" : "0.0.0.0";
    return (mark_path(dir, host, port, ret_path) && is_current_mark(ret_path)) ||
           (mark_path(dir, all, port, ret_path) && is_current_mark(ret_path));
}

bool endpoint_mark_find(const char *host, uint16_t port, char ret_path[ENDPOINT_MARK_PATH])
{
    bool everywhere = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    char dirs[DIRS_MAX][ENDPOINT_MARK_PATH];
    size_t count = list_mark_dirs(dirs);
    for (size_t i = 0; i < count; i++)
        if (everywhere ? find_any_mark(dirs[i], port, ret_path)
                       : find_mark(dirs[i], host, port, ret_path))
            return true;
    return false;
}
