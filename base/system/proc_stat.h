/*
 * proc_stat.h - what /proc/PID/stat says about a process. Allocates nothing.
 */
#ifndef DDPI_PROC_STAT_H
#define DDPI_PROC_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ddpi_proc_stat {
    char name[17]; /* longer names, which only kernel threads have, are cut */
    char state;    /* 'R', 'S', 'Z', ...; see proc(5) */
    pid_t parent;
    int64_t flags;     /* PF_* in the kernel */
    int64_t threads;   /* those that have not ended */
    int64_t exit_code; /* as wait(2) gives it; the signal if the process is stopped; 0 if hidden */
};

/* Returns false if the process does not exist, or this process may not see it. */
bool ddpi_proc_stat_read(pid_t pid, struct ddpi_proc_stat *ret);

/* Parse a line of /proc/PID/stat, which is changed. Returns false if it has too few fields. */
bool ddpi_proc_stat_parse(char *line, struct ddpi_proc_stat *ret);

#endif
