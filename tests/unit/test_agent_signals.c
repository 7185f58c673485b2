/*
 * test_agent_signals.c - signals to a job that runs or is being started, and the death of the
 * guard.
 */
#include "agent_job.h"
#include "cgroup.h"
#include "check_main.h"
#include "guard.h"
#include "looptest.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char two_that_stand[] = "trap 'echo got TERM; exit 0' TERM; trap 'echo USR1' USR1\n"
                                     "echo stands; while :; do sleep 100 & wait; done";

static bool both_stand(void *ctx)
{
    (void)ctx;
    agent_job_read_console();
    return job.agent->sm.state == AGENT_RUNNING && strstr(job.shown[0], "[0]:stands\n") != NULL &&
           strstr(job.shown[0], "[1]:stands\n") != NULL;
}

START_TEST(a_signal_stops_the_job)
{
    agent_job_configure(2, two_that_stand);
    job.config.max_restarts = 1;
    agent_job_start();
    looptest_run_until(&job.loop, both_stand, NULL);
    kill(getpid(), SIGTERM);
    agent_job_ends_with(128 + SIGTERM);
    agent_job_says(0, "[0]:got TERM\n");
    agent_job_says(0, "[1]:got TERM\n");
    agent_job_says(1, "ddprun: SIGTERM: stopping 2 workers");
    agent_job_says(1, "ddprun: the job was ended by SIGTERM");
    agent_job_does_not_say(1, "failed first");
    ck_assert_uint_eq(job.generations_count, 1);
}
END_TEST

/* The last signal that the launcher has sent, and who has ended the job by SIGTERM. */
static const struct {
    int told, left;
    const char *says;
} launchers[] = {
    {SIGTERM, 0, "ddprun: the job was ended by its launcher, by SIGTERM"},
    {SIGUSR1, SIGUSR1, "ddprun: the job was ended by SIGTERM"},
};

START_TEST(a_signal_from_the_launcher_names_it)
{
    int told = launchers[_i].told;
    agent_job_configure(2, two_that_stand);
    job.config.told = &told;
    agent_job_start();
    looptest_run_until(&job.loop, both_stand, NULL);
    kill(getpid(), SIGTERM);
    agent_job_ends_with(128 + SIGTERM);
    agent_job_says(1, launchers[_i].says);
    ck_assert_int_eq(told, launchers[_i].left);
}
END_TEST

/* Slurm and systemd signal every process of a job, guard and agent included, and the guard forwards
 * its own: that counts once. */
START_TEST(a_signal_that_arrives_twice_counts_once)
{
    agent_job_configure(2, two_that_stand);
    agent_job_start();
    looptest_run_until(&job.loop, both_stand, NULL);
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGTERM);
    agent_job_ends_with(128 + SIGTERM);
    agent_job_says(0, "[0]:got TERM\n");
    agent_job_says(0, "[1]:got TERM\n");
    agent_job_does_not_say(1, "killing");
}
END_TEST

static void signal_ourselves(uv_timer_t *timer)
{
    (void)timer;
    kill(getpid(), SIGTERM);
}

START_TEST(a_repeated_signal_kills)
{
    agent_job_configure(2, "trap '' TERM; echo stands; while :; do sleep 100 & wait; done");
    agent_job_start();
    looptest_run_until(&job.loop, both_stand, NULL);
    uv_timer_t again;
    uv_timer_init(&job.loop, &again);
    uv_timer_start(&again, signal_ourselves, 0, 20);
    looptest_run_until(&job.loop, agent_job_is_done, NULL);
    uv_close((uv_handle_t *)&again, NULL);
    agent_job_ends_with(128 + SIGTERM);
    agent_job_says(1, "ddprun: SIGTERM: killing 2 workers");
}
END_TEST

START_TEST(a_forwarded_signal_reaches_every_worker)
{
    agent_job_configure(
        2, "trap 'echo USR1; exit 0' USR1; echo stands; while :; do sleep 100 & wait; done");
    agent_job_start();
    looptest_run_until(&job.loop, both_stand, NULL);
    kill(getpid(), SIGUSR1);
    agent_job_ends_with(0);
    agent_job_says(0, "[0]:USR1\n");
    agent_job_says(0, "[1]:USR1\n");
}
END_TEST

START_TEST(an_ignored_signal_stays_ignored)
{
    agent_job_configure(1, "kill -TERM $PPID; exit 6");
    signal(SIGTERM, SIG_IGN);
    agent_job_run(6);
}
END_TEST

START_TEST(an_ignored_child_signal_does_no_harm)
{
    agent_job_configure(2, "exit $RANK");
    signal(SIGCHLD, SIG_IGN);
    agent_job_run(1);
}
END_TEST

