/*
 * pmix_library.c - see pmix_library.h.
 */
#include "pmix_library.h"

#include "reap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path in a line of /proc/PID/maps, if it is libpmix and can stand in LD_PRELOAD. */
static const char *libpmix_in(char *line)
{
    char *path = strchr(line, '/');
    if (path == NULL)
        return NULL;
    path[strcspn(path, "\n")] = '\0';
    const char *name = strrchr(path, '/') + 1;
    bool fits = strlen(path) < PATH_MAX && path[strcspn(path, " :$")] == '\0';
    return fits && strncmp(name, "libpmix.so", 10) == 0 ? path : NULL;
}

static bool find_mapped(void *ctx, const struct ddpi_proc_stat *stat)
{
    char *ret_path = ctx, *line = NULL, name[64];
    size_t size = 0;
    snprintf(name, sizeof name, "/proc/%d/maps", (int)stat->pid);
    FILE *maps = ret_path[0] == '\0' ? fopen(name, "re") : NULL;
    while (maps != NULL && ret_path[0] == '\0' && getline(&line, &size, maps) > 0) {
        const char *path = libpmix_in(line);
        if (path != NULL)
            snprintf(ret_path, PATH_MAX, "%s", path);
    }
    free(line); /* of getline() */
    if (maps != NULL)
        fclose(maps);
    return false;
}

bool pmix_library_of_ranks(char ret_path[PATH_MAX])
{
    ret_path[0] = '\0';
    reap_signal_below(0, 0, find_mapped, ret_path);
    return ret_path[0] != '\0';
}
