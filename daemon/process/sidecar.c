/*
 * sidecar.c - see sidecar.h. Owns the process.
 */
#include "sidecar.h"

#include "exit_codes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAUSE_MS = 1000, LONG_PAUSE_MS = 60 * 1000 };

static void wait_until(struct sidecar *sidecar, uint64_t again_ms)
{
    sidecar->state = SIDECAR_WAITING;
    sidecar->again_ms = again_ms;
    sidecar->again = true;
}

static void fail(struct sidecar *sidecar, int code, uint64_t now_ms)
{
    if (sidecar->again || now_ms - sidecar->started_ms >= LONG_PAUSE_MS) {
        wait_until(sidecar, now_ms + LONG_PAUSE_MS);
        return;
    }
    sidecar->state = SIDECAR_FAILED;
    sidecar->code = code;
}

uint64_t sidecar_due_ms(const struct sidecar *sidecar)
{
    if (sidecar->state == SIDECAR_NONE && sidecar->request != NULL)
        return 0;
    return sidecar->state == SIDECAR_WAITING ? sidecar->again_ms : UINT64_MAX;
}

bool sidecar_run(struct sidecar *sidecar, uint64_t now_ms, struct ddp_error *err)
{
    struct spawn_child child;
    if (now_ms < sidecar_due_ms(sidecar))
        return true;
    sidecar->started_ms = now_ms;
    if (spawn_process(sidecar->request, &child, err) != DDP_OK) {
        fail(sidecar, EXIT_CONFIG, now_ms);
        return false;
    }
    close(child.pidfd); /* the pid stays its own until it is reaped */
    sidecar->pid = child.pid;
    sidecar->state = SIDECAR_RUNNING;
    return true;
}

void sidecar_reaped(struct sidecar *sidecar, pid_t pid, int wait_status, uint64_t now_ms)
{
    if (sidecar->state != SIDECAR_RUNNING || pid != sidecar->pid)
        return;
    sidecar->pid = 0;
    if (WIFSIGNALED(wait_status)) /* that says nothing about this machine */
        wait_until(sidecar, now_ms - sidecar->started_ms >= PAUSE_MS
                                ? now_ms
                                : sidecar->started_ms + PAUSE_MS);
    else if (WEXITSTATUS(wait_status) == 0)
        wait_until(sidecar, now_ms + LONG_PAUSE_MS);
    else
        fail(sidecar, WEXITSTATUS(wait_status), now_ms);
}

void sidecar_signal(const struct sidecar *sidecar, int signum)
{
    if (sidecar->state == SIDECAR_RUNNING)
        kill(sidecar->pid, signum);
}
