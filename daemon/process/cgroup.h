/*
 * cgroup.h - a control group for the workers of a node, below our own group if that is delegated to
 * us: cgroup version 2, with or without version 1. One write kills every process of a group, and no
 * process escapes it by forking. Without a group the sweep (reap.h) does the same, more slowly.
 *
 * Optional: where a group cannot be made there is none, without a message.
 */
#ifndef DAEMON_CGROUP_H
#define DAEMON_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

enum { CGROUP_PATH_SIZE = 1024 + 64 };

struct cgroup {
    char path[CGROUP_PATH_SIZE]; /* "": no group */
    int procs_fd;                /* a process that writes "0" here joins the group */
    int kill_fd;
};

/* Make a group below our own. Call it before guard_split(): the guard uses the group too. */
void cgroup_make(struct cgroup *group);

/* Kill every process in it. Allocates nothing. */
void cgroup_kill(const struct cgroup *group);

/* Remove it if it is empty. Allocates nothing; may be called twice. */
void cgroup_remove(const struct cgroup *group);

#endif
