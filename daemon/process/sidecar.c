/*
 * sidecar.c - see sidecar.h. Owns the process.
 */
#include "sidecar.h"

#include "exit_codes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAUSE_MS = 1000 };

static void fail(struct sidecar *sidecar, int code)
{
    sidecar->state = sidecar->again ? SIDECAR_WAITING : SIDECAR_FAILED;
    sidecar->code = code;
    sidecar->again = true;
}

uint64_t sidecar_due_ms(const struct sidecar *sidecar)
{
    if (sidecar->state == SIDECAR_NONE && sidecar->request != NULL)
        return 0;
    return sidecar->state == SIDECAR_WAITING ? sidecar->started_ms + PAUSE_MS : UINT64_MAX;
}

bool sidecar_run(struct sidecar *sidecar, uint64_t now_ms, struct ddp_error *err)
{
    struct spawn_child child;
    if (now_ms < sidecar_due_ms(sidecar))
        return true;
    sidecar->started_ms = now_ms;
    if (spawn_process(sidecar->request, &child, err) != DDP_OK) {
        fail(sidecar, EXIT_CONFIG);
        return false;
    }
    close(child.pidfd); /* the pid stays its own until it is reaped */
    sidecar->pid = child.pid;
    sidecar->state = SIDECAR_RUNNING;
    return true;
}

void sidecar_reaped(struct sidecar *sidecar, pid_t pid, int wait_status)
{
    if (sidecar->state != SIDECAR_RUNNING || pid != sidecar->pid)
        return;
    sidecar->pid = 0;
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        sidecar->state = SIDECAR_DONE;
        return;
    }
    sidecar->again |= WIFSIGNALED(wait_status); /* that says nothing about this machine */
    fail(sidecar, WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : EXIT_FAILED);
}

void sidecar_signal(const struct sidecar *sidecar, int signum)
{
    if (sidecar->state == SIDECAR_RUNNING)
        kill(sidecar->pid, signum);
}
