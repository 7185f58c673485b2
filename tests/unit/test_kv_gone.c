/*
 * test_kv_gone.c - many keys that go at once: those of a prefix, and of a session that is over. A
 * core that drops a few of them in each turn gives the same replies as one that drops all at once;
 * watches are told of the same changes of each key, and no turn does more than its share.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEYS = 6,
    STEPS = 400,
    ROUNDS = 60,
    SESSIONS = 3,
    SCRIPT = 1 << 20,
    WATCH_ID = 1000000, /* those of requests are smaller */
    ENOUGH = 100000,
};

static void turn(void)
{
    ddpi_kv_grant_work(kv);
    ddpi_kv_work(kv, now);
}

static unsigned turns_until_dropped(void)
{
    unsigned turns = 0;
    for (; ddpi_kv_has_work(kv); turns++) {
        ck_assert_uint_lt(turns, ENOUGH);
        turn();
    }
    return turns;
}

/* ---- two runs that look the same to clients ---- */

/* What clients saw, but for changes; and the changes of each key, but for their versions. */
struct story {
    char answers[SCRIPT];
    size_t used;
    char changes[KEYS][SCRIPT / 8];
    size_t nchanges[KEYS];
    uint64_t latest;
};
static struct story whole, sliced;

static void tell_change(struct story *story, const struct got *got)
{
    if (got->text[0] == '\0')
        return; /* the watch begins */
    ck_assert_uint_gt(got->version, story->latest);
    story->latest = got->version;
    int key = got->text[1] - '0';
    ck_assert(key >= 0 && key < KEYS);
    size_t *used = &story->nchanges[key];
    *used += (size_t)snprintf(story->changes[key] + *used, sizeof story->changes[key] - *used,
                              "%d '%s'\n", (int)got->number, got->value);
    ck_assert_uint_lt(*used, sizeof story->changes[key]);
}

static void take_replies(struct story *story)
{
    for (size_t i = 0; i < nreplies; i++) {
        const struct got *got = &replies[i];
        if (got->id == WATCH_ID) {
            tell_change(story, got);
            continue;
        }
        bool named = got->status == DDP_OK;
        story->used += (size_t)snprintf(
            story->answers + story->used, sizeof story->answers - story->used,
            "%d: %d n%d c%u '%s' '%s'\n", (int)got->id, (int)got->status, (int)got->number,
            got->count, named ? got->value : "", named ? got->text : "");
        ck_assert_uint_lt(story->used, sizeof story->answers);
    }
    nreplies = 0;
}

struct life {
    struct story *story;
    char tokens[SESSIONS][DDPI_SESSION_SIZE];
    struct ddpi_kv_scope *scope;
    unsigned seed;
    int step;
};

static int draw(struct life *life, int below)
{
    return (int)((unsigned)rand_r(&life->seed) % (unsigned)below);
}

/* What takes several turns is answered before anything else is asked. */
static void ask_now(struct life *life, int client, struct ddpi_message request)
{
    request.id = (uint64_t)life->step;
    ask(client, request);
    while (clients[client].nworks > 0)
        turn();
}

static void open_session(struct life *life, int number)
{
    size_t at = nreplies;
    ask(0, (struct ddpi_message){
               .op = DDPI_OP_SESSION_OPEN, .id = (uint64_t)life->step, .count = 1000});
    if (replies[at].status == DDP_OK)
        memcpy(life->tokens[number], replies[at].value, DDPI_SESSION_SIZE);
    replies[at].value[0] = '\0';
}

static void step_key(struct life *life, int kind)
{
    static const enum ddpi_op ops[] = {
        DDPI_OP_SET,           DDPI_OP_SET,    DDPI_OP_ADD_WRAP,    DDPI_OP_DELETE,
        DDPI_OP_TRY_GET,       DDPI_OP_APPEND, DDPI_OP_COMPARE_SET, DDPI_OP_PUSH,
        DDPI_OP_PUSH,          DDPI_OP_POP,    DDPI_OP_QUEUE_LEN,   DDPI_OP_SET_EPHEMERAL,
        DDPI_OP_SET_EPHEMERAL, DDPI_OP_CAS,
    };
    char key[] = {'k', (char)('0' + draw(life, KEYS))}, value[8];
    snprintf(value, sizeof value, "%d", draw(life, 1000));
    int session = draw(life, SESSIONS);
    ask_now(life, draw(life, 3),
            (struct ddpi_message){.op = ops[kind % (int)(sizeof ops / sizeof *ops)],
                                  .key = ddpi_bytes_of(key, 2),
                                  .value = bytes(value),
                                  .number = 1,
                                  .session = {life->tokens[session], DDPI_SESSION_SIZE}});
}

