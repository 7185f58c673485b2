/*
 * test_sinks.c - the contract of each sink: what a core tells it, and another core is given back,
 * is the same store. All sinks give back the same changes, in the same order.
 */
#include "check_main.h"
#include "sample.h"
#include "sink_fixture.h"

#include <ddprun/store.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 6, SESSIONS = 64, STEPS = 300, SEEDS = 20, PICTURE = 64 * 1024 };

static const struct sink_row *const rows[] = {&sink_in_sqlite, &sink_in_etcd};
enum { ROWS = sizeof rows / sizeof *rows };

struct token {
    char bytes[DDPI_SESSION_SIZE];
};
static struct token tokens[SESSIONS];
static size_t ntokens;

/* ---- everything that can be seen of a core, as text; its queues are empty afterwards ---- */

static char *put_replies(char *at, const char *end_of_text, const char *what)
{
    for (size_t i = 0; i < nreplies; i++)
        at +=
            snprintf(at, (size_t)(end_of_text - at), "%s: %d v%" PRIu64 " n%" PRId64 " '%s' '%s'\n",
                     what, replies[i].status, replies[i].version, replies[i].number,
                     replies[i].value, replies[i].status == DDP_OK ? replies[i].text : "");
    return at;
}

static void turn(void)
{
    ddpi_kv_grant_work(kv);
    ddpi_kv_work(kv, now);
}

static void ask_until_answered(struct ddpi_message request)
{
    nreplies = 0;
    for (ask(1, request); nreplies == 0;)
        turn();
}

static void take_picture(char picture[PICTURE])
{
    char *at = picture;
    const char *end_of_text = picture + PICTURE;
    ddpi_kv_set_sink(kv, NULL, NULL);
    ddpi_kv_client_gone(kv, &clients[2]); /* watches would be notified in between */
    for (int key = 0; key < KEYS; key++) {
        ask_key(DDPI_OP_TRY_GET, key, "", 0);
        at = put_replies(at, end_of_text, "key");
        do {
            ask_key(DDPI_OP_POP, key, "", 0);
            at = put_replies(at, end_of_text, "queue");
        } while (last()->number > 0);
    }
    for (size_t i = 0; i < ntokens; i++) {
        ask_session(DDPI_OP_SESSION_KEEP, tokens[i].bytes, 0, "");
        at = put_replies(at, end_of_text, "session");
    }
    struct ddpi_mark mark = ddpi_kv_mark(kv);
    at += snprintf(at, (size_t)(end_of_text - at), "version %" PRIu64 " floor %" PRIu64 "\n",
                   mark.version, mark.floor);
    ask_until_answered((struct ddpi_message){
        .op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX, .version = mark.floor + 1});
    at = put_replies(at, end_of_text, "past");
    ddpi_kv_client_gone(kv, &clients[1]);
    for (size_t i = 0; i < ntokens; i++) { /* what vanishes with each */
        ask_session(DDPI_OP_SESSION_CLOSE, tokens[i].bytes, 0, "");
        ask_until_answered((struct ddpi_message){.op = DDPI_OP_LIST, .key = bytes("")});
        at = put_replies(at, end_of_text, "left");
    }
    ck_assert_int_gt(end_of_text - at, 1);
}

/* ---- random lives ---- */

static void open_session(void)
{
    if (ntokens == SESSIONS)
        return;
    struct got *got = call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 1000000});
    ck_assert_int_eq(got->status, DDP_OK);
    memcpy(tokens[ntokens++].bytes, got->value, DDPI_SESSION_SIZE);
}

static void detach(int key)
{
    char prefix[16] = "k";
    if (key > 0) /* else all */
        snprintf(prefix, sizeof prefix, "k%d", key);
    ddpi_kv_detach(kv, bytes(prefix));
}

