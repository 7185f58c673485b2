/*
 * oom_kills.c - reads the kernel's count of out-of-memory kills. Owns nothing.
 *
 * Any process may have sent a SIGKILL; only the kernel's counter shows an out-of-memory kill.
 */
#include "oom_kills.h"

#include "text_file.h"

#include <stdio.h>
#include <string.h>

bool oom_kills_parse(const char *text, uint64_t *ret_kills)
{
    static const char name[] = "oom_kill ";
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, sizeof name - 1) != 0)
            continue;
        uint64_t kills = 0;
        for (const char *c = line + sizeof name - 1; *c >= '0' && *c <= '9'; c++)
            kills = kills * 10 + (uint64_t)(*c - '0');
        *ret_kills = kills;
        return true;
    }
    return false;
}

static bool read_counter(const char *path, uint64_t *ret_kills)
{
    char text[16 * 1024]; /* /proc/vmstat is the longest, 4 KiB today */
    return ddpi_text_file_read(path, text, sizeof text) && oom_kills_parse(text, ret_kills);
}

/* Copies the rest of the line after @marker. */
static bool text_after(const char *text, const char *marker, char *out, size_t size)
{
    const char *at = strstr(text, marker);
    if (at == NULL)
        return false;
    at += strlen(marker);
    snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

static bool try_path(struct oom_kills *watch, const char *mount, const char *group,
                     const char *file)
{
    snprintf(watch->path, sizeof watch->path, "%s%s/%s", mount, group, file);
    return read_counter(watch->path, &watch->kills);
}

static bool find_counter(struct oom_kills *watch)
{
    char cgroups[4096], group[256];
    if (ddpi_text_file_read("/proc/self/cgroup", cgroups, sizeof cgroups)) {
        if (text_after(cgroups, "0::", group, sizeof group) &&
            (try_path(watch, "/sys/fs/cgroup", group, "memory.events") ||
             try_path(watch, "/sys/fs/cgroup/unified", group, "memory.events")))
            return true;
        if (text_after(cgroups, ":memory:", group, sizeof group) &&
            try_path(watch, "/sys/fs/cgroup/memory", group, "memory.oom_control"))
            return true;
    }
    return try_path(watch, "/proc", "", "vmstat");
}

void oom_kills_init(struct oom_kills *watch)
{
    *watch = (struct oom_kills){0};
    if (!find_counter(watch))
        watch->path[0] = '\0';
}

uint64_t oom_kills_new(struct oom_kills *watch)
{
    uint64_t kills;
    if (watch->path[0] == '\0' || !read_counter(watch->path, &kills) || kills < watch->kills)
        return 0;
    uint64_t fresh = kills - watch->kills;
    watch->kills = kills;
    return fresh;
}
