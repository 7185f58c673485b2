/*
 * test_rank_end.c - which of the ranks that ddp_spawn() has started is named when several have
 * ended, in whatever order that was seen, and with which words.
 */
#include "check_main.h"
#include "rank_end.h"

#include <signal.h>
#include <string.h>

/* From the one to name to the last; each by itself is a failure. */
static const struct ddpi_rank_end ordered[] = {
    {.known = true, .exit_code = 3, .turn = 1},
    {.known = true, .exit_code = -1, .signal = SIGKILL, .turn = 2},
    {.known = true, .exit_code = 1, .said = true, .status = DDP_E_INVALID, .turn = 3},
    {.known = false, .exit_code = -1, .turn = 4},
    /* later, but not by what was done to it */
    {.known = true, .exit_code = -1, .signal = SIGSEGV, .asked = true, .turn = 0},
    {.known = true, .exit_code = -1, .signal = SIGKILL, .asked = true, .turn = 5},
    {.known = true, .exit_code = 1, .said = true, .status = DDP_E_CUDA, .asked = true, .turn = 6},
    /* what may follow from another failure */
    {.known = true, .exit_code = 1, .said = true, .status = DDP_E_PEER_DEAD, .turn = 0},
    {.known = true, .exit_code = 1, .said = true, .status = DDP_E_TIMEOUT, .turn = 2},
    {.known = true, .exit_code = 1, .said = true, .status = DDP_E_ABORTED, .turn = 3},
    {.known = true, .exit_code = 1, .said = true, .status = DDP_E_CLOSED, .asked = true, .turn = 4},
    /* a handler of SIGTERM that exits; and what this process has done */
    {.known = true, .exit_code = 143, .asked = true, .turn = 0},
    {.known = true, .exit_code = -1, .signal = SIGTERM, .asked = true, .turn = 0},
    {.known = true, .exit_code = -1, .signal = SIGKILL, .asked = true, .killed = true, .turn = 1},
};
enum { ENDS = sizeof ordered / sizeof *ordered };

START_TEST(the_cause_comes_before_what_follows)
{
    for (int a = 0; a < ENDS; a++) {
        ck_assert(ddpi_rank_failed(&ordered[a]));
        for (int b = 0; b < ENDS; b++)
            ck_assert_msg(ddpi_rank_end_before(&ordered[a], &ordered[b]) == (a < b), "%d, %d", a,
                          b);
    }
}
END_TEST

START_TEST(success_is_exit_code_0)
{
    const struct ddpi_rank_end good = {.known = true, .said = true};
    const struct ddpi_rank_end exited = {.known = true};
    const struct ddpi_rank_end taken = {.said = true, .exit_code = -1};
    ck_assert(!ddpi_rank_failed(&good) && !ddpi_rank_failed(&exited) && !ddpi_rank_failed(&taken));
}
END_TEST

static const struct {
    struct ddpi_rank_end end;
    const char *text, *sentence;
} sentences[] = {
    {{.known = true, .exit_code = 1, .said = true, .status = DDP_E_CUDA},
     "no GPU",
     "rank 2 (pid 77) failed: no GPU"},
    {{.known = true, .exit_code = 1, .said = true, .status = DDP_E_CUDA},
     "",
     "rank 2 (pid 77) failed: the CUDA driver refused a call"},
    {{.known = true, .exit_code = 3}, "", "rank 2 (pid 77) has exited with code 3"},
    {{.known = true, .exit_code = 3, .said = true}, "", "rank 2 (pid 77) has exited with code 3"},
    {{.known = true, .exit_code = -1, .signal = SIGKILL},
     "",
     "rank 2 (pid 77) was ended by signal 9 (Killed)"},
    {{.exit_code = -1}, "", "another part of this program has taken its exit status"},
};

START_TEST(ends_are_described)
{
    struct ddpi_rank_end end = sentences[_i].end;
    struct ddp_error err;
    end.rank = 2;
    end.pid = 77;
    ck_assert_int_eq(ddpi_rank_end_describe(&end, sentences[_i].text, &err), DDP_E_PEER_DEAD);
    ck_assert_msg(strstr(err.msg, sentences[_i].sentence) != NULL, "%s", err.msg);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("ends of ranks");
    TCase *tcase = tcase_create("ends");
    tcase_add_test(tcase, the_cause_comes_before_what_follows);
    tcase_add_test(tcase, success_is_exit_code_0);
    tcase_add_loop_test(tcase, ends_are_described, 0, sizeof sentences / sizeof *sentences);
    suite_add_tcase(suite, tcase);
    return suite;
}
