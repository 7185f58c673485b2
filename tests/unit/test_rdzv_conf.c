/*
 * test_rdzv_conf.c - torchrun's settings: which are taken, which are known, and which are refused,
 * as torchrun would.
 */
#include "check_main.h"
#include "rdzv_conf.h"

#include <stdio.h>
#include <string.h>

#define UNSAID UINT64_MAX

static struct ddp_error error;

static const struct row {
    const char *text;
    uint64_t join_ms, settle_ms, lease_ms;
    int is_host;
    const char *unknown;
} taken[] = {
    {"", UNSAID, UNSAID, UNSAID, -1, ""},
    {" \t", UNSAID, UNSAID, UNSAID, -1, ""},
    {"join_timeout=7", 7000, UNSAID, UNSAID, -1, ""},
    {" join_timeout = 7 , last_call_timeout=2 ", 7000, 2000, UNSAID, -1, ""},
    {"timeout=900,join_timeout=5,join_timeout=6", 6000, UNSAID, UNSAID, -1, ""},
    {"last_call_timeout=0", UNSAID, 0, UNSAID, -1, ""},
    {"is_host=1", UNSAID, UNSAID, UNSAID, 1, ""},
    {"is_host=Yes", UNSAID, UNSAID, UNSAID, 1, ""},
    {"is_host=f", UNSAID, UNSAID, UNSAID, 0, ""},
    {"keep_alive_interval=1", UNSAID, UNSAID, 3000, -1, ""},
    {"keep_alive_max_attempt=2", UNSAID, UNSAID, 10000, -1, ""},
    {"keep_alive_interval=2,keep_alive_max_attempt=4", UNSAID, UNSAID, 8000, -1, ""},
    {"keep_alive_interval=60,keep_alive_max_attempt=60", UNSAID, UNSAID, 3600000, -1, ""},
    {"read_timeout=60,close_timeout=30,heartbeat_timeout=5,cas_backoff_max_seconds=0.5", UNSAID,
     UNSAID, UNSAID, -1, ""},
    {"store_type=tcp, store_type = TCP", UNSAID, UNSAID, UNSAID, -1, ""},
    {"protocol=https,join_timeout=1,x=y=z", 1000, UNSAID, UNSAID, -1, "protocol, x"},
};

START_TEST(what_is_taken)
{
    const struct row *row = &taken[_i];
    struct rdzv_conf conf;
    ck_assert_msg(rdzv_conf_parse(row->text, &conf, &error) == DDP_OK, "%s", error.msg);
    ck_assert_uint_eq(conf.join_timeout_ms, row->join_ms);
    ck_assert_uint_eq(conf.settle_ms, row->settle_ms);
    ck_assert_uint_eq(conf.lease_ms, row->lease_ms);
    ck_assert_int_eq(conf.is_host, row->is_host);
    ck_assert_str_eq(conf.unknown, row->unknown);
}
END_TEST

static const struct {
    const char *text;
    const char *said[2];
} refused[] = {
    {"join_timeout=5,", {"'' is not KEY=VALUE", "no comma"}},
    {",join_timeout=5", {"'' is not KEY=VALUE", "no comma"}},
    {"join_timeout", {"'join_timeout'", "KEY=VALUE"}},
    {"join_timeout= ", {"'join_timeout'", "KEY=VALUE"}},
    {"=5", {"''", "KEY=VALUE"}},
    {"join_timeout=soon", {"'join_timeout'", "'soon'"}},
    {"read_timeout=1.5", {"'read_timeout'", "'1.5'"}},
    {"cas_backoff_max_seconds=x", {"'cas_backoff_max_seconds'", "'x'"}},
    {"keep_alive_interval=0", {"'keep_alive_interval'", "'0'"}},
    {"keep_alive_interval=86400,keep_alive_max_attempt=86400",
     {"'keep_alive_interval' (86400 s) times 'keep_alive_max_attempt' (86400)",
      "'7464960000s' is longer than the limit of 3600000 ms"}},
    {"keep_alive_interval=1201", {"'keep_alive_interval' (1201 s)", "'3603s'"}},
    {"last_call_timeout=-1", {"'last_call_timeout'", "'-1'"}},
    {"is_host=maybe", {"'is_host'", "'maybe'"}},
    {"store_type=file", {"'store_type'", "'file'"}},
};

START_TEST(what_is_refused)
{
    struct rdzv_conf conf = {.is_host = 7};
    ck_assert_int_ne(rdzv_conf_parse(refused[_i].text, &conf, &error), DDP_OK);
    ck_assert_int_eq(conf.is_host, 7);
    for (size_t i = 0; i < 2; i++)
        ck_assert_msg(strstr(error.msg, refused[_i].said[i]) != NULL, "'%s' lacks '%s'", error.msg,
                      refused[_i].said[i]);
}
END_TEST

static ddp_status parse_repeated(const char *head, const char *again, size_t times,
                                 struct rdzv_conf *ret)
{
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "%s", head);
    for (size_t i = 0; i < times; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", again);
    return rdzv_conf_parse(text, ret, &error);
}

START_TEST(many_unknown_keys_and_long_words)
{
    struct rdzv_conf conf;
    ck_assert_int_eq(parse_repeated("a=b", ",unknown=1", 300, &conf), DDP_OK);
    ck_assert_uint_eq(strlen(conf.unknown), sizeof conf.unknown - 1);
    ck_assert_str_eq(conf.unknown + strlen(conf.unknown) - 4, "n...");
    ck_assert_int_eq(parse_repeated("", "x", 5000, &conf), DDP_E_INVALID);
    ck_assert_int_eq(parse_repeated("join_timeout=", "1", 5000, &conf), DDP_E_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rdzv_conf");
    TCase *tcase = tcase_create("rdzv_conf");
    tcase_add_loop_test(tcase, what_is_taken, 0, sizeof taken / sizeof *taken);
    tcase_add_loop_test(tcase, what_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tcase, many_unknown_keys_and_long_words);
    suite_add_tcase(suite, tcase);
    return suite;
}
