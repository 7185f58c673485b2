/*
 * oom_kills.h - counts the kernel's out-of-memory kills since the last look.
 */
#ifndef DAEMON_OOM_KILLS_H
#define DAEMON_OOM_KILLS_H

#include <stdbool.h>
#include <stdint.h>

/* The counter closest to the job: of its cgroup (version 2, then 1), else of the machine. */
struct oom_kills {
    char path[512];
    uint64_t kills;
};

void oom_kills_init(struct oom_kills *watch);

/* The number of kills since the last call, or since init; 0 where the kernel has no counter. */
uint64_t oom_kills_new(struct oom_kills *watch);

/* The number after "oom_kill " in @text; false: not found. Pure. */
bool oom_kills_parse(const char *text, uint64_t *ret_kills);

#endif
