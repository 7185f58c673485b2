/*
 * test_kv_tcpstore_ops.c - the operations of PyTorch's clients: compare-set, lenient counting, many
 * keys, append; and their waits.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <ddprun/store.h>
#include <stdlib.h>
#include <string.h>

static struct ddpi_buf packed;

/* "a,b,c" as a list; "" is one empty key. */
static struct ddpi_keys keys_of(const char *names)
{
    ddpi_buf_finish(&packed);
    ddpi_buf_init(&packed, 1 << 20);
    uint32_t count = 0;
    for (const char *at = names; at != NULL; count++) {
        const char *end = strchr(at, ',');
        size_t len = end != NULL ? (size_t)(end - at) : strlen(at);
        ck_assert(ddpi_keys_put(&packed, ddpi_bytes_of(at, len)));
        at = end != NULL ? end + 1 : NULL;
    }
    return (struct ddpi_keys){ddpi_buf_head(&packed), ddpi_buf_len(&packed), count, false};
}

static void setup(void)
{
    ddpi_buf_init(&packed, 1 << 20);
    kv_setup();
}

static void teardown(void)
{
    ddpi_buf_finish(&packed);
    kv_teardown();
}

static struct got *compare_set(const char *key, const char *expected, const char *value)
{
    size_t before = nreplies;
    ask(0, (struct ddpi_message){.op = DDPI_OP_COMPARE_SET,
                                 .key = bytes(key),
                                 .expected = bytes(expected),
                                 .value = bytes(value)});
    ck_assert_uint_gt(nreplies, before);
    return last();
}

static struct got *list_op(enum ddpi_op op, int client, const char *names)
{
    ask(client, (struct ddpi_message){.op = op, .id = 9, .keys = keys_of(names)});
    return nreplies > 0 ? last() : NULL;
}

static struct got *add_wrap(const char *key, int64_t delta)
{
    size_t before = nreplies;
    ask(0, (struct ddpi_message){.op = DDPI_OP_ADD_WRAP, .key = bytes(key), .number = delta});
    ck_assert_uint_gt(nreplies, before);
    return last();
}

static void arrive(int client, const char *key, int64_t count)
{
    ask(client,
        (struct ddpi_message){.op = DDPI_OP_ARRIVE, .id = 7, .key = bytes(key), .number = count});
}

START_TEST(compare_set_says_what_is_there)
{
    ck_assert_str_eq(compare_set("c", "x", "v")->value, "x"); /* there is none: what was expected */
    ck_assert_int_eq(try_get("c")->status, DDP_E_NOT_FOUND);
    ck_assert_str_eq(compare_set("c", "", "v")->value, "v");
    ck_assert_str_eq(compare_set("c", "x", "w")->value, "v");
    ck_assert_str_eq(compare_set("c", "", "w")->value, "v");
    ck_assert_str_eq(compare_set("c", "v", "w")->value, "w");
    ck_assert_str_eq(compare_set("c", "w", "")->value, "");
    ck_assert_str_eq(compare_set("c", "", "u")->value, "u");
    ck_assert_str_eq(try_get("c")->value, "u");
    ck_assert_str_eq(compare_set("empty", "", "")->value, "");
    ck_assert_int_eq(try_get("empty")->status, DDP_OK);
}
END_TEST

START_TEST(compare_set_wakes_only_when_something_changes)
{
    set("b", "0");
    arrive(1, "b", 5);
    size_t before = nreplies;
    compare_set("b", "other", "x");
    compare_set("b", "1", "1");
    ck_assert_uint_eq(nreplies, before + 2);
    compare_set("b", "1", "2");
    ck_assert_uint_eq(nreplies, before + 4);
    list_op(DDPI_OP_WAIT_EACH, 2, "w");
    compare_set("w", "x", "y");
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    compare_set("w", "", "y");
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
}
END_TEST

START_TEST(numbers_are_read_leniently)
{
    static const struct {
        const char *text;
        int64_t plus_one;
    } good[] = {{"5", 6},
                {" 5", 6},
                {"\t\n-5x", -4},
                {"5 ", 6},
                {"1.9", 2},
                {"+7", 8},
                {"0x10", 1},
                {"9223372036854775807", INT64_MIN},
                {"-1", 0},
                {"007", 8},
                {"-9223372036854775808", INT64_MIN + 1}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        set("n", good[i].text);
        ck_assert_int_eq(add_wrap("n", 1)->status, DDP_OK);
        ck_assert_int_eq(last()->number, good[i].plus_one);
    }
    static const char *const bad[] = {"",
                                      " ",
                                      "x",
                                      "-",
                                      "+",
                                      "- 1",
                                      "--1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set("n", bad[i]);
        ck_assert_int_eq(add_wrap("n", 1)->status, DDP_E_TYPE);
        arrive(1, "n", 1);
        ck_assert_int_eq(last()->status, DDP_E_TYPE);
        ck_assert_str_eq(try_get("n")->value, bad[i]);
    }
    ck_assert_int_eq(add_wrap("fresh", 0)->number, 0);
    ck_assert_str_eq(try_get("fresh")->value, "0");
}
END_TEST

