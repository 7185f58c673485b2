/*
 * oom_kills.h - did the kernel's out-of-memory killer strike since we last looked?
 */
#ifndef DAEMON_OOM_KILLS_H
#define DAEMON_OOM_KILLS_H

#include <stdbool.h>
#include <stdint.h>

/* The counter that is closest to the job: that of its cgroup (version 2, then 1), else that of the
 * whole machine. */
struct oom_kills {
    char path[512];
    uint64_t kills;
};

void oom_kills_init(struct oom_kills *watch);

/* How many processes it has killed since the last call, or since init; 0 where the kernel does
 * not say. */
uint64_t oom_kills_new(struct oom_kills *watch);

/* The number behind "oom_kill " in @text; false if there is none. Pure. */
bool oom_kills_parse(const char *text, uint64_t *ret_kills);

#endif
