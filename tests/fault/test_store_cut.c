/*
 * test_store_cut.c - clients whose connection is cut again and again, anywhere: what a watch tells
 * is what a second, undisturbed handle is told, and a count is off by no more than what was said to
 * be unsure.
 */
#include "cutter.h"
#include "store_fixture.h"

#include <ddprun/store_uv.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { CHANGES = 150, COUNTS = 100, CUTS_MIN = 5, SEEDS = 4 };

struct record {
    uint64_t versions[CHANGES + 1];
    char keys[CHANGES + 1][16];
    size_t count;
};

static struct cutter *cutter;

static void teardown(void)
{
    cutter_stop(cutter);
    store_teardown();
}

static void put_endpoint(char *endpoint, size_t size)
{
    snprintf(endpoint, size, "127.0.0.1:%u", cutter_port(cutter));
}

static ddp_store *open_through(void)
{
    char endpoint[32];
    put_endpoint(endpoint, sizeof endpoint);
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = LONG_MS};
    ddp_store *store = NULL;
    OK(ddp_store_connect(&options, &store, &why));
    return store;
}

static void note(struct record *record, const struct ddp_store_event *event)
{
    ck_assert_uint_le(record->count, CHANGES);
    ck_assert_int_ne(event->kind, DDP_STORE_EVENT_LOST); /* the history is long enough */
    record->versions[record->count] = event->version;
    snprintf(record->keys[record->count++], sizeof record->keys[0], "%s", event->key);
}

static void record_all(ddp_store *store, struct record *record)
{
    while (record->count < CHANGES) {
        struct ddp_store_event *event;
        OK(ddp_store_next_event(store, LONG_MS, &event, &why));
        note(record, event);
        ddp_store_free(event);
    }
}

static void assert_same(const struct record *a, const struct record *b)
{
    ck_assert_uint_eq(a->count, CHANGES);
    ck_assert_uint_eq(b->count, CHANGES);
    for (size_t i = 0; i < CHANGES; i++) {
        ck_assert_uint_eq(a->versions[i], b->versions[i]);
        ck_assert_str_eq(a->keys[i], b->keys[i]);
        ck_assert(i == 0 || a->versions[i] > a->versions[i - 1]);
    }
}

static void write_all(void *arg)
{
    ddp_store *store = arg;
    for (int i = 0; i < CHANGES; i++) {
        char key[16];
        bool delete = i % 5 == 4; /* the key that was set just before */
        snprintf(key, sizeof key, "w/%d", (delete ? i - 1 : i) % 7);
        if (delete)
            OK(ddp_store_delete(store, key, LONG_MS, &why));
        else
            OK(ddp_store_set(store, key, key, strlen(key), LONG_MS, NULL, &why));
        uv_sleep(1); /* spreads the changes over several connections */
    }
}

START_TEST(a_watch_is_complete)
{
    cutter = cutter_start(store_thread_port(server), (uint64_t)_i);
    static struct record wanted, got;
    memset(&wanted, 0, sizeof wanted);
    memset(&got, 0, sizeof got);
    ddp_store *witness = open_store(), *writer = open_store(), *watcher = open_through();
    uv_thread_t thread;
    OK(ddp_store_watch(watcher, "w/", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, NULL, NULL, &why));
    OK(ddp_store_watch(witness, "w/", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, NULL, NULL, &why));
    ck_assert_int_eq(uv_thread_create(&thread, write_all, writer), 0);
    record_all(watcher, &got);
    uv_thread_join(&thread);
    record_all(witness, &wanted);
    assert_same(&wanted, &got);
    ck_assert_uint_ge(cutter_cuts(cutter), CUTS_MIN);
    ddp_store_close(witness);
    ddp_store_close(writer);
    ddp_store_close(watcher);
}
END_TEST

static void on_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    (void)store;
    note(data, event);
}

static void on_watching(void *data, const struct ddp_store_result *result)
{
    ck_assert_msg(result->status == DDP_OK, "%s", result->message);
    *(bool *)data = true;
}

START_TEST(an_asynchronous_watch_is_complete)
{
    cutter = cutter_start(store_thread_port(server), (uint64_t)_i);
    static struct record wanted, got;
    memset(&wanted, 0, sizeof wanted);
    memset(&got, 0, sizeof got);
    signal(SIGPIPE, SIG_IGN);
    uv_loop_t loop;
    uv_thread_t thread;
    char endpoint[32];
    bool watching = false;
    put_endpoint(endpoint, sizeof endpoint);
    const struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoint};
    const struct ddp_store_uv_hooks hooks = {.size = sizeof hooks, .data = &got, .event = on_event};
    const struct ddp_store_request watch = {.size = sizeof watch,
                                            .op = DDP_STORE_OP_WATCH,
                                            .key = "w/",
                                            .flags = DDP_STORE_WATCH_PREFIX,
                                            .timeout_ms = LONG_MS};
    ddp_store *witness = open_store(), *writer = open_store();
    ddp_store_uv *watcher;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    OK(ddp_store_uv_open(&loop, &options, &hooks, &watcher, &why));
    OK(ddp_store_uv_submit(watcher, &watch, on_watching, &watching, NULL, &why));
    while (!watching)
        uv_run(&loop, UV_RUN_ONCE);
    OK(ddp_store_watch(witness, "w/", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, NULL, NULL, &why));
    ck_assert_int_eq(uv_thread_create(&thread, write_all, writer), 0);
    while (got.count < CHANGES)
        uv_run(&loop, UV_RUN_ONCE);
    uv_thread_join(&thread);
    record_all(witness, &wanted);
    assert_same(&wanted, &got);
    ck_assert_uint_ge(cutter_cuts(cutter), CUTS_MIN);
    ddp_store_uv_close(watcher, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ddp_store_close(witness);
    ddp_store_close(writer);
}
END_TEST

START_TEST(what_is_unsure_is_said_to_be)
{
    cutter = cutter_start(store_thread_port(server), (uint64_t)_i + 100);
    ddp_store *counter = open_through(), *reader = open_store();
    struct ddp_error err;
    int64_t sum, sure = 0, unsure = 0;
    for (int i = 0; i < COUNTS; i++) {
        void *value;
        size_t len;
        ddp_status status = ddp_store_add(counter, "n", 1, LONG_MS, NULL, &err);
        ck_assert_msg(status == DDP_OK || status == DDP_E_CLOSED, "%s", err.msg);
        sure += status == DDP_OK;
        unsure += status == DDP_E_CLOSED;
        if (status == DDP_OK) { /* what only reads is not disturbed at all */
            OK(ddp_store_get(counter, "n", LONG_MS, &value, &len, NULL, &why));
            ddp_store_free(value);
        }
    }
    OK(ddp_store_add(reader, "n", 0, LONG_MS, &sum, &why));
    ck_assert_int_le(sure, sum);
    ck_assert_int_le(sum, sure + unsure);
    ck_assert_int_gt(sure, COUNTS / 2);
    ck_assert_uint_ge(cutter_cuts(cutter), CUTS_MIN);
    ddp_store_close(counter);
    ddp_store_close(reader);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_cut");
    TCase *tcase = tcase_create("cut");
    tcase_add_checked_fixture(tcase, store_setup, teardown);
    tcase_add_loop_test(tcase, a_watch_is_complete, 0, SEEDS);
    tcase_add_loop_test(tcase, an_asynchronous_watch_is_complete, 0, SEEDS);
    tcase_add_loop_test(tcase, what_is_unsure_is_said_to_be, 0, SEEDS);
    suite_add_tcase(suite, tcase);
    return suite;
}
