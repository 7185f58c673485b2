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

enum {
    EXITING = 0x4, /* PF_EXITING in the kernel */
    LAST = 19,     /* the priority of a process that all others come before (nice(2)) */
};

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
           (ret->flags & EXITING) != 0 && ret->state != 'Z' && ret->state != 'X';
}

/* Without preemption the priority alone does not end the slice of time that the thread has. To be
 * moved does; and where it comes to, another thread has the processor, or none needs it. */
static void thread_step_aside(pid_t thread)
{
    struct ddpi_proc_stat stat;
    cpu_set_t allowed, others;
    if (!frees_memory(thread, &stat))
        return;
    (void)setpriority(PRIO_PROCESS, (id_t)thread, LAST);
    if (stat.processor >= CPU_SETSIZE || sched_getaffinity(thread, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    CPU_CLR((size_t)stat.processor, &others);
    if (sched_setaffinity(thread, sizeof others, &others) == 0)
        (void)sched_setaffinity(thread, sizeof allowed, &allowed);
}

void ddpi_dying_step_aside(pid_t pid)
{
    char path[32];
    int64_t thread;
    struct ddp_error ignored;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(threads)) != NULL;)
        if (ddpi_parse_int(entry->d_name, 1, INT32_MAX, &thread, &ignored) == DDP_OK)
            thread_step_aside((pid_t)thread);
    closedir(threads);
}
