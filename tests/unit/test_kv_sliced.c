/*
 * test_kv_sliced.c - requests that take several turns: lists, counts and watches from the past;
 * which changes they see meanwhile, and that they do not hold up other requests.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <stdio.h>
#include <string.h>

enum { KEYS = 60, ENOUGH = 100000, SMALL = 512 };

static void make(size_t turn_work)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.turn_work = turn_work;
    kv_make(&limits);
    ddpi_kv_grant_work(kv);
}

static void put(const char *prefix, int number)
{
    char key[32];
    snprintf(key, sizeof key, "%s%03d", prefix, number);
    ck_assert_int_eq(set(key, "v")->status, DDP_OK);
}

static void drop(const char *prefix, int number)
{
    char key[32];
    snprintf(key, sizeof key, "%s%03d", prefix, number);
    ck_assert_int_eq(drop_key(key)->status, DDP_OK);
}

static void fill(const char *prefix, int count)
{
    for (int i = 0; i < count; i++)
        put(prefix, i);
}

static void list(int client, uint64_t id, const char *prefix)
{
    ask(client, (struct ddpi_message){.op = DDPI_OP_LIST, .id = id, .key = bytes(prefix)});
}

static void turn(void)
{
    ddpi_kv_grant_work(kv);
    ddpi_kv_work(kv, now);
}

static size_t find_answer(uint64_t id)
{
    size_t i = 0;
    while (i < nreplies && replies[i].id != id)
        i++;
    return i;
}

static bool is_answered(uint64_t id)
{
    return find_answer(id) < nreplies;
}

static struct got *answer_to(uint64_t id)
{
    ck_assert(is_answered(id));
    return &replies[find_answer(id)];
}

static unsigned turns_until(uint64_t id)
{
    unsigned turns = 0;
    for (; !is_answered(id); turns++) {
        ck_assert_uint_lt(turns, ENOUGH);
        turn();
    }
    return turns;
}

START_TEST(a_list_takes_its_share_of_each_turn)
{
    for (size_t work = 1; work <= KEYS + 2; work++) {
        make(ENOUGH);
        fill("k", KEYS);
        list(0, 1000, "k");
        ck_assert_uint_eq(last()->count, KEYS);
        static char whole[TEXT_MAX];
        snprintf(whole, sizeof whole, "%s", last()->text);
        kv_teardown();

        make(work);
        fill("a", 3);
        fill("k", KEYS);
        fill("l", 3);
        list(0, 1000, "k");
        ck_assert_int_eq(is_answered(1000), work >= KEYS);
        ck_assert_uint_eq(clients[0].nworks, work < KEYS);
        ck_assert_int_eq(ddpi_kv_has_work(kv), work < KEYS);
        /* The first share was had when it was asked for. */
        ck_assert_uint_eq(turns_until(1000), (KEYS - 1) / work);
        ck_assert_int_eq(answer_to(1000)->status, DDP_OK);
        ck_assert_uint_eq(answer_to(1000)->count, KEYS);
        ck_assert_str_eq(answer_to(1000)->text, whole);
        ck_assert_uint_eq(clients[0].nworks, 0);
        ck_assert(!ddpi_kv_has_work(kv));
        kv_teardown();
    }
}
END_TEST

START_TEST(what_changes_meanwhile)
{
    make(10);
    fill("k", 30);
    list(0, 1000, "k"); /* has seen ten */
    drop("k", 5);       /* behind: was there when it came by */
    put("k0050", 0);    /* behind, and new */
    drop("k", 9);       /* the place itself */
    drop("k", 20);      /* ahead */
    put("k0250", 0);    /* ahead, and new */
    put("k", 25);       /* only another value */
    ck_assert_uint_eq(turns_until(1000), 2);
    struct got *got = answer_to(1000);
    ck_assert_uint_eq(got->count, 30);
    ck_assert_ptr_nonnull(strstr(got->text, "k004,k005,k006"));
    ck_assert_ptr_nonnull(strstr(got->text, "k009,k010"));
    ck_assert_ptr_nonnull(strstr(got->text, "k019,k021"));
    ck_assert_ptr_nonnull(strstr(got->text, "k025,k0250000,k026"));
    ck_assert_ptr_null(strstr(got->text, "k0050000"));
    kv_teardown();
}
END_TEST

/* Nothing of the prefix is left at the place where it goes on. */
START_TEST(all_may_go_meanwhile)
{
    make(10);
    fill("k", 30);
    list(0, 1000, "k");
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("k")), 30);
    ck_assert_uint_eq(turns_until(1000), 1);
    ck_assert_uint_eq(answer_to(1000)->count, 10);
    kv_teardown();
}
END_TEST

