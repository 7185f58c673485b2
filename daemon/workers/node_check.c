/*
 * node_check.c - see node_check.h. Owns the shell until it is reaped, its output, and the thread
 * that starts it. Waits for no process, and kills none but the shell's group.
 */
#include "node_check.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "report.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

DDPI_SM_DEFINE(node_check, NODE_CHECK_STATES);

enum { OWN_VARIABLES = 3, LAST_LINE_SHOWN = 120, REPORT_MAX = 256 * 1024 };

static char shell[] = "sh", dash_c[] = "-c";

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- its environment ---- */

static bool is_own(const struct node_check *check, const char *entry)
{
    for (size_t i = 0; i < OWN_VARIABLES; i++) {
        size_t len = strcspn(check->own[i], "=") + 1;
        if (strncmp(check->own[i], entry, len) == 0)
            return true;
    }
    return false;
}

static ddp_status make_env(struct node_check *check, uint64_t generation, struct ddp_error *err)
{
    const struct node_check_config *config = &check->config;
    size_t count = 0, used = 0;
    while (config->envp[count] != NULL)
        count++;
    check->own[0] = ddpi_asprintf("DDPRUN_NODE_NAME=%s", config->node);
    check->own[1] = ddpi_asprintf("DDPRUN_GENERATION=%" PRIu64, generation);
    check->own[2] = ddpi_asprintf("TORCHELASTIC_RUN_ID=%s", config->job);
    check->envp = ddpi_calloc(count + OWN_VARIABLES + 1, sizeof *check->envp);
    for (size_t i = 0; i < OWN_VARIABLES; i++)
        if (check->own[i] == NULL || check->envp == NULL)
            return ddpi_error_nomem(err, (count + OWN_VARIABLES + 1) * sizeof *check->envp);
    for (size_t i = 0; i < count; i++)
        if (!is_own(check, config->envp[i]))
            check->envp[used++] = config->envp[i];
    memcpy(check->envp + used, check->own, sizeof check->own);
    return DDP_OK;
}

/* What is needed only until the shell runs. */
static void drop_start(struct node_check *check)
{
    for (size_t i = 0; i < OWN_VARIABLES; i++) {
        ddpi_free(check->own[i]);
        check->own[i] = NULL;
    }
    ddpi_free(check->envp);
    check->envp = NULL;
    close_fd(&check->null_fd);
    close_fd(&check->out_fd);
}

/* ---- start ---- */

/* Its output waits for no reader of ours: it is not shown, and no worker runs that could be. */
static ddp_status prepare(struct node_check *check, uint64_t generation, struct ddp_error *err)
{
    const struct logmux_sink sink = {.prefix = "", .console = -1, .file_fd = -1, .keep_tail = true};
    ddp_status status = make_env(check, generation, err);
    if (status != DDP_OK)
        return status;
    check->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (check->null_fd < 0)
        return ddpi_error_sys(err, errno, "cannot open /dev/null");
    status = logmux_open(check->mux, &check->output, &sink, &check->out_fd, err);
    if (status == DDP_OK)
        logmux_take_rest(check->mux);
    return status;
}

static void hand_over(struct node_check *check)
{
    check->argv[0] = shell;
    check->argv[1] = dash_c;
    check->argv[2] = (char *)check->config.command;
    check->argv[3] = NULL;
    check->task =
        (struct spawner_task){.request = {.path = "/bin/sh",
                                          .argv = check->argv,
                                          .envp = check->envp,
                                          .stdio = {check->null_fd, check->out_fd, check->out_fd},
                                          .cgroup_fd = check->config.cgroup_fd,
                                          .nofile = check->config.nofile}};
    spawner_start(&check->spawner, &check->task);
}

static void enter_clearing(struct node_check *check)
{
    ddpi_sm_move(&check->sm, NODE_CHECK_CLEARING);
    uv_timer_stop(&check->timer);
    check->ended_us = ddpi_monotonic_us();
}

static void on_settled_late(uv_timer_t *timer)
{
    struct node_check *check = timer->data;
    check->hooks.settled(check->hooks.ctx);
}

void node_check_begin(struct node_check *check, uint64_t generation)
{
    ddpi_sm_move(&check->sm, NODE_CHECK_STARTING);
    check->exited = check->timed_out = check->unwanted = false;
    check->began_us = ddpi_monotonic_us();
    check->task = (struct spawner_task){0};
    check->task.status = prepare(check, generation, &check->task.error);
    if (check->task.status == DDP_OK) {
        hand_over(check);
        return;
    }
    drop_start(check);
    enter_clearing(check);
    uv_timer_start(&check->timer, on_settled_late, 0, 0);
}

static void kill_shell(const struct node_check *check, int sig)
{
    if (check->pid > 0)
        kill(-check->pid, sig); /* not reaped yet, so the group is its own */
}

static void on_grace_over(uv_timer_t *timer)
{
    struct node_check *check = timer->data;
    kill_shell(check, SIGKILL);
    enter_clearing(check);
    check->hooks.settled(check->hooks.ctx);
}

static void on_time_over(uv_timer_t *timer)
{
    struct node_check *check = timer->data;
    ddpi_sm_move(&check->sm, NODE_CHECK_STOPPING);
    check->timed_out = true;
    kill_shell(check, SIGTERM);
    uv_timer_start(timer, on_grace_over, check->config.grace_ms, 0);
}

