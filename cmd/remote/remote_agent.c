/*
 * remote_agent.c - see remote_agent.h. Owns the process, its pipes and its handles. Does not decide
 * what its end means for the job.
 */
#include "remote_agent.h"

#include "clock.h"
#include "error.h"
#include "leash_text.h"
#include "mem.h"
#include "proof.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAIL_LINES = 4, PIPES_MS = 1000, GIVE_UP_MS = 500, TERMINATE_MS = 5000 };

DDPI_SM_DEFINE(remote, REMOTE_STATES);

void remote_agent_init(struct remote_agent *agent, const struct host_entry *host, uv_loop_t *loop,
                       struct logmux *mux, struct spawner *spawner,
                       const struct remote_hooks *hooks)
{
    *agent = (struct remote_agent){
        .host = *host, .hooks = hooks, .loop = loop, .mux = mux, .spawner = spawner, .pidfd = -1};
    ddpi_sm_init(&agent->sm, &remote_sm);
}

bool remote_agent_is_up(const struct remote_agent *agent)
{
    return agent->sm.state == REMOTE_STARTING || agent->sm.state == REMOTE_RUNNING;
}

/* ---- its end ---- */

static bool streams_ended(const struct remote_agent *agent)
{
    return !agent->streams[0].open && !agent->streams[1].open;
}

static void end_if_over(struct remote_agent *agent)
{
    if (agent->handles > 0 || !streams_ended(agent) || agent->sm.state == REMOTE_ENDED)
        return;
    ddpi_sm_move(&agent->sm, REMOTE_ENDED);
    agent->hooks->ended(agent->hooks->ctx, agent);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct remote_agent *agent = handle->data;
    agent->handles--;
    end_if_over(agent);
}

static void close_handle(struct remote_agent *agent, uv_handle_t *handle)
{
    handle->data = agent;
    if (!uv_is_closing(handle))
        uv_close(handle, on_handle_closed);
}

void remote_agent_let_go(struct remote_agent *agent)
{
    if (agent->leash_open)
        close_handle(agent, (uv_handle_t *)&agent->leash);
    agent->leash_open = false;
}

/* A process of the remote shell that stays, as for connections that others share, may hold them. */
static void on_pipes_late(uv_timer_t *timer)
{
    struct remote_agent *agent = timer->data;
    if (agent->mux->paused && !agent->stopping) { /* they may hold its last words */
        uv_timer_start(timer, on_pipes_late, PIPES_MS, 0);
        return;
    }
    for (int i = 0; i < 2; i++)
        logmux_abandon(&agent->streams[i]);
    close_handle(agent, (uv_handle_t *)timer);
}

void remote_agent_check(struct remote_agent *agent)
{
    if (agent->exited && streams_ended(agent) && agent->handles > 0)
        close_handle(agent, (uv_handle_t *)&agent->deadline);
    else if (agent->exited)
        end_if_over(agent);
}

static void finish_process(struct remote_agent *agent)
{
    agent->exited = true;
    remote_agent_let_go(agent);
    if (agent->pidfd >= 0)
        close(agent->pidfd);
    agent->pidfd = -1;
    uv_timer_start(&agent->deadline, on_pipes_late, PIPES_MS, 0);
    agent->hooks->exited(agent->hooks->ctx, agent);
    remote_agent_check(agent);
}

static void on_exit_ready(uv_poll_t *poll, int status, int events)
{
    struct remote_agent *agent = poll->data;
    (void)status;
    (void)events;
    if (waitpid(agent->pid, &agent->wait_status, WNOHANG) != agent->pid)
        return;
    close_handle(agent, (uv_handle_t *)poll);
    finish_process(agent);
}

static void send_signal(const struct remote_agent *agent, int sig)
{
    if (agent->pidfd >= 0)
        kill(-agent->pid, sig); /* it leads a group, and is not reaped yet */
}

void remote_agent_kill(struct remote_agent *agent)
{
    send_signal(agent, SIGKILL);
}

static void on_termination_late(uv_timer_t *timer)
{
    remote_agent_kill(timer->data);
}

/* A shell that runs the agent on this machine is the agent: it must be able to clean up. */
static void terminate(struct remote_agent *agent)
{
    send_signal(agent, SIGTERM);
    uv_timer_start(&agent->deadline, on_termination_late, TERMINATE_MS, 0);
}

static void on_hello_late(uv_timer_t *timer)
{
    struct remote_agent *agent = timer->data;
    agent->late = true;
    agent->ending = true;
    remote_agent_let_go(agent); /* an agent that is only slow ends by that */
    terminate(agent);
}

static void on_given_up(uv_timer_t *timer)
{
    terminate(timer->data);
}

