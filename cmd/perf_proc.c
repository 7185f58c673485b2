/*
 * perf_proc.c - what /proc and PATH say about processes and programs. Owns nothing.
 */
#include "perf.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

size_t perf_children(pid_t pid, pid_t *ret_first)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    size_t count = 0;
    pid_t first = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (isdigit((unsigned char)*c) && count == 0)
            first = first * 10 + (*c - '0');
        else if (*c == ' ')
            count++;
    }
    *ret_first = first;
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

void perf_beside(const char *name, char *path, size_t size)
{
    ssize_t len = readlink("/proc/self/exe", path, size - 1);
    path[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(path, '/');
    size_t used = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    snprintf(path + used, size - used, "%s", name);
}
