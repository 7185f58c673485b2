/*
 * test_agent.c - every way in which the job of a node ends. No process, handle, descriptor or file
 * is left.
 */
#include "agent_job.h"
#include "check_main.h"
#include "exit_codes.h"
#include "failmem.h"
#include "looptest.h"
#include "outcome.h"
#include "rights.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(the_table_is_valid)
{
    ck_assert(ddpi_sm_table_valid(&agent_sm));
    ck_assert_int_eq(uv_loop_close(&job.loop), 0);
}
END_TEST

START_TEST(all_succeed)
{
    agent_job_configure(3, "echo \"$RANK of $WORLD_SIZE\"; echo err >&2");
    agent_job_run(0);
    agent_job_says(0, "[0]:0 of 3\n");
    agent_job_says(0, "[1]:1 of 3\n");
    agent_job_says(0, "[2]:2 of 3\n");
    ck_assert_uint_eq(job.shown_len[1], 3 * strlen("[0]:err\n")); /* no message of ours */
    ck_assert_uint_eq(job.generations_count, 1);
    ck_assert_uint_eq(job.generations[0], 1);
}
END_TEST

START_TEST(a_failure_stops_the_others_and_is_the_root)
{
    agent_job_configure(3, "case $RANK in\n"
                           "1) exec 3<>$FIFO; read a <&3; read b <&3; echo reason >&2; exit 3;;\n"
                           "*) trap 'echo got TERM; exit 4' TERM; echo stands >$FIFO\n"
                           "   while :; do sleep 100 & wait; done;;\n"
                           "esac");
    agent_job_run(3);
    agent_job_says(0, "[0]:got TERM\n");
    agent_job_says(0, "[2]:got TERM\n");
    agent_job_says(1, "ddprun: rank 1 failed first: exit code 3, after ");
    agent_job_says(1, "  its last lines of stderr:\n  | reason\n");
    agent_job_says(1, "  then rank 0: stopped by ddprun, exit code 4, ");
    agent_job_says(1, "  then rank 2: stopped by ddprun, exit code 4, ");
    ck_assert_uint_eq(job.generations_count, 1);
}
END_TEST

START_TEST(a_worker_that_does_not_stop_in_time_is_killed)
{
    agent_job_configure(2, "case $RANK in\n"
                           "0) trap '' TERM; echo stands >$FIFO; while :; do sleep 100; done;;\n"
                           "1) read a <$FIFO; exit 5;;\n"
                           "esac");
    job.config.failure_timeout_ms = 30;
    agent_job_run(5);
    agent_job_says(1, "rank 1 failed first: exit code 5");
    agent_job_says(1, "  then rank 0: did not stop in time, killed by SIGKILL (Killed), ");
}
END_TEST

START_TEST(a_job_is_started_again)
{
    agent_job_configure(2, "echo \"attempt $TORCHELASTIC_RESTART_COUNT in $DDPRUN_STORE_PREFIX\"\n"
                           "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 9");
    job.config.max_restarts = 3;
    agent_job_run(0);
    agent_job_says(0, "[1]:attempt 2 in g3/\n");
    agent_job_says(1, "starting all 2 workers again (restart 2 of 3)");
    agent_job_does_not_say(1, "restart 3 of 3");
    ck_assert_uint_eq(job.generations_count, 3);
    ck_assert_uint_eq(job.generations[2], 3);
}
END_TEST

START_TEST(the_budget_ends)
{
    agent_job_configure(2, "exit 9");
    job.config.max_restarts = 2;
    agent_job_run(9);
    agent_job_says(1, "giving up after 2 restarts (--max-restarts=2)");
    ck_assert_uint_eq(job.generations_count, 3);
}
END_TEST

START_TEST(a_program_that_is_not_there)
{
    agent_job_configure(3, "");
    job.config.program = "/no/such/program";
    job.config.max_restarts = 5;
    agent_job_run(EXIT_CONFIG);
    agent_job_says(1,
                   "ddprun: cannot start '/no/such/program': could not execute it: No such file");
    ck_assert_uint_eq(job.generations_count, 1); /* a restart would not help */
}
END_TEST

START_TEST(one_that_cannot_start_ends_those_that_have)
{
    agent_job_configure(2, "sleep 100");
    job.config.virtual_local_rank = true;
    job.envp[2] = "CUDA_VISIBLE_DEVICES=0";
    job.envp[3] = NULL;
    agent_job_run(EXIT_CONFIG);
    agent_job_says(1, "local rank 1");
    agent_job_does_not_say(1, "failed first");
}
END_TEST

