/*
 * test_kv_room.c - limits: shares of jobs, the reserve for rounds, and the sentences that name the
 * job that fills the store.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <stdio.h>
#include <string.h>

enum { AGENT = 0, OF_A = 1, OF_B = 2, JOBLESS = 3 };

static struct ddpi_kv_scope *scopes[2];

static void enter(int client, size_t index, const char *prefix)
{
    ck_assert_int_eq(ddpi_kv_scope_get(kv, bytes(prefix), &scopes[index], NULL), DDP_OK);
    clients[client].scope = scopes[index];
}

static void make_room(const struct ddpi_kv_limits *limits)
{
    kv_make(limits);
    clients[AGENT].agent = true;
    enter(OF_A, 0, "job/a/");
    enter(OF_B, 1, "job/b/");
}

static void leave(void)
{
    for (int i = 0; i < CLIENTS; i++)
        ddpi_kv_client_gone(kv, &clients[i]);
    for (size_t i = 0; i < 2; i++)
        ddpi_kv_scope_put(kv, scopes[i]);
    clients[OF_A].scope = clients[OF_B].scope = NULL;
    kv_teardown();
}

static struct ddpi_kv_limits limits_of(size_t keys, size_t of_job)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.room[KV_ROOM_KEYS] = keys;
    for (int room = 0; room < KV_ROOMS; room++)
        limits.of_job[room] = of_job;
    return limits;
}

static ddp_status put(int client, const char *key, const char *value)
{
    return call(client,
                (struct ddpi_message){.op = DDPI_OP_SET, .key = bytes(key), .value = bytes(value)})
        ->status;
}

/* How many keys @client can set, until it is refused. */
static size_t fill(int client, const char *prefix)
{
    char key[32];
    for (size_t count = 0;; count++) {
        snprintf(key, sizeof key, "%s%zu", prefix, count);
        if (put(client, key, "v") != DDP_OK)
            return count;
    }
}

static ddp_status open_session(int client)
{
    return call(client, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 1000})->status;
}

START_TEST(each_leaves_as_much_as_it_has)
{
    for (size_t keys = 1; keys <= 33; keys++) {
        struct ddpi_kv_limits limits = limits_of(keys, 0);
        make_room(&limits);
        size_t a = fill(OF_A, "");
        ck_assert_uint_eq(a, (keys + 1) / 2);
        size_t b = fill(OF_B, "");
        ck_assert_uint_eq(b, (keys - a + 1) / 2);
        if (keys > a + b)
            ck_assert_ptr_nonnull(strstr(last()->text, "the job 'b' has"));
        size_t none = fill(JOBLESS, "x/");
        ck_assert_uint_eq(none, (keys - a - b + 1) / 2);
        ck_assert_uint_eq(fill(OF_A, "more/"), 0);
        ck_assert_int_eq(put(OF_A, "0", "w"), DDP_OK); /* as many bytes, and no new key */
        leave();
    }
}
END_TEST

START_TEST(bytes_and_sessions_are_shared_too)
{
    struct ddpi_kv_limits limits = limits_of(1000, 0);
    limits.room[KV_ROOM_BYTES] = 100000;
    limits.room[KV_ROOM_SESSIONS] = 4;
    make_room(&limits);
    ck_assert_int_eq(open_session(OF_A), DDP_OK);
    ck_assert_int_eq(open_session(OF_A), DDP_OK);
    ck_assert_int_eq(open_session(OF_A), DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(last()->text, "the job 'a' has 2 sessions, and 2 are free"));
    ck_assert_int_eq(open_session(OF_B), DDP_OK);
    (void)fill(OF_A, "");
    ck_assert_ptr_nonnull(strstr(last()->text, "the job 'a' has"));
    ck_assert_ptr_nonnull(strstr(last()->text, " bytes, and "));
    size_t used = ddpi_kv_stats(kv).bytes;
    ck_assert_uint_gt(used, 45000);
    ck_assert_uint_lt(used, 55000);
    ck_assert_uint_ge(fill(OF_B, ""), 50);
    ck_assert_uint_eq(ddpi_kv_stats(kv).shares_full, 3);
    leave();
}
END_TEST