static void random_step(unsigned *seed)
{
    static const enum ddpi_op ops[] = {DDPI_OP_SET,    DDPI_OP_SET,  DDPI_OP_APPEND, DDPI_OP_ADD,
                                       DDPI_OP_DELETE, DDPI_OP_PUSH, DDPI_OP_PUSH,   DDPI_OP_POP};
    char value[16];
    int key = rand_r(seed) % KEYS, which = rand_r(seed) % 14;
    size_t token = ntokens > 0 ? (size_t)rand_r(seed) % ntokens : 0;
    bool seldom = rand_r(seed) % 4 == 0;
    snprintf(value, sizeof value, "%d", rand_r(seed) % 1000);
    if (which < 8)
        ask_key(ops[which], key, ops[which] == DDPI_OP_ADD ? "" : value, 3);
    else if (which == 8 && seldom)
        detach(key);
    else if (which == 9) {
        turn();
    } else if (which == 10 && seldom)
        open_session();
    else if (which < 13 && ntokens > 0)
        ask_session(DDPI_OP_SET_EPHEMERAL, tokens[token].bytes, key, value);
    else if (which == 13 && ntokens > 0 && seldom)
        ask_session(DDPI_OP_SESSION_CLOSE, tokens[token].bytes, key, "");
}

static void assert_same_text(const char *which, const char *wanted, const char *got)
{
    size_t at = 0, line = 0;
    for (; wanted[at] != '\0' && wanted[at] == got[at]; at++)
        line = wanted[at] == '\n' ? at + 1 : line;
    ck_assert_msg(wanted[at] == got[at], "%s: %.80s, not %.80s", which, got + line, wanted + line);
}

/* Kill and restore again and again, and let the last life be seen before and after. One step in
 * @steps_of_turn is followed by a commit. */
static void live(unsigned seed, const struct ddpi_kv_limits *limits, unsigned steps_of_turn)
{
    static char before[PICTURE], after[PICTURE];
    const bool watched = seed % 2;
    ntokens = 0;
    for (int life = 0; life < 3; life++) {
        sink_begin(limits);
        if (watched)
            ask(2, (struct ddpi_message){.op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX});
        for (int i = 0; i < STEPS; i++) {
            random_step(&seed);
            if ((unsigned)rand_r(&seed) % steps_of_turn == 0)
                sink_commit();
        }
        sink_commit();
        if (life == 2)
            take_picture(before);
        sink_end();
    }
    sink_begin(limits);
    take_picture(after);
    sink_end();
    assert_same_text("after a kill", before, after);
}

static void live_in_each(unsigned seed, const struct ddpi_kv_limits *limits, unsigned steps_of_turn)
{
    char *first = NULL;
    for (int i = 0; i < ROWS; i++) {
        rows[i]->setup();
        live(seed, limits, steps_of_turn);
        if (i == 0)
            first = strdup(sink_given());
        assert_same_text(rows[i]->name, first, sink_given());
        rows[i]->teardown();
    }
    free(first);
}

START_TEST(what_is_restored_is_the_same)
{
    live_in_each((unsigned)_i, &ddpi_kv_limits_default, 5);
}
END_TEST

/* Turns with more changes than one transaction of etcd takes. */
START_TEST(long_turns)
{
    live_in_each((unsigned)_i, &ddpi_kv_limits_default, 400);
}
END_TEST

/* Lives end while deletions and ends of sessions are under way. */
START_TEST(what_was_gone_stays_gone)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.turn_work = 1 + (unsigned)_i % 3;
    live_in_each((unsigned)_i, &limits, 5);
}
END_TEST

START_TEST(a_history_that_forgets_is_restored_as_it_is)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.history_changes = 10;
    live_in_each(4711, &limits, 5);
    limits.history_bytes = 5; /* some changes are larger: gaps */
    live_in_each(4713, &limits, 5);
    live_in_each(4715, &limits, 50);
}
END_TEST

/* ---- one sink at a time ---- */

/* Values that came behind a deletion which is still under way are not taken for earlier ones. */
START_TEST(what_comes_behind_a_deletion_stays)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.turn_work = 1;
    sink_begin(&limits);
    ask_key(DDPI_OP_SET, 0, "old", 0);
    ask_key(DDPI_OP_PUSH, 1, "old", 0);
    detach(0);
    ask_key(DDPI_OP_PUSH, 1, "new", 0);
    ask_key(DDPI_OP_SET, 2, "new", 0);
    ck_assert(ddpi_kv_has_work(kv));
    sink_commit();
    sink_end();
    sink_begin(&limits);
    ask_key(DDPI_OP_TRY_GET, 0, "", 0);
    ck_assert_int_eq(last()->status, DDP_E_NOT_FOUND);
    ask_key(DDPI_OP_POP, 1, "", 0);
    ck_assert_str_eq(last()->value, "new");
    ask_key(DDPI_OP_TRY_GET, 2, "", 0);
    ck_assert_str_eq(last()->value, "new");
    sink_end();
}
END_TEST

