/*
 * keeper_folder.c - see keeper_folder.h.
 */
#include "keeper_folder.h"

#include "error.h"
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "ddprund-keeper-"

enum { MAKE_TRIES = 10 };

/* The folder @path of this user, locked. -1: another process has the lock, or it is gone. Programs
 * that remove old files from such places heed this lock. */
static int take_lock(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &about) == 0 && about.st_nlink > 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void remove_dead(const char *above)
{
    DIR *dir = opendir(above);
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[KEEPER_PATH];
        if (strncmp(entry->d_name, NAME, strlen(NAME)) != 0 ||
            snprintf(path, sizeof path, "%s/%s", above, entry->d_name) >= KEEPER_PATH)
            continue;
        int lock = take_lock(path);
        if (lock < 0)
            continue;
        ddpi_folder_remove(path);
        close(lock);
    }
    if (dir != NULL)
        closedir(dir);
}

ddp_status keeper_folder_make(const char *above, struct keeper_folder *ret, struct ddp_error *err)
{
    const char *standard = getenv("TMPDIR");
    if (standard == NULL || standard[0] != '/')
        standard = "/var/tmp"; /* /tmp is memory on many systems */
    if (above == NULL)
        above = standard;
    if (above[0] != '/' || strstr(above, ":/") != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the folder for etcd's data, '%s', must be an absolute path without "
                              "':/' (--cluster-dir)",
                              above);
    remove_dead(above);
    for (unsigned tries = 0; tries < MAKE_TRIES; tries++) {
        int len = snprintf(ret->path, sizeof ret->path, "%s/" NAME "XXXXXX", above);
        if (len >= KEEPER_PATH)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "the path '%s' is too long for the socket of an etcd; name "
                                  "another folder with --cluster-dir",
                                  above);
        if (mkdtemp(ret->path) == NULL)
            return ddpi_error_sys(err, errno, "cannot make a folder in '%s' (--cluster-dir)",
                                  above);
        ret->lock = take_lock(ret->path);
        if (ret->lock >= 0)
            return DDP_OK;
    } /* another keeper, which removes those of dead ones, was faster than the lock */
    return ddpi_error_set(err, DDP_E_SYSTEM, "cannot lock a folder in '%s'", above);
}

ddp_status keeper_folder_write(const struct keeper_folder *folder, const char *name,
                               const char *text, struct ddp_error *err)
{
    char path[KEEPER_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    size_t len = strlen(text);
    ssize_t written = fd >= 0 ? write(fd, text, len) : -1;
    int sys_errno = written >= 0 ? ENOSPC : errno; /* written in part: a full disk */
    if (fd >= 0)
        close(fd);
    return written == (ssize_t)len ? DDP_OK
                                   : ddpi_error_sys(err, sys_errno, "cannot write '%s'", path);
}

void keeper_folder_clear(const struct keeper_folder *folder, const char *name)
{
    char path[KEEPER_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    ddpi_folder_remove(path);
}

void keeper_folder_remove(struct keeper_folder *folder)
{
    if (folder->lock < 0)
        return;
    ddpi_folder_remove(folder->path);
    close(folder->lock);
    folder->lock = -1;
}