/* Watches, waits and barriers take room as well, and that of their job. */
START_TEST(whoever_waits_pays)
{
    struct ddpi_kv_limits limits = limits_of(1000, 0);
    limits.room[KV_ROOM_BYTES] = 100000;
    make_room(&limits);
    static char name[400];
    struct ddpi_message watch = {.op = DDPI_OP_WATCH, .key = {name, sizeof name}};
    ck_assert_int_eq(call(OF_A, watch)->status, DDP_OK);
    memset(name, 'w', sizeof name);
    ck_assert_int_eq(call(OF_A, watch)->status, DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(last()->text, "the job 'a' has"));
    size_t count = 0;
    for (; count < 1000; count++) {
        snprintf(name, sizeof name, "barrier %zu", count);
        size_t before = nreplies;
        barrier(OF_A, count, name, 2, 1000);
        if (nreplies > before)
            break;
    }
    ck_assert_uint_lt(count, 400);
    ck_assert_int_eq(last()->status, DDP_E_LIMIT);
    ck_assert_uint_ge(fill(OF_B, ""), 50);
    leave();
}
END_TEST

START_TEST(a_number_for_each)
{
    struct ddpi_kv_limits limits = limits_of(10, 4);
    limits.of_job[KV_ROOM_BYTES] = SIZE_MAX;
    make_room(&limits);
    ck_assert_uint_eq(fill(OF_A, ""), 4);
    ck_assert_ptr_nonnull(strstr(last()->text, "the job 'a' has 4 keys, of at most 4"));
    ck_assert_ptr_nonnull(strstr(last()->text, "--max-job-keys"));
    ck_assert_uint_eq(fill(OF_B, ""), 4);
    ck_assert_uint_eq(fill(JOBLESS, "x/"), 2);
    ck_assert_ptr_nonnull(strstr(last()->text, "holds 10 of at most 10 keys"));
    ck_assert_uint_eq(ddpi_kv_stats(kv).shares_full, 2);
    leave();
}
END_TEST

START_TEST(the_largest_is_named)
{
    struct ddpi_kv_limits limits = limits_of(6, SIZE_MAX);
    make_room(&limits);
    ck_assert_int_eq(put(OF_A, "few", "of a"), DDP_OK);
    ck_assert_uint_eq(fill(OF_B, ""), 5);
    ck_assert_ptr_nonnull(strstr(last()->text, "the most, 5 keys"));
    ck_assert_ptr_nonnull(strstr(last()->text, "belong to the job 'b'; delete keys"));
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("job/b/")), 5);
    ck_assert_uint_eq(fill(JOBLESS, "x/"), 5);
    ck_assert_ptr_nonnull(strstr(last()->text, "belong to no job; delete keys"));
    leave();
}
END_TEST

/* However full it is, and however small the limits are. */
START_TEST(the_rounds_have_room_of_their_own)
{
    struct ddpi_kv_limits limits = limits_of(1, SIZE_MAX);
    limits.room[KV_ROOM_BYTES] = 1000;
    limits.room[KV_ROOM_SESSIONS] = 1;
    limits.key_len = limits.value_len = 4;
    make_room(&limits);
    ck_assert_uint_eq(fill(OF_A, ""), 1);
    ck_assert_int_eq(open_session(OF_A), DDP_OK);
    ck_assert_int_eq(open_session(OF_A), DDP_E_LIMIT);
    for (int member = 0; member < 50; member++) {
        char key[64];
        snprintf(key, sizeof key, "round/j/member/%d", member);
        ck_assert_int_eq(open_session(AGENT), DDP_OK);
        ck_assert_int_eq(put(AGENT, key, "what it says is longer than a value may be"), DDP_OK);
        ck_assert_int_eq(
            call(AGENT, (struct ddpi_message){.op = DDPI_OP_WATCH, .key = bytes(key)})->status,
            DDP_OK);
    }
    ck_assert_int_eq(put(AGENT, "x", "v"), DDP_E_LIMIT); /* nothing else */
    ck_assert_int_eq(put(AGENT, "longer", "v"), DDP_E_LIMIT);
    ck_assert_int_eq(put(JOBLESS, "round/j/member/x", "v"), DDP_E_LIMIT);
    leave();
}
END_TEST

/* A worker waits for what an agent will say, and the store gets full. */
START_TEST(waiting_takes_nothing_out_of_the_reserve)
{
    static const char *const keys[] = {"round/j/member/1", "round/j/member/2"};
    struct ddpi_kv_limits limits = limits_of(1, SIZE_MAX);
    limits.room[KV_ROOM_BYTES] = 5000;
    make_room(&limits);
    get(JOBLESS, 1, keys[0], 1000);
    get(JOBLESS, 2, keys[1], 1000);
    ck_assert_uint_eq(ddpi_kv_stats(kv).reserved, 0); /* who waits pays */
    ck_assert_uint_eq(fill(OF_A, ""), 1);
    ask(AGENT, (struct ddpi_message){.op = DDPI_OP_SET, .key = bytes(keys[0])});
    ck_assert_msg(last()->status == DDP_OK, "%s", last()->text);
    const struct ddpi_clause clause = {
        .kind = DDPI_THEN_SET, .key = bytes(keys[1]), .value = bytes("v")};
    ck_assert_int_eq(transact(&clause, 1)->status, DDP_OK);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("job/a/")), 1);
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, ddpi_kv_stats(kv).reserved);
    leave();
}
END_TEST

