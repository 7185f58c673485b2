/*
 * logdir.c - makes the log tree and removes error files. Owns the path and its descriptor.
 * Directories have mode 0700: workers may print secrets. Everything is made relative to the
 * descriptor, as the path may lead elsewhere by then.
 */
#include "logdir.h"

#include "error.h"
#include "mem.h"
#include "safe_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MODE = 0600 };

static const char latest[] = "latest";
static const char *const stream_names[] = {"stdout.log", "stderr.log"};

/* @setting: the option or variable to change when the directory cannot be made there. */
static ddp_status make_unique(struct logdir *dir, int base_fd, const char *base, const char *name,
                              const char *setting, struct ddp_error *err)
{
    size_t at = strlen(base) + 1;
    dir->path = ddpi_asprintf("%s/%s_XXXXXX", base, name);
    if (dir->path == NULL)
        return ddpi_error_nomem(err, 256);
    dir->fd = safe_dir_make_unique(base_fd, dir->path + at);
    if (dir->fd >= 0)
        return DDP_OK;
    ddp_status status = ddpi_error_sys(
        err, errno, "cannot make the directory '%s' for logs and error files", dir->path);
    ddpi_free(dir->path);
    dir->path = NULL;
    return ddpi_error_advise(err, status, "set %s to a directory that you may write to", setting);
}

/* Let "latest" lead to the new directory @name. Another file of that name stays, and so does a link
 * that leads out of the folder. A job does not fail because of it. */
static void link_latest(int base_fd, const char *name)
{
    char fresh[32], target[PATH_MAX];
    ssize_t len = readlinkat(base_fd, latest, target, sizeof target);
    bool unused = len < 0 && errno == ENOENT;
    bool ours = len > 0 && memchr(target, '/', (size_t)len) == NULL;
    snprintf(fresh, sizeof fresh, ".%s_%s", latest, name + strlen(name) - SAFE_DIR_LETTERS);
    if ((!unused && !ours) || symlinkat(name, base_fd, fresh) != 0)
        return;
    if (renameat(base_fd, fresh, base_fd, latest) != 0)
        unlinkat(base_fd, fresh, 0);
}

/* @setting: what names @base; --log-dir's is made if it is missing. */
static ddp_status open_base(const char *base, const char *setting, bool make, int *ret_fd,
                            struct ddp_error *err)
{
    ddp_status status = safe_dir_open(base, make, ret_fd, err);
    if (status == DDP_OK)
        return DDP_OK;
    ddpi_error_wrap(err, status, "%s", setting);
    return status == DDP_E_DENIED
               ? status
               : ddpi_error_advise(err, status, "set it to a directory that you may write to");
}

/* Not in memory: logind empties /dev/shm of a user who logs out, and programs that run out of room
 * there could not say so in their error files. */
static const char *temporary_base(void)
{
    const char *base = getenv("TMPDIR");
    return base != NULL && *base != '\0' ? base : "/tmp";
}

/* Whether @fd is a directory that is still there, belongs to this user, and is closed to others. */
static bool is_private(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink > 0 && st.st_uid == geteuid() &&
           (st.st_mode & 077) == 0;
}

/* Open the directory of this user's error files. It stays, for every job: to remove a directory
 * takes milliseconds on a disk that discards freed blocks at once. The lock keeps systemd-tmpfiles
 * from removing it as too old. Returns -1 if the name is taken by something else. */
static int open_standing(int base_fd, const char *name)
{
    int made = safe_dir_make(base_fd, name);
    if (made < 0)
        return -1;
    int fd = openat(made, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(made);
    if (fd < 0)
        return -1;
    bool being_removed = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!being_removed && is_private(fd))
        return fd;
    close(fd);
    return -1;
}

static ddp_status open_for_errors(struct logdir *dir, int base_fd, const char *base,
                                  struct ddp_error *err)
{
    safe_dir_letters(dir->job);
    dir->path = ddpi_asprintf("%s/ddprun-%u", base, (unsigned)geteuid());
    if (dir->path == NULL)
        return ddpi_error_nomem(err, 256);
    dir->end = LOGDIR_CLEARED;
    dir->fd = open_standing(base_fd, dir->path + strlen(base) + 1);
    if (dir->fd >= 0)
        return DDP_OK;
    ddpi_free(dir->path);
    dir->end = LOGDIR_REMOVED;
    return make_unique(dir, base_fd, base, "ddprun", "TMPDIR", err);
}

static ddp_status open_temporary(struct logdir *dir, bool keep, struct ddp_error *err)
{
    const char *base = temporary_base();
    int base_fd;
    ddp_status status = open_base(base, "TMPDIR", false, &base_fd, err);
    if (status != DDP_OK)
        return status;
    status = keep ? make_unique(dir, base_fd, base, "ddprun", "TMPDIR", err)
                  : open_for_errors(dir, base_fd, base, err);
    close(base_fd);
    return status;
}

