/*
 * node_starter.c - see launcher.h. srun passes on signals, output and the exit code, and Slurm
 * ends its tasks with it, so nothing of this process needs to stay.
 */
#include "launcher.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ddp_status node_starter_exec(const struct scheduler_job *job, char **argv, struct ddp_error *err)
{
    /* One launcher on each node, with all processors of the job there; the launchers decide what
     * the failure of one means for the others. */
    static char srun[] = "srun", each[] = "--ntasks-per-node=1", unbound[] = "--cpu-bind=none",
                go_on[] = "--kill-on-bad-exit=0";
    char program[PATH_MAX], nodes[32], tasks[32];
    char *const words[] = {srun, nodes, tasks, each, unbound, go_on, program};
    enum { WORDS = sizeof words / sizeof *words };
    snprintf(nodes, sizeof nodes, "--nodes=%u", job->nodes);
    snprintf(tasks, sizeof tasks, "--ntasks=%u", job->nodes);
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    if (len < 0)
        return ddpi_error_sys(err, errno, "cannot find the path of ddprun itself");
    program[len] = '\0';
    size_t count = 0;
    while (argv[count] != NULL)
        count++;
    char **command = ddpi_calloc(WORDS + count, sizeof *command);
    if (command == NULL)
        return ddpi_error_nomem(err, count * sizeof *command);
    memcpy(command, words, sizeof words);
    memcpy(command + WORDS, argv + 1, (count - 1) * sizeof *argv);
    execvp(command[0], command);
    ddp_status status = ddpi_error_sys(
        err, errno, "cannot start ddprun on the %u nodes of this allocation by srun", job->nodes);
    ddpi_free(command);
    return ddpi_error_advise(
        err, status, "put srun into PATH, or give --standalone for a job of this node alone");
}