static void on_spawned(void *ctx, struct spawner_task *task)
{
    struct node_check *check = ctx;
    drop_start(check);
    if (task->status == DDP_OK) {
        close(task->child.pidfd);
        check->pid = task->child.pid;
    }
    if (task->status == DDP_OK && !check->unwanted) {
        ddpi_sm_move(&check->sm, NODE_CHECK_RUNNING);
        uv_timer_start(&check->timer, on_time_over, check->config.timeout_ms, 0);
    } else {
        kill_shell(check, SIGKILL);
        enter_clearing(check);
    }
    check->hooks.settled(check->hooks.ctx);
}

/* ---- end ---- */

void node_check_end(struct node_check *check)
{
    check->unwanted = true;
    kill_shell(check, SIGKILL);
    if (check->sm.state == NODE_CHECK_RUNNING || check->sm.state == NODE_CHECK_STOPPING)
        enter_clearing(check);
}

bool node_check_busy(const struct node_check *check)
{
    return check->sm.state == NODE_CHECK_STARTING;
}

bool node_check_exited(struct node_check *check, pid_t pid, int wait_status)
{
    if (pid != check->pid || pid == 0)
        return false;
    check->pid = 0;
    check->wait_status = wait_status;
    check->exited = true;
    if (check->sm.state != NODE_CHECK_CLEARING)
        enter_clearing(check);
    return true;
}

/* ---- the result ---- */

/* What is wrong; "": nothing. */
static void say_result(const struct node_check *check, bool stuck, char *text, size_t size)
{
    char cause[160];
    text[0] = '\0';
    report_cause(&(struct report_worker){.wait_status = check->wait_status}, cause, sizeof cause);
    if (check->unwanted)
        snprintf(text, size, "node check was ended");
    else if (check->task.status != DDP_OK)
        snprintf(text, size, "node check did not start: %.200s", check->task.error.msg);
    else if (check->timed_out)
        snprintf(text, size, "node check did not end within %.3g s (--node-check-timeout)",
                 (double)check->config.timeout_ms / 1e3);
    else if (stuck)
        snprintf(text, size, "node check has left a process that cannot be killed");
    else if (!check->exited || check->wait_status != 0)
        snprintf(text, size, "node check failed (%s)", cause);
}

/* The end of the last line that is not empty; NUL bytes are no end of it. */
static void add_last_line(const char *output, size_t len, char *text, size_t size)
{
    size_t used = strlen(text);
    while (len > 0 && strchr(" \t\r\n", output[len - 1]) != NULL)
        len--;
    size_t from = tail_last_lines(output, len, 1);
    if (len - from > LAST_LINE_SHOWN)
        from = len - LAST_LINE_SHOWN;
    if (from == len || used + 2 >= size)
        return;
    used += (size_t)snprintf(text + used, size - used, ": ");
    for (; from < len && used + 1 < size; from++)
        text[used++] = output[from] != '\0' ? output[from] : '?';
    text[used] = '\0';
}

static void report_result(struct node_check *check, const char *what, const char *output,
                          size_t len)
{
    struct ddpi_buf text;
    char line[NODE_CHECK_WHY_MAX + 64], ran[32];
    report_duration(check->ended_us - check->began_us, ran, sizeof ran);
    snprintf(line, sizeof line, "%s after %s", what, ran);
    ddpi_buf_init(&text, REPORT_MAX);
    if (report_node_check(line, output, len, &text))
        logmux_print(check->mux, 1, (const char *)ddpi_buf_head(&text), ddpi_buf_len(&text));
    ddpi_buf_finish(&text);
}

void node_check_swept(struct node_check *check, bool stuck, char why[NODE_CHECK_WHY_MAX])
{
    char *output = ddpi_calloc(1, TAIL_SIZE);
    size_t len = output != NULL ? tail_copy(&check->output.tail, output) : 0;
    len = output != NULL ? ddpi_text_plain(output, len) : 0;
    say_result(check, stuck, why, NODE_CHECK_WHY_MAX);
    if (*why != '\0' && !check->unwanted) {
        report_result(check, why, output, len);
        add_last_line(output, len, why, NODE_CHECK_WHY_MAX);
    }
    ddpi_text_mask(why);
    ddpi_free(output);
    logmux_stream_finish(&check->output);
    ddpi_sm_move(&check->sm, NODE_CHECK_IDLE);
}

/* ---- life ---- */

ddp_status node_check_open(struct node_check *check, uv_loop_t *loop,
                           const struct node_check_config *config, struct logmux *mux,
                           const struct node_check_hooks *hooks, struct ddp_error *err)
{
    *check = (struct node_check){
        .config = *config, .hooks = *hooks, .mux = mux, .null_fd = -1, .out_fd = -1};
    ddpi_sm_init(&check->sm, &node_check_sm);
    if (config->command == NULL)
        return DDP_OK;
    check->opened = true;
    uv_timer_init(loop, &check->timer);
    check->timer.data = check;
    return spawner_open(&check->spawner, loop, 1, on_spawned, check, err);
}

void node_check_close(struct node_check *check)
{
    if (!check->opened)
        return;
    check->opened = false;
    kill_shell(check, SIGKILL);
    uv_close((uv_handle_t *)&check->timer, NULL);
    logmux_abandon(&check->output);
    spawner_close(&check->spawner);
    if (!check->spawner.left) /* else its thread still uses them */
        drop_start(check);
}