static void step_wait(struct life *life)
{
    struct ddpi_buf names;
    ddpi_buf_init(&names, 1 << 10);
    uint32_t count = 0;
    for (int k = draw(life, 3); k < KEYS; k += 1 + draw(life, 3), count++) {
        char key[] = {'k', (char)('0' + k)};
        ck_assert(ddpi_keys_put(&names, ddpi_bytes_of(key, 2)));
    }
    static const enum ddpi_op ops[] = {DDPI_OP_WAIT, DDPI_OP_WAIT, DDPI_OP_WAIT_EACH,
                                       DDPI_OP_CHECK};
    ask_now(
        life, draw(life, 3),
        (struct ddpi_message){.op = ops[draw(life, 4)],
                              .keys = {ddpi_buf_head(&names), ddpi_buf_len(&names), count, false},
                              .timeout_ms = (uint32_t)draw(life, 50)});
    ddpi_buf_finish(&names);
}

static void step(struct life *life)
{
    int kind = draw(life, 30), number = draw(life, SESSIONS);
    char prefix[] = {'k', (char)('0' + number), '\0'};
    if (draw(life, 2) == 0)
        prefix[1] = '\0';
    if (kind < 16) {
        step_key(life, kind);
    } else if (kind < 19) {
        step_wait(life);
    } else if (kind < 21) {
        ddpi_kv_detach(kv, bytes(prefix));
    } else if (kind < 22) {
        ask_now(life, 0,
                (struct ddpi_message){.op = DDPI_OP_SESSION_CLOSE,
                                      .session = {life->tokens[number], DDPI_SESSION_SIZE}});
    } else if (kind < 24) {
        open_session(life, number);
    } else if (kind < 25) {
        ask_now(life, 1, (struct ddpi_message){.op = DDPI_OP_LIST, .key = bytes(prefix)});
    } else if (kind < 26) {
        ask_now(life, 2, (struct ddpi_message){.op = DDPI_OP_COUNT_KEYS});
    } else if (kind < 27) {
        clients[2].scope = clients[2].scope == NULL ? life->scope : NULL;
        ask_now(life, 2, (struct ddpi_message){.op = DDPI_OP_COUNT_KEYS});
        clients[2].scope = NULL;
    } else if (kind < 28) {
        now += (uint64_t)draw(life, 200);
        do {
            ddpi_kv_grant_work(kv);
            ddpi_kv_expire(kv, now);
        } while (ddpi_kv_next_deadline(kv) <= now);
    } else if (kind < 29) {
        ddpi_kv_client_gone(kv, &clients[draw(life, 3)]);
    } else {
        turn();
    }
}

static void live(unsigned seed, size_t turn_work, size_t room, struct story *story)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    *story = (struct story){0};
    limits.turn_work = turn_work;
    limits.room[KV_ROOM_KEYS] = room;
    limits.of_job[KV_ROOM_KEYS] = seed % 3 == 0 ? 0 : limits.of_job[KV_ROOM_KEYS];
    kv_make(&limits);
    struct life life = {.story = story, .seed = seed};
    ck_assert_int_eq(ddpi_kv_scope_get(kv, bytes("k"), &life.scope, NULL), DDP_OK);
    ask(3, (struct ddpi_message){.op = DDPI_OP_WATCH, .id = WATCH_ID, .count = DDPI_WATCH_PREFIX});
    for (int i = 0; i < SESSIONS; i++)
        open_session(&life, i);
    for (life.step = 1; life.step < STEPS; life.step++) {
        step(&life);
        take_replies(story);
    }
    (void)turns_until_dropped();
    take_replies(story);
    ddpi_kv_scope_put(kv, life.scope);
    kv_teardown();
}

/* What comes first of what differs. */
static void compare(unsigned seed, const char *what, const char *one, const char *other)
{
    size_t at = 0, line = 0;
    for (; one[at] != '\0' && one[at] == other[at]; at++)
        line = one[at] == '\n' ? at + 1 : line;
    ck_assert_msg(one[at] == other[at], "seed %u, %s: at once %.60s, in turns %.60s", seed, what,
                  one + line, other + line);
}

START_TEST(nobody_sees_that_it_takes_turns)
{
    for (unsigned seed = 1; seed <= ROUNDS; seed++) {
        size_t room = seed % 2 == 0 ? 1000 : KEYS - 2;
        live(seed, 0, room, &whole);
        live(seed, 1 + seed % 4, room, &sliced);
        compare(seed, "answers", whole.answers, sliced.answers);
        for (int k = 0; k < KEYS; k++)
            compare(seed, "changes", whole.changes[k], sliced.changes[k]);
    }
}
END_TEST

/* ---- the share of a turn ---- */

enum { MANY = 2000, SMALL = 512 };

static void make(size_t turn_work)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.turn_work = turn_work;
    kv_make(&limits);
    ddpi_kv_grant_work(kv);
}

static void fill(const char *prefix, int count)
{
    char key[32];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%s%04d", prefix, i);
        ck_assert_int_eq(set(key, "v")->status, DDP_OK);
        nreplies = 0;
    }
}