void remote_agent_give_up(struct remote_agent *agent)
{
    remote_agent_let_go(agent);
    if (!agent->exited && !agent->ending)
        uv_timer_start(&agent->deadline, on_given_up, GIVE_UP_MS, 0);
    agent->ending = true;
}

/* ---- its hello ---- */

static void greet(struct remote_agent *agent)
{
    static const char hello[] = LEASH_HELLO;
    const char *at = strstr(agent->hello, hello); /* a prompt may be before it */
    if (at == NULL || agent->ending)
        return;
    snprintf(agent->version, sizeof agent->version, "%s", at + sizeof hello - 1);
    ddpi_sm_move(&agent->sm, REMOTE_RUNNING);
    uv_timer_stop(&agent->deadline);
    logmux_show(&agent->streams[1], 1);
    agent->hooks->ready(agent->hooks->ctx, agent);
}

/* What a login shell of the host prints comes before the hello, and is dropped. */
static bool find_hello(void *ctx, const char *bytes, size_t len, size_t *ret_before)
{
    struct remote_agent *agent = ctx;
    char *line = agent->hello;
    const size_t most = sizeof agent->hello - 1, kept = sizeof agent->hello / 2;
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != '\n') {
            if (agent->hello_len == most) { /* of a long line its end */
                memmove(line, line + most - kept, kept);
                agent->hello_len = kept;
            }
            line[agent->hello_len++] = bytes[i];
            continue;
        }
        agent->hello[agent->hello_len] = '\0';
        agent->hello_len = 0;
        greet(agent);
        if (agent->sm.state == REMOTE_RUNNING) {
            *ret_before = i + 1;
            return true;
        }
    }
    return false;
}

/* ---- its start ---- */

/* What is being written to a leash. */
struct leash_copy {
    uv_write_t request;
    size_t len;
    char bytes[];
};

/* The token may be in it. */
static void free_copy(struct leash_copy *copy)
{
    ddpi_wipe(copy->bytes, copy->len);
    ddpi_free(copy);
}

static void on_leash_written(uv_write_t *request, int status)
{
    (void)status; /* an agent that is gone is seen by its exit */
    free_copy(ddpi_container_of(request, struct leash_copy, request));
}

static void write_leash(struct remote_agent *agent, const void *bytes, size_t len)
{
    struct leash_copy *copy = agent->leash_open ? ddpi_calloc(1, sizeof *copy + len) : NULL;
    if (copy == NULL)
        return;
    copy->len = len;
    memcpy(copy->bytes, bytes, len);
    uv_buf_t buf = uv_buf_init(copy->bytes, (unsigned)len);
    if (uv_write(&copy->request, (uv_stream_t *)&agent->leash, &buf, 1, on_leash_written) != 0)
        free_copy(copy);
}

void remote_agent_signal(struct remote_agent *agent, int sig)
{
    struct ddpi_buf text;
    ddpi_buf_init(&text, 256);
    if (leash_put_signal(&text, sig))
        write_leash(agent, ddpi_buf_head(&text), ddpi_buf_len(&text));
    ddpi_buf_finish(&text);
}

static ddp_status open_leash(struct remote_agent *agent, int *ret_read_fd, struct ddp_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ddpi_error_sys(err, errno, "cannot make a pipe to the agent");
    int uv_status = uv_pipe_open(&agent->leash, ends[1]);
    if (uv_status != 0) {
        close(ends[0]);
        close(ends[1]);
        return ddpi_error_sys(err, -uv_status, "cannot write to the agent");
    }
    *ret_read_fd = ends[0];
    return DDP_OK;
}

static ddp_status open_pipes(struct remote_agent *agent, struct ddp_error *err)
{
    const struct logmux_sink sinks[2] = {
        {.prefix = "", .console = 0, .file_fd = -1, .opening = {find_hello, agent}},
        {.prefix = "", .console = -1, .file_fd = -1, .keep_tail = true}};
    int *stdio = agent->task.request.stdio;
    ddp_status status = open_leash(agent, &stdio[0], err);
    for (int i = 0; i < 2 && status == DDP_OK; i++)
        status = logmux_open(agent->mux, &agent->streams[i], &sinks[i], &stdio[i + 1], err);
    return status;
}

static void close_stdio(struct remote_agent *agent)
{
    int *stdio = agent->task.request.stdio;
    for (int i = 0; i < 3; i++) {
        if (stdio[i] > 2)
            close(stdio[i]);
        stdio[i] = -1;
    }
}

/* It could not be started: there is no process. */
static void fail_start(struct remote_agent *agent, const struct ddp_error *why)
{
    agent->error = *why;
    agent->wait_status = 127 << 8;
    finish_process(agent);
}

