/*
 * test_kv_watch.c - watches: which changes each is told, in which order, from which version on; and
 * thousands of random changes, where each watch must tell what a filter of all changes would.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct got *watch(int client, uint64_t id, const char *name, bool prefix, uint64_t from)
{
    size_t before = nreplies;
    ask(client, (struct ddpi_message){.op = DDPI_OP_WATCH,
                                      .id = id,
                                      .key = bytes(name),
                                      .version = from,
                                      .count = prefix ? DDPI_WATCH_PREFIX : 0});
    ck_assert_uint_gt(nreplies, before);
    return &replies[before];
}

static struct got *unwatch(int client, uint64_t id)
{
    return call(client, (struct ddpi_message){.op = DDPI_OP_UNWATCH, .number = (int64_t)id});
}

/* The event at @i is this one. */
static void assert_event(size_t i, uint64_t id, enum ddpi_change_kind kind, const char *key,
                         const char *value, uint64_t version)
{
    ck_assert_uint_lt(i, nreplies);
    ck_assert_uint_eq(replies[i].id, id);
    ck_assert_int_eq(replies[i].number, kind);
    ck_assert_str_eq(replies[i].text, key);
    ck_assert_str_eq(replies[i].value, value);
    ck_assert_uint_eq(replies[i].version, version);
}

START_TEST(every_kind_of_change_is_told)
{
    uint64_t begun = set("before", "1")->version;
    struct got *first = watch(1, 7, "k", false, 0);
    ck_assert_int_eq(first->number, DDPI_CHANGE_NONE);
    ck_assert_uint_eq(first->version, begun);
    size_t at = nreplies;
    uint64_t version = begun;
    set("k", "1");
    assert_event(at, 7, DDPI_CHANGE_SET, "k", "1", ++version);
    ask(0, (struct ddpi_message){.op = DDPI_OP_ADD, .key = bytes("k"), .number = 4});
    assert_event(at + 2, 7, DDPI_CHANGE_SET, "k", "5", ++version);
    ask(0, (struct ddpi_message){
               .op = DDPI_OP_CAS, .key = bytes("k"), .value = bytes("6"), .version = version});
    assert_event(at + 4, 7, DDPI_CHANGE_SET, "k", "6", ++version);
    ask(0, (struct ddpi_message){.op = DDPI_OP_APPEND, .key = bytes("k"), .value = bytes("7")});
    assert_event(at + 6, 7, DDPI_CHANGE_SET, "k", "67", ++version);
    ask(0, (struct ddpi_message){.op = DDPI_OP_DELETE, .key = bytes("k")});
    assert_event(at + 8, 7, DDPI_CHANGE_DELETE, "k", "", ++version);
    transact(&(struct ddpi_clause){.kind = DDPI_THEN_SET, .key = bytes("k")}, 1);
    assert_event(at + 10, 7, DDPI_CHANGE_SET, "k", "", ++version);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("k")), 1);
    assert_event(at + 12, 7, DDPI_CHANGE_DELETE, "k", "", ++version);
    ck_assert_uint_eq(nreplies, at + 13);
}
END_TEST

START_TEST(names_and_prefixes)
{
    watch(1, 1, "ab", false, 0);
    watch(1, 2, "ab", true, 0);
    watch(2, 3, "", true, 0);
    watch(2, 4, "abc", false, 0);
    watch(3, 5, "", false, 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).watches, 5);
    static const struct {
        const char *key;
        const char *told; /* ids, the shortest prefix first */
    } cases[] = {{"ab", "321"}, {"abc", "324"}, {"abcd", "32"}, {"a", "3"}, {"", "35"}, {"b", "3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t at = nreplies;
        set(cases[i].key, "v");
        ck_assert_uint_eq(nreplies, at + strlen(cases[i].told) + 1);
        for (size_t k = 0; cases[i].told[k] != '\0'; k++)
            assert_event(at + k, (uint64_t)(cases[i].told[k] - '0'), DDPI_CHANGE_SET, cases[i].key,
                         "v", ddpi_kv_stats(kv).version);
    }
    ck_assert_int_eq(unwatch(1, 2)->status, DDP_OK);
    ck_assert_int_eq(unwatch(1, 2)->status, DDP_E_NOT_FOUND);
    ck_assert_int_eq(unwatch(1, 3)->status, DDP_E_NOT_FOUND); /* another's */
    size_t at = nreplies;
    set("ab", "w");
    ck_assert_uint_eq(nreplies, at + 3);
    ddpi_kv_client_gone(kv, &clients[2]);
    set("abc", "w");
    ck_assert_uint_eq(nreplies, at + 4);
}
END_TEST