START_TEST(append_extends)
{
    struct ddpi_message append = {.op = DDPI_OP_APPEND, .key = bytes("p"), .value = bytes("")};
    call(0, append);
    ck_assert_int_eq(try_get("p")->status, DDP_OK); /* also an empty one makes the key */
    append.value = bytes("xy");
    call(0, append);
    append.value = bytes("z");
    uint64_t before = ddpi_kv_stats(kv).version;
    call(0, append);
    ck_assert_str_eq(try_get("p")->value, "xyz");
    ck_assert_uint_eq(last()->version, before + 1);

    char *half = calloc(DDP_STORE_VALUE_MAX / 2, 1);
    append.key = bytes("long");
    append.value = ddpi_bytes_of(half, DDP_STORE_VALUE_MAX / 2);
    ck_assert_int_eq(call(0, append)->status, DDP_OK);
    ck_assert_int_eq(call(0, append)->status, DDP_OK);
    append.value = bytes("!");
    ck_assert_int_eq(call(0, append)->status, DDP_E_LIMIT);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 2);
    free(half);
}
END_TEST

/* A sink may take less than the most, and the server's limits say so. */
START_TEST(append_keeps_to_the_limits)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    struct ddpi_message append = {.op = DDPI_OP_APPEND, .key = bytes("p"), .value = bytes("12345")};
    limits.value_len = limits.tcpstore_value_len = 12;
    kv_teardown();
    kv_make(&limits);
    ck_assert_int_eq(call(0, append)->status, DDP_OK);
    ck_assert_int_eq(call(0, append)->status, DDP_OK);
    ck_assert_int_eq(call(0, append)->status, DDP_E_LIMIT);
    ck_assert_str_eq(try_get("p")->value, "1234512345");
}
END_TEST

START_TEST(many_at_a_time)
{
    ck_assert_int_eq(list_op(DDPI_OP_SET_MANY, 0, "a,1,b,,a,2")->status, DDP_OK);
    ck_assert_str_eq(try_get("a")->value, "2");
    ck_assert_str_eq(try_get("b")->value, "");
    ck_assert_int_eq(list_op(DDPI_OP_SET_MANY, 0, "c,1,d")->status, DDP_E_INVALID);
    ck_assert_int_eq(try_get("c")->status, DDP_E_NOT_FOUND); /* nothing of it */

    size_t before = nreplies;
    list_op(DDPI_OP_GET_MANY, 0, "b,a,none,a");
    ck_assert_uint_eq(nreplies, before + 4);
    static const char *const wanted[] = {"", "2", "", "2"};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(replies[before + i].status, DDP_OK);
        ck_assert_str_eq(replies[before + i].value, wanted[i]);
    }
    ck_assert_int_eq(list_op(DDPI_OP_CHECK, 0, "a,b")->status, DDP_OK);
    ck_assert_int_eq(list_op(DDPI_OP_CHECK, 0, "a,none")->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(call(0, (struct ddpi_message){.op = DDPI_OP_CHECK})->status, DDP_OK);
    ck_assert_int_eq(call(0, (struct ddpi_message){.op = DDPI_OP_COUNT_KEYS})->number, 2);
}
END_TEST

