/*
 * perf_program.c - finds programs next to this one. Owns nothing.
 */
#include "perf_program.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void perf_find_program(const char *name, const char *given, char *path, size_t size)
{
    ssize_t len = readlink("/proc/self/exe", path, size - 1);
    path[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(path, '/');
    size_t used = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    snprintf(path + used, size - used, "%s", name);
    if (given != NULL || access(path, X_OK) != 0)
        snprintf(path, size, "%s", given != NULL ? given : name);
}