START_TEST(and_it_ends_too)
{
    struct ddpi_kv_limits limits = limits_of(100, SIZE_MAX);
    limits.reserve[KV_ROOM_SESSIONS] = 2;
    limits.reserve[KV_ROOM_BYTES] = 10000;
    make_room(&limits);
    ck_assert_int_eq(open_session(AGENT), DDP_OK);
    ck_assert_int_eq(open_session(AGENT), DDP_OK);
    ck_assert_int_eq(open_session(AGENT), DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(last()->text, "the nodes of jobs hold 2 of at most 2 sessions"));
    ck_assert_uint_ge(fill(AGENT, "round/j/"), 20);
    ck_assert_ptr_nonnull(strstr(last()->text, "--reserve"));
    ck_assert_int_eq(ddpi_kv_poke(kv, bytes("round/j/seat/1"), bytes("v"), NULL), DDP_OK);
    ck_assert_uint_eq(fill(OF_A, ""), 100); /* what is reserved does not count */
    leave();
}
END_TEST

/* A transaction, many keys at once and a queue find the same. */
START_TEST(every_way_in_is_counted)
{
    struct ddpi_kv_limits limits = limits_of(4, 0);
    limits.room[KV_ROOM_BYTES] = 4000;
    make_room(&limits);
    const struct ddpi_clause clauses[] = {
        {.kind = DDPI_THEN_SET, .key = bytes("job/a/1"), .value = bytes("v")},
        {.kind = DDPI_THEN_SET, .key = bytes("job/a/2"), .value = bytes("v")},
        {.kind = DDPI_THEN_SET, .key = bytes("job/a/3"), .value = bytes("v")},
        {.kind = DDPI_THEN_SET, .key = bytes("round/a/1"), .value = bytes("v")}};
    ck_assert_int_eq(transact(clauses, 3)->status, DDP_OK); /* of three, all are free before */
    leave();
    make_room(&limits);
    ck_assert_int_eq(transact(clauses, 2)->status, DDP_OK);
    ck_assert_int_eq(transact(clauses + 2, 2)->status, DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(last()->text, "the job 'a' has 2 keys"));
    ck_assert_int_eq(transact(clauses + 3, 1)->status, DDP_OK);
    size_t pushed = 0;
    while (call(OF_B, (struct ddpi_message){.op = DDPI_OP_PUSH,
                                            .key = bytes("q"),
                                            .value = bytes("0123456789")})
               ->status == DDP_OK)
        pushed++;
    ck_assert_uint_gt(pushed, 5);
    ck_assert_ptr_nonnull(strstr(last()->text, "the job 'b' has"));
    leave();
}
END_TEST

/* Nothing stays of a job whose first key comes with another one that is refused, as it is the
 * server's, or for the rounds, which have no room: kv_teardown() looks for accounts. */
START_TEST(a_refused_transaction_leaves_no_account)
{
    struct ddpi_kv_limits limits = limits_of(100, SIZE_MAX);
    limits.reserve[KV_ROOM_BYTES] = 1000;
    make_room(&limits);
    ddpi_kv_reserve(kv, "epoch/");
    ck_assert_uint_ge(fill(AGENT, "round/j/"), 1);
    const struct ddpi_clause clauses[] = {
        {.kind = DDPI_THEN_SET, .key = bytes("job/x/k"), .value = bytes("v")},
        {.kind = DDPI_THEN_SET,
         .key = bytes(_i == 0 ? "epoch/x" : "round/j/more"),
         .value = bytes("v")}};
    ck_assert_int_eq(transact(clauses, 2)->status, _i == 0 ? DDP_E_DENIED : DDP_E_LIMIT);
    leave();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_room");
    TCase *tcase = tcase_create("room");
    ADD_TESTS(tcase, each_leaves_as_much_as_it_has, bytes_and_sessions_are_shared_too,
              whoever_waits_pays, a_number_for_each, the_largest_is_named,
              the_rounds_have_room_of_their_own, waiting_takes_nothing_out_of_the_reserve,
              and_it_ends_too, every_way_in_is_counted);
    tcase_add_loop_test(tcase, a_refused_transaction_leaves_no_account, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
