/*
 * discovery.c - see discovery.h. Owns the process of a run, and its pipe.
 *
 * A run has three parts that end one by one: its start in the spawner's thread, its process, and
 * its output. When none is left the run is judged, and a timer waits for the next.
 */
#include "discovery.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PERIOD_MS = 1000, LIMIT_MS = 10000, OUTPUT_MAX = 1024 * 1024 };

static void start_run(struct discovery *discovery);

static void on_period_over(uv_timer_t *timer)
{
    start_run(timer->data);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct discovery *discovery = handle->data;
    if (--discovery->handles == 0)
        discovery->hooks.closed(discovery->hooks.ctx);
}

static void finish_discovery(struct discovery *discovery)
{
    spawner_close(&discovery->spawner);
    ddpi_buf_finish(&discovery->text);
    uv_close((uv_handle_t *)&discovery->timer, on_handle_closed);
}

/* ---- the judgement of a run ---- */

static void report_failure(struct discovery *discovery, const char *why)
{
    char text[256];
    snprintf(text, sizeof text, "%s", why);
    if (strcmp(text, discovery->last_failure) == 0)
        return;
    memcpy(discovery->last_failure, text, sizeof text);
    discovery->hooks.failed(discovery->hooks.ctx, text);
}

/* Why the run did not end well; false: it did. */
static bool describe_failure(const struct discovery *discovery, char *why, size_t size)
{
    int status = discovery->wait_status;
    if (discovery->error.msg[0] != '\0')
        snprintf(why, size, "%.*s", (int)size - 1, discovery->error.msg);
    else if (discovery->flooded)
        snprintf(why, size, "'%s' printed more than %d bytes", discovery->path, OUTPUT_MAX);
    else if (discovery->late)
        snprintf(why, size, "'%s' did not end within %d s", discovery->path, LIMIT_MS / 1000);
    else if (WIFSIGNALED(status))
        snprintf(why, size, "'%s' was killed by signal %d", discovery->path, WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        snprintf(why, size, "'%s' ended with exit code %d", discovery->path, WEXITSTATUS(status));
    else
        return false;
    return true;
}

static void judge_run(struct discovery *discovery)
{
    char why[512];
    struct ddp_error err;
    struct host_list list = {0};
    if (describe_failure(discovery, why, sizeof why)) {
        report_failure(discovery, why);
        return;
    }
    ddp_status status =
        ddpi_buf_append(&discovery->text, "", 1)
            ? host_list_add_file(&list, (const char *)ddpi_buf_head(&discovery->text),
                                 discovery->path, &err)
            : ddpi_error_nomem(&err, 1);
    bool empty = ddpi_buf_len(&discovery->text) == 1; /* no host is free: that is an answer */
    if (status == DDP_OK || empty) {
        discovery->last_failure[0] = '\0';
        discovery->hooks.hosts(discovery->hooks.ctx, &list);
    } else {
        report_failure(discovery, err.msg);
    }
    host_list_finish(&list);
}

/* Not before its output has ended, too: the number of its group is ours until then. */
static void reap_run(struct discovery *discovery)
{
    if (discovery->pidfd < 0)
        return;
    waitpid(discovery->pid, &discovery->wait_status, 0);
    close(discovery->pidfd);
    discovery->pidfd = -1;
}

static void end_part(struct discovery *discovery)
{
    if (--discovery->parts > 0)
        return;
    reap_run(discovery);
    if (discovery->closing) {
        finish_discovery(discovery);
        return;
    }
    judge_run(discovery); /* its hooks may close the discovery */
    if (!discovery->closing)
        uv_timer_start(&discovery->timer, on_period_over, PERIOD_MS, 0);
}

/* ---- its parts ---- */

static void kill_run(struct discovery *discovery)
{
    if (discovery->pidfd >= 0)
        kill(-discovery->pid, SIGKILL);
}

static void on_part_closed(uv_handle_t *handle)
{
    struct discovery *discovery = handle->data;
    discovery->handles--;
    end_part(discovery);
}

static void on_output_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct discovery *discovery = handle->data;
    (void)suggested;
    *buf = uv_buf_init(discovery->chunk, sizeof discovery->chunk);
}

static void on_output(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    struct discovery *discovery = stream->data;
    if (len > 0 && !ddpi_buf_append(&discovery->text, buf->base, (size_t)len)) {
        discovery->flooded = true;
        kill_run(discovery);
    }
    if ((len < 0 || discovery->flooded) && !uv_is_closing((uv_handle_t *)stream))
        uv_close((uv_handle_t *)stream, on_part_closed);
}

