/*
 * test_kv_scope.c - scopes: a client with a scope sees only keys with its prefix, and without it;
 * scopes in scopes; and the order of keys, by which prefixes are found.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void enter(int client, const char *prefix)
{
    ddpi_kv_scope_put(kv, clients[client].scope);
    clients[client].scope = NULL;
    if (prefix != NULL)
        ck_assert_int_eq(ddpi_kv_scope_get(kv, bytes(prefix), &clients[client].scope, NULL),
                         DDP_OK);
}

static void leave_all(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        ddpi_kv_client_gone(kv, &clients[i]);
        enter(i, NULL);
    }
    kv_teardown();
}

static ddp_status set_as(int client, const char *key, const char *value)
{
    ask(client, (struct ddpi_message){.op = DDPI_OP_SET, .key = bytes(key), .value = bytes(value)});
    return last()->status;
}

static const char *list_as(int client, const char *prefix)
{
    const struct got *got =
        call(client, (struct ddpi_message){.op = DDPI_OP_LIST, .key = bytes(prefix)});
    ck_assert_int_eq(got->status, DDP_OK);
    return got->text;
}

static int64_t count_as(int client)
{
    return call(client, (struct ddpi_message){.op = DDPI_OP_COUNT_KEYS})->number;
}

START_TEST(each_sees_its_own)
{
    enter(1, "job/a/");
    enter(2, "job/b/");
    set_as(1, "k", "1");
    set_as(2, "k", "2");
    set_as(0, "k", "0");
    set_as(0, "job/a/from-outside", "0");
    ck_assert_str_eq(list_as(0, ""), "job/a/from-outside,job/a/k,job/b/k,k");
    ck_assert_str_eq(list_as(1, ""), "from-outside,k");
    ck_assert_str_eq(list_as(2, ""), "k");
    ck_assert_str_eq(list_as(1, "f"), "from-outside");
    ck_assert_str_eq(
        call(2, (struct ddpi_message){.op = DDPI_OP_TRY_GET, .key = bytes("k")})->value, "2");
    ck_assert_int_eq(
        call(2, (struct ddpi_message){.op = DDPI_OP_DELETE, .key = bytes("../a/k")})->status,
        DDP_E_NOT_FOUND);
    ck_assert_int_eq(count_as(0), 4);
    ck_assert_int_eq(count_as(1), 2);
    ck_assert_int_eq(count_as(2), 1);
}
END_TEST

START_TEST(watches_and_waits_stay_inside)
{
    enter(1, "job/a/");
    enter(2, "job/b/");
    ask(1, (struct ddpi_message){.op = DDPI_OP_WATCH, .id = 9, .count = DDPI_WATCH_PREFIX});
    get(1, 10, "k", 1000);
    nreplies = 0;
    set_as(2, "k", "2");
    ck_assert_uint_eq(nreplies, 1); /* its own answer */
    nreplies = 0;
    set_as(0, "job/a/k", "1");
    ck_assert_uint_eq(nreplies, 3);
    ck_assert_str_eq(replies[0].text, "k"); /* the watch does not show the prefix */
    ck_assert_uint_eq(replies[1].id, 10);
    ck_assert_str_eq(replies[1].value, "1");
    barrier(1, 11, "b", 2, 1000);
    nreplies = 0;
    barrier(2, 12, "b", 2, 1000);
    ck_assert_uint_eq(nreplies, 0);
    barrier(1, 13, "b", 2, 1000);
    ck_assert_uint_eq(nreplies, 2);
}
END_TEST

START_TEST(waits_for_several_keys_stay_inside)
{
    enter(1, "a/");
    enter(2, "b/");
    set_as(0, "k", "0");
    set_as(0, "a/k", "1");
    set_as(0, "a/l", "1");
    nreplies = 0;
    wait_keys(1, 20, "kl", 1000); /* two keys of a letter each */
    ck_assert_uint_eq(nreplies, 1);
    ck_assert_int_eq(last()->status, DDP_OK);
    wait_keys(2, 21, "k", 1000);
    wait_keys(2, 22, "kl", 1000);
    ck_assert_uint_eq(nreplies, 1); /* none is there for it */
    set_as(2, "k", "2");
    ck_assert_uint_eq(nreplies, 3);
    ck_assert_uint_eq(replies[1].id, 21);
    now += 1000;
    ddpi_kv_expire(kv, now);
    ck_assert_int_eq(last()->status, DDP_E_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(last()->text, "'l'"));
}
END_TEST

