/*
 * test_horovod_key.c - which paths of Horovod's workers name a key, and which key.
 */
#include "check_main.h"
#include "horovod_key.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *path;
    const char *key;
} keys[] = {
    {"/global/0", "g7/horovod/global/0"},
    {"/global/rank_12", "g7/horovod/global/rank_12"},
    {"/cross_3/1", "g7/horovod/cross_3/1"},
    {"/local_host-1/0", "g7/horovod/2/local_host-1/0"},
    {"/local_/0", "g7/horovod/2/local_/0"},
    {"/local/0", "g7/horovod/local/0"},
    {"/global_process_set_hash_ab12/0", "g7/horovod/global_process_set_hash_ab12/0"},
    {"/worker_addresses/host:0", "g7/horovod/worker_addresses/host:0"},
    {"/../..", "g7/horovod/../.."},
    {"/~/!", "g7/horovod/~/!"},
};

START_TEST(a_key)
{
    char key[HOROVOD_KEY_SIZE];
    ck_assert(horovod_key_make(keys[_i].path, 7, 2, key));
    ck_assert_str_eq(key, keys[_i].key);
}
END_TEST

static const char *const refused[] = {
    "",      "/",      "//",   "/a",    "/a/",     "a/b",     "//b",        "/a/b/", "/a/b/c",
    "/a//b", "/ a/b ", "/a b", "/a/\t", "/\177/b", "/a/\x80", "/a/b\ng8/x", "/a/ b",
};

START_TEST(no_key)
{
    char key[HOROVOD_KEY_SIZE] = "untouched";
    ck_assert(!horovod_key_make(refused[_i], 7, 2, key));
    ck_assert_str_eq(key, "untouched");
}
END_TEST

START_TEST(long_names)
{
    char path[2 * HOROVOD_NAME_MAX + 8], key[HOROVOD_KEY_SIZE], expected[HOROVOD_KEY_SIZE];
    char name[HOROVOD_NAME_MAX + 2];
    memset(name, 'x', sizeof name);
    memcpy(name, "local_", 6);
    snprintf(path, sizeof path, "/%.*s/%.*s", HOROVOD_NAME_MAX, name, HOROVOD_NAME_MAX, name);
    snprintf(expected, sizeof expected, "g%llu/horovod/%u/%s", ~0ULL, ~0U, path + 1);
    ck_assert(horovod_key_make(path, UINT64_MAX, UINT32_MAX, key));
    ck_assert_str_eq(key, expected);
    snprintf(path, sizeof path, "/%.*s/x", HOROVOD_NAME_MAX + 1, name);
    ck_assert(!horovod_key_make(path, 1, 0, key));
    snprintf(path, sizeof path, "/x/%.*s", HOROVOD_NAME_MAX + 1, name);
    ck_assert(!horovod_key_make(path, 1, 0, key));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("horovod_key");
    TCase *tcase = tcase_create("core");
    tcase_add_loop_test(tcase, a_key, 0, sizeof keys / sizeof *keys);
    tcase_add_loop_test(tcase, no_key, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tcase, long_names);
    suite_add_tcase(suite, tcase);
    return suite;
}
