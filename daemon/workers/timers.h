/*
 * timers.h - the countdowns that workers have asked for, one per process and scope: the core of
 * PyTorch's FileTimerServer. Pure: the caller passes the time.
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
    int signal; /* to send to the process at @due_ms; 0 or less: none */
    uint64_t due_ms;
    char *scope;
};

/* A zeroed struct is an empty list. */
struct timers {
    struct timer_entry *entries;
    size_t count;
};

/* Start a countdown; it replaces one of the same process and scope. false: the list is full, or no
 * memory is left. */
bool timers_set(struct timers *timers, pid_t pid, const char *scope, uint64_t due_ms, int signal);
void timers_release(struct timers *timers, pid_t pid, const char *scope);
void timers_clear(struct timers *timers);

/* When the first countdown ends; UINT64_MAX: the list is empty. */
uint64_t timers_next_ms(const struct timers *timers);

/* Remove all countdowns of one process that has an ended one. *@ret is the ended countdown that
 * asks for a signal and is due first, or else the first; its scope is the caller's to ddpi_free().
 * false: none has ended. */
bool timers_take_due(struct timers *timers, uint64_t now_ms, struct timer_entry *ret);

#endif
