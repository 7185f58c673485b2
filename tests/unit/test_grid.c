/*
 * test_grid.c - rank grids: every rank of GPT-3's 64 x 6 x 8 grid (3,072 ranks) works out its
 * groups along every set of axes by itself; together they must agree.
 */
#include "check_main.h"

#include <ddprun/comm.h>
#include <stdbool.h>

enum { DATA = 64, PIPELINE = 6, TENSOR = 8, RANKS = DATA * PIPELINE * TENSOR, SETS = 8 };

static const struct ddp_grid gpt3 = {.naxes = 3, .dims = {DATA, PIPELINE, TENSOR}};

/* The axes in the set @bits, the last one first: their order must not matter. */
static uint32_t axes_of(uint32_t bits, uint32_t axes[3])
{
    uint32_t count = 0;
    for (uint32_t axis = 3; axis-- > 0;)
        if ((bits >> axis & 1) != 0)
            axes[count++] = axis;
    return count;
}

START_TEST(ranks_and_coordinates_are_inverse)
{
    uint32_t expected = 0, coords[3], rank;
    ck_assert_uint_eq(ddp_grid_size(&gpt3), RANKS);
    for (uint32_t d = 0; d < DATA; d++)
        for (uint32_t p = 0; p < PIPELINE; p++)
            for (uint32_t t = 0; t < TENSOR; t++, expected++) {
                ck_assert_int_eq(ddp_grid_coords(&gpt3, expected, coords, NULL), DDP_OK);
                ck_assert(coords[0] == d && coords[1] == p && coords[2] == t);
                ck_assert_int_eq(ddp_grid_rank(&gpt3, coords, &rank, NULL), DDP_OK);
                ck_assert_uint_eq(rank, expected);
            }
}
END_TEST

/* Groups along one set of axes are disjoint, cover all ranks, and are numbered densely; within each
 * one ranks are dense and ascend. */
START_TEST(groups_divide_the_grid)
{
    uint32_t axes[3], naxes = axes_of((uint32_t)_i, axes);
    static uint32_t member_at[RANKS]; /* by group and rank in it */
    bool taken[RANKS] = {false};
    struct ddp_grid_group group;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        ck_assert_int_eq(ddp_grid_find_group(&gpt3, rank, axes, naxes, &group, NULL), DDP_OK);
        ck_assert_uint_eq(group.groups * group.size, RANKS);
        ck_assert_uint_lt(group.index, group.groups);
        ck_assert_uint_lt(group.rank, group.size);
        uint32_t place = group.index * group.size + group.rank;
        ck_assert(!taken[place]);
        taken[place] = true;
        member_at[place] = rank;
    }
    for (uint32_t place = 0; place < RANKS; place++) {
        uint32_t rank;
        ck_assert(place % group.size == 0 || member_at[place] > member_at[place - 1]);
        ck_assert_int_eq(ddp_grid_member(&gpt3, axes, naxes, place / group.size, place % group.size,
                                         &rank, NULL),
                         DDP_OK);
        ck_assert_uint_eq(rank, member_at[place]);
    }
}
END_TEST

/* Two ranks are in one group if and only if they differ on its axes alone. */
START_TEST(groups_have_the_ranks_that_differ_on_their_axes)
{
    uint32_t axes[3], bits = (uint32_t)_i, naxes = axes_of(bits, axes), one[3], other[3];
    static const uint32_t samples[] = {0, 1, 47, 1000, RANKS - 1};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        struct ddp_grid_group a, b;
        ck_assert_int_eq(ddp_grid_coords(&gpt3, samples[i], one, NULL), DDP_OK);
        ck_assert_int_eq(ddp_grid_find_group(&gpt3, samples[i], axes, naxes, &a, NULL), DDP_OK);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            ck_assert_int_eq(ddp_grid_coords(&gpt3, rank, other, NULL), DDP_OK);
            ck_assert_int_eq(ddp_grid_find_group(&gpt3, rank, axes, naxes, &b, NULL), DDP_OK);
            bool together = true;
            for (uint32_t axis = 0; axis < 3; axis++)
                together &= (bits >> axis & 1) != 0 || one[axis] == other[axis];
            ck_assert_int_eq(together, a.index == b.index);
        }
    }
}
END_TEST

