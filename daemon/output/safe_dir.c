/*
 * safe_dir.c - walks a path step by step. Owns the descriptor of the current directory.
 */
#include "safe_dir.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40, DIR_MODE = 0700, NAMES_TRIED = 100 };

static const int dir_flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

struct walk {
    const char *path; /* as given, for messages */
    bool make;        /* make missing directories */
    int fd;           /* of the current directory */
    char rest[PATH_MAX];
    unsigned links;
};

/* In a user namespace, such as a rootless container's, files from outside belong to a user that is
 * not mapped here. The creator of the namespace is trusted with them. */
static bool is_mapped(uid_t uid)
{
    FILE *map = fopen("/proc/self/uid_map", "re");
    unsigned long first, outside, count;
    bool mapped = map == NULL;
    while (!mapped && fscanf(map, "%lu %lu %lu", &first, &outside, &count) == 3)
        mapped = uid >= first && uid - first < count;
    if (map != NULL)
        fclose(map);
    return mapped;
}

static bool is_trusted(uid_t uid)
{
    return uid == 0 || uid == geteuid() || !is_mapped(uid);
}

static ddp_status refuse_path(const struct walk *walk, const char *kind, const char *name,
                              const struct stat *st, struct ddp_error *err)
{
    char owner[64];
    bool trusted = is_trusted(st->st_uid);
    snprintf(owner, sizeof owner, "belongs to another user (uid %u)", (unsigned)st->st_uid);
    return ddpi_error_set(err, DDP_E_DENIED,
                          "'%s': %s '%s' %s, so another user could replace what is made there by a "
                          "link; choose a directory of your own%s",
                          walk->path, kind, name, trusted ? "is writable by all users" : owner,
                          trusted ? ", or make it sticky, 'chmod +t'" : "");
}

/* Take over @fd as the current directory, if no other user can replace its entries. */
static ddp_status enter(struct walk *walk, int fd, const char *name, struct ddp_error *err)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        ddp_status status =
            ddpi_error_sys(err, errno, "cannot open '%s' of '%s'", name, walk->path);
        if (fd >= 0)
            close(fd);
        return status;
    }
    if (walk->fd >= 0)
        close(walk->fd);
    walk->fd = fd;
    bool safe =
        is_trusted(st.st_uid) && ((st.st_mode & S_ISVTX) != 0 || (st.st_mode & S_IWOTH) == 0);
    return safe ? DDP_OK : refuse_path(walk, "the directory", name, &st, err);
}

static ddp_status walk_begin(struct walk *walk, struct ddp_error *err)
{
    const char *from = walk->rest[0] == '/' ? "/" : ".";
    return enter(walk, open(from, dir_flags), from, err);
}

/* The link's text replaces the link in the rest of the path. */
static ddp_status walk_link(struct walk *walk, const char *name, const struct stat *st,
                            struct ddp_error *err)
{
    char target[PATH_MAX];
    if (!is_trusted(st->st_uid))
        return refuse_path(walk, "the link", name, st, err);
    ssize_t len = readlinkat(walk->fd, name, target, sizeof target - 1);
    size_t rest = strlen(walk->rest);
    if (len < 0)
        return ddpi_error_sys(err, errno, "cannot follow '%s' of '%s'", name, walk->path);
    if (++walk->links > LINKS_MAX || (size_t)len + 1 + rest >= sizeof walk->rest)
        return ddpi_error_sys(err, ELOOP, "cannot follow '%s' of '%s'", name, walk->path);
    memmove(walk->rest + len + 1, walk->rest, rest + 1);
    memcpy(walk->rest, target, (size_t)len);
    walk->rest[len] = '/';
    return walk->rest[0] == '/' ? walk_begin(walk, err) : DDP_OK;
}

/* Cut the first name off the rest of the path; false: nothing is left. */
static bool next_name(struct walk *walk, char name[PATH_MAX])
{
    const char *from = walk->rest + strspn(walk->rest, "/");
    size_t len = strcspn(from, "/");
    memcpy(name, from, len);
    name[len] = '\0';
    memmove(walk->rest, from + len, strlen(from + len) + 1);
    return len > 0;
}

static ddp_status walk_step(struct walk *walk, const char *name, struct ddp_error *err)
{
    struct stat st;
    if (walk->make && mkdirat(walk->fd, name, 0777) != 0 && errno != EEXIST)
        return ddpi_error_sys(err, errno, "cannot make '%s' of '%s'", name, walk->path);
    if (fstatat(walk->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return ddpi_error_sys(err, errno, "cannot open '%s' of '%s'", name, walk->path);
    if (S_ISLNK(st.st_mode))
        return walk_link(walk, name, &st, err);
    return enter(walk, openat(walk->fd, name, dir_flags), name, err);
}

ddp_status safe_dir_open(const char *path, bool make, int *ret_fd, struct ddp_error *err)
{
    struct walk walk = {.path = path, .make = make, .fd = -1};
    char name[PATH_MAX];
    if (strlen(path) >= sizeof walk.rest)
        return ddpi_error_sys(err, ENAMETOOLONG, "cannot open '%s'", path);
    memcpy(walk.rest, path, strlen(path) + 1);
    ddp_status status = walk_begin(&walk, err);
    while (status == DDP_OK && next_name(&walk, name))
        status = walk_step(&walk, name, err);
    if (status == DDP_OK)
        *ret_fd = walk.fd;
    else if (walk.fd >= 0)
        close(walk.fd);
    return status;
}

void safe_dir_letters(char text[static SAFE_DIR_LETTERS + 1])
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    unsigned char random[SAFE_DIR_LETTERS] = {0};
    (void)!getrandom(random, sizeof random, 0);
    for (size_t i = 0; i < sizeof random; i++)
        text[i] = letters[random[i] % (sizeof letters - 1)];
    text[SAFE_DIR_LETTERS] = '\0';
}

int safe_dir_make_unique(int fd, char *name)
{
    for (int i = 0; i < NAMES_TRIED; i++) {
        safe_dir_letters(name + strlen(name) - SAFE_DIR_LETTERS);
        if (mkdirat(fd, name, DIR_MODE) == 0)
            return openat(fd, name, dir_flags);
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

int safe_dir_make(int fd, const char *name)
{
    if (mkdirat(fd, name, DIR_MODE) != 0 && errno != EEXIST)
        return -1;
    return openat(fd, name, dir_flags);
}