START_TEST(sentences_show_keys_as_the_client_sees_them)
{
    enter(1, "job/a/");
    const struct got *got =
        call(1, (struct ddpi_message){.op = DDPI_OP_TRY_GET, .key = bytes("k")});
    ck_assert_str_eq(got->text, "there is no key 'k'");
    set_as(1, "k", "text");
    got = call(1, (struct ddpi_message){.op = DDPI_OP_ADD, .key = bytes("k"), .number = 1});
    ck_assert_int_eq(got->status, DDP_E_TYPE);
    ck_assert_ptr_null(strstr(got->text, "job/a/"));
}
END_TEST

START_TEST(what_is_reserved_is_the_owner_s)
{
    const struct ddpi_bytes key = bytes("epoch/a");
    ddpi_kv_reserve(kv, "epoch/");
    ck_assert_int_eq(ddpi_kv_poke(kv, key, bytes("1"), NULL), DDP_OK);
    const enum ddpi_op ops[] = {DDPI_OP_SET,    DDPI_OP_ADD,         DDPI_OP_DELETE,  DDPI_OP_CAS,
                                DDPI_OP_APPEND, DDPI_OP_COMPARE_SET, DDPI_OP_ADD_WRAP};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        ck_assert_int_eq(call(0, (struct ddpi_message){.op = ops[i],
                                                       .key = key,
                                                       .expected = bytes("1"),
                                                       .value = bytes("2"),
                                                       .version = 1})
                             ->status,
                         DDP_E_DENIED);
    const struct ddpi_clause clauses[] = {{.kind = DDPI_THEN_SET, .key = bytes("x")},
                                          {.kind = DDPI_THEN_DELETE, .key = key}};
    ck_assert_int_eq(transact(clauses, 2)->status, DDP_E_DENIED);
    ck_assert_int_eq(try_get("x")->status, DDP_E_NOT_FOUND);
    ck_assert_str_eq(try_get("epoch/a")->value, "1");
    set_as(0, "epoch", "free");
    ck_assert_int_eq(last()->status, DDP_OK);
}
END_TEST

START_TEST(nobody_can_keep_the_owner_from_it)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    kv_teardown();
    limits.room[KV_ROOM_KEYS] = 1;
    kv_make(&limits);
    set("full", "1");
    ck_assert_int_eq(ddpi_kv_poke(kv, bytes("epoch/a"), bytes("1"), NULL), DDP_OK);
    ck_assert_str_eq(ddpi_kv_peek(kv, bytes("epoch/a")).data, "1");
}
END_TEST

START_TEST(transactions_stay_inside)
{
    char packed[256];
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, sizeof packed);
    const struct ddpi_clause clauses[] = {
        {.kind = DDPI_IF_VALUE, .key = bytes("k"), .value = bytes("1")},
        {.kind = DDPI_THEN_SET, .key = bytes("l"), .value = bytes("2")},
        {.kind = DDPI_THEN_DELETE, .key = bytes("k")}};
    for (size_t i = 0; i < sizeof clauses / sizeof *clauses; i++)
        ck_assert(ddpi_clauses_put(&buf, &clauses[i]));
    const struct ddpi_message request = {.op = DDPI_OP_TRANSACT,
                                         .clauses = {ddpi_buf_head(&buf), ddpi_buf_len(&buf), 3}};
    enter(1, "job/a/");
    enter(2, "job/b/");
    set_as(0, "k", "1");
    set_as(1, "k", "1");
    set_as(2, "k", "other");
    ck_assert_int_eq(call(2, request)->status, DDP_E_CONFLICT);
    ck_assert_int_eq(call(1, request)->status, DDP_OK);
    ck_assert_str_eq(list_as(0, ""), "job/a/l,job/b/k,k");
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(the_longest_key_fits_behind_the_longest_prefix)
{
    char prefix[DDPI_KV_SCOPE_MAX + 2], key[4096 + 1];
    memset(prefix, 'p', sizeof prefix);
    memset(key, 'k', sizeof key);
    struct ddpi_kv_scope *scope = NULL;
    ck_assert_int_eq(
        ddpi_kv_scope_get(kv, ddpi_bytes_of(prefix, DDPI_KV_SCOPE_MAX + 1), &scope, NULL),
        DDP_E_LIMIT);
    prefix[DDPI_KV_SCOPE_MAX] = '\0';
    enter(1, prefix);
    for (size_t len = 4095; len <= 4097; len++) {
        const struct got *got =
            call(1, (struct ddpi_message){.op = DDPI_OP_SET, .key = {key, len}});
        ck_assert_int_eq(got->status, len <= 4096 ? DDP_OK : DDP_E_LIMIT);
    }
    ck_assert_int_eq(count_as(1), 2);
}
END_TEST

