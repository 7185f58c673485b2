/*
 * test_sampler.c - the sampler against items that PyTorch's DistributedSampler gave, and the rules
 * that hold for every count and world. tests/interop runs it beside PyTorch's own.
 */
#include "check_main.h"
#include "failmem.h"

#include <ddprun/ddp.h>
#include <string.h>

enum { MOST = 40, WORLDS = 8, SHOWN = 4 };

static ddp_sampler *sampler_of(uint64_t count, uint32_t world, uint32_t rank, uint64_t seed,
                               uint32_t shuffle, uint32_t drop_last)
{
    struct ddp_sampler_options options = {.size = sizeof options,
                                          .count = count,
                                          .world_size = world,
                                          .rank = rank,
                                          .seed = seed,
                                          .shuffle = shuffle,
                                          .drop_last = drop_last};
    ddp_sampler *sampler = NULL;
    ck_assert_int_eq(ddp_sampler_create(&options, &sampler, NULL), DDP_OK);
    return sampler;
}

/* ---- what PyTorch gave ---- */

/* Written by PyTorch 2: list(DistributedSampler(range(count), world, rank, shuffle, seed,
 * drop_last)) after set_epoch(epoch). The sum is FNV-1a, an item at a time. */
static const struct recorded {
    uint64_t count;
    uint32_t world, rank;
    uint64_t seed, epoch;
    uint32_t shuffle, drop_last;
    uint64_t share, sum, items[SHOWN];
} recorded[] = {
    {1, 1, 0, 0U, 0, 1, 0, 1, 0xaf63bd4c8601b7df, {0, 0, 0, 0}},
    {7, 3, 1, 0U, 0, 1, 0, 3, 0xd94642186c096299, {0, 2, 4, 0}},
    {7, 3, 1, 0U, 0, 1, 1, 2, 0x08328607b4eb6c87, {0, 2, 0, 0}},
    {3, 8, 7, 0U, 1, 1, 0, 1, 0xaf63bf4c8601bb45, {2, 0, 0, 0}},
    {3, 8, 7, 0U, 1, 1, 1, 0, 0xcbf29ce484222325, {0, 0, 0, 0}},
    {40, 7, 6, 5U, 3, 1, 0, 6, 0x6eb8ec7dfd588d9c, {20, 6, 37, 24}},
    {10000, 4, 2, 15U, 9, 1, 0, 2500, 0xc0ce956873341568, {2374, 9275, 3616, 4769}},
    {60000, 8, 0, 0U, 0, 1, 0, 7500, 0x5f8c02c2a11d829f, {36044, 26145, 4072, 29120}},
    {60000, 7, 6, 42U, 11, 1, 0, 8572, 0x84f1f8f606450ad1, {11012, 26408, 32579, 27264}},
    {60000, 7, 6, 42U, 11, 1, 1, 8571, 0x5a2b059f764dd8dc, {11012, 26408, 32579, 27264}},
    {60000, 7, 6, 42U, 11, 0, 0, 8572, 0x88c779f82bd8b831, {6, 13, 20, 27}},
    {623, 2, 1, 4294967295U, 1, 1, 0, 312, 0x7bd1dfd498ea79df, {428, 203, 518, 150}},
    {625, 2, 1, 4294967296U, 7, 1, 1, 312, 0x798976b7dbc4131f, {533, 385, 392, 180}},
    {1281167, 16, 3, 0U, 89, 1, 0, 80073, 0x93c0c369362530e1, {517220, 740198, 326958, 1146605}},
    {1281167, 1000, 999, 2U, 4, 1, 1, 1281, 0xc9e7ab7fd8c06065, {1052297, 546245, 989187, 271463}},
};

START_TEST(items_are_those_of_torch)
{
    const struct recorded *row = &recorded[_i];
    ddp_sampler *sampler =
        sampler_of(row->count, row->world, row->rank, row->seed, row->shuffle, row->drop_last);
    ddp_sampler_set_epoch(sampler, row->epoch + 1); /* no trace of it may stay */
    ddp_sampler_set_epoch(sampler, row->epoch);
    ck_assert_uint_eq(ddp_sampler_count(sampler), row->share);
    uint64_t sum = 0xcbf29ce484222325U;
    for (uint64_t k = 0; k < row->share; k++) {
        uint64_t item = ddp_sampler_index(sampler, k);
        if (k < SHOWN)
            ck_assert_uint_eq(item, row->items[k]);
        sum = (sum ^ item) * 0x100000001b3U;
    }
    ck_assert_uint_eq(sum, row->sum);
    ddp_sampler_destroy(sampler);
}
END_TEST

/* ---- rules ---- */

/* How often the ranks of @world process each of @count items. */
static void count_uses(uint64_t count, uint32_t world, uint32_t drop_last, unsigned *uses)
{
    memset(uses, 0, MOST * sizeof *uses);
    for (uint32_t rank = 0; rank < world; rank++) {
        ddp_sampler *sampler = sampler_of(count, world, rank, 9, 1, drop_last);
        uint64_t share = ddp_sampler_count(sampler);
        ck_assert_uint_eq(share, drop_last ? count / world : (count + world - 1) / world);
        for (uint64_t k = 0; k < share; k++) {
            uint64_t item = ddp_sampler_index(sampler, k);
            ck_assert_uint_lt(item, count);
            uses[item]++;
        }
        ddp_sampler_destroy(sampler);
    }
}

