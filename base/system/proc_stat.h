/*
 * proc_stat.h - reads the state of a process from /proc/PID/stat. Allocates nothing.
 */
#ifndef DDPI_PROC_STAT_H
#define DDPI_PROC_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { DDPI_PROC_EXITING = 0x4 }; /* of the flags: PF_EXITING */

struct ddpi_proc_stat {
    pid_t pid;     /* if it was read; 0 if a line was parsed */
    char name[17]; /* cut at 16 characters; only kernel threads have longer names */
    char state;    /* 'R', 'S', 'Z', ...; see proc(5) */
    pid_t parent;
    pid_t session;
    int64_t flags;     /* PF_* in the kernel */
    int64_t threads;   /* those that have not ended */
    int64_t processor; /* where it runs, or ran last */
    int64_t exit_code; /* as wait(2) gives it; the signal if the process is stopped; 0 if hidden */
};

/* Returns false if the process does not exist or is not visible to this process. */
bool ddpi_proc_stat_read(pid_t pid, struct ddpi_proc_stat *ret);

/* Parse a line of /proc/PID/stat. Changes @line. Returns false if it has too few fields. */
bool ddpi_proc_stat_parse(char *line, struct ddpi_proc_stat *ret);

#endif
