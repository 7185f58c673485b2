/*
 * test_sweep.c - in the sample of a sweep every two values meet, and the whole sweep has every pair
 * once; and what a sample of numbers has.
 */
#include "check_main.h"
#include "elements.h"
#include "sweep.h"

#include <stdlib.h>

enum { WORLDS = 8 };

/* _i: with DDP_PREMUL_SUM or without it. */
static bool is_pair(unsigned dtype, unsigned op, bool premul)
{
    return (premul || op != DDP_PREMUL_SUM) && elements_reduce((ddp_dtype)dtype, (ddp_reduce_op)op);
}

static bool has_any(unsigned dtype, bool premul)
{
    bool any = false;
    for (unsigned op = 0; op < DDPI_REDUCE_OPS; op++)
        any = any || is_pair(dtype, op, premul);
    return any;
}

START_TEST(every_two_values_meet_in_the_sample)
{
    unsigned dtype_op[DDPI_DTYPES][DDPI_REDUCE_OPS] = {0};
    unsetenv("DDPRUN_TEST_WHOLE");
    for (unsigned world = 0; world < WORLDS; world++) {
        unsigned of_dtype[DDPI_DTYPES] = {0}, of_op[DDPI_REDUCE_OPS] = {0};
        struct sweep sweep = {.world = world, .premul = _i != 0};
        while (sweep_next(&sweep)) {
            dtype_op[sweep.dtype][sweep.op]++;
            of_dtype[sweep.dtype]++;
            of_op[sweep.op]++;
        }
        for (unsigned dtype = 0; dtype < DDPI_DTYPES; dtype++)
            ck_assert_uint_eq(of_dtype[dtype], has_any(dtype, _i));
        unsigned missing = 0;
        for (unsigned op = 0; op < DDPI_REDUCE_OPS; op++)
            missing += of_op[op] == 0;
        ck_assert_uint_le(missing,
                          1); /* DDP_PREMUL_SUM, or the one that no type has the turn for */
    }
    for (unsigned dtype = 0; dtype < DDPI_DTYPES; dtype++)
        for (unsigned op = 0; op < DDPI_REDUCE_OPS; op++)
            ck_assert_msg((dtype_op[dtype][op] > 0) == is_pair(dtype, op, _i),
                          "type %u, reduction %u", dtype, op);
}
END_TEST

START_TEST(the_whole_has_every_pair_once)
{
    unsigned pairs = 0, expected = 0;
    setenv("DDPRUN_TEST_WHOLE", "1", 1);
    for (unsigned dtype = 0; dtype < DDPI_DTYPES; dtype++)
        for (unsigned op = 0; op < DDPI_REDUCE_OPS; op++)
            expected += is_pair(dtype, op, _i);
    struct sweep sweep = {.world = 3, .premul = _i != 0};
    unsigned last = 0;
    for (; sweep_next(&sweep); pairs++, last = sweep.turn) {
        ck_assert(is_pair(sweep.dtype, sweep.op, _i));
        ck_assert(pairs == 0 || sweep.turn > last);
    }
    ck_assert_uint_eq(pairs, expected);
}
END_TEST

/* What a number of a loop test stands for is often in what is left when it is divided. */
START_TEST(no_residue_is_left_out_of_a_sample)
{
    static const int most[] = {1, 3, 7};
    for (int count = 1; count < 300; count++)
        for (int modulus = 2; modulus <= (count < 16 ? 3 : 4); modulus++) {
            unsigned seen = 0, there = 0;
            for (int i = 0; i < count; i++) {
                seen |= (unsigned)sample_takes(i, count, most[_i]) << i % modulus;
                there |= 1U << i % modulus;
            }
            ck_assert_msg(seen == there, "of %d numbers some with residues of %d", count, modulus);
        }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("sweep");
    TCase *tcase = tcase_create("sweep");
    tcase_add_loop_test(tcase, every_two_values_meet_in_the_sample, 0, 2);
    tcase_add_loop_test(tcase, the_whole_has_every_pair_once, 0, 2);
    tcase_add_loop_test(tcase, no_residue_is_left_out_of_a_sample, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