START_TEST(many_are_set_or_none)
{
    kv_teardown();
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.room[KV_ROOM_KEYS] = 3;
    limits.room[KV_ROOM_BYTES] = 2000;
    limits.value_len = 1200;
    kv_make(&limits);
    set("a", "old");
    ck_assert_int_eq(list_op(DDPI_OP_SET_MANY, 0, "a,new,b,1,c,1,d,1")->status, DDP_E_LIMIT);
    ck_assert_str_eq(try_get("a")->value, "old");
    ck_assert_int_eq(list_op(DDPI_OP_SET_MANY, 0, "a,new,b,1,c,1")->status, DDP_OK);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 3);
    char *large = calloc(1100, 1);
    struct ddpi_buf two;
    ddpi_buf_init(&two, 10000);
    ck_assert(ddpi_keys_put(&two, bytes("a")) && ddpi_keys_put(&two, ddpi_bytes_of(large, 1100)) &&
              ddpi_keys_put(&two, bytes("b")) && ddpi_keys_put(&two, ddpi_bytes_of(large, 1100)));
    ck_assert_int_eq(
        call(0, (struct ddpi_message){.op = DDPI_OP_SET_MANY,
                                      .keys = {ddpi_buf_head(&two), ddpi_buf_len(&two), 4, false}})
            ->status,
        DDP_E_LIMIT);
    ck_assert_str_eq(try_get("a")->value, "new");
    ddpi_buf_finish(&two);
    free(large);
}
END_TEST

START_TEST(each_key_need_not_stay)
{
    set("there", "1");
    list_op(DDPI_OP_WAIT_EACH, 1, "there,a,b,a");
    size_t before = nreplies;
    drop_key("there");
    set("a", "1");
    set("a", "2");
    drop_key("a");
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    set("b", "1");
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    ck_assert_uint_eq(nreplies, before + 6);
    ck_assert_int_eq(replies[nreplies - 2].client, 1);
    ck_assert_int_eq(replies[nreplies - 2].status, DDP_OK);
    ddpi_kv_expire(kv, UINT64_MAX - 1); /* it would have waited for ever */
    list_op(DDPI_OP_WAIT_EACH, 1, "never");
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), UINT64_MAX);
    ddpi_kv_expire(kv, UINT64_MAX - 1);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
}
END_TEST

START_TEST(a_new_wait_takes_the_place_of_the_last)
{
    list_op(DDPI_OP_WAIT_EACH, 1, "a");
    list_op(DDPI_OP_WAIT_EACH, 1, "b");
    arrive(1, "c", 2);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    set("there", "1");
    list_op(DDPI_OP_WAIT_EACH, 1, "there"); /* also one that is over at once */
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    list_op(DDPI_OP_WAIT_EACH, 1, "a");
    ck_assert_int_eq(call(1, (struct ddpi_message){.op = DDPI_OP_CANCEL})->status, DDP_OK);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    ck_assert_int_eq(call(1, (struct ddpi_message){.op = DDPI_OP_CANCEL})->status, DDP_OK);
}
END_TEST

START_TEST(arrivals_are_counted_in_the_key)
{
    arrive(1, "b", 3);
    ck_assert_uint_eq(nreplies, 0);
    ck_assert_str_eq(try_get("b")->value, "1");
    list_op(DDPI_OP_WAIT_EACH, 0, "b"); /* the key exists */
    ck_assert_int_eq(last()->client, 0);
    arrive(2, "b", 3);
    size_t before = nreplies;
    arrive(3, "b", 3);
    ck_assert_uint_eq(nreplies, before + 3);
    ck_assert_int_eq(last()->client, 3);
    arrive(3, "b", 3); /* later arrivals pass */
    ck_assert_uint_eq(nreplies, before + 4);
    ck_assert_str_eq(try_get("b")->value, "4");
    arrive(1, "alone", 1);
    arrive(1, "alone", 0);
    arrive(1, "alone", -1);
    ck_assert_uint_eq(nreplies, before + 8);

    arrive(1, "gone", 2); /* an arrival stays counted when the client leaves */
    ddpi_kv_client_gone(kv, &clients[1]);
    arrive(2, "gone", 2);
    ck_assert_uint_eq(nreplies, before + 9);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
}
END_TEST

START_TEST(any_write_releases_who_has_arrived)
{
    arrive(1, "b", 9);
    drop_key("b"); /* but not that */
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    set("b", "x");
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    set("b", "0");
    arrive(1, "b", 9);
    add_wrap("b", 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    arrive(1, "b", 9);
    call(2, (struct ddpi_message){.op = DDPI_OP_CHECK});
    arrive(2, "b", 9);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 2);
    ask(0, (struct ddpi_message){.op = DDPI_OP_APPEND, .key = bytes("b"), .value = bytes("1")});
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_more");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, compare_set_says_what_is_there, compare_set_wakes_only_when_something_changes,
              numbers_are_read_leniently, append_extends, append_keeps_to_the_limits,
              many_at_a_time, many_are_set_or_none, each_key_need_not_stay,
              a_new_wait_takes_the_place_of_the_last, arrivals_are_counted_in_the_key,
              any_write_releases_who_has_arrived);
    suite_add_tcase(suite, tcase);
    return suite;
}