START_TEST(without_its_guard_the_job_ends)
{
    int ends[2];
    agent_job_configure(2, two_that_stand);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    struct guard_page page = {0};
    const struct guard_agent guard = {.guard_fd = ends[0], .page = &page};
    job.config.guard = &guard;
    agent_job_start();
    looptest_run_until(&job.loop, both_stand, NULL);
    close(ends[1]);
    looptest_run_until(&job.loop, agent_job_is_done, NULL);
    job.fds_before++; /* the reading end is the caller's */
    agent_job_ends_with(128 + SIGKILL);
    close(ends[0]);
    agent_job_does_not_say(0, "got TERM"); /* they are killed at once */
}
END_TEST

/* ---- a start that takes long ---- */

static int gate[2]; /* a full pipe, in the place of a control group: each start waits for room */
static struct cgroup slow_group;

static void make_starts_slow(void)
{
    char page[4096] = {0};
    ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(gate[1], F_SETFL, O_NONBLOCK), 0);
    while (write(gate[1], page, sizeof page) > 0)
        continue;
    ck_assert_int_eq(fcntl(gate[1], F_SETFL, 0), 0);
    slow_group = (struct cgroup){.path = "/nowhere", .procs_fd = gate[1], .kill_fd = -1};
    job.config.cgroup = &slow_group;
    job.fds_before += 2;
}

static void open_gate(uv_timer_t *timer)
{
    char page[4096];
    (void)timer;
    for (int i = 0; i < SPAWNER_THREADS_MAX; i++) /* so many may start at once */
        ck_assert_int_gt(read(gate[0], page, sizeof page), 0);
}

static void close_gate(void)
{
    close(gate[0]);
    close(gate[1]);
}

static bool is_starting(void *ctx)
{
    (void)ctx;
    return job.agent->sm.state == AGENT_STARTING;
}

static bool is_stopping(void *ctx)
{
    (void)ctx;
    return job.agent->sm.state == AGENT_STOPPING;
}

/* As many workers as start at once are stopped; the last one never starts. */
START_TEST(a_signal_stops_a_job_that_starts)
{
    _Static_assert(SPAWNER_THREADS_MAX == 4, "the last worker is one more");
    agent_job_configure(SPAWNER_THREADS_MAX + 1, "echo runs; sleep 100");
    make_starts_slow();
    agent_job_start();
    looptest_run_until(&job.loop, is_starting, NULL);
    kill(getpid(), SIGTERM);
    looptest_run_until(&job.loop, is_stopping, NULL);
    open_gate(NULL);
    agent_job_ends_with(128 + SIGTERM);
    agent_job_says(1, "ddprun: SIGTERM: stopping 5 workers");
    agent_job_does_not_say(0, "[4]:");
    close_gate();
}
END_TEST

/* The process is killed before exec. */
START_TEST(a_repeated_signal_kills_while_a_job_starts)
{
    agent_job_configure(4, "echo runs; sleep 100");
    make_starts_slow();
    job.config.shutdown_timeout_ms = 1;
    agent_job_start();
    looptest_run_until(&job.loop, is_starting, NULL);
    kill(getpid(), SIGTERM);
    agent_job_ends_with(128 + SIGTERM);
    agent_job_does_not_say(0, "runs");
    close_gate();
}
END_TEST

/* The first worker ends before the last one starts. */
START_TEST(all_succeed_however_slowly_they_start)
{
    uv_timer_t opener;
    agent_job_configure(3, "echo \"$RANK\"");
    make_starts_slow();
    agent_job_start();
    uv_timer_init(&job.loop, &opener);
    uv_timer_start(&opener, open_gate, 100, 0); /* a page has room for one */
    looptest_run_until(&job.loop, agent_job_is_done, NULL);
    uv_close((uv_handle_t *)&opener, NULL);
    agent_job_ends_with(0);
    agent_job_says(0, "[2]:2\n");
    close_gate();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("agent_signals");
    TCase *tcase = tcase_create("agent_signals");
    tcase_add_checked_fixture(tcase, agent_job_prepare, agent_job_clean_up);
    ADD_TESTS(tcase, a_signal_stops_the_job, a_signal_that_arrives_twice_counts_once,
              a_repeated_signal_kills, a_forwarded_signal_reaches_every_worker,
              an_ignored_signal_stays_ignored, an_ignored_child_signal_does_no_harm,
              without_its_guard_the_job_ends, a_signal_stops_a_job_that_starts,
              a_repeated_signal_kills_while_a_job_starts, all_succeed_however_slowly_they_start);
    tcase_add_loop_test(tcase, a_signal_from_the_launcher_names_it, 0,
                        sizeof launchers / sizeof *launchers);
    suite_add_tcase(suite, tcase);
    return suite;
}
