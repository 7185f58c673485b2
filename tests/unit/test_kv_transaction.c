/*
 * test_kv_transaction.c - transactions: every kind of condition, all or nothing at every limit, and
 * what waiting requests see of them.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <ddprun/store.h>
#include <stdlib.h>
#include <string.h>

static struct ddpi_clause if_version(const char *key, uint64_t version)
{
    return (struct ddpi_clause){.kind = DDPI_IF_VERSION, .version = version, .key = bytes(key)};
}

static struct ddpi_clause if_value(const char *key, const char *value)
{
    return (struct ddpi_clause){.kind = DDPI_IF_VALUE, .key = bytes(key), .value = bytes(value)};
}

static struct ddpi_clause then_set(const char *key, const char *value)
{
    return (struct ddpi_clause){.kind = DDPI_THEN_SET, .key = bytes(key), .value = bytes(value)};
}

static struct ddpi_clause then_delete(const char *key)
{
    return (struct ddpi_clause){.kind = DDPI_THEN_DELETE, .key = bytes(key)};
}

#define TRANSACT(...)                                   \
    transact((const struct ddpi_clause[]){__VA_ARGS__}, \
             sizeof((const struct ddpi_clause[]){__VA_ARGS__}) / sizeof(struct ddpi_clause))

START_TEST(conditions)
{
    uint64_t version = set("a", "1")->version;
    set("empty", "");
    const struct {
        struct ddpi_clause clause;
        ddp_status status;
        uint64_t version;
        const char *text;
    } cases[] = {
        {if_version("a", version), DDP_OK, 0, NULL},
        {if_version("a", version + 1), DDP_E_CONFLICT, version, "'a' has version"},
        {if_version("a", 0), DDP_E_CONFLICT, version, "'a' has version"},
        {if_version("none", 0), DDP_OK, 0, NULL},
        {if_version("none", 1), DDP_E_CONFLICT, 0, "'none' has version 0, not 1"},
        {if_value("a", "1"), DDP_OK, 0, NULL},
        {if_value("a", "11"), DDP_E_CONFLICT, version, "'a' does not have the expected value"},
        {if_value("a", ""), DDP_E_CONFLICT, version, "'a' does not have the expected value"},
        {if_value("empty", ""), DDP_OK, 0, NULL},
        {if_value("none", ""), DDP_E_CONFLICT, 0, "no key 'none'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(TRANSACT(cases[i].clause, then_set("t", "x"))->status, cases[i].status);
        if (cases[i].text != NULL) {
            ck_assert_uint_eq(last()->version, cases[i].version);
            ck_assert_ptr_nonnull(strstr(last()->text, cases[i].text));
        }
        ck_assert_int_eq(drop_key("t")->status,
                         cases[i].status == DDP_OK ? DDP_OK : DDP_E_NOT_FOUND);
    }
}
END_TEST

START_TEST(all_changes_or_none)
{
    set("old", "1");
    uint64_t version = ddpi_kv_stats(kv).version;
    ck_assert_int_eq(TRANSACT(if_value("old", "1"), if_version("new", 0), then_set("new", "2"),
                              then_delete("old"), then_delete("none"), then_set("third", ""))
                         ->status,
                     DDP_OK);
    ck_assert_uint_eq(last()->version, version + 3); /* a key that is not there is no change */
    ck_assert_int_eq(try_get("old")->status, DDP_E_NOT_FOUND);
    ck_assert_str_eq(try_get("new")->value, "2");
    ck_assert_uint_eq(try_get("third")->version, version + 3);
    ck_assert_int_eq(
        TRANSACT(if_value("new", "2"), if_value("old", "1"), then_delete("new"))->status,
        DDP_E_CONFLICT);
    ck_assert_str_eq(try_get("new")->value, "2");
    ck_assert_int_eq(TRANSACT(if_value("new", "2"))->status, DDP_OK); /* only a question */
    ck_assert_uint_eq(ddpi_kv_stats(kv).version, version + 3);
}
END_TEST

START_TEST(what_is_no_transaction)
{
    static const struct ddpi_clause unknown = {.kind = 5};
    ck_assert_int_eq(TRANSACT(unknown)->status, DDP_E_INVALID);
    ck_assert_int_eq(TRANSACT(then_set("a", "1"), then_delete("a"))->status, DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(last()->text, "'a' twice"));
    ck_assert_int_eq(TRANSACT(then_set("a", "1"), if_version("b", 0))->status, DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(last()->text, "'b'"));
    struct ddpi_clause many[DDP_STORE_CLAUSES_MAX + 1];
    for (size_t i = 0; i <= DDP_STORE_CLAUSES_MAX; i++)
        many[i] = if_version("none", 0);
    ck_assert_int_eq(transact(many, DDP_STORE_CLAUSES_MAX)->status, DDP_OK);
    ck_assert_int_eq(transact(many, DDP_STORE_CLAUSES_MAX + 1)->status, DDP_E_LIMIT);
    ck_assert_uint_eq(ddpi_kv_stats(kv).version, 0);
}
END_TEST

START_TEST(limits_refuse_the_whole)
{
    kv_teardown();
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.room[KV_ROOM_KEYS] = 2;
    limits.room[KV_ROOM_BYTES] = 2000;
    limits.key_len = 8;
    limits.value_len = 1200;
    kv_make(&limits);
    set("a", "old");
    ck_assert_int_eq(TRANSACT(then_set("a", "new"), then_set("b", "1"), then_set("c", "1"))->status,
                     DDP_E_LIMIT);
    ck_assert_int_eq(TRANSACT(then_set("a", "new"), then_set("long long", "1"))->status,
                     DDP_E_LIMIT);
    char large[1202];
    memset(large, 'x', sizeof large);
    large[1201] = '\0';
    ck_assert_int_eq(TRANSACT(then_set("a", "new"), then_set("b", large))->status, DDP_E_LIMIT);
    large[1200] = '\0';
    ck_assert_int_eq(TRANSACT(then_set("a", large), then_set("b", large))->status, DDP_E_LIMIT);
    ck_assert_str_eq(try_get("a")->value, "old");
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 1);
    ck_assert_int_eq(TRANSACT(then_set("a", large), then_set("b", "1"))->status, DDP_OK);
    ck_assert_int_eq(TRANSACT(then_set("a", large), then_set("b", "2"))->status, DDP_OK);
}
END_TEST

/* A request that waits for both keys is answered only when both exist at the same time. */
START_TEST(those_who_wait_see_the_whole)
{
    set("going", "1");
    wait_keys(1, 11, "gc", 1000);
    set("g", "1");
    get(2, 12, "c", 1000);
    size_t before = nreplies;
    TRANSACT(then_set("c", "2"), then_delete("g"));
    ck_assert_uint_eq(nreplies, before + 2);
    ck_assert_uint_eq(replies[before].id, 12);
    ck_assert_str_eq(replies[before].value, "2");
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    TRANSACT(then_set("g", "2"), then_set("c", "3"));
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);

    set("r", "0");
    ask(1, (struct ddpi_message){.op = DDPI_OP_ARRIVE, .key = bytes("r"), .number = 2});
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    TRANSACT(if_value("r", "1"), then_set("r", "9")); /* any write releases them */
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv_txn");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, kv_setup, kv_teardown);
    ADD_TESTS(tcase, conditions, all_changes_or_none, what_is_no_transaction,
              limits_refuse_the_whole, those_who_wait_see_the_whole);
    suite_add_tcase(suite, tcase);
    return suite;
}
