/*
 * dying.c - takes the processor from a process that is dying. Owns nothing.
 *
 * Do not read /proc/PID/stat of a process that has its memory: that takes hold of the memory, so
 * this process might have to free it.
 */
#include "dying.h"

#include "parse.h"
#include "proc_stat.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LAST = 19 }; /* the priority of a process that all others come before (nice(2)) */

bool ddpi_is_dying(pid_t pid)
{
    char path[32], first[1];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return readlink(path, first, sizeof first) < 0 && errno == ENOENT;
}

/* A thread of the kernel has no program either. */
static bool frees_memory(pid_t thread, struct ddpi_proc_stat *ret)
{
    return ddpi_is_dying(thread) && ddpi_proc_stat_read(thread, ret) &&
           (ret->flags & DDPI_PROC_EXITING) != 0 && ret->state != 'Z' && ret->state != 'X';
}

/* Without preemption the priority alone does not end the slice of time that the thread has. To be
 * moved does; and where it comes to, another thread has the processor, or none needs it. A thread
 * that is bound to other processors than this one is not in the way. */
static void thread_step_aside(pid_t thread, const cpu_set_t *own)
{
    struct ddpi_proc_stat stat;
    if (!frees_memory(thread, &stat))
        return;
    (void)setpriority(PRIO_PROCESS, (id_t)thread, LAST);
    if (stat.processor >= CPU_SETSIZE || !CPU_ISSET((size_t)stat.processor, own))
        return;
    cpu_set_t others = *own;
    CPU_CLR((size_t)stat.processor, &others);
    if (sched_setaffinity(thread, sizeof others, &others) == 0)
        (void)sched_setaffinity(thread, sizeof *own, own);
}

/* The next thread in the directory; 0: there is none. */
static pid_t next_thread(DIR *threads)
{
    int64_t thread;
    struct ddp_error ignored;
    for (const struct dirent *entry; (entry = readdir(threads)) != NULL;)
        if (ddpi_parse_int(entry->d_name, 1, INT32_MAX, &thread, &ignored) == DDP_OK)
            return (pid_t)thread;
    return 0;
}

/* The last thread that has the memory frees it. And in a process that calls exec from another
 * thread than its first one, the first one ends, and the other one takes its id. */
static bool all_are_dying(DIR *threads)
{
    for (pid_t thread; (thread = next_thread(threads)) != 0;)
        if (!ddpi_is_dying(thread))
            return false;
    rewinddir(threads);
    return true;
}

void ddpi_dying_step_aside(pid_t pid)
{
    char path[32];
    cpu_set_t own;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return;
    if (all_are_dying(threads) && sched_getaffinity(0, sizeof own, &own) == 0)
        for (pid_t thread; (thread = next_thread(threads)) != 0;)
            thread_step_aside(thread, &own);
    closedir(threads);
}
