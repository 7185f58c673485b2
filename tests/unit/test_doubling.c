/*
 * test_doubling.c - recursive doubling for every world up to 64 ranks, run with sets of ranks
 * instead of elements.
 */
#include "check_main.h"
#include "doubling.h"

enum { MAX_RANKS = 64 };

/* Ranks [first, first + count) have been reduced, in this order. */
struct held {
    uint32_t first, count;
};

static struct held reduced(struct held left, struct held right)
{
    ck_assert_uint_eq(left.first + left.count, right.first);
    return (struct held){.first = left.first, .count = left.count + right.count};
}

static void run_step(struct held *held, uint32_t nranks, uint32_t step)
{
    struct held before[MAX_RANKS];
    for (uint32_t rank = 0; rank < nranks; rank++)
        before[rank] = held[rank];
    for (uint32_t rank = 0; rank < nranks; rank++) {
        struct ddpi_doubling_step mine = ddpi_doubling_step(rank, nranks, step);
        if (!mine.sends && !mine.receives)
            continue;
        ck_assert_uint_lt(mine.peer, nranks);
        struct ddpi_doubling_step theirs = ddpi_doubling_step(mine.peer, nranks, step);
        ck_assert_uint_eq(theirs.peer, rank);
        ck_assert(theirs.sends == mine.receives && theirs.receives == mine.sends);
        if (!mine.receives)
            continue;
        struct held in = before[mine.peer], own = before[rank];
        if (mine.reduces)
            held[rank] = mine.own_first ? reduced(own, in) : reduced(in, own);
        else
            held[rank] = in;
        ck_assert_int_eq(mine.finishes, mine.reduces && held[rank].count == nranks);
    }
}

START_TEST(every_rank_ends_with_all_in_order)
{
    uint32_t nranks = (uint32_t)_i;
    struct held held[MAX_RANKS];
    for (uint32_t rank = 0; rank < nranks; rank++)
        held[rank] = (struct held){.first = rank, .count = 1};
    for (uint32_t step = 0; step < ddpi_doubling_steps(nranks); step++)
        run_step(held, nranks, step);
    for (uint32_t rank = 0; rank < nranks; rank++) {
        ck_assert_uint_eq(held[rank].first, 0);
        ck_assert_uint_eq(held[rank].count, nranks);
    }
}
END_TEST

START_TEST(steps_grow_with_the_logarithm)
{
    static const uint32_t steps[] = {
        [1] = 0, [2] = 1, [3] = 3, [4] = 2, [5] = 4, [7] = 4, [8] = 3, [16] = 4};
    for (uint32_t nranks = 1; nranks < sizeof steps / sizeof *steps; nranks++)
        if (steps[nranks] > 0)
            ck_assert_uint_eq(ddpi_doubling_steps(nranks), steps[nranks]);
    ck_assert_uint_eq(ddpi_doubling_steps(1), 0);
    ck_assert_uint_eq(ddpi_doubling_steps(65536), 16);
    ck_assert_uint_eq(ddpi_doubling_steps(65535), 17);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("doubling");
    TCase *tcase = tcase_create("doubling");
    tcase_add_loop_test(tcase, every_rank_ends_with_all_in_order, 1, MAX_RANKS + 1);
    tcase_add_test(tcase, steps_grow_with_the_logarithm);
    suite_add_tcase(suite, tcase);
    return suite;
}
