/*
 * test_perf_torch.c - what the clients of PyTorch's store say about a run, and what is no such
 * line.
 */
#include "check_main.h"
#include "perf_torch.h"

START_TEST(runs)
{
    struct perf_torch_run run;
    ck_assert(perf_torch_parse("ddprun set 1000 50000 7000\n", &run));
    ck_assert_int_eq(run.side, PERF_TORCH_OURS);
    ck_assert_int_eq(run.op, PERF_TORCH_SET);
    ck_assert_double_eq(run.rate, 20000);
    ck_assert_double_eq(run.server_us, 7);
    ck_assert(perf_torch_parse("PyTorch compare_set 2 1000000 0", &run));
    ck_assert_int_eq(run.side, PERF_TORCH_THEIRS);
    ck_assert_int_eq(run.op, PERF_TORCH_CAS);
    ck_assert_double_eq(run.rate, 2);
}
END_TEST

START_TEST(other_lines)
{
    static const char *const lines[] = {"",
                                        "\n",
                                        "ddprun\n",
                                        "ddprun set 1000 50000\n",
                                        "ddprun set 1000 50000 7000 1\n",
                                        "ddprun set 1000 50000 7000 \n",
                                        "ddprun  set 1000 50000 7000\n",
                                        "Redis set 1000 50000 7000\n",
                                        "ddprun put 1000 50000 7000\n",
                                        "ddprun set 0 50000 7000\n",
                                        "ddprun set 1000 0 7000\n",
                                        "ddprun set 1000 50000 -1\n",
                                        "ddprun set x 50000 7000\n",
                                        "ddprun set 100000000000000000000000000000000 5 7\n"};
    struct perf_torch_run run;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(!perf_torch_parse(lines[i], &run), "%s", lines[i]);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("perf_torch");
    TCase *tcase = tcase_create("lines");
    tcase_add_test(tcase, runs);
    tcase_add_test(tcase, other_lines);
    suite_add_tcase(suite, tcase);
    return suite;
}