START_TEST(one_after_the_other_and_small_ones_before)
{
    make(2 * SMALL);
    fill("k", 4 * SMALL);
    fill("s", 3);
    fill("t", SMALL + 1);
    for (uint64_t id = 1000; id < 1003; id++)
        list((int)(id - 1000), id, "k");
    ck_assert(!is_answered(1000));
    ddpi_kv_grant_work(kv);
    list(3, 2000, "s"); /* at once, though three stand in line */
    ck_assert_uint_eq(answer_to(2000)->count, 3);
    list(3, 2001, "t");
    ck_assert(!is_answered(2001)); /* not small */
    ck_assert_int_eq(set("k1", "v")->status, DDP_OK);
    (void)turns_until(1000);
    ck_assert(!is_answered(1001));
    (void)turns_until(1001);
    ck_assert(!is_answered(1002));
    (void)turns_until(1002);
    (void)turns_until(2001);
    ck_assert_uint_eq(answer_to(2001)->count, SMALL + 1);
    ck_assert_uint_eq(answer_to(1002)->count, 4 * SMALL + 1);
    kv_teardown();
}
END_TEST

START_TEST(no_work_no_answer)
{
    make(5);
    fill("k", 5);
    list(0, 1000, "k"); /* takes all that there is, and does not know that this was the last */
    list(1, 1001, "k000");
    ck_assert(!is_answered(1001));
    turn();
    ck_assert_uint_eq(answer_to(1000)->count, 5);
    ck_assert_uint_eq(answer_to(1001)->count, 1);
    kv_teardown();
}
END_TEST

START_TEST(who_goes_is_forgotten)
{
    make(5);
    fill("k", 20);
    for (uint64_t i = 0; i < 3; i++)
        list((int)i, 1000 + i, "k");
    ddpi_kv_client_gone(kv, &clients[0]); /* the one at the head */
    ddpi_kv_client_gone(kv, &clients[2]);
    ck_assert_uint_eq(clients[0].nworks, 0);
    (void)turns_until(1001);
    ck_assert_uint_eq(answer_to(1001)->count, 20);
    ck_assert(!ddpi_kv_has_work(kv));
    ck_assert(!is_answered(1000));
    ck_assert(!is_answered(1002));
    kv_teardown();
}
END_TEST

/* Whatever changes, and wherever the counting is. */
START_TEST(a_count_is_exact)
{
    for (size_t work = 1; work < 12; work++) {
        make(work);
        struct ddpi_kv_scope *scope;
        fill("s/k", KEYS);
        fill("t", 5);
        ck_assert_int_eq(ddpi_kv_scope_get(kv, bytes("s/"), &scope, NULL), DDP_OK);
        clients[1].scope = scope;
        ask(1, (struct ddpi_message){.op = DDPI_OP_COUNT_KEYS, .id = 1000});
        size_t expected = KEYS;
        for (int i = 0; !is_answered(1000); i++) {
            ck_assert_int_lt(i, ENOUGH);
            drop("s/k", i % KEYS);
            put("s/k", (7 * i) % KEYS);
            put("s/x", i);
            expected = ddpi_kv_stats(kv).keys - 5;
            turn();
        }
        ck_assert_int_eq(answer_to(1000)->number, (int64_t)expected);
        put("s/y", 0);
        ask(1, (struct ddpi_message){.op = DDPI_OP_COUNT_KEYS, .id = 1001});
        ck_assert_int_eq(answer_to(1001)->number, (int64_t)expected + 1); /* known by now */
        ddpi_kv_client_gone(kv, &clients[1]);
        clients[1].scope = NULL;
        ddpi_kv_scope_put(kv, scope);
        kv_teardown();
    }
}
END_TEST

static void watch_from(int client, uint64_t id, uint64_t version)
{
    ask(client, (struct ddpi_message){.op = DDPI_OP_WATCH,
                                      .id = id,
                                      .key = bytes("k"),
                                      .version = version,
                                      .count = DDPI_WATCH_PREFIX});
}

static size_t told(uint64_t id)
{
    size_t count = 0;
    for (size_t i = 0; i < nreplies; i++)
        count += replies[i].id == id;
    return count;
}

/* The first of a turn may look back as far as it likes, the others wait for theirs. */
START_TEST(looks_into_the_past_wait_for_their_turn)
{
    make(8);
    watch_from(3, 1, 0);
    fill("k", KEYS);
    uint64_t from = ddpi_kv_stats(kv).version - KEYS + 1;
    ddpi_kv_grant_work(kv);
    for (int i = 0; i < 3; i++)
        watch_from(i, 1000 + (uint64_t)i, from);
    ck_assert_uint_eq(told(1000), 1 + KEYS);
    ck_assert_uint_eq(told(1001), 0);
    ck_assert_uint_eq(clients[1].nworks, 1);
    put("k", KEYS); /* comes in its place, and once */
    turn();
    ck_assert_uint_eq(told(1000), 2 + KEYS);
    ck_assert_uint_eq(told(1001), 2 + KEYS);
    ck_assert_uint_eq(told(1002), 0);
    ck_assert_uint_eq(clients[1].nworks, 0);
    turn();
    ck_assert_uint_eq(told(1002), 2 + KEYS);
    kv_teardown();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_work");
    TCase *tcase = tcase_create("work");
    ADD_TESTS(tcase, a_list_takes_its_share_of_each_turn, what_changes_meanwhile,
              all_may_go_meanwhile, one_after_the_other_and_small_ones_before, no_work_no_answer,
              who_goes_is_forgotten, a_count_is_exact, looks_into_the_past_wait_for_their_turn);
    suite_add_tcase(suite, tcase);
    return suite;
}
