/*
 * secrecy.c - asks the kernel about this process, and tells it. Owns nothing.
 */
#include "secrecy.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void secrecy_hide_memory(void)
{
    prctl(PR_SET_DUMPABLE, 0);
}

/* The first namespaces have fixed numbers; a container's have others. */
static bool is_first_namespace(const char *path, unsigned number)
{
    char first[32], own[32] = "";
    const char *kind = strrchr(path, '/') + 1;
    snprintf(first, sizeof first, "%s:[%u]", kind, number);
    return readlink(path, own, sizeof own - 1) > 0 && strcmp(own, first) == 0;
}

bool secrecy_is_root(void)
{
    return geteuid() == 0 && is_first_namespace("/proc/self/ns/pid", 4026531836u) &&
           is_first_namespace("/proc/self/ns/user", 4026531837u);
}