START_TEST(each_item_is_used_as_often_as_the_others)
{
    unsigned uses[MOST];
    uint32_t world = (uint32_t)_i;
    for (uint64_t count = 0; count <= MOST; count++) {
        for (uint32_t drop_last = 0; drop_last < 2; drop_last++) {
            count_uses(count, world, drop_last, uses);
            uint64_t share = drop_last ? count / world : (count + world - 1) / world;
            uint64_t all = 0;
            for (uint64_t item = 0; item < count; item++) {
                uint64_t least = share * world / count;
                ck_assert_uint_ge(uses[item], least);
                ck_assert_uint_le(uses[item], least + 1);
                all += uses[item];
            }
            ck_assert_uint_eq(all, count == 0 ? 0 : share * world);
        }
    }
}
END_TEST

START_TEST(a_batch_is_a_part_of_the_items)
{
    ddp_sampler *sampler = sampler_of(100, 3, 1, 0, 1, 0);
    uint64_t share = ddp_sampler_count(sampler), items[64];
    for (uint64_t first = 0; first < share + 3; first++) {
        for (uint64_t count = 0; count < share + 3; count++) {
            uint64_t filled = ddp_sampler_fill(sampler, first, count, items);
            uint64_t left = first < share ? share - first : 0;
            ck_assert_uint_eq(filled, count < left ? count : left);
            for (uint64_t i = 0; i < filled; i++)
                ck_assert_uint_eq(items[i], ddp_sampler_index(sampler, first + i));
        }
    }
    ck_assert_uint_eq(ddp_sampler_fill(sampler, UINT64_MAX, UINT64_MAX, items), 0);
    ck_assert_uint_eq(ddp_sampler_index(sampler, share), UINT64_MAX);
    ddp_sampler_destroy(sampler);
}
END_TEST

START_TEST(a_huge_dataset_in_order_needs_no_memory)
{
    uint64_t count = INT64_MAX;
    ddp_sampler *sampler = sampler_of(count, UINT32_MAX, UINT32_MAX - 1, 0, 0, 0);
    uint64_t share = ddp_sampler_count(sampler);
    ck_assert_uint_eq(share, count / UINT32_MAX + 1);
    ck_assert_uint_eq(ddp_sampler_index(sampler, 1), 2 * (uint64_t)UINT32_MAX - 1);
    ck_assert_uint_lt(ddp_sampler_index(sampler, share - 1), count);
    ddp_sampler_destroy(sampler);
}
END_TEST

/* ---- bad input ---- */

static const struct fault {
    struct ddp_sampler_options options;
    const char *named;
} faults[] = {
    {{.size = 8, .count = 5, .world_size = 2}, "size of the ddp_sampler_options is 8"},
    {{.size = sizeof(struct ddp_sampler_options), .count = 5}, "world_size of the sampler is 0"},
    {{.size = sizeof(struct ddp_sampler_options), .count = 5, .world_size = 2, .rank = 2},
     "rank of the sampler is 2"},
    {{.size = sizeof(struct ddp_sampler_options), .count = UINT64_MAX, .world_size = 2},
     "count of 18446744073709551615 items"},
};

START_TEST(a_faulty_member_is_named)
{
    struct ddp_error err;
    ddp_sampler *sampler = NULL;
    ck_assert_int_eq(ddp_sampler_create(&faults[_i].options, &sampler, &err), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, faults[_i].named));
    ck_assert_ptr_null(sampler);
}
END_TEST

START_TEST(a_lack_of_memory_is_told)
{
    struct ddp_sampler_options options = {
        .size = sizeof options, .count = 9, .world_size = 2, .shuffle = 1};
    ddp_sampler *sampler = NULL;
    for (unsigned good = 0; good < 2; good++) {
        failmem_start(good);
        ck_assert_int_eq(ddp_sampler_create(&options, &sampler, NULL), DDP_E_NOMEM);
        ck_assert(failmem_stop());
        ck_assert_ptr_null(sampler);
    }
    options.count = INT64_MAX; /* bytes that no size_t holds */
    ck_assert_int_eq(ddp_sampler_create(&options, &sampler, NULL), DDP_E_NOMEM);
    ddp_sampler_destroy(NULL);
}
END_TEST

#define ROWS(table) (int)(sizeof(table) / sizeof *(table))

Suite *test_suite(void)
{
    Suite *suite = suite_create("sampler");
    TCase *items = tcase_create("items"), *input = tcase_create("input");
    tcase_add_loop_test(items, items_are_those_of_torch, 0, ROWS(recorded));
    tcase_add_loop_test(items, each_item_is_used_as_often_as_the_others, 1, WORLDS + 1);
    tcase_add_test(items, a_batch_is_a_part_of_the_items);
    tcase_add_test(items, a_huge_dataset_in_order_needs_no_memory);
    suite_add_tcase(suite, items);
    tcase_add_loop_test(input, a_faulty_member_is_named, 0, ROWS(faults));
    tcase_add_test(input, a_lack_of_memory_is_told);
    suite_add_tcase(suite, input);
    return suite;
}
