/*
 * test_store_watch.c - events that wait in a handle of the blocking client: of clients that do not
 * read them, more than there is room for, and after the end of the connection. What all clients do
 * with watches and sessions is in test_store_clients.c.
 */
#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>

static void expect_event(ddp_store *store, uint64_t watch, enum ddp_store_event_kind kind,
                         const char *key, const char *value, uint64_t *ret_version)
{
    struct ddp_store_event *event;
    OK(ddp_store_next_event(store, LONG_MS, &event, &why));
    ck_assert_uint_eq(event->watch, watch);
    ck_assert_int_eq(event->kind, kind);
    ck_assert_str_eq(event->key, key);
    ck_assert_uint_eq(event->key_len, strlen(key));
    ck_assert_str_eq(event->value, value);
    ck_assert_uint_eq(event->value_len, strlen(value));
    if (ret_version != NULL)
        *ret_version = event->version;
    ddp_store_free(event);
}

static void set_text(ddp_store *store, const char *key, const char *value)
{
    OK(ddp_store_set(store, key, value, strlen(value), LONG_MS, NULL, &why));
}

START_TEST(no_event_comes)
{
    ddp_store *watcher = open_store();
    struct ddp_store_event *event = NULL;
    struct ddp_error err;
    OK(ddp_store_watch(watcher, "k", 0, 0, LONG_MS, NULL, NULL, &why));
    ck_assert_int_eq(ddp_store_next_event(watcher, 0, &event, &err), DDP_E_TIMEOUT);
    ck_assert_int_eq(ddp_store_next_event(watcher, 20, &event, &err), DDP_E_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.msg, store_thread_endpoint(server)));
    ck_assert_ptr_null(event);
    ddp_store_close(watcher);
}
END_TEST

START_TEST(who_does_not_read_is_closed_alone)
{
    restart(&(struct ddpi_server_options){.output_soft = 64 * 1024, .output_hard = 1024 * 1024});
    ddp_store *watcher = open_mortal(), *writer = open_store();
    static char large[256 * 1024];
    OK(ddp_store_watch(watcher, "", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, NULL, NULL, &why));
    while (store_thread_stats(server).connections == 2)
        OK(ddp_store_set(writer, "k", large, sizeof large, LONG_MS, NULL, &why));
    ck_assert_uint_eq(store_thread_stats(server).watches, 0);
    assert_alive(writer);
    struct ddp_store_event *event;
    struct ddp_error err;
    ddp_status status;
    uint64_t version = 0;
    while ((status = ddp_store_next_event(watcher, LONG_MS, &event, &err)) == DDP_OK) {
        ck_assert_uint_gt(event->version, version); /* what had left before */
        version = event->version;
        ddp_store_free(event);
    }
    ck_assert_int_eq(status, DDP_E_CLOSED);
    ck_assert_int_eq(ddp_store_next_event(watcher, 0, &event, &err), DDP_E_CLOSED);
    ddp_store_close(watcher);
    ddp_store_close(writer);
}
END_TEST

/* What it has missed is more than the server queues for one client. */
START_TEST(who_has_missed_too_much_is_told_so)
{
    restart(&(struct ddpi_server_options){.output_soft = 64 * 1024, .output_hard = 1024 * 1024});
    ddp_store *watcher = open_store(), *writer = open_store();
    static char large[256 * 1024];
    struct ddp_store_event *event;
    uint64_t watch;
    void *value;
    size_t len;
    OK(ddp_store_watch(watcher, "k", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, &watch, NULL, &why));
    while (store_thread_stats(server).connections == 2)
        OK(ddp_store_set(writer, "k", large, sizeof large, LONG_MS, NULL, &why));
    for (int i = 0; i < 8; i++)
        OK(ddp_store_set(writer, "k", large, sizeof large, LONG_MS, NULL, &why));
    ck_assert_int_eq(ddp_store_try_get(watcher, "none", LONG_MS, &value, &len, NULL, &why),
                     DDP_E_NOT_FOUND);
    for (bool lost = false; !lost;) { /* events that had left before may come first */
        OK(ddp_store_next_event(watcher, LONG_MS, &event, &why));
        lost = event->kind == DDP_STORE_EVENT_LOST;
        ck_assert(!lost || event->value_len == 0); /* the watch goes on */
        ddp_store_free(event);
    }
    set_text(writer, "k2", "2");
    expect_event(watcher, watch, DDP_STORE_EVENT_SET, "k2", "2", NULL);
    ddp_store_close(watcher);
    ddp_store_close(writer);
}
END_TEST

/* The queue of the handle is full: what is dropped is said to be missing. */
START_TEST(events_beyond_the_queue_are_said_to_be_missing)
{
    enum { LARGE = 15 * 1024 * 1024, SETS = 6, FIT = 4 };
    ddp_store *watcher = open_store(), *writer = open_store();
    struct ddp_store_event *event;
    uint64_t watch, version = 0;
    char *large = calloc(LARGE, 1);
    OK(ddp_store_watch(watcher, "k", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, &watch, NULL, &why));
    for (int i = 0; i < SETS; i++) {
        OK(ddp_store_set(writer, "k", large, LARGE, LONG_MS, &version, &why));
        assert_alive(watcher); /* takes the event in */
    }
    for (int i = 0; i < FIT; i++) {
        OK(ddp_store_next_event(watcher, LONG_MS, &event, &why));
        ck_assert_uint_eq(event->value_len, LARGE);
        ddp_store_free(event);
    }
    expect_event(watcher, watch, DDP_STORE_EVENT_LOST, "", "", &version);
    set_text(writer, "k2", "2");
    expect_event(watcher, watch, DDP_STORE_EVENT_SET, "k2", "2", NULL);
    free(large);
    ddp_store_close(watcher);
    ddp_store_close(writer);
}
END_TEST

START_TEST(events_outlive_the_connection)
{
    ddp_store *watcher = open_mortal();
    uint64_t watch;
    struct ddp_error err;
    struct ddp_store_event *event;
    OK(ddp_store_watch(watcher, "k", 0, 0, LONG_MS, &watch, NULL, &why));
    set_text(watcher, "k", "1");
    restart(NULL);
    ck_assert_int_eq(ddp_store_set(watcher, "k", "2", 1, LONG_MS, NULL, &err), DDP_E_CLOSED);
    expect_event(watcher, watch, DDP_STORE_EVENT_SET, "k", "1", NULL);
    ck_assert_int_eq(ddp_store_next_event(watcher, LONG_MS, &event, &err), DDP_E_CLOSED);
    ddp_store_close(watcher);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        no_event_comes,
        who_does_not_read_is_closed_alone,
        who_has_missed_too_much_is_told_so,
        events_outlive_the_connection,
        events_beyond_the_queue_are_said_to_be_missing,
    };
    return store_suite("store_watch", tests, sizeof tests / sizeof *tests);
}
