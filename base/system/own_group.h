/*
 * own_group.h - finds the control group of this process in the kernel's lists of mounts and groups.
 */
#ifndef DDPI_OWN_GROUP_H
#define DDPI_OWN_GROUP_H

#include <stdbool.h>
#include <stddef.h>

enum {
    DDPI_GROUP_PATH = 1024,
    DDPI_GROUP_NAME = 512,
    DDPI_MOUNTS_SIZE = 64 * 1024,
    DDPI_GROUPS_SIZE = 16 * 1024
};

struct ddpi_own_group {
    char path[DDPI_GROUP_PATH]; /* the directory of the group */
    size_t mount_len; /* of the path where the groups are mounted, with which @path begins */
};

/* The name of our group in the text of /proc/self/cgroup, "/user.slice/job.scope". @controller: of
 * version 1, such as "cpu"; NULL: the group of version 2. false: not found. Pure. */
bool ddpi_own_group_name(const char *groups, const char *controller, char ret[DDPI_GROUP_NAME]);

/* The same with the directory, from the texts of /proc/self/mountinfo and /proc/self/cgroup. */
bool ddpi_own_group_find(const char *mountinfo, const char *groups, const char *controller,
                         struct ddpi_own_group *ret_group);

#endif
