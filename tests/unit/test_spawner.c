/*
 * test_spawner.c - a slow start delays only the tasks after it. It waits for room in a pipe that
 * stands for the control group.
 */
#include "check_main.h"
#include "clock.h"
#include "looptest.h"
#include "spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOBS = 3 };

static uv_loop_t loop;
static struct spawner spawner;
static struct spawner_task jobs[JOBS];
static unsigned done[JOBS], done_count, ticks;
static int gate[2]; /* a full pipe */

static void on_done(void *ctx, struct spawner_task *job)
{
    ck_assert_ptr_eq(ctx, &spawner);
    ck_assert_uint_lt(done_count, JOBS);
    done[done_count++] = (unsigned)(job - jobs);
}

static void prepare_with(unsigned threads)
{
    char page[4096] = {0};
    struct ddp_error error;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(spawner_open(&spawner, &loop, threads, on_done, &spawner, &error), DDP_OK);
    ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(gate[1], F_SETFL, O_NONBLOCK), 0);
    while (write(gate[1], page, sizeof page) > 0)
        continue;
    ck_assert_int_eq(fcntl(gate[1], F_SETFL, 0), 0);
}

static void prepare(void)
{
    prepare_with(1);
}

static void prepare_for_two(void)
{
    prepare_with(2);
}

static void open_gate(void)
{
    char page[4096];
    ck_assert_int_gt(read(gate[0], page, sizeof page), 0);
}

static void finish(void)
{
    spawner_close(&spawner);
    looptest_close(&loop);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

static _Atomic uint64_t fence;

static void start(unsigned number, bool slow)
{
    static char name[] = "true", *argv[] = {name, NULL}, *envp[] = {NULL};
    struct spawner_task *job = &jobs[number];
    job->request = (struct spawn_request){.path = "/bin/true",
                                          .argv = argv,
                                          .envp = envp,
                                          .stdio = {0, 1, 2},
                                          .cgroup_fd = slow ? gate[1] : 0,
                                          .fence_at_ms = &fence};
    spawner_start(&spawner, job);
}

static bool are_done(void *ctx)
{
    return done_count >= *(unsigned *)ctx;
}

static void await(unsigned count)
{
    looptest_run_until(&loop, are_done, &count);
}

/* The first one is under way. */
static void await_busy(void)
{
    for (bool busy = false; !busy; sched_yield()) {
        pthread_mutex_lock(&spawner.lock);
        busy = spawner.busy;
        pthread_mutex_unlock(&spawner.lock);
    }
}

static void ends_well(const struct spawner_task *job)
{
    int status;
    ck_assert_int_eq(job->status, DDP_OK);
    ck_assert_int_eq(waitpid(job->child.pid, &status, 0), job->child.pid);
    ck_assert_int_eq(status, 0);
    close(job->child.pidfd);
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
    ticks++;
}

static bool has_ticked(void *ctx)
{
    (void)ctx;
    return ticks >= 5;
}

START_TEST(the_loop_turns_meanwhile)
{
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_tick, 1, 1);
    start(0, true);
    start(1, false);
    looptest_run_until(&loop, has_ticked, NULL);
    ck_assert_uint_eq(done_count, 0);
    uv_close((uv_handle_t *)&timer, NULL);
    open_gate();
    await(2);
    ck_assert_uint_eq(done[0], 0);
    ck_assert_uint_eq(done[1], 1);
    ends_well(&jobs[0]);
    ends_well(&jobs[1]);
    finish();
}
END_TEST

START_TEST(those_that_wait_can_be_canceled)
{
    start(0, true);
    start(1, false);
    start(2, false);
    await_busy(); /* no other start begins meanwhile */
    spawner_cancel(&spawner);
    await(2);
    ck_assert_int_eq(jobs[1].status, DDP_E_CANCELED);
    ck_assert_int_eq(jobs[2].status, DDP_E_CANCELED);
    open_gate();
    await(3);
    ends_well(&jobs[0]);
    finish();
}
END_TEST

START_TEST(nothing_begins_behind_its_fence)
{
    atomic_store(&fence, ddpi_monotonic_ms() + 3600 * 1000);
    start(0, true);
    start(1, false);
    atomic_store(&fence, 1); /* time passes while it is being started */
    open_gate();
    await(2);
    ck_assert_int_eq(jobs[0].status, DDP_E_TIMEOUT);
    ck_assert_int_eq(jobs[1].status, DDP_E_TIMEOUT);
    finish();
}
END_TEST

/* With two threads, a slow start delays no other one. */
START_TEST(two_at_once)
{
    start(0, true);
    await_busy();
    start(1, false);
    start(2, false);
    await(2);
    ck_assert_uint_eq(done[0], 1);
    ck_assert_uint_eq(done[1], 2);
    open_gate();
    await(3);
    for (unsigned i = 0; i < JOBS; i++)
        ends_well(&jobs[i]);
    finish();
}
END_TEST

/* No more threads than were asked for. */
START_TEST(two_slow_ones_hold_both_threads)
{
    start(0, true);
    start(1, true);
    start(2, false);
    ck_assert_uint_eq(spawner.started, 2);
    open_gate();
    open_gate();
    await(3);
    for (unsigned i = 0; i < JOBS; i++)
        ends_well(&jobs[i]);
    finish();
}
END_TEST

START_TEST(what_the_kernel_holds_is_left)
{
    start(0, true);
    await_busy();
    spawner_close(&spawner);
    ck_assert(spawner.left);
    looptest_close(&loop);
    open_gate(); /* no callback follows, but a leak checker needs idle threads */
    while (waitpid(-1, NULL, 0) < 0) /* it may not exist yet */
        sched_yield();
    ck_assert_uint_eq(done_count, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("spawner");
    TCase *tcase = tcase_create("spawner");
    tcase_add_checked_fixture(tcase, prepare, NULL);
    ADD_TESTS(tcase, the_loop_turns_meanwhile, those_that_wait_can_be_canceled,
              nothing_begins_behind_its_fence, what_the_kernel_holds_is_left);
    suite_add_tcase(suite, tcase);
    TCase *two = tcase_create("two threads");
    tcase_add_checked_fixture(two, prepare_for_two, NULL);
    ADD_TESTS(two, two_at_once, two_slow_ones_hold_both_threads, what_the_kernel_holds_is_left);
    suite_add_tcase(suite, two);
    return suite;
}
