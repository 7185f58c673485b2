/*
 * cgroup.h - a control group of its own for the workers of a node, where the system has given us
 * one to divide: version 2, alone or beside version 1, and marked as delegated. To kill all of a
 * group is one write, which no process escapes by forking; without it the sweep (reap.h) does the
 * same, more slowly.
 *
 * A help only: whatever is not possible is left out, and nobody is told.
 */
#ifndef DAEMON_CGROUP_H
#define DAEMON_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

enum { CGROUP_PATH_SIZE = 1024 };

struct cgroup {
    char path[CGROUP_PATH_SIZE]; /* "": there is none */
    int procs_fd;                /* who writes "0" here is in it */
    int kill_fd;
};

/* The directory of our own group, of version 2, from the texts of /proc/self/mountinfo and
 * /proc/self/cgroup. false: there is none. Pure. */
bool cgroup_find(const char *mountinfo, const char *groups, char *ret_path, size_t size);

/* Make a group below our own. To be called before the guard is split off, which uses it too. */
void cgroup_make(struct cgroup *group);

/* Kill all that is in it. Allocates nothing. */
void cgroup_kill(const struct cgroup *group);

/* Remove it, if nothing is in it. Allocates nothing; may be done twice. */
void cgroup_remove(const struct cgroup *group);

#endif
