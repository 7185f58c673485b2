/*
 * test_slurm_hosts.c - lists of hosts as Slurm writes them, and what is no such list.
 */
#include "check_main.h"
#include "slurm_hosts.h"

#include <stdio.h>
#include <string.h>

static struct ddp_error error;

struct joined {
    char text[512];
    ddp_status refusal; /* of every name */
};

static ddp_status join(void *ctx, const char *name, size_t len, struct ddp_error *err)
{
    struct joined *joined = ctx;
    size_t used = strlen(joined->text);
    (void)err;
    snprintf(joined->text + used, sizeof joined->text - used, "%s%.*s", used > 0 ? " " : "",
             (int)len, name);
    return joined->refusal;
}

static const char *const expanded[][2] = {
    {"n1", "n1"},
    {"n1,n2", "n1 n2"},
    {"gpu-node_1.cluster,x", "gpu-node_1.cluster x"},
    {"n[1-3]", "n1 n2 n3"},
    {"n[01-04,7]", "n01 n02 n03 n04 n7"},
    {"n[8-11]", "n8 n9 n10 n11"},
    {"n[098-101],gpu3", "n098 n099 n100 n101 gpu3"},
    {"r[1-2]n[05-06]", "r1n05 r1n06 r2n05 r2n06"},
    {"r[1,3]n[1-2]x,y", "r1n1x r1n2x r3n1x r3n2x y"},
    {"[1-2]", "1 2"},
    {"a[0-0]", "a0"},
};

START_TEST(what_is_expanded)
{
    struct joined joined = {.text = ""};
    ck_assert_msg(slurm_hosts_each(expanded[_i][0], 100, join, &joined, &error) == DDP_OK, "%s",
                  error.msg);
    ck_assert_str_eq(joined.text, expanded[_i][1]);
}
END_TEST

static const char *const refused[][2] = {
    {"", "name is empty"},
    {"n1,", "name is empty"},
    {",n1", "name is empty"},
    {"n[1-2", "no ']' after"},
    {"n1]", "no '[' before"},
    {"n[]", "between brackets"},
    {"n[1-]", "between brackets"},
    {"n[-2]", "between brackets"},
    {"n[a-b]", "between brackets"},
    {"n[1-2-3]", "between brackets"},
    {"n[1,]", "between brackets"},
    {"n[1 2]", "between brackets"},
    {"n[1[2]]", "between brackets"},
    {"n[3-1]", "backwards"},
    {"n[1-101]", "too many hosts"},
    {"n[1-999999999999999999]", "too many hosts"},
    {"n[1-9999999999999999999]", "between brackets"},
    {"a[1]b[1]c[1]d[1]e[1]", "too many brackets"},
};

START_TEST(what_is_refused)
{
    struct joined joined = {.text = ""};
    ck_assert_int_eq(slurm_hosts_each(refused[_i][0], 100, join, &joined, &error), DDP_E_INVALID);
    ck_assert_msg(strstr(error.msg, refused[_i][1]) != NULL, "%s", error.msg);
}
END_TEST

/* A name may have 255 bytes, whether its end is written out or counted. */
START_TEST(long_names)
{
    char text[400];
    struct joined joined = {.text = ""};
    memset(text, 'n', sizeof text);
    snprintf(text + 252, sizeof text - 252, "[100]");
    ck_assert_int_eq(slurm_hosts_each(text, 1, join, &joined, &error), DDP_OK);
    ck_assert_uint_eq(strlen(joined.text), 255);
    snprintf(text + 252, sizeof text - 252, "[1000]");
    ck_assert_int_eq(slurm_hosts_each(text, 1, join, &joined, &error), DDP_E_INVALID);
    snprintf(text + 252, sizeof text - 252, "[100]n");
    ck_assert_int_eq(slurm_hosts_each(text, 1, join, &joined, &error), DDP_E_INVALID);
    ck_assert_msg(strstr(error.msg, "name is too long") != NULL, "%s", error.msg);
}
END_TEST

START_TEST(a_refusal_ends_the_list)
{
    struct joined joined = {.text = "", .refusal = DDP_E_CLOSED};
    ck_assert_int_eq(slurm_hosts_each("n[1-9]", 100, join, &joined, &error), DDP_E_CLOSED);
    ck_assert_str_eq(joined.text, "n1");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("slurm_hosts");
    TCase *tcase = tcase_create("lists");
    tcase_add_loop_test(tcase, what_is_expanded, 0, sizeof expanded / sizeof *expanded);
    tcase_add_loop_test(tcase, what_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tcase, long_names);
    tcase_add_test(tcase, a_refusal_ends_the_list);
    suite_add_tcase(suite, tcase);
    return suite;
}