/* ---- against the obvious way to do it ---- */

enum { NAMES = 200, SCOPES = 12, STEPS = 4000 };

static char names[NAMES][12];
static bool there[NAMES];

/* Few letters, so that many are prefixes of others. */
static void make_names(unsigned *seed)
{
    for (int i = 0; i < NAMES; i++) {
        int len = rand_r(seed) % 9;
        for (int j = 0; j < len; j++)
            names[i][j] = "ab/"[rand_r(seed) % 3];
        names[i][len] = '\0';
    }
}

static int first_of_name(const char *name)
{
    int i = 0;
    while (strcmp(names[i], name) != 0)
        i++;
    return i;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int count_below(const char *prefix)
{
    int count = 0;
    for (int i = 0; i < NAMES; i++)
        count += there[i] && strncmp(names[i], prefix, strlen(prefix)) == 0;
    return count;
}

static void check_list(const char *prefix)
{
    const char *expected[NAMES];
    size_t count = 0, used = 0;
    char text[TEXT_MAX] = "";
    for (int i = 0; i < NAMES; i++)
        if (there[i] && strncmp(names[i], prefix, strlen(prefix)) == 0)
            expected[count++] = names[i];
    qsort(expected, count, sizeof *expected, compare_names);
    for (size_t i = 0; i < count && used + strlen(expected[i]) + 2 < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? "," : "",
                                 expected[i]);
    ck_assert_str_eq(list_as(0, prefix), text);
    ck_assert_uint_eq(last()->count, count);
}

START_TEST(random_scopes_and_keys)
{
    struct ddpi_kv_scope *scopes[SCOPES] = {NULL};
    const char *prefixes[SCOPES];
    unsigned seed = 5;
    make_names(&seed);
    for (int step = 0; step < STEPS; step++) {
        int key = first_of_name(names[rand_r(&seed) % NAMES]), i = rand_r(&seed) % SCOPES;
        nreplies = 0;
        switch (rand_r(&seed) % 8) {
        case 0:
            ddpi_kv_scope_put(kv, scopes[i]);
            scopes[i] = NULL;
            if (rand_r(&seed) % 2 == 0)
                break;
            prefixes[i] = names[key];
            ck_assert_int_eq(ddpi_kv_scope_get(kv, bytes(names[key]), &scopes[i], NULL), DDP_OK);
            break;
        case 1:
        case 2:
            there[key] = false;
            drop_key(names[key]);
            break;
        case 3:
            check_list(names[key]);
            break;
        default:
            there[key] = true;
            set(names[key], "v");
            break;
        }
        for (int j = 0; j < SCOPES; j++)
            if (scopes[j] != NULL) {
                clients[3].scope = scopes[j];
                nreplies = 0;
                ck_assert_int_eq(count_as(3), count_below(prefixes[j]));
            }
        clients[3].scope = NULL;
    }
    for (int i = 0; i < SCOPES; i++)
        ddpi_kv_scope_put(kv, scopes[i]);
    int below = count_below("a");
    ck_assert_int_gt(below, 3);
    ck_assert_int_eq((int)ddpi_kv_delete_prefix(kv, bytes("a")), below);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, (size_t)(count_below("") - below));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_scope");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, kv_setup, leave_all);
    ADD_TESTS(tcase, each_sees_its_own, watches_and_waits_stay_inside,
              waits_for_several_keys_stay_inside, sentences_show_keys_as_the_client_sees_them,
              what_is_reserved_is_the_owner_s, nobody_can_keep_the_owner_from_it,
              transactions_stay_inside, the_longest_key_fits_behind_the_longest_prefix,
              random_scopes_and_keys);
    suite_add_tcase(suite, tcase);
    return suite;
}
