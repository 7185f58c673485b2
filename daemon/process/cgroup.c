/*
 * cgroup.c - finds our own control group, makes one below it, kills and removes it. Owns two
 * descriptors of the new group until the process ends.
 */
#include "cgroup.h"

#include "text_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { TEXT_SIZE = 64 * 1024, FIELD_SIZE = CGROUP_PATH_SIZE / 2 };

/* ---- our own group -------------------------------------------------------------------------- */

struct mount {
    char root[FIELD_SIZE]; /* the group at the mount point */
    char point[FIELD_SIZE];
};

/* "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw" */
static bool parse_mount(const char *line, size_t len, struct mount *ret)
{
    char text[2 * FIELD_SIZE];
    if (len >= sizeof text)
        return false;
    memcpy(text, line, len);
    text[len] = '\0';
    if (strstr(text, " - cgroup2 ") == NULL || strchr(text, '\\') != NULL)
        return false; /* another type, or a path with a blank */
    char *rest = text, *field = NULL;
    for (int i = 0; i <= 4; i++) {
        field = strsep(&rest, " ");
        if (field == NULL || rest == NULL || strlen(field) >= FIELD_SIZE)
            return false;
        if (i >= 3)
            memcpy(i == 3 ? ret->root : ret->point, field, strlen(field) + 1);
    }
    return ret->root[0] == '/' && ret->point[0] == '/';
}

static bool own_group(const char *groups, char ret[FIELD_SIZE])
{
    for (const char *line = groups; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        if (strncmp(line, "0::/", 4) == 0 && len - 3 < FIELD_SIZE) {
            memcpy(ret, line + 3, len - 3);
            ret[len - 3] = '\0';
            return strstr(ret, "/..") == NULL; /* else outside our namespace */
        }
        line += len + (line[len] == '\n');
    }
    return false;
}

/* The path of @group below @root; NULL: it is not below it. */
static const char *below(const char *group, const char *root)
{
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    bool inside = strncmp(group, root, len) == 0 && (group[len] == '/' || group[len] == '\0');
    return inside ? group + len : NULL;
}

bool cgroup_find(const char *mountinfo, const char *groups, char *ret_path, size_t size)
{
    char group[FIELD_SIZE];
    struct mount mount;
    if (!own_group(groups, group))
        return false;
    for (const char *line = mountinfo; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *name = parse_mount(line, len, &mount) ? below(group, mount.root) : NULL;
        if (name != NULL) {
            int used =
                snprintf(ret_path, size, "%s%s", mount.point, strcmp(name, "/") == 0 ? "" : name);
            return used > 0 && (size_t)used < size;
        }
        line += len + (line[len] == '\n');
    }
    return false;
}

/* ---- a group for the workers ---------------------------------------------------------------- */

static bool find_own(char *path, size_t size)
{
    char mountinfo[TEXT_SIZE], groups[TEXT_SIZE / 4];
    return ddpi_text_file_read("/proc/self/mountinfo", mountinfo, sizeof mountinfo) &&
           ddpi_text_file_read("/proc/self/cgroup", groups, sizeof groups) &&
           cgroup_find(mountinfo, groups, path, size);
}

/* systemd marks groups that it delegates, for instance to a unit with Delegate=yes. Others are not
 * ours to divide, and the first move into a group costs some 10 ms. */
static bool is_delegated(const char *path)
{
    char value[2];
    return (getxattr(path, "user.delegate", value, sizeof value) == 1 && value[0] == '1') ||
           (getxattr(path, "trusted.delegate", value, sizeof value) == 1 && value[0] == '1');
}

static int open_file(const struct cgroup *group, const char *name)
{
    char path[CGROUP_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", group->path, name);
    return open(path, O_WRONLY | O_CLOEXEC);
}

static void close_cgroup(struct cgroup *group)
{
    if (group->procs_fd >= 0)
        close(group->procs_fd);
    if (group->kill_fd >= 0)
        close(group->kill_fd);
    cgroup_remove(group);
    *group = (struct cgroup){.procs_fd = -1, .kill_fd = -1};
}

void cgroup_make(struct cgroup *group)
{
    char own[CGROUP_PATH_SIZE - 32], procs[CGROUP_PATH_SIZE];
    *group = (struct cgroup){.procs_fd = -1, .kill_fd = -1};
    if (!find_own(own, sizeof own) || !is_delegated(own))
        return;
    /* Moving a process needs write access to the common ancestor of both groups. */
    snprintf(procs, sizeof procs, "%s/cgroup.procs", own);
    if (access(procs, W_OK) != 0)
        return;
    snprintf(group->path, sizeof group->path, "%s/ddprun-%d", own, (int)getpid());
    if (mkdir(group->path, 0755) != 0) {
        group->path[0] = '\0';
        return;
    }
    group->procs_fd = open_file(group, "cgroup.procs");
    group->kill_fd = open_file(group, "cgroup.kill"); /* Linux 5.14 */
    if (group->procs_fd < 0 || group->kill_fd < 0)
        close_cgroup(group);
}

void cgroup_kill(const struct cgroup *group)
{
    if (group != NULL && group->path[0] != '\0')
        (void)!write(group->kill_fd, "1", 1);
}

void cgroup_remove(const struct cgroup *group)
{
    if (group != NULL && group->path[0] != '\0')
        rmdir(group->path);
}