START_TEST(what_was_not_committed_has_not_happened)
{
    sink_begin(&ddpi_kv_limits_default);
    set("a", "1");
    sink_commit();
    set("a", "2");
    set("b", "2");
    sink_end();
    sink_begin(&ddpi_kv_limits_default);
    ck_assert_str_eq(try_get("a")->value, "1");
    ck_assert_int_eq(try_get("b")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_stats(kv).version, 1);
    sink_end();
}
END_TEST

START_TEST(the_owner_s_deletions_are_kept_too)
{
    sink_begin(&ddpi_kv_limits_default);
    set("g0/a", "1");
    set("g1/a", "1");
    ask(0, (struct ddpi_message){.op = DDPI_OP_PUSH, .key = bytes("g0/q"), .value = bytes("1")});
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("g0/")), 1);
    sink_commit();
    sink_end();
    sink_begin(&ddpi_kv_limits_default);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 1);
    ck_assert_int_eq(
        (int)call(0, (struct ddpi_message){.op = DDPI_OP_QUEUE_LEN, .key = bytes("g0/q")})->number,
        0);
    sink_end();
}
END_TEST

START_TEST(sessions_end_when_their_new_lease_is_over)
{
    sink_begin(&ddpi_kv_limits_default);
    struct got *got = call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 50});
    memcpy(tokens[0].bytes, got->value, DDPI_SESSION_SIZE);
    ask_session(DDPI_OP_SET_EPHEMERAL, tokens[0].bytes, 1, "x");
    sink_commit();
    sink_end();
    sink_begin(&ddpi_kv_limits_default);
    ck_assert_int_eq(try_get("k1")->status, DDP_OK);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 50);
    ddpi_kv_expire(kv, now + 50);
    ck_assert_int_eq(try_get("k1")->status, DDP_E_NOT_FOUND);
    sink_commit();
    sink_end();
    sink_begin(&ddpi_kv_limits_default);
    ck_assert_int_eq(try_get("k1")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_stats(kv).sessions, 0);
    sink_end();
}
END_TEST

/* An agent may have seen the number before: its records name members by it. */
START_TEST(the_number_of_a_session_does_not_come_again)
{
    uint64_t last = 0, number;
    for (int life = 0; life < 3; life++) {
        sink_begin(&ddpi_kv_limits_default);
        for (int i = 0; i < 3; i++) {
            ntokens = 0;
            open_session();
            memcpy(&number, tokens[0].bytes, sizeof number);
            ck_assert_uint_gt(number, last);
            last = number;
            if (i == 1)
                ask_session(DDPI_OP_SET_EPHEMERAL, tokens[0].bytes, 1, "x");
            ask_session(DDPI_OP_SESSION_CLOSE, tokens[0].bytes, 0, "");
            turn();
        }
        sink_commit();
        ck_assert_uint_eq(ddpi_kv_stats(kv).sessions, 0);
        sink_end();
    }
}
END_TEST

enum { NAMED = 300 }; /* more changes than one transaction of etcd takes */

static void tie_named(int from, int to, const char *token, struct ddpi_buf *names)
{
    for (int i = from; i < to; i++) {
        char key[16];
        snprintf(key, sizeof key, "named%d", i);
        ck_assert(ddpi_keys_put(names, bytes(key)));
        if (token != NULL)
            ask(0, (struct ddpi_message){.op = DDPI_OP_SET_EPHEMERAL,
                                         .key = bytes(key),
                                         .session = {token, DDPI_SESSION_SIZE}});
    }
}

/* A wait that would be complete drops those of its keys that are gone, between the key that
 * completes it and whatever the core tells next. */
