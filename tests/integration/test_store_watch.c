/*
 * test_store_watch.c - watches and sessions through the blocking client: events beside other calls,
 * after a new connection, and of clients that do not read them; keys that outlive a connection, but
 * not their session.
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

START_TEST(events_come_beside_other_calls)
{
    ddp_store *watcher = open_prefix("g1/"), *writer = open_prefix("g1/");
    uint64_t key, all, version, second;
    struct ddp_store_event *event = NULL;
    struct ddp_error err;
    OK(ddp_store_watch(watcher, "k", 0, 0, LONG_MS, &key, &version, &why));
    OK(ddp_store_watch(watcher, "", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, &all, NULL, &why));
    ck_assert_int_eq(ddp_store_next_event(watcher, 0, &event, &err), DDP_E_TIMEOUT);
    ck_assert_int_eq(ddp_store_next_event(watcher, 20, &event, &err), DDP_E_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.msg, store_thread_endpoint(server)));
    set_text(writer, "k", "1");
    void *value;
    size_t len;
    OK(ddp_store_get(watcher, "k", LONG_MS, &value, &len, &version, &why)); /* overtakes nothing */
    ck_assert_str_eq(value, "1");
    ddp_store_free(value);
    OK(ddp_store_delete(writer, "k", LONG_MS, &why));
    expect_event(watcher, all, DDP_STORE_EVENT_SET, "k", "1", &second);
    ck_assert_uint_eq(second, version);
    expect_event(watcher, key, DDP_STORE_EVENT_SET, "k", "1", &second);
    expect_event(watcher, all, DDP_STORE_EVENT_DELETED, "k", "", &second);
    ck_assert_uint_eq(second, version + 1);
    expect_event(watcher, key, DDP_STORE_EVENT_DELETED, "k", "", NULL);

    set_text(watcher, "own", "2"); /* one's own changes, too */
    expect_event(watcher, all, DDP_STORE_EVENT_SET, "own", "2", NULL);
    OK(ddp_store_unwatch(watcher, all, LONG_MS, &why));
    ck_assert_int_eq(ddp_store_unwatch(watcher, all, LONG_MS, &err), DDP_E_NOT_FOUND);
    set_text(watcher, "own", "3");
    ck_assert_int_eq(ddp_store_next_event(watcher, 0, &event, &err), DDP_E_TIMEOUT);
    ck_assert_int_eq(ddp_store_watch(watcher, "k", 2, 0, LONG_MS, NULL, NULL, &err), DDP_E_INVALID);
    ck_assert_ptr_null(event);
    assert_alive(watcher);
    ck_assert_uint_eq(store_thread_stats(server).watches, 1);
    ddp_store_close(watcher);
    ddp_store_close(writer);
}
END_TEST

START_TEST(a_new_connection_goes_on_where_the_last_was)
{
    ddp_store *first = open_store(), *writer = open_store(), *next = open_store();
    uint64_t watch, version;
    struct ddp_error err;
    OK(ddp_store_watch(first, "a/", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, &watch, NULL, &why));
    set_text(writer, "a/1", "1");
    expect_event(first, watch, DDP_STORE_EVENT_SET, "a/1", "1", &version);
    ddp_store_close(first);
    await_connections(2);
    set_text(writer, "a/2", "2");
    set_text(writer, "b", "2");
    set_text(writer, "a/1", "3");
    OK(ddp_store_watch(next, "a/", DDP_STORE_WATCH_PREFIX, version + 1, LONG_MS, &watch, NULL,
                       &why));
    expect_event(next, watch, DDP_STORE_EVENT_SET, "a/2", "2", NULL);
    expect_event(next, watch, DDP_STORE_EVENT_SET, "a/1", "3", &version);
    set_text(writer, "a/3", "4");
    expect_event(next, watch, DDP_STORE_EVENT_SET, "a/3", "4", NULL);
    uint64_t latest = 0;
    ck_assert_int_eq(ddp_store_watch(next, "a/", 0, version + 100, LONG_MS, NULL, &latest, &err),
                     DDP_E_GONE);
    ck_assert_uint_eq(latest, version + 1);
    ddp_store_close(writer);
    ddp_store_close(next);
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

START_TEST(keys_vanish_with_their_session)
{
    ddp_store *first = open_prefix("g1/"), *other = open_prefix("g1/");
    struct ddp_store_session session, wrong = {{0}};
    struct ddp_error err;
    uint64_t watch, version;
    void *value;
    size_t len;
    ck_assert_int_eq(ddp_store_session_open(first, 0, LONG_MS, &session, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_session_keep(first, NULL, LONG_MS, &err), DDP_E_INVALID);
    OK(ddp_store_session_open(first, LONG_MS, LONG_MS, &session, &why));
    OK(ddp_store_set_ephemeral(first, &session, "rank0", "here", 4, LONG_MS, &version, &why));
    ck_assert_int_eq(ddp_store_set_ephemeral(first, &wrong, "x", "", 0, LONG_MS, NULL, &err),
                     DDP_E_NOT_FOUND);
    ddp_store_close(first);
    await_connections(1);
    OK(ddp_store_session_keep(other, &session, LONG_MS, &why)); /* on a new connection */
    OK(ddp_store_get(other, "rank0", LONG_MS, &value, &len, NULL, &why));
    ck_assert_str_eq(value, "here");
    ddp_store_free(value);
    OK(ddp_store_watch(other, "rank", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, &watch, NULL, &why));
    OK(ddp_store_session_close(other, &session, LONG_MS, &why));
    expect_event(other, watch, DDP_STORE_EVENT_DELETED, "rank0", "", NULL);
    ck_assert_int_eq(ddp_store_session_close(other, &session, LONG_MS, &err), DDP_E_NOT_FOUND);

    OK(ddp_store_session_open(other, 30, LONG_MS, &session, &why)); /* not renewed */
    ck_assert_uint_le(store_thread_stats(server).sessions, 1);
    ddp_status status =
        ddp_store_set_ephemeral(other, &session, "rank1", "", 0, LONG_MS, NULL, &err);
    if (status == DDP_OK) { /* in time, on a machine that is not too busy */
        expect_event(other, watch, DDP_STORE_EVENT_SET, "rank1", "", NULL);
        expect_event(other, watch, DDP_STORE_EVENT_DELETED, "rank1", "", NULL);
    }
    ck_assert_int_eq(ddp_store_session_keep(other, &session, LONG_MS, &err),
                     status == DDP_OK ? DDP_E_NOT_FOUND : status);
    ddp_store_close(other);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        events_come_beside_other_calls,    a_new_connection_goes_on_where_the_last_was,
        who_does_not_read_is_closed_alone, events_outlive_the_connection,
        keys_vanish_with_their_session,    events_beyond_the_queue_are_said_to_be_missing,
    };
    return store_suite("store_watch", tests, sizeof tests / sizeof *tests);
}
