/*
 * timers.h - the countdowns that workers have asked for, each by a process and for a scope of its
 * own: the core of PyTorch's FileTimerServer. Pure: time is given.
 */
#ifndef DAEMON_TIMERS_H
#define DAEMON_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { TIMERS_MAX = 8192 };

struct timer_entry {
    pid_t pid;
    int signal; /* for the process when the time has come; 0 or less: none */
    uint64_t due_ms;
    char *scope;
};

/* A zeroed struct has none. */
struct timers {
    struct timer_entry *entries;
    size_t count;
};

/* In the place of one of the same process and scope. false: there are too many, or no memory. */
bool timers_set(struct timers *timers, pid_t pid, const char *scope, uint64_t due_ms, int signal);
void timers_release(struct timers *timers, pid_t pid, const char *scope);
void timers_clear(struct timers *timers);

/* When the first is due; UINT64_MAX: there is none. */
uint64_t timers_next_ms(const struct timers *timers);

/* Take out a process of which one is due, with all that it has. *@ret is, of those that are due,
 * the first with a signal, else the first; its scope is the caller's to ddpi_free(). */
bool timers_take_due(struct timers *timers, uint64_t now_ms, struct timer_entry *ret);

#endif
