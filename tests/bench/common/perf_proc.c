/*
 * perf_proc.c - reads facts about processes and programs from /proc and PATH. Owns nothing.
 */
#include "perf.h"

#include "clock.h"

#include <ctype.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

double perf_now_us(void)
{
    return (double)ddpi_monotonic_us();
}

bool perf_in_path(const char *name)
{
    const char *path = getenv("PATH");
    char candidate[4096];
    for (const char *dir = path != NULL ? path : ""; *dir != '\0';) {
        size_t len = strcspn(dir, ":");
        snprintf(candidate, sizeof candidate, "%.*s/%s", (int)len, dir, name);
        if (access(candidate, X_OK) == 0)
            return true;
        dir += len + (dir[len] == ':');
    }
    return false;
}

unsigned long perf_memory_kib(pid_t pid, const char *field)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    unsigned long kib = 0;
    size_t len = strlen(field);
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, field, len) == 0)
            for (const char *c = line + len; *c != '\0' && *c != 'k'; c++)
                if (isdigit((unsigned char)*c))
                    kib = kib * 10 + (unsigned long)(*c - '0');
    if (file != NULL)
        fclose(file);
    return kib;
}

/* Count the pids in a file such as "12 345 6 "; the first one becomes *@first if that is 0. */
static size_t read_children(const char *path, pid_t *first)
{
    FILE *file = fopen(path, "re");
    size_t count = 0;
    pid_t child = 0;
    for (int c; file != NULL && (c = fgetc(file)) != EOF;) {
        if (isdigit(c)) {
            child = child * 10 + (c - '0');
            continue;
        }
        if (*first == 0)
            *first = child;
        child = 0;
        count++;
    }
    if (file != NULL)
        fclose(file);
    return count;
}

/* Each thread has its own list, with the children that it started. */
size_t perf_children(pid_t pid, pid_t *ret_one)
{
    char pattern[64];
    size_t count = 0;
    glob_t lists;
    *ret_one = 0;
    snprintf(pattern, sizeof pattern, "/proc/%d/task/*/children", (int)pid);
    if (glob(pattern, GLOB_NOSORT, NULL, &lists) != 0)
        return 0;
    for (size_t i = 0; i < lists.gl_pathc; i++)
        count += read_children(lists.gl_pathv[i], ret_one);
    globfree(&lists);
    return count;
}

double perf_cpu_us(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
    FILE *file = fopen(path, "re");
    uint64_t ns = 0;
    for (int c; file != NULL && isdigit(c = fgetc(file));)
        ns = ns * 10 + (uint64_t)(c - '0');
    if (file != NULL)
        fclose(file);
    return (double)ns / 1e3;
}
