/*
 * test_kv.c - the key-value core with fake time: every operation, waits, barriers, deadlines,
 * limits.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <string.h>

START_TEST(set_and_get)
{
    ck_assert_int_eq(try_get("a")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(set("a", "1")->version, 1);
    ck_assert_uint_eq(set("b", "2")->version, 2);
    ck_assert_uint_eq(set("a", "three")->version, 3);
    ck_assert_str_eq(try_get("a")->value, "three");
    ck_assert_uint_eq(last()->version, 3);
    get(0, 5, "b", 0);
    ck_assert_str_eq(last()->value, "2");
    ck_assert_int_eq(set("", "")->status, DDP_OK); /* empty key, empty value */
    ck_assert_int_eq(try_get("")->status, DDP_OK);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 3);
}
END_TEST

START_TEST(delete_and_prefix)
{
    ck_assert_int_eq(drop_key("a")->status, DDP_E_NOT_FOUND);
    set("g1/a", "x");
    set("g1/b", "x");
    set("g2/a", "x");
    ck_assert_int_eq(drop_key("g1/a")->status, DDP_OK);
    ck_assert_int_eq(drop_key("g1/a")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("g1/")), 1);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("g1/")), 0);
    ck_assert_int_eq(try_get("g2/a")->status, DDP_OK);
    uint64_t before = ddpi_kv_stats(kv).version;
    ck_assert_uint_eq(set("new", "x")->version, before + 1);
}
END_TEST

static struct got *add(const char *key, int64_t delta)
{
    return call(0, (struct ddpi_message){.op = DDPI_OP_ADD, .key = bytes(key), .number = delta});
}

START_TEST(add_keeps_decimal_text)
{
    ck_assert_int_eq(add("n", 5)->number, 5);
    ck_assert_int_eq(add("n", -7)->number, -2);
    ck_assert_str_eq(try_get("n")->value, "-2");
    set("n", "9223372036854775806");
    ck_assert_int_eq(add("n", 1)->number, INT64_MAX);
    ck_assert_int_eq(add("n", 1)->status, DDP_E_TYPE);
    ck_assert_str_eq(try_get("n")->value, "9223372036854775807");
    ck_assert_int_eq(add("m", INT64_MIN)->number, INT64_MIN);
    ck_assert_int_eq(add("m", -1)->status, DDP_E_TYPE);
    static const char *const bad[] = {"", " 1", "1 ", "0x1", "1.5", "+1", "9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set("t", bad[i]);
        ck_assert_int_eq(add("t", 1)->status, DDP_E_TYPE);
        ck_assert_str_eq(try_get("t")->value, bad[i]);
    }
    call(0, (struct ddpi_message){.op = DDPI_OP_SET, .key = bytes("t"), .value = {"1\0", 2}});
    ck_assert_int_eq(add("t", 1)->status, DDP_E_TYPE);
}
END_TEST

static struct got *cas(const char *key, uint64_t version, const char *value)
{
    return call(
        0, (struct ddpi_message){
               .op = DDPI_OP_CAS, .key = bytes(key), .version = version, .value = bytes(value)});
}

START_TEST(compare_and_swap)
{
    ck_assert_int_eq(cas("a", 9, "x")->status, DDP_E_CONFLICT);
    ck_assert_uint_eq(last()->version, 0);
    uint64_t first = cas("a", 0, "x")->version;
    ck_assert_uint_gt(first, 0);
    ck_assert_int_eq(cas("a", 0, "y")->status, DDP_E_CONFLICT);
    ck_assert_uint_eq(last()->version, first);
    ck_assert_int_eq(cas("a", first, "y")->status, DDP_OK);
    ck_assert_int_eq(cas("a", first, "z")->status, DDP_E_CONFLICT);
    ck_assert_str_eq(try_get("a")->value, "y");
    drop_key("a");
    ck_assert_int_eq(cas("a", 0, "again")->status, DDP_OK);
}
END_TEST