static void watch_all(void)
{
    ask(3, (struct ddpi_message){.op = DDPI_OP_WATCH, .id = WATCH_ID, .count = DDPI_WATCH_PREFIX});
    nreplies = 0;
}

/* What has been told since the last time is the deletion of the keys from @first on. */
static int told(const char *prefix, int first)
{
    char key[32];
    for (size_t i = 0; i < nreplies; i++) {
        snprintf(key, sizeof key, "%s%04d", prefix, first++);
        ck_assert_str_eq(replies[i].text, key);
        ck_assert_int_eq((int)replies[i].number, DDPI_CHANGE_DELETE);
    }
    nreplies = 0;
    return first;
}

START_TEST(a_turn_drops_its_share)
{
    for (size_t work = 1; work < 4 * MANY; work = work * 3 + 1) {
        make(work);
        fill("k", MANY);
        fill("l", 1);
        watch_all();
        ddpi_kv_grant_work(kv);
        ddpi_kv_detach(kv, bytes("k"));
        ck_assert_uint_le(nreplies, work < SMALL ? work : SMALL);
        int done = told("k", 0);
        ck_assert_int_eq(try_get("k1999")->status, DDP_E_NOT_FOUND);
        nreplies = 0;
        for (unsigned turns = 0; ddpi_kv_has_work(kv); turns++) {
            ck_assert_uint_lt(turns, ENOUGH);
            turn();
            ck_assert_uint_le(nreplies, work);
            done = told("k", done);
        }
        ck_assert_int_eq(done, MANY);
        ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 1);
        kv_teardown();
    }
}
END_TEST

/* A value of a queue is as much work as a key. */
START_TEST(so_with_queues)
{
    make(100);
    for (int i = 0; i < MANY; i++)
        ask(0, (struct ddpi_message){.op = DDPI_OP_PUSH, .key = bytes("kq")});
    ddpi_kv_detach(kv, bytes("k"));
    ck_assert_int_eq(
        (int)call(0, (struct ddpi_message){.op = DDPI_OP_QUEUE_LEN, .key = bytes("k")})->number, 0);
    ck_assert_uint_ge(turns_until_dropped(), (MANY - 100) / 100);
    kv_teardown();
}
END_TEST

static void tie(const char *token, const char *key)
{
    ask(0, (struct ddpi_message){.op = DDPI_OP_SET_EPHEMERAL,
                                 .key = bytes(key),
                                 .session = {token, DDPI_SESSION_SIZE}});
    ck_assert_int_eq(last()->status, DDP_OK);
    nreplies = 0;
}

/* A session with few keys does not wait for one with very many. */
START_TEST(sessions_take_turns)
{
    char tokens[2][DDPI_SESSION_SIZE], key[32];
    make(2 * SMALL);
    for (int i = 0; i < 2; i++)
        memcpy(tokens[i],
               call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 10})->value,
               DDPI_SESSION_SIZE);
    for (int i = 0; i < 2 * MANY; i++) {
        snprintf(key, sizeof key, "k%04d", i);
        tie(tokens[0], key);
    }
    fill("l", 2 * SMALL);
    tie(tokens[1], "m");
    ddpi_kv_grant_work(kv);
    ask(0, (struct ddpi_message){.op = DDPI_OP_LIST, .key = bytes("l")}); /* takes all the work */
    for (int i = 0; i < 2; i++)
        ask(0, (struct ddpi_message){.op = DDPI_OP_SESSION_CLOSE,
                                     .session = {tokens[i], DDPI_SESSION_SIZE}});
    ck_assert_int_eq(last()->status, DDP_OK);
    ck_assert_int_eq(try_get("m")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 2 * MANY + 2 * SMALL + 1);
    watch_all();
    turn();
    ck_assert_uint_eq(nreplies, SMALL); /* of the first; telling a watch is work, too */
    turn();
    ck_assert_str_eq(replies[SMALL].text, "m");
    (void)turns_until_dropped();
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 2 * SMALL);
    kv_teardown();
}
END_TEST

/* So do leases that end at the same time. */
START_TEST(leases_end_in_turns)
{
    make(10);
    for (int i = 0; i < 35; i++)
        (void)call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 10});
    now += 10;
    for (size_t left = 35; left > 0; left = ddpi_kv_stats(kv).sessions) {
        ck_assert_uint_le(ddpi_kv_next_deadline(kv), now);
        ddpi_kv_grant_work(kv);
        ddpi_kv_expire(kv, now);
        ck_assert_uint_eq(ddpi_kv_stats(kv).sessions, left > 10 ? left - 10 : 0);
    }
    kv_teardown();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_gone");
    TCase *tcase = tcase_create("gone");
    ADD_TESTS(tcase, nobody_sees_that_it_takes_turns, a_turn_drops_its_share, so_with_queues,
              sessions_take_turns, leases_end_in_turns);
    suite_add_tcase(suite, tcase);
    return suite;
}