static ddp_status open_asked(struct logdir *dir, const char *base, const char *run_id,
                             struct ddp_error *err)
{
    int base_fd;
    if (strchr(run_id, '/') != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the job id '%s' contains '/', so it cannot be the name of a log "
                              "directory; choose another --rdzv-id or leave out --log-dir",
                              run_id);
    ddp_status status = open_base(base, "--log-dir", true, &base_fd, err);
    if (status != DDP_OK)
        return status;
    status = make_unique(dir, base_fd, base, run_id, "--log-dir", err);
    if (status == DDP_OK)
        link_latest(base_fd, dir->path + strlen(base) + 1);
    close(base_fd);
    return status;
}

ddp_status logdir_open(struct logdir *dir, const char *base, const char *run_id, bool keep,
                       struct ddp_error *err)
{
    *dir = (struct logdir){.end = LOGDIR_KEPT, .fd = -1};
    if (base == NULL || *base == '\0')
        return open_temporary(dir, keep, err);
    if (strcmp(base, "/dev/null") == 0)
        return DDP_OK;
    return open_asked(dir, base, run_id, err);
}

static int open_attempt_dir(const struct logdir *dir, uint32_t attempt)
{
    char name[32];
    snprintf(name, sizeof name, "attempt_%u", attempt);
    return safe_dir_make(dir->fd, name);
}

/* The directory of one worker of one attempt; -1 with errno. */
static int open_worker_dir(const struct logdir *dir, uint32_t attempt, uint32_t local_rank)
{
    char name[32];
    int attempt_fd = open_attempt_dir(dir, attempt);
    if (attempt_fd < 0)
        return -1;
    snprintf(name, sizeof name, "%u", local_rank);
    int fd = safe_dir_make(attempt_fd, name);
    int sys_errno = errno;
    close(attempt_fd);
    errno = sys_errno;
    return fd;
}

ddp_status logdir_worker(const struct logdir *dir, uint32_t attempt, uint32_t local_rank,
                         char **ret_error_file, struct ddp_error *err)
{
    char *path = dir->path == NULL ? ddpi_strdup("")
                 : dir->end == LOGDIR_KEPT
                     ? ddpi_asprintf("%s/attempt_%u/%u/error.json", dir->path, attempt, local_rank)
                     : ddpi_asprintf("%s/%s_%u_%u.json", dir->path, dir->job, attempt, local_rank);
    if (path == NULL)
        return ddpi_error_nomem(err, 256);
    bool tree = dir->path != NULL && dir->end == LOGDIR_KEPT;
    int fd = tree ? open_worker_dir(dir, attempt, local_rank) : -1;
    if (tree && fd < 0) {
        ddp_status status =
            ddpi_error_sys(err, errno, "cannot make the directory for the error file '%s'", path);
        ddpi_free(path);
        return ddpi_error_advise(err, status, "give --log-dir a directory that you may write to");
    }
    if (fd >= 0)
        close(fd);
    *ret_error_file = path;
    return DDP_OK;
}

static int open_log(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
}

ddp_status logdir_stream(const struct logdir *dir, uint32_t attempt, uint32_t local_rank,
                         int stream, char **ret_path, int *ret_fd, struct ddp_error *err)
{
    char *path =
        ddpi_asprintf("%s/attempt_%u/%u/%s", dir->path, attempt, local_rank, stream_names[stream]);
    if (path == NULL)
        return ddpi_error_nomem(err, 256);
    int dir_fd = open_worker_dir(dir, attempt, local_rank);
    int fd = dir_fd < 0 ? -1 : open_log(dir_fd, stream_names[stream]);
    int sys_errno = errno;
    if (dir_fd >= 0)
        close(dir_fd);
    if (fd < 0) {
        ddp_status status = ddpi_error_sys(err, sys_errno, "cannot open the log file '%s'", path);
        ddpi_free(path);
        return ddpi_error_advise(err, status, "choose another --log-dir, or make room there");
    }
    *ret_path = path;
    *ret_fd = fd;
    return DDP_OK;
}

ddp_status logdir_filtered(const struct logdir *dir, uint32_t attempt, int stream, int *ret_fd,
                           struct ddp_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "filtered_%s", stream_names[stream]);
    int dir_fd = open_attempt_dir(dir, attempt);
    int fd = dir_fd < 0 ? -1 : open_log(dir_fd, name);
    int sys_errno = errno;
    if (dir_fd >= 0)
        close(dir_fd);
    if (fd < 0)
        return ddpi_error_sys(err, sys_errno, "cannot open the log file '%s/attempt_%u/%s'",
                              dir->path, attempt, name);
    *ret_fd = fd;
    return DDP_OK;
}

/* The names of this job's error files begin with its letters. */
static void remove_error_files(const struct logdir *dir)
{
    int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (entries == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (strncmp(entry->d_name, dir->job, SAFE_DIR_LETTERS) == 0)
            unlinkat(dir->fd, entry->d_name, 0);
    closedir(entries);
}

void logdir_close(struct logdir *dir)
{
    if (dir->path == NULL)
        return;
    if (dir->end != LOGDIR_KEPT)
        remove_error_files(dir);
    if (dir->end == LOGDIR_REMOVED)
        rmdir(dir->path);
    close(dir->fd);
    ddpi_free(dir->path);
    *dir = (struct logdir){.fd = -1};
}
