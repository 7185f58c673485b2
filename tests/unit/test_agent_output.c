/*
 * test_agent_output.c - the workers' output with a slow reader, with a pipe that stays open, and in
 * files.
 */
#include "agent_job.h"
#include "check_main.h"
#include "looptest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool one_stands(void *ctx)
{
    (void)ctx;
    agent_job_read_console();
    return job.agent->sm.state == AGENT_RUNNING && strstr(job.shown[0], "[0]:stands\n") != NULL;
}

static bool is_draining(void *ctx)
{
    (void)ctx;
    return job.agent->sm.state == AGENT_DRAINING;
}

/* The console's queue is full, and the worker's pipe has no room for a page. It may have written
 * that before the agent knows that it has been started. */
static bool worker_waits(void *ctx)
{
    (void)ctx;
    int fd, unread = 0;
    if (job.agent->workers[0].pid == 0)
        return false;
    for (int i = 0; i < 2; i++)
        if (uv_fileno((uv_handle_t *)&job.agent->workers[0].streams[i].pipe, &fd) == 0 &&
            ioctl(fd, FIONREAD, &unread) == 0 && unread > 0)
            return job.agent->mux.paused;
    return false;
}

static bool is_flushing(void *ctx)
{
    (void)ctx;
    return job.agent->sm.state == AGENT_FLUSHING;
}

static bool turns_have_passed(void *ctx)
{
    unsigned *turns = ctx;
    return (*turns)-- == 0;
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

/* The time limit of the present state passes now. */
static void let_time_pass(void)
{
    static uv_idle_t idle; /* keeps a turn of the loop from waiting */
    unsigned turns = 5;
    uv_idle_init(&job.loop, &idle);
    uv_idle_start(&idle, on_idle);
    uv_timer_start(&job.agent->timer, job.agent->timer.timer_cb, 0, 0);
    looptest_run_until(&job.loop, turns_have_passed, &turns);
    uv_close((uv_handle_t *)&idle, NULL);
}

START_TEST(a_slow_reader_gets_everything_however_late)
{
    agent_job_configure(1, "exec yes >&2");
    int reader = job.readers[1], unread = 0, fd = -1;
    job.readers[1] = -1; /* no reader */
    agent_job_start();
    struct logmux_stream *stream = &job.agent->workers[0].streams[1];
    looptest_run_until(&job.loop, worker_waits, NULL);
    ck_assert_int_eq(uv_fileno((uv_handle_t *)&stream->pipe, &fd), 0);
    ck_assert_int_eq(ioctl(fd, FIONREAD, &unread), 0);
    ck_assert_int_gt(unread, 0);
    uint64_t before = stream->tail.total;
    agent_job_kill_worker();
    looptest_run_until(&job.loop, is_flushing, NULL);
    ck_assert_uint_ge(stream->tail.total, before + (uint64_t)unread);
    let_time_pass();
    ck_assert_uint_eq(job.agent->sm.state, AGENT_FLUSHING);
    job.readers[1] = reader;
    agent_job_ends_with(128 + SIGKILL);
    agent_job_says(1, "rank 0 failed first: killed by SIGKILL (Killed)");
}
END_TEST

static bool second_runs(void *ctx)
{
    (void)ctx;
    return job.agent->attempts == 2;
}

/* The rounds, and so the other nodes, do not wait for the reader of our output; it gets everything
 * in order later. */
START_TEST(a_restart_does_not_wait_for_a_reader)
{
    agent_job_configure(1,
                        "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exec echo second; exec yes first");
    job.config.max_restarts = 1;
    int reader = job.readers[0];
    job.readers[0] = -1; /* no reader */
    agent_job_start();
    looptest_run_until(&job.loop, worker_waits, NULL);
    agent_job_kill_worker();
    looptest_run_until(&job.loop, second_runs, NULL);
    ck_assert(!logmux_flushed(&job.agent->mux));
    looptest_run_until(&job.loop, is_flushing, NULL);
    job.readers[0] = reader;
    agent_job_ends_with(0);
    const char *at = job.shown[0];
    while (strncmp(at, "[0]:first\n", 10) == 0)
        at += 10;
    at += strncmp(at, "[0]:second", 10) == 0 ? 0 : strcspn(at, "\n") + 1; /* SIGKILL cut the line */
    ck_assert_str_eq(at, "[0]:second\n");
    ck_assert_int_gt(at - job.shown[0], 1024 * 1024);
}
END_TEST

START_TEST(a_pipe_held_open_does_not_hold_up_the_job)
{
    agent_job_configure(1, "echo stands; while read a; do :; done <$FIFO");
    agent_job_start();
    looptest_run_until(&job.loop, one_stands, NULL);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)job.agent->workers[0].pid);
    int held = open(path, O_WRONLY | O_CLOEXEC); /* as a process outside the job might */
    ck_assert_int_ge(held, 0);
    job.fds_before++;
    agent_job_kill_worker();
    looptest_run_until(&job.loop, is_draining, NULL);
    ck_assert(!logmux_streams_ended(&job.agent->mux));
    let_time_pass();
    agent_job_ends_with(128 + SIGKILL);
    close(held);
}
END_TEST

