/*
 * worker_proc.c - one worker process. Owns its pidfds, its streams and its paths. Does not decide
 * what an exit means for the other workers: the agent does.
 */
#include "worker_proc.h"

#include "error.h"
#include "failpoint.h"
#include "main_program.h"
#include "mem.h"
#include "proc_stat.h"
#include "reap.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAIN_PROGRAM_TRIES = 5 }; /* while another one becomes it */

DDPI_SM_DEFINE(worker, WORKER_STATES);

void worker_proc_init(struct worker_proc *worker, uint32_t local_rank)
{
    *worker =
        (struct worker_proc){.local_rank = local_rank, .exit_watch.fd = -1, .main_watch.fd = -1};
    ddpi_sm_init(&worker->sm, &worker_sm);
}

/* ---- watches of processes ---- */

bool worker_proc_watched(const struct worker_proc *worker)
{
    return worker->exit_watch.open || worker->main_watch.open;
}

static void close_pidfd(struct worker_watch *watch)
{
    if (watch->fd >= 0)
        close(watch->fd);
    watch->fd = -1;
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct worker_proc *worker = handle->data;
    struct worker_watch *watch = handle == (uv_handle_t *)&worker->exit_watch.poll
                                     ? &worker->exit_watch
                                     : &worker->main_watch;
    close_pidfd(watch);
    watch->open = false;
    if (!worker_proc_watched(worker) && worker->exit_watch.fd < 0)
        worker->unwatched(worker);
}

static void end_watch(struct worker_watch *watch)
{
    if (!watch->open)
        close_pidfd(watch);
    else if (!uv_is_closing((uv_handle_t *)&watch->poll))
        uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
}

/* @callback is called when the process of watch->fd has ended. Returns 0 or an error of libuv. */
static int begin_watch(struct worker_proc *worker, struct worker_watch *watch, uv_loop_t *loop,
                       uv_poll_cb callback)
{
    int uv_status = uv_poll_init(loop, &watch->poll, watch->fd);
    if (uv_status != 0)
        return uv_status;
    watch->open = true;
    watch->poll.data = worker;
    return uv_poll_start(&watch->poll, UV_READABLE, callback);
}

static void on_exit_ready(uv_poll_t *poll, int status, int events)
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
    worker->exit_watch.fd = child->pidfd;
    worker->dying = worker->main_ended = false;
    worker->started_us = now_us;
    ddpi_sm_move(&worker->sm, WORKER_RUNNING);
    int uv_status = -DDPI_FAILPOINT("worker.watch"); /* with a running process */
    if (uv_status == 0)
        uv_status = begin_watch(worker, &worker->exit_watch, loop, on_exit_ready);
    if (uv_status != 0)
        return ddpi_error_sys(err, -uv_status, "cannot watch worker %u (pid %d)",
                              worker->local_rank, (int)worker->pid);
    return DDP_OK;
}

/* ---- signals ---- */

/* Returns a pidfd of the main program, which has got @sig; -1: that is the worker's own process.
 * The worker is not reaped yet, so its pid and its group cannot have been reused; the pid of
 * another process can be, until there is a pidfd. A shell may start a program meanwhile: then that
 * is the main one. */
static int signal_main_program(const struct worker_proc *worker, int sig)
{
    pid_t pid = main_program_of(worker->pid, sig);
    for (int n = 0; n < MAIN_PROGRAM_TRIES && pid != worker->pid; n++) {
        int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        pid_t now = main_program_of(worker->pid, sig);
        if (pidfd >= 0 && now == pid) {
            syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
            return pidfd;
        }
        if (pidfd >= 0)
            close(pidfd);
        pid = now;
    }
    kill(worker->pid, sig);
    return -1;
}

void worker_proc_signal(const struct worker_proc *worker, int sig, enum signal_scope scope)
{
    if (!worker_proc_alive(worker))
        return;
    if (scope == SIGNAL_GROUP) {
        kill(-worker->pid, sig);
        return;
    }
    int pidfd = signal_main_program(worker, sig);
    if (pidfd >= 0)
        close(pidfd);
}

/* A shell that has waited for it must not go on with its script. */
static void on_main_end(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct worker_proc *worker = poll->data;
    end_watch(&worker->main_watch);
    worker->main_ended = true;
    worker_proc_signal(worker, SIGTERM, SIGNAL_GROUP);
    worker->main_over(worker);
}

static void stop_main_program(struct worker_proc *worker, int sig)
{
    int pidfd = signal_main_program(worker, sig);
    if (pidfd < 0)
        return;
    if (worker->main_watch.fd >= 0 || !worker->exit_watch.open) {
        close(pidfd);
        return;
    }
    worker->main_watch.fd = pidfd;
    if (begin_watch(worker, &worker->main_watch, worker->exit_watch.poll.loop, on_main_end) != 0)
        end_watch(&worker->main_watch); /* the worker ends by itself, or when its time is over */
}

static bool is_stopped(pid_t pid)
{
    struct ddpi_proc_stat stat;
    /* by a signal, or by a debugger */
    return ddpi_proc_stat_read(pid, &stat) && (stat.state == 'T' || stat.state == 't');
}

/* A shell that is stopped while its program runs does not see the end of it. */
bool worker_proc_is_stopped(const struct worker_proc *worker)
{
    return worker_proc_alive(worker) &&
           (is_stopped(worker->pid) || is_stopped(main_program_of(worker->pid, SIGTERM)));
}

void worker_proc_stop(struct worker_proc *worker, int sig, enum signal_scope scope)
{
    unsigned to = sig == SIGKILL ? WORKER_KILLING : WORKER_STOPPING;
    if (!worker_proc_alive(worker))
        return;
    worker->dying = worker->dying || reap_is_failing(worker->pid);
    if (scope == SIGNAL_MAIN)
        stop_main_program(worker, sig);
    else
        worker_proc_signal(worker, sig, SIGNAL_GROUP);
    if (sig != SIGKILL && worker_proc_is_stopped(worker))
        worker_proc_signal(worker, SIGCONT, SIGNAL_GROUP); /* else it would not hear @sig */
    if (!worker->dying && ddpi_sm_allowed(&worker->sm, to))
        ddpi_sm_move(&worker->sm, to);
}

void worker_proc_unwatch(struct worker_proc *worker)
{
    end_watch(&worker->main_watch);
    end_watch(&worker->exit_watch);
}

/* ---- state ---- */

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
    if (worker->sm.state == WORKER_RUNNING && worker_proc_is_stopped(worker))
        ret->state = WORKER_STATUS_STOPPED;
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
    tail_clear(&worker->output);
    ddpi_free(worker->prefix);
    ddpi_free(worker->error_file);
    worker->prefix = worker->error_file = NULL;
    if (worker->sm.state == WORKER_EXITED)
        ddpi_sm_move(&worker->sm, WORKER_IDLE);
}