START_TEST(a_key_that_ends_waits_is_its_session_s_at_once)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    struct ddpi_buf names;
    ddpi_buf_init(&names, 1 << 16);
    limits.turn_work = 1;
    sink_begin(&limits);
    ntokens = 0;
    open_session();
    open_session();
    tie_named(0, NAMED, tokens[0].bytes, &names);
    tie_named(NAMED, NAMED + 1, NULL, &names);
    ask(1, (struct ddpi_message){
               .op = DDPI_OP_WAIT,
               .keys = {ddpi_buf_head(&names), ddpi_buf_len(&names), NAMED + 1, false},
               .timeout_ms = 1000});
    sink_commit();
    ask_session(DDPI_OP_SESSION_CLOSE, tokens[0].bytes, 0, "");
    tie_named(NAMED, NAMED + 1, tokens[1].bytes, &names);
    sink_commit();
    sink_end();
    sink_begin(&limits);
    ck_assert_int_eq(try_get("named300")->status, DDP_OK);
    ck_assert_int_eq(try_get("named0")->status, DDP_E_NOT_FOUND);
    ask_session(DDPI_OP_SESSION_CLOSE, tokens[1].bytes, 0, "");
    ck_assert_int_eq(try_get("named300")->status, DDP_E_NOT_FOUND);
    sink_end();
    ddpi_buf_finish(&names);
}
END_TEST

START_TEST(leases_begin_when_all_is_loaded)
{
    sink_begin(&ddpi_kv_limits_default);
    call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 50});
    sink_commit();
    sink_end();
    sink_begin(&ddpi_kv_limits_default);
    now += 1000; /* it took that long */
    ddpi_kv_restore_mark(kv, &sink_restored, now);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 50);
    sink_end();
}
END_TEST

START_TEST(a_watch_of_what_does_not_change_goes_on)
{
    sink_begin(&ddpi_kv_limits_default);
    set("a", "1");
    sink_commit();
    ask(1, (struct ddpi_message){.op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX});
    sink_commit();
    sink_end();
    sink_begin(&ddpi_kv_limits_default);
    set("a", "2"); /* before the watcher is back */
    nreplies = 0;
    ask(1, (struct ddpi_message){.op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX, .version = 2});
    ck_assert_uint_eq(nreplies, 2);
    ck_assert_int_eq(replies[0].status, DDP_OK);
    ck_assert_str_eq(replies[1].value, "2");
    ddpi_kv_client_gone(kv, &clients[1]);
    sink_end();
}
END_TEST

START_TEST(an_incarnation_is_kept)
{
    sink_begin(&ddpi_kv_limits_default);
    uint64_t first = sink_restored.incarnation;
    set("a", "1");
    sink_commit();
    sink_end();
    sink_begin(&ddpi_kv_limits_default);
    ck_assert_uint_eq(sink_restored.incarnation, first);
    sink_end();
}
END_TEST

static void add_contract(Suite *suite, const struct sink_row *row)
{
    TCase *tcase = tcase_create(row->name);
    tcase_add_checked_fixture(tcase, row->setup, row->teardown);
    ADD_TESTS(tcase, what_comes_behind_a_deletion_stays, what_was_not_committed_has_not_happened,
              the_owner_s_deletions_are_kept_too, sessions_end_when_their_new_lease_is_over,
              the_number_of_a_session_does_not_come_again,
              a_key_that_ends_waits_is_its_session_s_at_once, leases_begin_when_all_is_loaded,
              a_watch_of_what_does_not_change_goes_on, an_incarnation_is_kept);
    suite_add_tcase(suite, tcase);
}

Suite *test_suite(void)
{
    Suite *suite = suite_create("sinks");
    TCase *lives = tcase_create("lives");
    add_sample(lives, what_is_restored_is_the_same, 1, 1 + SEEDS);
    add_sample(lives, long_turns, 50, 50 + SEEDS);
    add_sample(lives, what_was_gone_stays_gone, 100, 100 + SEEDS);
    tcase_add_test(lives, a_history_that_forgets_is_restored_as_it_is);
    suite_add_tcase(suite, lives);
    for (int i = 0; i < ROWS; i++)
        add_contract(suite, rows[i]);
    return suite;
}
