/*
 * reap.h - collects dead children, and kills every process below this one.
 *
 * Both the agent and the guard are subreapers: a process whose parent dies becomes their child,
 * whatever session or group it moved to. So killing and reaping direct children, again and again
 * until waitpid() finds none, reaches every descendant. A child keeps its pid until it is reaped,
 * so no unrelated process is ever signalled.
 */
#ifndef DAEMON_REAP_H
#define DAEMON_REAP_H

#include "proc_stat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* From now on orphans below this process become its children. Returns 0 or errno. */
int reap_become_subreaper(void);

/* Collect every dead child without blocking; @on_exit (may be NULL) gets pid and wait status.
 * Returns false when no child is left at all, dead or alive. */
bool reap_collect(void (*on_exit)(void *ctx, pid_t pid, int wait_status), void *ctx);

/* Whether a child was stopped, or has gone on, since the last call. */
bool reap_has_stopped(void);

/* Whether the kernel is ending @pid, a child, and its exit code will not be 0. From Linux 5.17 on
 * this is known before waitpid() reports it. */
bool reap_is_failing(pid_t pid);

/* The same by SIGKILL or a fault: ends that no process chooses when it finds another one dead. */
bool reap_is_killed(pid_t pid);

/* SIGKILL every direct child but @spared, which may be 0. Returns how many were signalled.
 * Allocates nothing. */
size_t reap_kill_children(pid_t spared);

/* Whether there is a direct child, dead or alive, besides @spared. Exact as long as the caller
 * reaps none meanwhile: a child stays in the kernel's list until then. */
bool reap_has_child_besides(pid_t spared);

/* SIGKILL every living direct child of @parent, another process. Returns how many. Allocates
 * nothing. */
size_t reap_kill_children_of(pid_t parent);

/* Whether @parent, another process, has one living child and no other; *@ret is it then. */
bool reap_only_child_of(pid_t parent, pid_t *ret);

/* Send @sig, which may be 0, to every process below this one for which @is_meant is true, at most
 * 64 levels deep; not to @spared, which may be 0, and those below it. Allocates nothing. */
void reap_signal_below(int sig, pid_t spared,
                       bool (*is_meant)(void *ctx, const struct ddpi_proc_stat *stat), void *ctx);

/* Visit each direct child but @spared, which may be 0: pid, one-letter state ('D' = stuck in the
 * kernel) and name. */
void reap_each_child(pid_t spared,
                     void (*visit)(void *ctx, pid_t pid, char state, const char *name), void *ctx);

/* Kill and collect until nothing is left or @timeout_ms has passed; the caller has SIGCHLD
 * blocked. Returns true when nothing is left, with the number of processes that died in
 * *@ret_ended. The child *@spared (NULL: none) may go on; 0 there afterwards: it has died, too.
 * Allocates nothing: it must work when memory has run out. */
bool reap_sweep(uint64_t timeout_ms, pid_t *spared, size_t *ret_ended);

#endif
