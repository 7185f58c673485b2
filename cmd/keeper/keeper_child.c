/*
 * keeper_child.c - see keeper_child.h.
 */
#include "keeper_child.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_poll_closed(uv_handle_t *handle)
{
    struct keeper_child *child = handle->data;
    close(child->pidfd);
    child->pid = 0;
    child->ended(child);
}

static void on_dead(uv_poll_t *poll, int status, int events)
{
    struct keeper_child *child = poll->data;
    (void)status;
    (void)events;
    if (waitpid(child->pid, &child->wait_status, WNOHANG) != child->pid)
        return;
    uv_close((uv_handle_t *)poll, on_poll_closed);
}

ddp_status keeper_child_start(struct keeper_child *child, uv_loop_t *loop,
                              const struct spawn_request *request, struct ddp_error *err)
{
    struct spawn_child spawned;
    ddp_status status = spawn_process(request, &spawned, err);
    if (status != DDP_OK)
        return status;
    child->pid = spawned.pid;
    child->pidfd = spawned.pidfd;
    child->started_ms = uv_now(loop);
    child->poll.data = child;
    uv_poll_init(loop, &child->poll, child->pidfd);
    uv_poll_start(&child->poll, UV_READABLE, on_dead);
    return DDP_OK;
}

/* It is not reaped before the poll handle is closed, so its number is its own. */
void keeper_child_signal(const struct keeper_child *child, int signum)
{
    if (child->pid != 0 && !uv_is_closing((const uv_handle_t *)&child->poll))
        kill(child->pid, signum);
}

void keeper_child_describe(const struct keeper_child *child, char *text, size_t size)
{
    if (WIFSIGNALED(child->wait_status))
        snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(child->wait_status),
                 strsignal(WTERMSIG(child->wait_status)));
    else
        snprintf(text, size, "ended with exit code %d", WEXITSTATUS(child->wait_status));
}