START_TEST(list_is_sorted_by_bytes)
{
    static const char *const names[] = {"b", "a10", "a9", "a", "\xff", "a/", "A"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        set(names[i], "x");
    struct ddpi_message list = {.op = DDPI_OP_LIST, .key = bytes("")};
    ck_assert_str_eq(call(0, list)->text, "A,a,a/,a10,a9,b,\xff");
    list.key = bytes("a");
    ck_assert_str_eq(call(0, list)->text, "a,a/,a10,a9");
    list.key = bytes("zz");
    ck_assert_uint_eq(call(0, list)->count, 0);
    get(1, 1, "awaited", 10); /* waited for is not there */
    list.key = bytes("aw");
    ck_assert_uint_eq(call(0, list)->count, 0);
}
END_TEST

START_TEST(a_get_waits)
{
    get(1, 11, "k", 100);
    get(2, 22, "k", 50);
    ck_assert_uint_eq(nreplies, 0);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 50);
    set("other", "x");
    ck_assert_uint_eq(nreplies, 1);
    set("k", "v");
    ck_assert_uint_eq(nreplies, 4);
    ck_assert(replies[1].client == 1 && replies[1].id == 11); /* in order of arrival */
    ck_assert(replies[2].client == 2 && replies[2].id == 22);
    ck_assert_str_eq(replies[2].value, "v");
    ck_assert_uint_eq(replies[2].version, 2);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), UINT64_MAX);
}
END_TEST

START_TEST(deadlines)
{
    get(1, 1, "k", 100);
    wait_keys(2, 2, "xyz", 30);
    get(3, 3, "k", 0); /* looks once */
    ck_assert_int_eq(last()->status, DDP_E_TIMEOUT);
    ck_assert_uint_eq(nreplies, 1);
    set("y", "1");
    ddpi_kv_expire(kv, now + 29);
    ck_assert_uint_eq(nreplies, 2);
    ddpi_kv_expire(kv, now + 30);
    ck_assert_uint_eq(nreplies, 3);
    ck_assert_uint_eq(last()->id, 2);
    ck_assert_ptr_nonnull(strstr(last()->text, "2 of 3 keys"));
    ck_assert_ptr_nonnull(strstr(last()->text, "'x'"));
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 100);
    ddpi_kv_expire(kv, now + 1000);
    ck_assert_uint_eq(last()->id, 1);
    set("k", "too late");
    ck_assert_uint_eq(nreplies, 5);
    get(1, 4, "never", UINT32_MAX);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + UINT32_MAX);
}
END_TEST

static struct got *cancel(int client, uint64_t id)
{
    ask(client, (struct ddpi_message){.op = DDPI_OP_CANCEL_REQUEST, .number = (int64_t)id});
    return last();
}

START_TEST(one_request_is_canceled)
{
    get(1, 11, "k", 100);
    get(1, 12, "k", 200);
    get(2, 11, "k", 300);
    ck_assert_int_eq(cancel(1, 13)->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(cancel(1, 11)->status, DDP_OK);
    ck_assert_uint_eq(nreplies, 3);
    ck_assert(replies[1].client == 1 && replies[1].id == 11);
    ck_assert_int_eq(replies[1].status, DDP_E_CANCELED);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 200);
    ck_assert_int_eq(cancel(1, 11)->status, DDP_E_NOT_FOUND);
    set("k", "v");
    ck_assert_uint_eq(nreplies, 7); /* the other two, and set */
}
END_TEST

START_TEST(waits_for_all_at_the_same_time)
{
    set("a", "1");
    wait_keys(1, 1, "abb", 100); /* twice the same is fine */
    drop_key("a");
    set("b", "1");
    ck_assert_uint_eq(nreplies, 3); /* b is there, a no more */
    set("a", "1");
    ck_assert_uint_eq(nreplies, 5);
    ck_assert_uint_eq(replies[3].id, 1);
    wait_keys(1, 2, "ab", 0); /* there already */
    ck_assert_int_eq(last()->status, DDP_OK);
    call(1, (struct ddpi_message){.op = DDPI_OP_WAIT});
    ck_assert_int_eq(last()->status, DDP_E_INVALID);
}
END_TEST

START_TEST(barriers_open_and_can_be_used_again)
{
    for (int round = 0; round < 3; round++) {
        nreplies = 0;
        for (int i = 0; i < 3; i++) {
            ck_assert_uint_eq(nreplies, 0);
            barrier(i, (uint64_t)i, "b", 3, 100);
        }
        ck_assert_uint_eq(nreplies, 3);
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(replies[i].status, DDP_OK);
    }
    barrier(0, 9, "alone", 1, 0);
    ck_assert_int_eq(last()->status, DDP_OK);
    barrier(0, 9, "nobody", 0, 0);
    ck_assert_int_eq(last()->status, DDP_E_INVALID);
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0);
}
END_TEST