START_TEST(an_orphan_does_not_outlive_the_job)
{
    agent_job_configure(2, "exec 3<>$FIFO\n"
                           "setsid sh -c 'trap \"\" TERM HUP; echo stands >$FIFO; sleep 100' &\n"
                           "read a <&3");
    agent_job_run(0);
}
END_TEST

/* ---- what cannot be ended ---- */

static bool one_stands(void *ctx)
{
    (void)ctx;
    agent_job_read_console();
    return job.agent->sm.state == AGENT_RUNNING && strstr(job.shown[0], "[0]:stands\n") != NULL;
}

static bool is_sweeping(void *ctx)
{
    (void)ctx;
    return job.agent->sm.state == AGENT_SWEEPING;
}

/* A worker that we may not signal stands in for one that is stuck in the kernel. */
START_TEST(a_stuck_process_is_named_and_left)
{
    if (geteuid() != 0 || access("/usr/bin/setpriv", X_OK) != 0) {
        ck_assert_int_eq(uv_loop_close(&job.loop), 0);
        SKIP("root and setpriv, to make such a worker");
    }
    agent_job_configure(
        1, "exec setpriv --reuid=65534 --clear-groups sh -c 'echo stands; exec sleep 100'");
    job.config.max_restarts = 1;
    job.config.shutdown_timeout_ms = 1;
    agent_job_start();
    looptest_run_until(&job.loop, one_stands, NULL);
    ck_assert(may_kill_others(false));
    kill(getpid(), SIGTERM);
    looptest_run_until(&job.loop, is_sweeping, NULL);
    job.agent->sweep_deadline_ms = 0; /* the limit has passed */
    looptest_run_until(&job.loop, agent_job_is_done, NULL);
    ck_assert_int_eq(job.done_code, 128 + SIGTERM);
    agent_job_says(1, "is still there 5 s after SIGKILL, in state ");
    pid_t stuck = job.agent->workers[0].pid;
    agent_job_close();
    ck_assert_uint_eq(job.done_calls, 1);
    ck_assert(may_kill_others(true));
    kill(stuck, SIGKILL);
    ck_assert_int_eq(waitpid(stuck, NULL, 0), stuck);
}
END_TEST

/* ---- memory ---- */

static void run_with_allocations(unsigned successes, bool *ret_complete)
{
    job.done_calls = job.generations_count = 0;
    job.shown_len[0] = job.shown_len[1] = 0;
    struct ddp_error error = {0};
    agent_job_open_logs();
    failmem_start(successes);
    ddp_status status = agent_job_init(&error);
    if (status == DDP_OK) {
        membership_start(&job.membership);
        looptest_run_until(&job.loop, agent_job_is_done, NULL);
    }
    *ret_complete = !failmem_stop();
    if (status != DDP_OK)
        ck_assert_int_eq(status, DDP_E_NOMEM);
    else
        ck_assert_msg(job.done_code == 7 || job.done_code == EXIT_CONFIG, "exit code %d",
                      job.done_code);
    agent_job_close();
    ck_assert_uint_eq(job.done_calls, status == DDP_OK);
    agent_job_left_no_process();
    ck_assert_int_eq(uv_loop_init(&job.loop), 0);
}

START_TEST(memory_may_run_out_at_any_time)
{
    bool complete = false;
    char logs[64];
    snprintf(logs, sizeof logs, "%s/logs", job.dir);
    agent_job_configure(2, "echo out; echo err >&2; exit 7");
    job.log_dir = logs;
    for (int i = 0; i < 2; i++)
        job.streams[i].tee = 3;
    for (unsigned successes = 0; !complete; successes++) {
        ck_assert_uint_lt(successes, 500);
        run_with_allocations(successes, &complete);
    }
    agent_job_says(1, "failed first: exit code 7");
    ck_assert_int_eq(uv_loop_close(&job.loop), 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("agent");
    TCase *tcase = tcase_create("agent");
    tcase_add_checked_fixture(tcase, agent_job_prepare, agent_job_clean_up);
    ADD_TESTS(tcase, the_table_is_valid, all_succeed, a_failure_stops_the_others_and_is_the_root,
              a_worker_that_does_not_stop_in_time_is_killed, a_job_is_started_again,
              the_budget_ends, a_program_that_is_not_there,
              one_that_cannot_start_ends_those_that_have, an_orphan_does_not_outlive_the_job,
              a_stuck_process_is_named_and_left, memory_may_run_out_at_any_time);
    suite_add_tcase(suite, tcase);
    return suite;
}