START_TEST(a_watch_may_begin_in_the_past)
{
    set("unseen", "1");
    ck_assert_int_eq(watch(1, 1, "a", true, 1)->status, DDP_E_GONE); /* nothing was remembered */
    watch(1, 1, "a", true, 2);                                       /* but what comes next is */
    set("a1", "1");
    set("b", "1");
    set("a2", "1");
    ask(0, (struct ddpi_message){.op = DDPI_OP_DELETE, .key = bytes("a1")});
    size_t at = nreplies;
    struct got *first = watch(2, 2, "a", true, 2);
    ck_assert_int_eq(first->number, DDPI_CHANGE_NONE);
    ck_assert_uint_eq(first->version, 5);
    assert_event(at + 1, 2, DDPI_CHANGE_SET, "a1", "1", 2);
    assert_event(at + 2, 2, DDPI_CHANGE_SET, "a2", "1", 4);
    assert_event(at + 3, 2, DDPI_CHANGE_DELETE, "a1", "", 5);
    ck_assert_uint_eq(nreplies, at + 4);
    watch(2, 3, "a1", false, 3);
    assert_event(at + 5, 3, DDPI_CHANGE_DELETE, "a1", "", 5);
    ck_assert_uint_eq(nreplies, at + 6);
    ck_assert_int_eq(watch(2, 4, "a", true, 6)->status, DDP_OK);
    ck_assert_int_eq(watch(2, 5, "a", true, 7)->status, DDP_E_GONE); /* of another server */
    ck_assert_uint_eq(last()->version, 5);
    ck_assert_ptr_nonnull(strstr(last()->text, "'a'"));
}
END_TEST

START_TEST(the_history_is_bounded)
{
    kv_teardown();
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.history_changes = 3;
    limits.history_bytes = 20;
    kv_make(&limits);
    watch(1, 1, "none", false, 0);
    for (int i = 0; i < 4; i++)
        set("k", "v");
    ck_assert_int_eq(watch(2, 2, "", true, 1)->status, DDP_E_GONE);
    size_t at = nreplies;
    watch(2, 2, "", true, 2);
    ck_assert_uint_eq(nreplies, at + 4);
    unwatch(2, 2);
    set("k", "fourteen bytes"); /* next to a value of two bytes */
    ck_assert_int_eq(watch(2, 2, "", true, 2)->status, DDP_E_GONE);
    ck_assert_int_eq(watch(2, 2, "", true, 3)->status, DDP_OK);
    unwatch(2, 2);
    set("k", "as much as there is");
    ck_assert_int_eq(watch(2, 3, "", true, 5)->status, DDP_E_GONE);
    ck_assert_int_eq(watch(2, 3, "", true, 6)->status, DDP_OK);
    set("k", "much more than all of it"); /* told, but not remembered */
    ck_assert_str_eq(replies[nreplies - 2].value, "much more than all of it");
    ck_assert_int_eq(watch(2, 4, "", true, 7)->status, DDP_E_GONE);
    ck_assert_int_eq(watch(2, 4, "", true, 8)->status, DDP_OK);
}
END_TEST

START_TEST(a_replay_is_bounded)
{
    kv_teardown();
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.replay_bytes = 1000;
    kv_make(&limits);
    static char large[900];
    watch(1, 1, "none", false, 0);
    ask(0, (struct ddpi_message){
               .op = DDPI_OP_SET, .key = bytes("a"), .value = ddpi_bytes_of(large, sizeof large)});
    set("b", "1");
    ck_assert_int_eq(watch(2, 2, "", true, 1)->status, DDP_E_GONE);
    ck_assert_uint_eq(last()->version, 2); /* from which on it may watch */
    ck_assert_ptr_nonnull(strstr(last()->text, "at most 1000"));
    ck_assert_int_eq(watch(2, 3, "a", false, 1)->status, DDP_E_GONE);
    size_t at = nreplies;
    ck_assert_int_eq(watch(2, 4, "b", false, 1)->status, DDP_OK); /* others do not count */
    assert_event(at + 1, 4, DDPI_CHANGE_SET, "b", "1", 2);
    ck_assert_int_eq(watch(2, 5, "", true, 2)->status, DDP_OK);
    ck_assert_int_eq(watch(2, 6, "", true, 0)->status, DDP_OK);
    for (int i = 0; i < 8; i++)
        set("c", "1"); /* each takes more than its key and its value */
    ck_assert_int_eq(watch(2, 7, "c", false, 3)->status, DDP_E_GONE);
    ck_assert_int_eq(watch(2, 8, "c", false, 5)->status, DDP_OK);
}
END_TEST