START_TEST(barriers_lose_those_who_leave)
{
    barrier(0, 1, "b", 3, 50);
    barrier(1, 2, "b", 3, 500);
    ddpi_kv_expire(kv, now + 50);
    ck_assert_uint_eq(nreplies, 1);
    ck_assert_int_eq(last()->status, DDP_E_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(last()->text, "2 of 3"));
    barrier(2, 3, "b", 3, 500);
    ck_assert_uint_eq(nreplies, 1); /* 1 and 2 are in, 0 has left */
    ddpi_kv_client_gone(kv, &clients[2]);
    barrier(3, 4, "b", 3, 500);
    ck_assert_uint_eq(nreplies, 1);
    barrier(0, 5, "b", 3, 0); /* the third, even though it would not have waited */
    ck_assert_uint_eq(nreplies, 4);
}
END_TEST

START_TEST(barrier_counts_must_match)
{
    barrier(0, 1, "b", 3, 50);
    barrier(1, 2, "b", 2, 50);
    ck_assert_int_eq(last()->status, DDP_E_MISMATCH);
    ck_assert_uint_eq(last()->id, 2);
    ddpi_kv_expire(kv, now + 50);
    barrier(1, 3, "b", 2, 50); /* with the first one gone, the name is free */
    barrier(2, 4, "b", 2, 50);
    ck_assert_int_eq(last()->status, DDP_OK);
}
END_TEST

START_TEST(a_client_takes_its_waits_along)
{
    get(1, 1, "k", 100);
    wait_keys(1, 2, "kl", 100);
    barrier(1, 3, "b", 2, 100);
    get(2, 4, "k", 100);
    ddpi_kv_client_gone(kv, &clients[1]);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    set("k", "v");
    ck_assert_uint_eq(nreplies, 2);
    ck_assert_uint_eq(replies[0].id, 4);
    barrier(3, 5, "b", 2, 0);
    ck_assert_int_eq(last()->status, DDP_E_TIMEOUT);
}
END_TEST

START_TEST(limits_hold)
{
    kv_teardown();
    struct ddpi_kv_limits limits = {.room = {2, 4096, 1},
                                    .of_job = {SIZE_MAX, SIZE_MAX, SIZE_MAX},
                                    .key_len = 8,
                                    .value_len = 2000,
                                    .keys_per_wait = 3,
                                    .waits_per_client = 2};
    kv_make(&limits);
    static char long_value[3000];
    memset(long_value, 'v', 2001);
    ck_assert_int_eq(set("12345678", "")->status, DDP_OK);
    ck_assert_int_eq(set("123456789", "")->status, DDP_E_LIMIT);
    ck_assert_int_eq(set("v", long_value)->status, DDP_E_LIMIT);
    long_value[2000] = '\0';
    ck_assert_int_eq(set("v", long_value)->status, DDP_OK);
    ck_assert_int_eq(set("third", "")->status, DDP_E_LIMIT);
    ck_assert_int_eq(set("v", "x")->status, DDP_OK); /* a change is no new key */
    ck_assert_int_eq(drop_key("v")->status, DDP_OK);
    ck_assert_int_eq(set("third", "")->status, DDP_OK);

    wait_keys(1, 1, "abcd", 10);
    ck_assert_int_eq(last()->status, DDP_E_LIMIT);
    get(1, 2, "a", 10);
    barrier(1, 3, "b", 2, 10);
    get(1, 4, "c", 10);
    ck_assert_int_eq(last()->status, DDP_E_LIMIT);
    barrier(1, 5, "c", 2, 10);
    ck_assert_int_eq(last()->status, DDP_E_LIMIT);
    get(2, 6, "c", 10); /* another client's are not counted */
    ck_assert_uint_eq(last()->id, 5);

    size_t before = ddpi_kv_stats(kv).bytes;
    while (before + 1000 <
           limits.room[KV_ROOM_BYTES]) { /* waiting is paid for too, and by everybody */
        size_t was = nreplies;
        wait_keys(3, 7, "xyz", 10);
        if (nreplies > was)
            break;
        before = ddpi_kv_stats(kv).bytes;
    }
    set("third", long_value);
    ck_assert_int_eq(set("12345678", long_value)->status, DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(last()->text, "full"));
    ck_assert_uint_le(ddpi_kv_stats(kv).bytes, limits.room[KV_ROOM_BYTES]);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, kv_setup, kv_teardown);
    ADD_TESTS(tcase, set_and_get, delete_and_prefix, add_keeps_decimal_text, compare_and_swap,
              list_is_sorted_by_bytes, a_get_waits, deadlines, one_request_is_canceled,
              waits_for_all_at_the_same_time, barriers_open_and_can_be_used_again,
              barriers_lose_those_who_leave, barrier_counts_must_match,
              a_client_takes_its_waits_along, limits_hold);
    suite_add_tcase(suite, tcase);
    return suite;
}
