/*
 * processors.c - counts processors: the scheduler's mask, and the quotas of control groups. A group
 * may not use more time than its quota in each period, however many processors it runs on: a
 * process that spins uses it up, and is then stopped until the period ends. Owns nothing.
 */
#include "processors.h"

#include "own_group.h"
#include "parse.h"
#include "text_file.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NUMBER_SIZE = 64, FILE_PATH = DDPI_GROUP_PATH + 32 };

/* @quota microseconds of processors in each @period microseconds. */
static uint32_t processors_of(const char *quota, const char *period)
{
    int64_t used, of;
    if (ddpi_parse_int(quota, 1, INT64_MAX, &used, NULL) != DDP_OK ||
        ddpi_parse_int(period, 1, INT64_MAX, &of, NULL) != DDP_OK)
        return UINT32_MAX; /* "max", or -1: there is no quota */
    int64_t whole = used / of;
    return whole < 1 ? 1 : whole < UINT32_MAX ? (uint32_t)whole : UINT32_MAX;
}

/* One line of a file of the group at @path. */
static bool read_line(ddpi_text_reader *read, const char *path, const char *name,
                      char text[NUMBER_SIZE])
{
    char file[FILE_PATH];
    snprintf(file, sizeof file, "%s/%s", path, name);
    if (!read(file, text, NUMBER_SIZE))
        return false;
    text[strcspn(text, "\n")] = '\0';
    return true;
}

/* "150000 100000", or "max 100000" */
static uint32_t quota_of_v2(ddpi_text_reader *read, const char *path)
{
    char quota[NUMBER_SIZE];
    if (!read_line(read, path, "cpu.max", quota))
        return UINT32_MAX;
    char *period = strchr(quota, ' ');
    if (period == NULL)
        return UINT32_MAX;
    *period++ = '\0';
    return processors_of(quota, period);
}

static uint32_t quota_of_v1(ddpi_text_reader *read, const char *path)
{
    char quota[NUMBER_SIZE], period[NUMBER_SIZE];
    bool both = read_line(read, path, "cpu.cfs_quota_us", quota) &&
                read_line(read, path, "cpu.cfs_period_us", period);
    return both ? processors_of(quota, period) : UINT32_MAX;
}

/* The least quota from the group up to where groups are mounted. */
static uint32_t least_quota(ddpi_text_reader *read, struct ddpi_own_group *group,
                            uint32_t (*quota_of)(ddpi_text_reader *read, const char *path))
{
    uint32_t least = UINT32_MAX;
    for (;;) {
        uint32_t quota = quota_of(read, group->path);
        least = quota < least ? quota : least;
        char *name = strrchr(group->path, '/');
        if (name == NULL || (size_t)(name - group->path) < group->mount_len)
            return least;
        *name = '\0';
    }
}

uint32_t ddpi_processors_quota(ddpi_text_reader *read)
{
    char mountinfo[DDPI_MOUNTS_SIZE], groups[DDPI_GROUPS_SIZE];
    struct ddpi_own_group group;
    uint32_t v1 = UINT32_MAX, v2 = UINT32_MAX;
    if (!read("/proc/self/mountinfo", mountinfo, sizeof mountinfo) ||
        !read("/proc/self/cgroup", groups, sizeof groups))
        return UINT32_MAX;
    if (ddpi_own_group_find(mountinfo, groups, NULL, &group))
        v2 = least_quota(read, &group, quota_of_v2);
    if (ddpi_own_group_find(mountinfo, groups, "cpu", &group))
        v1 = least_quota(read, &group, quota_of_v1);
    return v1 < v2 ? v1 : v2;
}

uint32_t ddpi_processors_usable(void)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        return (uint32_t)CPU_COUNT(&cpus);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* a mask of more than 1,024 */
    return online > 0 ? (uint32_t)online : 1;
}

uint32_t ddpi_processors(void)
{
    uint32_t quota = ddpi_processors_quota(ddpi_text_file_read), usable = ddpi_processors_usable();
    return quota < usable ? quota : usable;
}
