/*
 * logdir.c - makes and removes the log tree. Owns the path, and the directory if it is temporary.
 * Directories are 0700: what workers print may hold secrets.
 */
#include "logdir.h"

#include "error.h"
#include "mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIR_MODE = 0700, FILE_MODE = 0600 };

static const char *const stream_names[] = {"stdout.log", "stderr.log"};

static ddp_status cannot_make(const char *path, struct ddp_error *err)
{
    ddp_status status = ddpi_error_sys(err, errno, "cannot make the log directory '%s'", path);
    return ddpi_error_advise(err, status, "give --log-dir a directory that you may write to");
}

/* mkdir -p. */
static ddp_status make_parents(const char *path, struct ddp_error *err)
{
    char *copy = ddpi_strdup(path);
    if (copy == NULL)
        return ddpi_error_nomem(err, strlen(path));
    ddp_status status = DDP_OK;
    for (char *c = copy + 1; status == DDP_OK; c++) {
        char end = *c;
        if (end != '/' && end != '\0')
            continue;
        *c = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            status = cannot_make(copy, err);
        *c = end;
        if (end == '\0')
            break;
    }
    ddpi_free(copy);
    return status;
}

/* @setting decides where: the option or variable that is to be changed when it cannot be there. */
static ddp_status make_unique(struct logdir *dir, char *template, const char *setting,
                              struct ddp_error *err)
{
    if (template == NULL)
        return ddpi_error_nomem(err, 256);
    if (mkdtemp(template) == NULL) {
        ddp_status status = ddpi_error_sys(
            err, errno, "cannot make the directory '%s' for logs and error files", template);
        ddpi_free(template);
        return ddpi_error_advise(err, status, "set %s to a directory that you may write to",
                                 setting);
    }
    dir->path = template;
    return DDP_OK;
}

static const char *temporary_base(void)
{
    const char *base = getenv("TMPDIR");
    return base != NULL && *base != '\0' ? base : "/tmp";
}

ddp_status logdir_open(struct logdir *dir, const char *base, const char *run_id, bool keep,
                       struct ddp_error *err)
{
    if (base != NULL && *base == '\0')
        base = NULL;
    *dir = (struct logdir){.kept = keep || base != NULL};
    if (base != NULL && strcmp(base, "/dev/null") == 0)
        return DDP_OK;
    if (base == NULL)
        return make_unique(dir, ddpi_asprintf("%s/ddprun_XXXXXX", temporary_base()), "TMPDIR", err);
    if (strchr(run_id, '/') != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the job id '%s' contains '/', so no log directory can bear its "
                              "name; choose another --rdzv-id or leave out --log-dir",
                              run_id);
    ddp_status status = make_parents(base, err);
    if (status != DDP_OK)
        return status;
    return make_unique(dir, ddpi_asprintf("%s/%s_XXXXXX", base, run_id), "--log-dir", err);
}

static ddp_status make_dir(const char *path, struct ddp_error *err)
{
    if (mkdir(path, DIR_MODE) != 0 && errno != EEXIST)
        return cannot_make(path, err);
    return DDP_OK;
}

ddp_status logdir_worker(const struct logdir *dir, uint32_t attempt, uint32_t local_rank,
                         char **ret_error_file, struct ddp_error *err)
{
    char path[4096];
    ddp_status status = DDP_OK;
    if (dir->path == NULL) {
        path[0] = '\0';
    } else if (!dir->kept) {
        snprintf(path, sizeof path, "%s/error_%u_%u.json", dir->path, attempt, local_rank);
    } else {
        snprintf(path, sizeof path, "%s/attempt_%u", dir->path, attempt);
        status = make_dir(path, err);
        snprintf(path, sizeof path, "%s/attempt_%u/%u", dir->path, attempt, local_rank);
        if (status == DDP_OK)
            status = make_dir(path, err);
        snprintf(path, sizeof path, "%s/attempt_%u/%u/error.json", dir->path, attempt, local_rank);
    }
    if (status != DDP_OK)
        return status;
    char *copy = ddpi_strdup(path);
    if (copy == NULL)
        return ddpi_error_nomem(err, strlen(path));
    *ret_error_file = copy;
    return DDP_OK;
}

ddp_status logdir_stream(const struct logdir *dir, uint32_t attempt, uint32_t local_rank,
                         int stream, char **ret_path, int *ret_fd, struct ddp_error *err)
{
    char *path =
        ddpi_asprintf("%s/attempt_%u/%u/%s", dir->path, attempt, local_rank, stream_names[stream]);
    if (path == NULL)
        return ddpi_error_nomem(err, 256);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, FILE_MODE);
    if (fd < 0) {
        ddp_status status = ddpi_error_sys(err, errno, "cannot open the log file '%s'", path);
        ddpi_free(path);
        return ddpi_error_advise(err, status, "choose another --log-dir, or make room there");
    }
    *ret_path = path;
    *ret_fd = fd;
    return DDP_OK;
}

/* The temporary directory is flat: error files only. */
static void remove_temporary(const char *path)
{
    if (rmdir(path) == 0 || errno != ENOTEMPTY)
        return;
    DIR *entries = opendir(path);
    if (entries == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
    rmdir(path);
}

void logdir_close(struct logdir *dir)
{
    if (dir->path != NULL && !dir->kept)
        remove_temporary(dir->path);
    ddpi_free(dir->path);
    *dir = (struct logdir){0};
}
