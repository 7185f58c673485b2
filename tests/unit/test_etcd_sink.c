/*
 * test_etcd_sink.c - what only the sink of etcd has: a turn of several transactions is one,
 * wherever it is interrupted; limits of etcd; records and pages. Cases of every sink are in
 * test_sinks.c.
 */
#include "check_main.h"
#include "etcd_load.h"
#include "etcd_model.h"
#include "sink_fixture.h"

#include <stdio.h>
#include <string.h>

static const uint8_t seed_of_tables[DDPI_SEED_SIZE] = {42};
static struct ddpi_etcd_batch batch;
static struct ddp_error why;

#define OK(call) ck_assert_msg((call) == DDP_OK, "%s", why.msg)

/* Die after @steps transactions of a long turn; how many keys the next leader has, and how many
 * transactions the turn had. */
static size_t keys_after(size_t steps, size_t *ret_steps)
{
    enum { SETS = 400 };
    sink_in_etcd.setup();
    sink_begin(&ddpi_kv_limits_default);
    set("before", "x");
    sink_commit();
    for (int i = 0; i < SETS; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        set(name, "x");
    }
    *ret_steps = etcd_model_commit_some(steps);
    sink_end();
    sink_begin(&ddpi_kv_limits_default);
    size_t keys = ddpi_kv_stats(kv).keys;
    ck_assert_uint_eq(sink_restored.version, keys); /* one for each key */
    ck_assert(keys == 1 || keys == 1 + SETS);
    sink_end();
    sink_in_etcd.teardown();
    return keys;
}

START_TEST(a_long_turn_is_one)
{
    size_t steps = 0, count = 0, whole = 0;
    for (; steps == 0 || steps <= count; steps++) {
        size_t keys = keys_after(steps, &count);
        ck_assert(keys > 1 || whole == 0); /* once it is complete it stays */
        whole += keys > 1;
    }
    ck_assert_uint_eq(count, 4 + 1 + 4); /* written, complete, applied */
    ck_assert_uint_eq(whole, 4 + 1);
}
END_TEST

START_TEST(what_is_too_long_is_refused)
{
    static char large[DDPI_ETCD_VALUE_MAX + 1];
    const struct ddpi_mutation mutation = {
        .kind = DDPI_MUTATION_SET, .key = {"k", 1}, .value = {large, sizeof large}, .version = 1};
    ddpi_etcd_batch_init(&batch, ETCD_MODEL_ROOT, &(struct ddpi_etcd_meta){0}, seed_of_tables);
    ck_assert_int_eq(ddpi_etcd_batch_change(&batch, &mutation, &why), DDP_E_LIMIT);
    ddpi_etcd_batch_finish(&batch);
}
END_TEST

static ddp_status get_record(const char *rest, const char *value, size_t len)
{
    struct ddpi_etcd_record record;
    return ddpi_etcd_get_record(bytes(rest), ddpi_bytes_of(value, len), &record, &why);
}

START_TEST(damaged_records_are_named)
{
    ck_assert_int_eq(get_record("k/a", "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 17), DDP_OK);
    ck_assert_int_eq(get_record("k/a", "\1\0\0", 3), DDP_E_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(why.msg, "'k/a'"));
    ck_assert_int_eq(get_record("k/a", "\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 17), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("s/12", "\1\0\0\0\0", 5), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("z/0000000000000001", "\1", 1), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("q/000000000000000G", "\1\0\0\0\0", 5), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("q/0000000000000001", "\1\5\0\0\0a", 6), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("h/0000000000000001", "\1\3\0\0\0\0", 6), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("", "", 0), DDP_E_PROTOCOL);
    struct ddpi_etcd_meta meta;
    ck_assert_int_eq(ddpi_etcd_get_meta(bytes("\2"), &meta, &why), DDP_E_PROTOCOL);
    ck_assert_int_eq(ddpi_etcd_get_meta(bytes(""), &meta, &why), DDP_E_PROTOCOL);
}
END_TEST

START_TEST(pages_fit)
{
    struct ddpi_etcd_load load = {.limit = 64};
    const size_t longest = DDPI_ETCD_VALUE_MAX / 3 * 4;
    size_t taken = 0, pages = 0;
    for (; taken < 100000; pages++) { /* of a byte each */
        taken += load.limit;
        load.limit = ddpi_etcd_load_next_limit(load.limit, load.limit, load.limit);
    }
    ck_assert_uint_eq(load.limit, 1024);
    ck_assert_uint_lt(pages, 105);
    ck_assert_uint_eq(ddpi_etcd_load_next_limit(1024, 1, DDPI_ETCD_VALUE_MAX), 4);
    ck_assert_uint_eq(ddpi_etcd_load_next_limit(1024, 1, 1 << 30), 1);
    ck_assert_uint_eq(ddpi_etcd_load_next_limit(64, 64, 64 * 30000), 104); /* of 40000 bytes each */
    ck_assert_uint_eq(ddpi_etcd_load_next_limit(1, 1, 1), 2);
    /* Only the longest values, after only short ones. */
    for (int i = 0; i < 2; i++)
        ck_assert(ddpi_etcd_load_shorten(&load));
    ck_assert_uint_lt(load.limit * longest, DDPI_ETCD_PAGE_MAX);
    while (load.limit > 1)
        ck_assert(ddpi_etcd_load_shorten(&load));
    ck_assert(!ddpi_etcd_load_shorten(&load));
    ck_assert_uint_eq(load.limit, 1);
}
END_TEST

static void change(const char *key, const char *value, size_t len)
{
    const struct ddpi_mutation mutation = {.kind = DDPI_MUTATION_SET,
                                           .key = bytes(key),
                                           .value = ddpi_bytes_of(value, len),
                                           .version = 1};
    OK(ddpi_etcd_batch_change(&batch, &mutation, &why));
}

START_TEST(what_waits_is_counted)
{
    static char large[DDPI_ETCD_VALUE_MAX];
    const struct ddpi_mark mark = {.version = 1};
    struct ddpi_list chunks;
    size_t taken = 0;
    char key[8];
    ddpi_etcd_batch_init(&batch, ETCD_MODEL_ROOT, &(struct ddpi_etcd_meta){0}, seed_of_tables);
    ck_assert_uint_eq(ddpi_etcd_batch_size(&batch), 0);
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%d", i);
        change(key, large, sizeof large);
        ck_assert_uint_gt(ddpi_etcd_batch_size(&batch), (size_t)(i + 1) * sizeof large);
    }
    change("s", "1", 1);
    size_t size = ddpi_etcd_batch_size(&batch);
    change("s", "2", 1); /* in its place */
    ck_assert_uint_eq(ddpi_etcd_batch_size(&batch), size);
    ddpi_list_init(&chunks);
    OK(ddpi_etcd_batch_take(&batch, &mark, &chunks, &why));
    ck_assert_uint_eq(ddpi_etcd_batch_size(&batch), 0);
    while (!ddpi_list_empty(&chunks)) {
        struct ddpi_etcd_chunk *chunk =
            ddpi_container_of(chunks.next, struct ddpi_etcd_chunk, of_batch);
        taken += ddpi_etcd_chunk_size(chunk);
        ddpi_etcd_chunk_free(chunk);
    }
    ck_assert_uint_eq(taken, size);
    ddpi_etcd_batch_finish(&batch);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("etcd_sink");
    TCase *group = tcase_create("etcd");
    ADD_TESTS(group, a_long_turn_is_one, what_is_too_long_is_refused, damaged_records_are_named,
              pages_fit, what_waits_is_counted);
    suite_add_tcase(suite, group);
    return suite;
}