START_TEST(limits_and_flags)
{
    kv_teardown();
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.watches_per_client = 2;
    limits.room[KV_ROOM_BYTES] = 1500;
    kv_make(&limits);
    ck_assert_int_eq(call(1, (struct ddpi_message){.op = DDPI_OP_WATCH, .count = 2})->status,
                     DDP_E_INVALID);
    ck_assert_int_eq(watch(1, 1, "twelve bytes, and then some", false, 0)->status, DDP_E_LIMIT);
    ck_assert_int_eq(watch(1, 1, "a", false, 0)->status, DDP_OK);
    ck_assert_int_eq(watch(1, 2, "a", false, 0)->status, DDP_OK);
    ck_assert_int_eq(watch(1, 3, "a", false, 0)->status, DDP_E_LIMIT);
    ck_assert_int_eq(watch(2, 3, "a", false, 0)->status, DDP_OK);
}
END_TEST

/* ---- random changes ---- */

enum { STEPS = 20000, CHANGES = 2 * STEPS, WATCHES = 12, PAST = 64, WATCHER = 3 };

static struct change {
    char key[8];
    enum ddpi_change_kind kind;
} changes[CHANGES]; /* by version */

static struct {
    bool on, prefix;
    uint64_t next; /* the version from which on it has to tell */
    char name[8];
} watches[WATCHES];

static void random_name(char name[8], int min_len)
{
    int len = min_len + rand() % 4;
    for (int i = 0; i < len; i++)
        name[i] = (char)('a' + rand() % 2);
    name[len] = '\0';
}

static bool concerns(int w, const struct change *change)
{
    size_t len = strlen(watches[w].name);
    return watches[w].prefix ? strncmp(change->key, watches[w].name, len) == 0
                             : strcmp(change->key, watches[w].name) == 0;
}

/* The next change that watch @w has to tell is this reply. */
static void check_told(const struct got *got)
{
    int w = (int)got->id;
    ck_assert(watches[w].on);
    uint64_t next = watches[w].next;
    while (next < got->version && !concerns(w, &changes[next]))
        next++;
    ck_assert_uint_eq(next, got->version);
    ck_assert(concerns(w, &changes[next]));
    ck_assert_str_eq(got->text, changes[next].key);
    ck_assert_int_eq(got->number, changes[next].kind);
    watches[w].next = next + 1;
}

static void random_watch(void)
{
    int w = rand() % WATCHES;
    uint64_t version = ddpi_kv_stats(kv).version, from = 0;
    if (watches[w]
            .on) { /* as if the connection was lost: it goes on where it was, or a bit later */
        unwatch(WATCHER, (uint64_t)w);
        from = watches[w].next + (uint64_t)(rand() % 2);
        from = from > version + 1 ? version + 1 : from;
    } else {
        random_name(watches[w].name, 0);
        watches[w].prefix = rand() % 2;
    }
    watches[w].on = false;
    if (rand() % 3 == 0)
        return;
    struct got *first = watch(WATCHER, (uint64_t)w, watches[w].name, watches[w].prefix, from);
    watches[w].on = first->status == DDP_OK;
    ck_assert(watches[w].on || (first->status == DDP_E_GONE && from + PAST <= version));
    watches[w].next = from != 0 ? from : version + 1;
}

static void random_change(void)
{
    uint64_t version = ddpi_kv_stats(kv).version + 1;
    struct change *change = &changes[version];
    random_name(change->key, 1);
    change->kind = rand() % 3 ? DDPI_CHANGE_SET : DDPI_CHANGE_DELETE;
    ask(0,
        (struct ddpi_message){.op = change->kind == DDPI_CHANGE_SET ? DDPI_OP_SET : DDPI_OP_DELETE,
                              .id = WATCHES,
                              .key = bytes(change->key)});
}

START_TEST(none_lost_none_reordered)
{
    kv_teardown();
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.history_changes = PAST;
    kv_make(&limits);
    const char *given = getenv("KV_SEED");
    unsigned random_seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : 20240602u;
    printf("KV_SEED=%u\n", random_seed);
    srand(random_seed);
    watch(1, WATCHES, "never", false, 0); /* the history begins */
    size_t told = 0;
    for (int step = 0; step < STEPS; step++) {
        nreplies = 0;
        if (rand() % 10 == 0)
            random_watch();
        else
            random_change();
        for (size_t i = 0; i < nreplies; i++)
            if (replies[i].client == WATCHER && replies[i].number != DDPI_CHANGE_NONE) {
                check_told(&replies[i]);
                told++;
            }
        /* And nothing that it had to tell is missing. */
        for (int w = 0; w < WATCHES; w++)
            for (; watches[w].on && watches[w].next <= ddpi_kv_stats(kv).version; watches[w].next++)
                ck_assert(!concerns(w, &changes[watches[w].next]));
    }
    ck_assert_uint_gt(told, STEPS / 2);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_watch");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, kv_setup, kv_teardown);
    ADD_TESTS(tcase, every_kind_of_change_is_told, names_and_prefixes,
              a_watch_may_begin_in_the_past, the_history_is_bounded, a_replay_is_bounded,
              limits_and_flags, none_lost_none_reordered);
    suite_add_tcase(suite, tcase);
    return suite;
}
