/*
 * test_keyspaces.c - the keys of generations that a new one deletes, and how many keys are looked
 * at for that.
 */
#include "check_main.h"
#include "keyspaces.h"
#include "kv_fixture.h"

#include <stdio.h>

/* The numbers from @first on, between @before and @after. */
static void set_many(const char *before, int first, int count, const char *after)
{
    char name[64];
    for (int i = first; i < first + count; i++) {
        snprintf(name, sizeof name, "%s%d%s", before, i, after);
        ck_assert_int_eq(set(name, "v")->status, DDP_OK);
    }
}

static bool count_key(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value)
{
    (void)key;
    (void)value;
    ++*(size_t *)ctx;
    return true;
}

static size_t keys_with(const char *prefix)
{
    size_t count = 0;
    ddpi_kv_each(kv, bytes(prefix), count_key, &count);
    return count;
}

START_TEST(those_of_all_generations_go)
{
    static const char *const kept[] = {"job/j/g",    "job/j/g/k",  "job/j/g1",  "job/j/g1x/k",
                                       "job/j/gx/k", "job/j/h1/k", "job/i/g1/k"};
    enum { KEPT = sizeof kept / sizeof *kept };
    for (size_t i = 0; i < KEPT; i++)
        set(kept[i], "v");
    set_many("job/j/g", 8, 4, "/a");
    set_many("job/j/g", 8, 4, "/b");
    (void)ddpi_keyspaces_drop(kv, "j");
    ck_assert_uint_eq(keys_with(""), KEPT);
    for (size_t i = 0; i < KEPT; i++)
        ck_assert_int_eq(try_get(kept[i])->status, DDP_OK);
}
END_TEST

/* Keys that only look like those of a generation are not looked at again for each keyspace. */
START_TEST(each_key_is_looked_at_once)
{
    enum { OTHERS = 100, KEYSPACES = 50 };
    set_many("job/j/g/", 0, OTHERS, "");
    set_many("job/j/g", 1, KEYSPACES, "/k");
    set_many("job/j/gx", 0, OTHERS, "");
    ck_assert_uint_eq(ddpi_keyspaces_drop(kv, "j"), OTHERS + KEYSPACES + OTHERS);
    ck_assert_uint_eq(keys_with(""), 2 * OTHERS);
    ck_assert_uint_eq(ddpi_keyspaces_drop(kv, "none"), 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("keyspaces");
    TCase *group = tcase_create("drop");
    tcase_add_checked_fixture(group, kv_setup, kv_teardown);
    ADD_TESTS(group, those_of_all_generations_go, each_key_is_looked_at_once);
    suite_add_tcase(suite, group);
    return suite;
}
