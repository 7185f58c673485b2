/*
 * cgroup.c - makes a control group below our own, kills and removes it. Owns two
 * descriptors of the new group until the process ends.
 */
#include "cgroup.h"

#include "own_group.h"
#include "text_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- a group for the workers ---- */

/* systemd marks groups that it delegates, for instance to a unit with Delegate=yes. Others are not
 * ours to divide, and the first move into a group costs some 10 ms. */
static bool is_delegated(const char *path)
{
    char value[2];
    return (getxattr(path, "user.delegate", value, sizeof value) == 1 && value[0] == '1') ||
           (getxattr(path, "trusted.delegate", value, sizeof value) == 1 && value[0] == '1');
}

/* The directory of our own group, if it is ours to divide. It is where systemd mounts groups of
 * version 2: alone, or beside those of version 1. */
static bool find_delegated(char ret_path[DDPI_GROUP_PATH])
{
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char groups[DDPI_GROUPS_SIZE], name[DDPI_GROUP_NAME];
    if (!ddpi_text_file_read("/proc/self/cgroup", groups, sizeof groups) ||
        !ddpi_own_group_name(groups, NULL, name))
        return false;
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        snprintf(ret_path, DDPI_GROUP_PATH, "%s%s", mounts[i], strcmp(name, "/") == 0 ? "" : name);
        if (is_delegated(ret_path))
            return true;
    }
    return false;
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
    char own[DDPI_GROUP_PATH], procs[CGROUP_PATH_SIZE];
    *group = (struct cgroup){.procs_fd = -1, .kill_fd = -1};
    if (!find_delegated(own))
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
