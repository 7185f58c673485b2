/*
 * test_bucket_plan.c - assignment of parameters to buckets, and passes over them.
 */
#include "bucket_pass.h"
#include "check_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY UINT64_MAX

enum { PARAMETERS_MAX = 12, TEXT = 256 };

/* "[0 2] [1]" */
static void plan_text(const struct ddpi_bucket_plan *plan, char text[TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t bucket = 0; bucket < plan->nbuckets; bucket++) {
        uint32_t begin = ddpi_bucket_begin(plan, bucket);
        for (uint32_t i = begin; i < plan->ends[bucket]; i++)
            used += (size_t)snprintf(text + used, TEXT - used, "%s%s%u",
                                     bucket > 0 && i == begin ? " " : "", i == begin ? "[" : " ",
                                     plan->order[i]);
        used += (size_t)snprintf(text + used, TEXT - used, "]");
    }
}

struct row {
    const char *expected;
    uint64_t weights[PARAMETERS_MAX]; /* ends with 0 */
    uint32_t keys[PARAMETERS_MAX];
    uint64_t limits[3]; /* ends with 0 */
    bool given;
    uint32_t order[PARAMETERS_MAX];
};

static const struct row rows[] = {
    {"[]", {0}, {0}, {1}, false, {0}},
    /* A crossing parameter is inside; then the bucket closes. */
    {"[5] [3 4] [1 2] [0]", {1000, 2, 1000, 2, 1000, 2}, {0}, {1000, 1000}, false, {0}},
    {"[2] [1] [0]", {5, 5, 5}, {0}, {5}, false, {0}},
    {"[0 1 2]", {5, 5, 5}, {0}, {MANY}, false, {0}},
    {"[1 2] [0]", {400, 1, 1}, {0}, {100, 300}, false, {0}},
    /* The first limit is for the first bucket of each key. */
    {"[3 5] [2 4] [1] [0]", {10, 10, 10, 10, 10, 10}, {0, 1, 0, 1, 0, 1}, {10, 20}, false, {0}},
    {"[1 3] [0 2]", {1, 1, 1, 1}, {3, 7, 3, 7}, {MANY}, false, {0}},
    /* The last limit repeats. */
    {"[5 6] [3 4] [1 2] [0]", {1, 1, 1, 1, 1, 1, 1}, {0}, {1, 2}, false, {0}},
    /* In a given order buckets come as they close, those that stay open last. */
    {"[3] [2 1] [0]", {5, 5, 5, 10}, {0}, {10}, true, {3, 2, 1, 0}},
    {"[1 3] [0 2]", {1, 10, 1, 10}, {0, 1, 0, 1}, {20}, true, {0, 1, 2, 3}},
    {"[1] [0] [2]", {MANY, MANY, 1}, {0}, {MANY}, true, {1, 0, 2}},
};

START_TEST(buckets_follow_the_rule)
{
    const struct row *row = &rows[_i];
    struct ddpi_plan_parameter parameters[PARAMETERS_MAX];
    struct ddpi_bucket_plan plan;
    uint32_t count = 0, nlimits = 0;
    for (; row->weights[count] != 0; count++)
        parameters[count] =
            (struct ddpi_plan_parameter){.weight = row->weights[count], .key = row->keys[count]};
    while (row->limits[nlimits] != 0)
        nlimits++;
    ck_assert(ddpi_bucket_plan_make(parameters, row->given ? row->order : NULL, count, row->limits,
                                    nlimits, &plan));
    char text[TEXT];
    plan_text(&plan, text);
    ck_assert_str_eq(text[0] == '\0' ? "[]" : text, row->expected);
    for (uint32_t bucket = 0; bucket < plan.nbuckets; bucket++)
        for (uint32_t i = ddpi_bucket_begin(&plan, bucket); i < plan.ends[bucket]; i++)
            ck_assert_uint_eq(plan.bucket_of[plan.order[i]], bucket);
    ddpi_bucket_plan_free(&plan);
}
END_TEST

START_TEST(an_order_has_each_parameter_once)
{
    uint8_t seen[4];
    ck_assert(ddpi_plan_order_is_complete((const uint32_t[]){2, 0, 3, 1}, 4, seen));
    ck_assert(!ddpi_plan_order_is_complete((const uint32_t[]){2, 0, 2, 1}, 4, seen));
    ck_assert(!ddpi_plan_order_is_complete((const uint32_t[]){2, 0, 4, 1}, 4, seen));
    ck_assert(!ddpi_plan_order_is_complete((const uint32_t[]){UINT32_MAX, 0, 3, 1}, 4, seen));
    ck_assert(ddpi_plan_order_is_complete(NULL, 0, seen));
}
END_TEST

/* ---- passes ---- */

enum { PASS_PARAMETERS = 7, ORDERS = 5040 };

/* The @number-th permutation of all parameters. */
static void permute(uint32_t number, uint32_t order[PASS_PARAMETERS])
{
    for (uint32_t i = 0; i < PASS_PARAMETERS; i++)
        order[i] = i;
    for (uint32_t i = PASS_PARAMETERS; i > 1; i--) {
        uint32_t j = number % i, swap = order[i - 1];
        number /= i;
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

/* Whatever the order of gradients, buckets begin in their order, each when it and all before it are
 * full. */
START_TEST(buckets_begin_in_their_order)
{
    static const uint64_t limits[] = {1, 2};
    struct ddpi_plan_parameter parameters[PASS_PARAMETERS];
    struct ddpi_bucket_plan plan;
    struct ddpi_bucket_pass pass;
    for (uint32_t i = 0; i < PASS_PARAMETERS; i++)
        parameters[i] = (struct ddpi_plan_parameter){.weight = 1};
    ck_assert(ddpi_bucket_plan_make(parameters, NULL, PASS_PARAMETERS, limits, 2, &plan));
    ck_assert_uint_eq(plan.nbuckets, 4);
    ck_assert(ddpi_bucket_pass_init(&pass, &plan));
    for (uint32_t number = 0; number < ORDERS; number++) {
        uint32_t order[PASS_PARAMETERS], begun = 0, bucket;
        bool came[PASS_PARAMETERS] = {false};
        permute(number, order);
        ddpi_bucket_pass_begin(&pass, &plan);
        ck_assert(!ddpi_bucket_pass_take(&pass, &bucket));
        for (uint32_t i = 0; i < PASS_PARAMETERS; i++) {
            ddpi_bucket_pass_mark(&pass, order[i]);
            came[order[i]] = true;
            while (ddpi_bucket_pass_take(&pass, &bucket))
                ck_assert_uint_eq(bucket, begun++);
            bool full = begun < plan.nbuckets;
            for (uint32_t at = 0; full && at < plan.ends[begun]; at++)
                full = came[plan.order[at]];
            ck_assert_msg(!full, "order %u: bucket %u has not begun", number, begun);
        }
        ck_assert_uint_eq(begun, plan.nbuckets);
        ck_assert_int_eq(memcmp(pass.arrival, order, sizeof order), 0);
    }
    ddpi_bucket_pass_free(&pass);
    ddpi_bucket_plan_free(&plan);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("bucket_plan");
    TCase *tests = tcase_create("plan");
    tcase_add_loop_test(tests, buckets_follow_the_rule, 0, (int)(sizeof rows / sizeof *rows));
    tcase_add_test(tests, an_order_has_each_parameter_once);
    tcase_add_test(tests, buckets_begin_in_their_order);
    suite_add_tcase(suite, tests);
    return suite;
}
