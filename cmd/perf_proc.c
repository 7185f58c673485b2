/*
 * perf_proc.c - what /proc and PATH say about processes and programs. Owns nothing.
 */
#include "perf.h"

#include <ctype.h>
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