void remote_agent_spawned(struct spawner_task *task)
{
    struct remote_agent *agent = ddpi_container_of(task, struct remote_agent, task);
    struct ddp_error err;
    close_stdio(agent);
    if (task->status != DDP_OK) {
        fail_start(agent, &task->error);
        return;
    }
    agent->pid = task->child.pid;
    agent->pidfd = task->child.pidfd;
    int uv_status = uv_poll_init(agent->loop, &agent->exit_watch, agent->pidfd);
    if (uv_status == 0) {
        agent->handles++;
        agent->exit_watch.data = agent;
        uv_poll_start(&agent->exit_watch, UV_READABLE, on_exit_ready);
        if (agent->ending) /* given up meanwhile */
            uv_timer_start(&agent->deadline, on_given_up, GIVE_UP_MS, 0);
        return;
    }
    ddpi_error_sys(&err, -uv_status, "cannot watch its process");
    remote_agent_kill(agent);
    waitpid(agent->pid, &agent->wait_status, 0);
    fail_start(agent, &err);
}

void remote_agent_start(struct remote_agent *agent, char **argv, char *const *envp,
                        const struct rlimit *nofile, const struct ddpi_buf *greeting,
                        uint64_t timeout_ms)
{
    struct ddp_error err;
    agent->argv = argv;
    agent->started_ms = ddpi_monotonic_ms();
    agent->exited = agent->late = agent->ending = agent->stopping = false;
    agent->timeout_ms = timeout_ms;
    agent->error.msg[0] = agent->version[0] = '\0';
    agent->hello_len = 0;
    agent->task = (struct spawner_task){
        .request = {
            .path = argv[0], .argv = argv, .envp = envp, .nofile = nofile, .stdio = {-1, -1, -1}}};
    ddpi_sm_move(&agent->sm, REMOTE_STARTING);
    uv_timer_init(agent->loop, &agent->deadline);
    uv_pipe_init(agent->loop, &agent->leash, 0);
    agent->deadline.data = agent;
    agent->handles += 2;
    agent->leash_open = true;
    if (open_pipes(agent, &err) != DDP_OK) {
        close_stdio(agent);
        fail_start(agent, &err);
        return;
    }
    write_leash(agent, ddpi_buf_head(greeting), ddpi_buf_len(greeting));
    uv_timer_start(&agent->deadline, on_hello_late, timeout_ms, 0);
    spawner_start(agent->spawner, &agent->task);
}

/* ---- what is said of it ---- */

int remote_agent_code(const struct remote_agent *agent)
{
    return WIFSIGNALED(agent->wait_status) ? 128 + WTERMSIG(agent->wait_status)
                                           : WEXITSTATUS(agent->wait_status);
}

void remote_agent_describe(const struct remote_agent *agent, char *text, size_t size)
{
    uint64_t ms = ddpi_monotonic_ms() - agent->started_ms;
    if (agent->error.msg[0] != '\0')
        snprintf(text, size, "%s", agent->error.msg);
    else if (agent->late)
        snprintf(text, size, "no answer within %" PRIu64 ".%" PRIu64 " s", agent->timeout_ms / 1000,
                 agent->timeout_ms / 100 % 10);
    else if (WIFSIGNALED(agent->wait_status))
        snprintf(text, size, "killed by signal %d, after %" PRIu64 ".%" PRIu64 " s",
                 WTERMSIG(agent->wait_status), ms / 1000, ms / 100 % 10);
    else
        snprintf(text, size, "exit code %d, after %" PRIu64 ".%" PRIu64 " s",
                 WEXITSTATUS(agent->wait_status), ms / 1000, ms / 100 % 10);
}

void remote_agent_show_tail(const struct remote_agent *agent)
{
    char text[TAIL_SIZE + 1], line[512];
    size_t len = tail_copy(&agent->streams[1].tail, text);
    text[len] = '\0';
    for (char *at = text + tail_last_lines(text, len, TAIL_LINES), *word;
         (word = strsep(&at, "\n")) != NULL;) {
        if (*word == '\0')
            continue;
        int shown = snprintf(line, sizeof line - 1, "  | %.400s", word);
        ddpi_text_mask(line);
        line[shown] = '\n';
        logmux_print(agent->mux, 1, line, (size_t)shown + 1);
    }
}

void remote_agent_reset(struct remote_agent *agent)
{
    for (int i = 0; i < 2; i++)
        logmux_stream_finish(&agent->streams[i]);
    ddpi_free(agent->argv);
    agent->argv = NULL;
    agent->exited = false;
    if (agent->sm.state == REMOTE_ENDED)
        ddpi_sm_move(&agent->sm, REMOTE_IDLE);
}
