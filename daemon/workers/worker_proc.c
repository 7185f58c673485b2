/*
 * worker_proc.c - one worker process. Owns its pidfd, its streams and its paths. Does not decide
 * what an exit means for the other workers: the agent does.
 */
#include "worker_proc.h"

#include "error.h"
#include "failpoint.h"
#include "mem.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

DDPI_SM_DEFINE(worker, WORKER_STATES);

void worker_proc_init(struct worker_proc *worker, uint32_t local_rank)
{
    *worker = (struct worker_proc){.local_rank = local_rank, .pidfd = -1};
    ddpi_sm_init(&worker->sm, &worker_sm);
}

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct worker_proc *worker = poll->data;
    worker->exit_ready(worker);
}

ddp_status worker_proc_started(struct worker_proc *worker, uv_loop_t *loop,
                               const struct spawn_child *child, uint64_t now_us,
                               struct ddp_error *err)
{
    worker->aborts_with = 0;
    worker->pid = child->pid;
    worker->pidfd = child->pidfd;
    worker->dying = false;
    worker->started_us = now_us;
    ddpi_sm_move(&worker->sm, WORKER_RUNNING);
    int uv_status = -DDPI_FAILPOINT("worker.watch"); /* with a running process */
    if (uv_status == 0)
        uv_status = uv_poll_init(loop, &worker->exit_watch, worker->pidfd);
    if (uv_status != 0)
        return ddpi_error_sys(err, -uv_status, "cannot watch worker %u (pid %d)",
                              worker->local_rank, (int)worker->pid);
    worker->watched = true;
    worker->exit_watch.data = worker;
    uv_poll_start(&worker->exit_watch, UV_READABLE, on_pidfd);
    return DDP_OK;
}

void worker_proc_forward(const struct worker_proc *worker, int sig)
{
    /* The worker is not reaped yet, so its pid and its group cannot have been reused. */
    if (worker_proc_alive(worker))
        kill(-worker->pid, sig);
}

void worker_proc_stop(struct worker_proc *worker, int sig)
{
    unsigned to = sig == SIGKILL ? WORKER_KILLING : WORKER_STOPPING;
    if (!worker_proc_alive(worker))
        return;
    worker_proc_forward(worker, sig);
    if (!worker->dying && ddpi_sm_allowed(&worker->sm, to))
        ddpi_sm_move(&worker->sm, to);
}

static void close_pidfd(struct worker_proc *worker)
{
    if (worker->pidfd >= 0)
        close(worker->pidfd);
    worker->pidfd = -1;
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct worker_proc *worker = handle->data;
    close_pidfd(worker);
    worker->watched = false;
    worker->unwatched(worker);
}

void worker_proc_unwatch(struct worker_proc *worker)
{
    if (!worker->watched)
        close_pidfd(worker);
    else if (!uv_is_closing((uv_handle_t *)&worker->exit_watch))
        uv_close((uv_handle_t *)&worker->exit_watch, on_watch_closed);
}

void worker_proc_exited(struct worker_proc *worker, int wait_status, uint64_t now_us)
{
    worker->stopped_in = worker->sm.state;
    worker->wait_status = wait_status;
    worker->ended_us = now_us;
    ddpi_sm_move(&worker->sm, WORKER_EXITED);
    worker_proc_unwatch(worker);
}

bool worker_proc_alive(const struct worker_proc *worker)
{
    return worker->sm.state != WORKER_IDLE && worker->sm.state != WORKER_EXITED;
}

bool worker_proc_failed(const struct worker_proc *worker)
{
    return worker->sm.state == WORKER_EXITED && worker->wait_status != 0;
}

int worker_proc_exit_code(const struct worker_proc *worker)
{
    return WIFSIGNALED(worker->wait_status) ? 128 + WTERMSIG(worker->wait_status)
                                            : WEXITSTATUS(worker->wait_status);
}

bool worker_proc_describe(const struct worker_proc *worker, struct worker_status *ret)
{
    static const enum worker_status_state states[] = {[WORKER_RUNNING] = WORKER_STATUS_RUNNING,
                                                      [WORKER_STOPPING] = WORKER_STATUS_STOPPING,
                                                      [WORKER_KILLING] = WORKER_STATUS_STOPPING,
                                                      [WORKER_EXITED] = WORKER_STATUS_EXITED};
    if (worker->sm.state == WORKER_IDLE)
        return false;
    *ret = (struct worker_status){.local_rank = worker->local_rank,
                                  .rank = worker->rank,
                                  .pid = (int32_t)worker->pid,
                                  .state = states[worker->sm.state]};
    if (worker->sm.state != WORKER_EXITED)
        return true;
    if (WIFSIGNALED(worker->wait_status)) {
        ret->state = WORKER_STATUS_KILLED;
        signame_of(WTERMSIG(worker->wait_status), ret->signal);
    } else {
        ret->exit_code = (uint8_t)WEXITSTATUS(worker->wait_status);
    }
    return true;
}

void worker_proc_reset(struct worker_proc *worker)
{
    for (int i = 0; i < 2; i++) {
        logmux_stream_finish(&worker->streams[i]);
        ddpi_free(worker->log_files[i]);
        worker->log_files[i] = NULL;
    }
    ddpi_free(worker->prefix);
    ddpi_free(worker->error_file);
    worker->prefix = worker->error_file = NULL;
    if (worker->sm.state == WORKER_EXITED)
        ddpi_sm_move(&worker->sm, WORKER_IDLE);
}