/* A child of the script may keep its output open: it belongs to the run, and ends with it. */
static void on_exit_ready(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    if (!uv_is_closing((uv_handle_t *)poll))
        uv_close((uv_handle_t *)poll, on_part_closed);
}

static void on_run_late(uv_timer_t *timer)
{
    struct discovery *discovery = timer->data;
    discovery->late = true;
    kill_run(discovery);
    if (!uv_is_closing((uv_handle_t *)&discovery->output))
        uv_close((uv_handle_t *)&discovery->output, on_part_closed);
}

static void on_spawned(void *ctx, struct spawner_task *task)
{
    struct discovery *discovery = ctx;
    close(task->request.stdio[1]);
    if (task->status != DDP_OK) {
        discovery->error = task->error;
        end_part(discovery);
        return;
    }
    discovery->pid = task->child.pid;
    discovery->pidfd = task->child.pidfd;
    if (uv_poll_init(discovery->loop, &discovery->exit_watch, discovery->pidfd) == 0) {
        discovery->exit_watch.data = discovery;
        discovery->handles++;
        discovery->parts++;
        uv_poll_start(&discovery->exit_watch, UV_READABLE, on_exit_ready);
    } else {
        ddpi_error_set(&discovery->error, DDP_E_NOMEM, "its end cannot be watched");
        kill_run(discovery);
        reap_run(discovery);
    }
    if (discovery->closing || discovery->late)
        kill_run(discovery);
    end_part(discovery);
}

static ddp_status open_output(struct discovery *discovery, struct ddp_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ddpi_error_sys(err, errno, "cannot make a pipe for '%s'", discovery->path);
    uv_pipe_init(discovery->loop, &discovery->output, 0);
    discovery->output.data = discovery;
    discovery->handles++;
    discovery->parts++;
    int uv_status = uv_pipe_open(&discovery->output, ends[0]);
    if (uv_status != 0) {
        close(ends[0]);
        close(ends[1]);
        uv_close((uv_handle_t *)&discovery->output, on_part_closed);
        return ddpi_error_sys(err, -uv_status, "cannot read from '%s'", discovery->path);
    }
    uv_read_start((uv_stream_t *)&discovery->output, on_output_alloc, on_output);
    discovery->task.request.stdio[1] = ends[1];
    return DDP_OK;
}

static void start_run(struct discovery *discovery)
{
    discovery->late = discovery->flooded = false;
    discovery->error.msg[0] = '\0';
    discovery->wait_status = 0;
    ddpi_buf_consume(&discovery->text, ddpi_buf_len(&discovery->text));
    discovery->task = (struct spawner_task){.request = {.path = discovery->path,
                                                        .argv = discovery->argv,
                                                        .envp = discovery->envp,
                                                        .nofile = discovery->nofile,
                                                        .stdio = {0, -1, 2}}};
    discovery->parts = 1; /* the start */
    if (open_output(discovery, &discovery->error) == DDP_OK) {
        uv_timer_start(&discovery->timer, on_run_late, LIMIT_MS, 0);
        spawner_start(&discovery->spawner, &discovery->task);
    } else {
        end_part(discovery);
    }
}

ddp_status discovery_open(struct discovery *discovery, const char *path, char *const *envp,
                          const struct rlimit *nofile, uv_loop_t *loop,
                          const struct discovery_hooks *hooks, struct ddp_error *err)
{
    discovery->path = path;
    discovery->envp = envp;
    discovery->nofile = nofile;
    discovery->argv[0] = (char *)(uintptr_t)path;
    discovery->hooks = *hooks;
    discovery->loop = loop;
    discovery->pidfd = -1;
    ddpi_buf_init(&discovery->text, OUTPUT_MAX);
    ddp_status status = spawner_open(&discovery->spawner, loop, 1, on_spawned, discovery, err);
    if (status != DDP_OK)
        return status;
    discovery->open = true;
    uv_timer_init(loop, &discovery->timer);
    discovery->timer.data = discovery;
    discovery->handles = 1;
    start_run(discovery);
    return DDP_OK;
}

void discovery_close(struct discovery *discovery)
{
    if (!discovery->open) {
        discovery->hooks.closed(discovery->hooks.ctx);
        return;
    }
    if (discovery->closing)
        return;
    discovery->closing = true;
    uv_timer_stop(&discovery->timer);
    if (discovery->parts == 0) {
        finish_discovery(discovery);
        return;
    }
    kill_run(discovery);
    if (!uv_is_closing((uv_handle_t *)&discovery->output))
        uv_close((uv_handle_t *)&discovery->output, on_part_closed);
}
