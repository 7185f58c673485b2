/*
 * own_group.c - finds the control group of this process. Pure.
 */
#include "own_group.h"

#include <stdio.h>
#include <string.h>

enum { FIELD_SIZE = DDPI_GROUP_NAME };

struct mount {
    char root[FIELD_SIZE]; /* the group at the mount point */
    char point[FIELD_SIZE];
};

/* Whether @word is in @list, divided by commas, up to @end. */
static bool is_listed(const char *list, const char *end, const char *word)
{
    size_t len = strlen(word);
    for (; list < end; list++) {
        size_t item = strcspn(list, ",");
        if (item > (size_t)(end - list))
            item = (size_t)(end - list);
        if (item == len && memcmp(list, word, len) == 0)
            return true;
        list += item;
    }
    return false;
}

/* Whether this is the mount of version 2, or that of @controller. */
static bool is_wanted(const char *text, const char *controller)
{
    if (controller == NULL)
        return strstr(text, " - cgroup2 ") != NULL;
    const char *options = strrchr(text, ' ');
    return strstr(text, " - cgroup ") != NULL &&
           is_listed(options + 1, text + strlen(text), controller);
}

/* "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw" */
static bool parse_mount(const char *line, size_t len, const char *controller, struct mount *ret)
{
    char text[2 * FIELD_SIZE];
    if (len >= sizeof text)
        return false;
    memcpy(text, line, len);
    text[len] = '\0';
    if (!is_wanted(text, controller) || strchr(text, '\\') != NULL)
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

/* The path in "4:cpu,cpuacct:/path", or "0::/path" of version 2; NULL: another line. */
static const char *group_path(const char *line, size_t len, const char *controller)
{
    if (controller == NULL)
        return len >= 4 && strncmp(line, "0::/", 4) == 0 ? line + 3 : NULL;
    const char *end = line + len, *list = memchr(line, ':', len);
    const char *path = list != NULL ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
    bool wanted =
        path != NULL && path + 1 < end && path[1] == '/' && is_listed(list + 1, path, controller);
    return wanted ? path + 1 : NULL;
}

bool ddpi_own_group_name(const char *groups, const char *controller, char ret[DDPI_GROUP_NAME])
{
    for (const char *line = groups; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *path = group_path(line, len, controller);
        size_t path_len = path != NULL ? (size_t)(line + len - path) : 0;
        if (path != NULL && path_len < FIELD_SIZE) {
            memcpy(ret, path, path_len);
            ret[path_len] = '\0';
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

bool ddpi_own_group_find(const char *mountinfo, const char *groups, const char *controller,
                         struct ddpi_own_group *ret_group)
{
    char path[FIELD_SIZE];
    struct mount mount;
    if (!ddpi_own_group_name(groups, controller, path))
        return false;
    for (const char *line = mountinfo; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        bool found = parse_mount(line, len, controller, &mount);
        const char *name = found ? below(path, mount.root) : NULL;
        if (name != NULL) {
            ret_group->mount_len = strlen(mount.point);
            int used = snprintf(ret_group->path, sizeof ret_group->path, "%s%s", mount.point,
                                strcmp(name, "/") == 0 ? "" : name);
            return used > 0 && (size_t)used < sizeof ret_group->path;
        }
        line += len + (line[len] == '\n');
    }
    return false;
}