START_TEST(a_signal_ends_the_wait_for_a_reader)
{
    agent_job_configure(1, "exec yes");
    job.readers[0] = -1;
    agent_job_start();
    looptest_run_until(&job.loop, worker_waits, NULL);
    agent_job_kill_worker();
    looptest_run_until(&job.loop, is_flushing, NULL);
    kill(getpid(), SIGTERM);
    agent_job_ends_with(128 + SIGKILL); /* the job's own exit code: it had ended */
}
END_TEST

START_TEST(log_files_are_as_torchruns)
{
    char logs[64];
    snprintf(logs, sizeof logs, "%s/logs", job.dir);
    agent_job_configure(2, "printf 'no end'; echo err >&2\n"
                           "case $RANK in\n"
                           "0) echo stands >$FIFO;;\n"
                           "1) read a <$FIFO; exit 1;;\n"
                           "esac");
    job.log_dir = logs;
    job.config.max_restarts = 1;
    job.streams[0].tee = 3;
    job.streams[1].redirect = 3;
    agent_job_start();
    char *logs_of_job = strdup(job.opened.path);
    agent_job_ends_with(1);
    agent_job_says(0, "[0]:no end\n");
    agent_job_does_not_say(0, "[1]:");
    agent_job_does_not_say(1, "[1]:");
    agent_job_says(1, "  | err\n"); /* read from the file */
    agent_job_says(1, "/attempt_1/1/stderr.log\n");
    for (int attempt = 0; attempt < 2; attempt++)
        for (int rank = 0; rank < 2; rank++) {
            char path[128], text[16] = "";
            snprintf(path, sizeof path, "%s/attempt_%d/%d/stdout.log", logs_of_job, attempt, rank);
            FILE *file = fopen(path, "r");
            ck_assert_msg(file != NULL, "there is no '%s'", path);
            ck_assert_uint_eq(fread(text, 1, sizeof text - 1, file), 6);
            ck_assert_str_eq(text, "no end");
            fclose(file);
        }
    free(logs_of_job);
}
END_TEST

START_TEST(a_fifo_in_place_of_a_log_does_not_block)
{
    char logs[64];
    snprintf(logs, sizeof logs, "%s/logs", job.dir);
    agent_job_configure(
        1, "cd ${TORCHELASTIC_ERROR_FILE%/*}; rm stderr.log; mkfifo stderr.log; exit 1");
    job.log_dir = logs;
    job.streams[0].redirect = 2;
    agent_job_run(1);
    agent_job_says(1, "it wrote nothing to stderr");
}
END_TEST

START_TEST(an_error_file_is_quoted)
{
    agent_job_configure(1,
                        "printf '{\"message\":\"bad weights\"}' >$TORCHELASTIC_ERROR_FILE; exit 1");
    agent_job_run(1);
    agent_job_says(1, "  the error that it recorded:\n  | bad weights\n");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("agent_output");
    TCase *tcase = tcase_create("agent_output");
    tcase_add_checked_fixture(tcase, agent_job_prepare, agent_job_clean_up);
    ADD_TESTS(tcase, a_slow_reader_gets_everything_however_late,
              a_restart_does_not_wait_for_a_reader, a_pipe_held_open_does_not_hold_up_the_job,
              a_signal_ends_the_wait_for_a_reader, log_files_are_as_torchruns,
              a_fifo_in_place_of_a_log_does_not_block, an_error_file_is_quoted);
    suite_add_tcase(suite, tcase);
    return suite;
}
