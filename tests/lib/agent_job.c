/*
 * agent_job.c - see agent_job.h.
 */
#include "agent_job.h"

#include "check_main.h"
#include "looptest.h"
#include "reap.h"
#include "tree.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct agent_job job;

static const char *argv[4];
static char fifo_entry[64], temporary[64];

static void on_done(void *ctx, int exit_code)
{
    ck_assert_ptr_eq(ctx, &job.local);
    job.done_calls++;
    job.done_code = exit_code;
}

static void on_publish(void *ctx, const struct ddp_round_member *says)
{
    single_node_publish(ctx, says);
}

static void on_leave(void *ctx)
{
    ck_assert_ptr_eq(ctx, &job.local);
}

static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    (void)err;
    ck_assert_ptr_eq(ctx, &job.local);
    ck_assert_uint_lt(job.generations_count, AGENT_JOB_GENERATIONS);
    job.generations[job.generations_count++] = generation;
    seat->master_port = 29500;
    return DDP_OK;
}

void agent_job_configure(uint32_t nproc, const char *script)
{
    argv[0] = "sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = NULL;
    memset(job.streams, 0, sizeof job.streams);
    job.log_dir = NULL;
    job.config = (struct agent_config){
        .program = "/bin/sh",
        .argv = (char *const *)(void *)argv,
        .envp = (char *const *)(void *)job.envp,
        .host = "here",
        .role = "default",
        .run_id = "job",
        .master_addr = "127.0.0.1",
        .store = "127.0.0.1:29400",
        .store_prefix = "",
        .line_template = "[${rank}]:",
        .nproc = nproc,
        .shutdown_timeout_ms = 60000,
        .failure_timeout_ms = 60000,
        .streams = job.streams,
        .ending_signals_text = "SIGTERM",
    };
    sigemptyset(&job.config.ending_signals);
    sigaddset(&job.config.ending_signals, SIGTERM);
    sigemptyset(&job.config.forwarded_signals);
    sigaddset(&job.config.forwarded_signals, SIGUSR1);
}

void agent_job_prepare(void)
{
    char fifo[48];
    snprintf(job.dir, sizeof job.dir, "/tmp/test_agent_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(job.dir));
    snprintf(fifo, sizeof fifo, "%s/fifo", job.dir);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    snprintf(fifo_entry, sizeof fifo_entry, "FIFO=%s", fifo);
    snprintf(temporary, sizeof temporary, "%s/tmp", job.dir);
    ck_assert_int_eq(mkdir(temporary, 0700), 0);
    setenv("TMPDIR", temporary, 1);
    job.agent = &job.membership.agent;
    job.envp[0] = "PATH=/usr/bin:/bin";
    job.envp[1] = fifo_entry;
    job.envp[2] = NULL;

    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(reap_become_subreaper(), 0);
    /* libuv keeps a few descriptors from its first loop on. */
    ck_assert_int_eq(uv_loop_init(&job.loop), 0);
    uv_signal_t first;
    uv_signal_init(&job.loop, &first);
    uv_close((uv_handle_t *)&first, NULL);
    looptest_close(&job.loop);
    for (int i = 0; i < 2; i++)
        job.readers[i] = looptest_capture(STDOUT_FILENO + i);
    job.fds_before = looptest_open_fds();
    ck_assert_int_eq(uv_loop_init(&job.loop), 0);
}

void agent_job_clean_up(void)
{
    char errors[96];
    snprintf(errors, sizeof errors, "%s/ddprun-%u", temporary, (unsigned)geteuid());
    (void)!rmdir(errors); /* of the error files: it may stay, but not they */
    int left = rmdir(temporary);
    tree_remove(job.dir);
    ck_assert_int_eq(left, 0); /* no temporary file stays behind */
}

void agent_job_open_logs(void)
{
    struct ddp_error error = {0};
    ck_assert_msg(logdir_open(&job.opened, job.log_dir, job.config.run_id, false, &error) == DDP_OK,
                  "%s", error.msg);
    job.config.logs = &job.opened;
}

ddp_status agent_job_init(struct ddp_error *err)
{
    const struct membership_link link = {
        .ctx = &job.local, .publish = on_publish, .leave = on_leave, .done = on_done};
    const struct member_config member = {
        .says = {
            .name = "here",
            .address = "127.0.0.1",
            .node_rank = -1,
            .terms = {.min_nodes = 1, .max_nodes = 1, .max_restarts = job.config.max_restarts}}};
    job.local.begin = on_begin;
    job.local.ctx = &job.local;
    ddp_status status =
        membership_init(&job.membership, &job.loop, &job.config, &member, &link, err);
    return status == DDP_OK ? single_node_init(&job.local, &job.loop, &job.membership, err)
                            : status;
}

void agent_job_kill_worker(void)
{
    ck_assert_int_gt(job.agent->workers[0].pid, 0);
    kill(job.agent->workers[0].pid, SIGKILL);
}

void agent_job_start(void)
{
    struct ddp_error error = {0};
    agent_job_open_logs();
    ck_assert_msg(agent_job_init(&error) == DDP_OK, "%s", error.msg);
    membership_start(&job.membership);
}

void agent_job_read_console(void)
{
    for (int i = 0; i < 2; i++)
        if (job.readers[i] >= 0)
            looptest_read(job.readers[i], job.shown[i], AGENT_JOB_SHOWN - 1, &job.shown_len[i]);
    job.shown[0][job.shown_len[0]] = job.shown[1][job.shown_len[1]] = '\0';
}

bool agent_job_is_done(void *ctx)
{
    (void)ctx;
    agent_job_read_console();
    return job.done_calls > 0;
}

void agent_job_close(void)
{
    membership_close(&job.membership);
    single_node_close(&job.local);
    looptest_close(&job.loop);
    membership_finish(&job.membership);
    logdir_close(&job.opened);
    looptest_await_threads(); /* one may still look for NVML */
    ck_assert_int_eq(looptest_open_fds(), job.fds_before);
}

void agent_job_left_no_process(void)
{
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

void agent_job_ends_with(int exit_code)
{
    looptest_run_until(&job.loop, agent_job_is_done, NULL);
    agent_job_read_console();
    ck_assert_uint_eq(job.agent->sm.state, AGENT_DONE);
    ck_assert_msg(job.done_code == exit_code, "exit code %d, not %d: %s", job.done_code, exit_code,
                  job.shown[1]);
    ck_assert_int_eq(job.agent->exit_code, exit_code);
    agent_job_close();
    ck_assert_uint_eq(job.done_calls, 1);
    agent_job_left_no_process();
}

void agent_job_run(int exit_code)
{
    agent_job_start();
    agent_job_ends_with(exit_code);
}

void agent_job_says(int i, const char *text)
{
    ck_assert_msg(strstr(job.shown[i], text) != NULL, "'%s' is not in: %s", text, job.shown[i]);
}

void agent_job_does_not_say(int i, const char *text)
{
    ck_assert_msg(strstr(job.shown[i], text) == NULL, "'%s' is in: %s", text, job.shown[i]);
}
