/*
 * test_worker_status.c - lines of worker status: written lines are read back, invalid ones skipped.
 */
#include "check_main.h"
#include "failmem.h"
#include "worker_status.h"

#include <string.h>

static struct ddpi_buf buf;

static void setup(void)
{
    ddpi_buf_init(&buf, 4096);
}

static void teardown(void)
{
    ddpi_buf_finish(&buf);
}

static const struct worker_status all[] = {
    {.local_rank = 0, .rank = 4, .pid = 4242, .state = WORKER_STATUS_RUNNING},
    {.local_rank = 1, .rank = 5, .pid = 1, .state = WORKER_STATUS_STOPPING},
    {.local_rank = 4, .rank = 8, .pid = 9, .state = WORKER_STATUS_STOPPED},
    {.local_rank = 2, .rank = 6, .pid = INT32_MAX, .state = WORKER_STATUS_EXITED},
    {.local_rank = 3, .rank = 7, .pid = 7, .state = WORKER_STATUS_EXITED, .exit_code = 255},
    {.local_rank = UINT32_MAX,
     .rank = UINT32_MAX,
     .pid = 7,
     .state = WORKER_STATUS_KILLED,
     .signal = "SIGKILL"},
    {.local_rank = 5, .rank = 9, .pid = 8, .state = WORKER_STATUS_KILLED, .signal = "signal 99"},
};
enum { ALL = sizeof all / sizeof *all };

static const char text[] = "0 4 4242 running\n"
                           "1 5 1 stopping\n"
                           "4 8 9 stopped\n"
                           "2 6 2147483647 exited 0\n"
                           "3 7 7 exited 255\n"
                           "4294967295 4294967295 7 killed SIGKILL\n"
                           "5 9 8 killed signal 99\n";

START_TEST(all_states_are_written)
{
    for (size_t i = 0; i < ALL; i++)
        ck_assert(worker_status_put(&buf, &all[i]));
    ck_assert_uint_eq(ddpi_buf_len(&buf), strlen(text));
    ck_assert_mem_eq(ddpi_buf_head(&buf), text, strlen(text));
}
END_TEST

START_TEST(all_states_are_read)
{
    const char *at = text;
    size_t left = strlen(text);
    struct worker_status worker;
    for (size_t i = 0; i < ALL; i++) {
        ck_assert(worker_status_next(&at, &left, &worker));
        ck_assert_uint_eq(worker.local_rank, all[i].local_rank);
        ck_assert_uint_eq(worker.rank, all[i].rank);
        ck_assert_int_eq(worker.pid, all[i].pid);
        ck_assert_int_eq(worker.state, all[i].state);
        ck_assert_uint_eq(worker.exit_code, all[i].exit_code);
        ck_assert_str_eq(worker.signal, all[i].signal);
    }
    ck_assert(!worker_status_next(&at, &left, &worker));
    ck_assert_uint_eq(left, 0);
}
END_TEST

START_TEST(what_is_no_line_is_passed_over)
{
    static const char strange[] =
        "\n0\n0 0\n0 0 1\n0 0 1 \n0 0 1 asleep\n-1 0 1 running\n0 -1 1 running\n0 0 -1 running\n"
        "0 0 1 running now\n0 0 1 exited\n0 0 1 exited 256\n0 0 1 exited 1 2\n0 0 1 killed\n"
        "0 0 1 killed \n0 0 1 killed SIG\x1b[31m\n0 0 1 killed 01234567890123456789012345678901\n"
        "4294967296 0 1 running\n0  0 1 running\n 0 0 1 running\n0 0 2147483648 running\n"
        "0 0 1 running\r\n0 0 1 run\0ning\n"
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "0"
        "0000000 0 1 running\n"
        "3 2 1 running"; /* which is one, though its end is missing */
    const char *at = strange;
    size_t left = sizeof strange - 1;
    struct worker_status worker;
    ck_assert(worker_status_next(&at, &left, &worker));
    ck_assert_uint_eq(worker.local_rank, 3);
    ck_assert_int_eq(worker.pid, 1);
    ck_assert(!worker_status_next(&at, &left, &worker));
}
END_TEST

START_TEST(a_line_is_written_as_a_whole)
{
    ddpi_buf_finish(&buf);
    ddpi_buf_init(&buf, 20);
    ck_assert(worker_status_put(&buf, &all[0]));
    ck_assert(!worker_status_put(&buf, &all[1]));
    ck_assert_uint_eq(ddpi_buf_len(&buf), strlen("0 4 4242 running\n"));
    ddpi_buf_finish(&buf);
    ddpi_buf_init(&buf, 4096);
    failmem_start(0);
    ck_assert(!worker_status_put(&buf, &all[0]));
    ck_assert(failmem_stop());
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("worker_status");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, all_states_are_written, all_states_are_read, what_is_no_line_is_passed_over,
              a_line_is_written_as_a_whole);
    suite_add_tcase(suite, tcase);
    return suite;
}