START_TEST(one_rank_is_a_grid)
{
    struct ddp_grid grid;
    struct ddp_grid_group group;
    ck_assert_int_eq(ddp_grid_init(&grid, (const uint32_t[]){1}, 1, NULL), DDP_OK);
    ck_assert_uint_eq(ddp_grid_size(&grid), 1);
    ck_assert_int_eq(ddp_grid_find_group(&grid, 0, NULL, 0, &group, NULL), DDP_OK);
    ck_assert(group.groups == 1 && group.size == 1 && group.index == 0 && group.rank == 0);
}
END_TEST

static const struct {
    uint32_t naxes;
    uint32_t dims[DDP_GRID_AXES];
    const char *sentence;
} no_grids[] = {
    {0, {0}, "a grid has 1 to 8 axes, not 0"},
    {9, {1, 1, 1, 1, 1, 1, 1, 1}, "a grid has 1 to 8 axes, not 9"},
    {3, {2, 0, 2}, "axis 1 of the grid has no ranks"},
    {2, {65536, 2}, "the grid has more than 65536 ranks"},
    {2, {UINT32_MAX, UINT32_MAX}, "the grid has more than 65536 ranks"},
};

START_TEST(what_is_no_grid_is_refused)
{
    struct ddp_grid grid = {0};
    struct ddp_error err;
    ck_assert_int_eq(ddp_grid_init(&grid, no_grids[_i].dims, no_grids[_i].naxes, &err),
                     DDP_E_INVALID);
    ck_assert_str_eq(err.msg, no_grids[_i].sentence);
    ck_assert_uint_eq(ddp_grid_size(&grid), 0);
    ck_assert_int_eq(ddp_grid_coords(&grid, 0, NULL, NULL), DDP_E_INVALID);
}
END_TEST

static void is_refused(ddp_status status, const struct ddp_error *err, const char *sentence)
{
    ck_assert_int_eq(status, DDP_E_INVALID);
    ck_assert_str_eq(err->msg, sentence);
}

START_TEST(what_is_outside_of_the_grid_is_refused)
{
    struct ddp_error err;
    struct ddp_grid_group group;
    uint32_t coords[3] = {DATA, 0, 0}, rank;
    is_refused(ddp_grid_coords(&gpt3, RANKS, coords, &err), &err,
               "rank 3072 is not in a grid of 3072 ranks");
    is_refused(ddp_grid_rank(&gpt3, coords, &rank, &err), &err,
               "coordinate 64 is outside of axis 0, which has 64 ranks");
    is_refused(ddp_grid_find_group(&gpt3, 0, (const uint32_t[]){3}, 1, &group, &err), &err,
               "axis 3 does not exist in a grid of 3 axes");
    is_refused(ddp_grid_find_group(&gpt3, 0, (const uint32_t[]){1, 1}, 2, &group, &err), &err,
               "axis 1 is named twice");
    is_refused(ddp_grid_member(&gpt3, (const uint32_t[]){2}, 1, DATA * PIPELINE, 0, &rank, &err),
               &err, "group 384 does not exist along these axes");
    is_refused(ddp_grid_member(&gpt3, (const uint32_t[]){2}, 1, 0, TENSOR, &rank, &err), &err,
               "a group along these axes has no member 8");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("grid");
    TCase *tcase = tcase_create("grids");
    tcase_add_test(tcase, ranks_and_coordinates_are_inverse);
    tcase_add_loop_test(tcase, groups_divide_the_grid, 0, SETS);
    tcase_add_loop_test(tcase, groups_have_the_ranks_that_differ_on_their_axes, 0, SETS);
    tcase_add_test(tcase, one_rank_is_a_grid);
    tcase_add_loop_test(tcase, what_is_no_grid_is_refused, 0, sizeof no_grids / sizeof *no_grids);
    tcase_add_test(tcase, what_is_outside_of_the_grid_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
