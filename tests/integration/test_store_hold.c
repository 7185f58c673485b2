/*
 * test_store_hold.c - sessions that are held: which ends of a connection end them, with bare
 * connections and with the asynchronous client.
 */
#include "keep_alive.h"
#include "store_uv_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

/* Where an end is to be seen at once, no lease ends while the test waits; where a lease is to end
 * it, it is not over before SHORT_MS. */
enum { LONG_LEASE_MS = 600000, LEASE_MS = 5000, SHORT_MS = 4000 };

/* ---- bare ---- */

/* Open a session and set "e" by it. */
static struct ddp_store_session raw_session(int fd, uint32_t lease_ms)
{
    struct ddp_store_session session;
    uint8_t payload[256];
    const struct ddpi_message open = {.op = DDPI_OP_SESSION_OPEN, .id = 1, .count = lease_ms};
    raw_request(fd, &open);
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    ck_assert_int_eq(frame.status, DDP_OK);
    ck_assert_uint_eq(frame.payload_len, 4 + sizeof session.token);
    memcpy(session.token, payload + 4, sizeof session.token);
    const struct ddpi_message set = {.op = DDPI_OP_SET_EPHEMERAL,
                                     .id = 2,
                                     .key = {"e", 1},
                                     .value = {"1", 1},
                                     .session = {session.token, sizeof session.token}};
    raw_request(fd, &set);
    ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status, DDP_OK);
    return session;
}

static void raw_hold(int fd, const struct ddp_store_session *session)
{
    uint8_t payload[256];
    const struct ddpi_message hold = {
        .op = DDPI_OP_SESSION_HOLD, .id = 3, .session = {session->token, sizeof session->token}};
    raw_request(fd, &hold);
    ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status, DDP_OK);
}

static void raw_setup(void)
{
    signal(SIGPIPE, SIG_IGN); /* the server is in this process */
    store_setup();
}

static int raw_client(void)
{
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    return fd;
}

static void reset(int fd)
{
    const struct linger now = {.l_onoff = 1};
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    close(fd);
}

/* Until "e" is gone. */
static void await_end(ddp_store *store)
{
    struct ddp_store_event *event;
    OK(ddp_store_watch(store, "e", 0, 0, LONG_MS, NULL, NULL, &why));
    void *value;
    size_t len;
    ddp_status status = ddp_store_try_get(store, "e", LONG_MS, &value, &len, NULL, &why);
    if (status == DDP_E_NOT_FOUND)
        return;
    ck_assert_int_eq(status, DDP_OK);
    ddp_store_free(value);
    OK(ddp_store_next_event(store, LONG_MS, &event, &why));
    ck_assert_int_eq(event->kind, DDP_STORE_EVENT_DELETED);
    ddp_store_free(event);
}

START_TEST(an_end_of_file_ends_it)
{
    ddp_store *store = open_store();
    int fd = raw_client();
    struct ddp_store_session session = raw_session(fd, LONG_LEASE_MS);
    raw_hold(fd, &session);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    close(fd); /* not visible to the server while a copy is open */
    assert_alive(store);
    raw_hold(copy, &session);
    close(copy);
    await_end(store);
    ck_assert_int_eq(ddp_store_session_keep(store, &session, LONG_MS, &why), DDP_E_NOT_FOUND);
    ddp_store_close(store);
}
END_TEST

START_TEST(a_reset_leaves_it_to_its_lease)
{
    ddp_store *store = open_store();
    int fd = raw_client();
    uint64_t begin_ms = raw_now_ms(); /* before the lease begins, whatever delays us later */
    struct ddp_store_session session = raw_session(fd, LEASE_MS);
    raw_hold(fd, &session);
    reset(fd);
    await_end(store);
    ck_assert_uint_gt(raw_now_ms() - begin_ms, SHORT_MS);
    ddp_store_close(store);
}
END_TEST

/* Whether the server reads what was said before together with the reset or not. */
START_TEST(a_reset_behind_data_is_one)
{
    enum { TRIES = 50 };
    struct ddp_store_session sessions[TRIES];
    const struct ddpi_message last = {.op = DDPI_OP_STATS, .id = 9};
    ddp_store *store = open_store();
    for (size_t i = 0; i < TRIES; i++) {
        int fd = raw_client();
        sessions[i] = raw_session(fd, LONG_LEASE_MS);
        raw_hold(fd, &sessions[i]);
        raw_request(fd, &last);
        reset(fd);
        assert_alive(store);
        OK(ddp_store_session_keep(store, &sessions[i], LONG_MS, &why));
    }
    await_connections(1);
    for (size_t i = 0; i < TRIES; i++)
        OK(ddp_store_session_keep(store, &sessions[i], LONG_MS, &why));
    ddp_store_close(store);
}
END_TEST

START_TEST(who_does_not_hold_it_any_more_ends_nothing)
{
    ddp_store *store = open_store();
    int first = raw_client(), second = raw_client();
    uint64_t begin_ms = raw_now_ms();
    struct ddp_store_session session = raw_session(first, LEASE_MS);
    raw_hold(first, &session);
    raw_hold(second, &session);
    close(first);
    await_end(store);
    ck_assert_uint_gt(raw_now_ms() - begin_ms, SHORT_MS);
    close(second);
    ddp_store_close(store);
}
END_TEST

/* Bytes that break a rule: the server ends the connection. */
START_TEST(a_connection_that_the_server_ends_leaves_it)
{
    ddp_store *store = open_store();
    int fd = raw_client();
    uint64_t begin_ms = raw_now_ms(); /* before the lease begins, whatever delays us later */
    struct ddp_store_session session = raw_session(fd, LEASE_MS);
    raw_hold(fd, &session);
    static const uint8_t nonsense[DDPI_FRAME_HEADER_SIZE] = {0, 0, 0, 0, 1};
    raw_send(fd, nonsense, sizeof nonsense);
    raw_until_closed(fd);
    close(fd);
    await_end(store);
    ck_assert_uint_gt(raw_now_ms() - begin_ms, SHORT_MS);
    ddp_store_close(store);
}
END_TEST

/* ---- the asynchronous client ---- */

static struct ddp_store_session held;
static unsigned opened, kept, ended, connects;
static uint64_t kept_ms; /* the last time */
static bool set_done;

static void setup(void)
{
    store_uv_setup();
    opened = kept = ended = connects = 0;
    set_done = false;
}

static void on_state(void *data, ddp_store_uv *store, enum ddp_store_uv_state state,
                     const char *text)
{
    (void)data;
    (void)store;
    (void)text;
    connects += state == DDP_STORE_UV_CONNECTED;
}

static void on_kept(void *data, ddp_store_uv *store, const struct ddp_store_session *session,
                    uint64_t sent_ms)
{
    (void)data;
    (void)store;
    ck_assert_mem_eq(session, &held, sizeof held);
    ck_assert_uint_ge(sent_ms, kept_ms);
    ck_assert_uint_le(sent_ms, raw_now_ms());
    kept_ms = sent_ms;
    kept++;
}

static void on_ended(void *data, ddp_store_uv *store, const struct ddp_store_session *session)
{
    (void)data;
    (void)store;
    (void)session;
    ended++;
}

static void on_open(void *data, const struct ddp_store_result *result)
{
    (void)data;
    ck_assert_msg(result->status == DDP_OK, "%s", result->message);
    held = *result->session;
    opened++;
}

static void on_set(void *data, const struct ddp_store_result *result)
{
    (void)data;
    ck_assert_msg(result->status == DDP_OK, "%s", result->message);
    set_done = true;
}

static void submit(ddp_store_uv *store, struct ddp_store_request request, ddp_store_uv_done *done)
{
    request.size = sizeof request;
    request.timeout_ms = LONG_MS;
    OK(ddp_store_uv_submit(store, &request, done, NULL, NULL, &why));
}

static ddp_store_uv *open_held_by(uint32_t lease_ms, bool tls)
{
    struct ddp_store_options options = {.size = sizeof options,
                                        .endpoint = store_thread_endpoint(server)};
    if (tls)
        by_tls(&options);
    const struct ddp_store_uv_hooks hooks = {.size = sizeof hooks,
                                             .state = on_state,
                                             .session_ended = on_ended,
                                             .session_kept = on_kept};
    ddp_store_uv *store;
    kept_ms = raw_now_ms();
    OK(ddp_store_uv_open(&loop, &options, &hooks, &store, &why));
    ck_assert_int_eq(ddp_store_uv_socket(store), -1);
    submit(store,
           (struct ddp_store_request){
               .op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = lease_ms, .flags = DDP_STORE_HOLD},
           on_open);
    UNTIL(opened == 1);
    submit(store,
           (struct ddp_store_request){.op = DDP_STORE_OP_SET_EPHEMERAL,
                                      .key = "e",
                                      .value = "1",
                                      .value_len = 1,
                                      .session = &held},
           on_set);
    UNTIL(set_done && kept == 1);
    ck_assert_int_ge(ddp_store_uv_socket(store), 0);
    return store;
}

static ddp_store_uv *open_held(uint32_t lease_ms)
{
    return open_held_by(lease_ms, false);
}

START_TEST(closing_the_handle_ends_it)
{
    ddp_store *other = open_store();
    ddp_store_uv *store = open_held(LONG_LEASE_MS);
    close_uv(store);
    await_end(other);
    ddp_store_close(other);
}
END_TEST

START_TEST(it_is_kept_at_each_sixth)
{
    enum { EACH_MS = 1000 };
    ddp_store_uv *store = open_held(6 * EACH_MS);
    for (uint64_t last_ms = kept_ms; kept < 4; last_ms = kept_ms) {
        ck_assert_uint_eq(ddpi_uv_keep_alive_next(store), last_ms + EACH_MS);
        UNTIL(kept_ms > last_ms);
        ck_assert_uint_ge(kept_ms - last_ms, EACH_MS);
    }
    close_uv(store);
}
END_TEST

/* What the client takes for an end of file from the server: it gives the connection up. */
START_TEST(a_lost_connection_is_held_again)
{
    ddp_store *other = open_store();
    ddp_store_uv *store = open_held(LONG_LEASE_MS);
    for (unsigned round = 1; round <= 3; round++) {
        unsigned before = kept;
        shutdown(ddp_store_uv_socket(store), SHUT_RD);
        UNTIL(connects == round + 1 && kept > before);
        ck_assert_int_eq(ddp_store_session_keep(other, &held, LONG_MS, &why), DDP_OK);
    }
    ck_assert_uint_eq(ended, 0);
    close_uv(store);
    await_end(other);
    ddp_store_close(other);
}
END_TEST

/* What an attacker on the path can do to any connection: it looks like the client's end. */
static void forge_end(ddp_store_uv *store)
{
    shutdown(ddp_store_uv_socket(store), SHUT_WR);
    UNTIL(connects == 2 && (ended == 1 || kept == 2));
}

START_TEST(a_forged_end_is_one_in_clear)
{
    ddp_store_uv *store = open_held(LONG_LEASE_MS);
    forge_end(store);
    ck_assert_uint_eq(ended, 1);
    close_uv(store);
}
END_TEST

START_TEST(a_forged_end_is_none_by_tls)
{
    restart(&(struct ddpi_server_options){.tls = true, .token = &store_thread_token});
    ddp_store_uv *store = open_held_by(LONG_LEASE_MS, true);
    forge_end(store);
    ck_assert_uint_eq(ended, 0);
    close_uv(store);
}
END_TEST

START_TEST(another_server_does_not_know_it)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    ddp_store_uv *store = open_held(LONG_LEASE_MS);
    restart(&same);
    UNTIL(ended == 1);
    close_uv(store);
}
END_TEST

static void on_canceled(void *data, const struct ddp_store_result *result)
{
    (void)data;
    ck_assert_int_eq(result->status, DDP_E_CANCELED);
}

/* The next time to keep the session is known, and is not before @next_ms. */
static bool keeps_after(const ddp_store_uv *store, uint64_t next_ms)
{
    uint64_t due_ms = ddpi_uv_keep_alive_next(store);
    return due_ms != UINT64_MAX && due_ms >= next_ms;
}

/* Clients without a hook for it. */
START_TEST(hooks_may_be_shorter)
{
    enum { EACH_MS = 100 };
    struct ddp_store_uv_hooks hooks = {
        .size = offsetof(struct ddp_store_uv_hooks, session_kept),
        .session_ended = on_ended,
        .session_kept = on_kept,
    };
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = store_thread_endpoint(server)};
    ddp_store_uv *store;
    uint64_t begin_ms = raw_now_ms();
    OK(ddp_store_uv_open(&loop, &options, &hooks, &store, &why));
    submit(store,
           (struct ddp_store_request){
               .op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = 6 * EACH_MS, .flags = DDP_STORE_KEEP},
           on_open);
    submit(store, (struct ddp_store_request){.op = DDP_STORE_OP_GET, .key = "never"}, on_canceled);
    UNTIL(ended == 1 || keeps_after(store, begin_ms + 2 * EACH_MS));
    ck_assert_uint_eq(kept, 0);
    close_uv(store);
    hooks.size--;
    ck_assert_int_eq(ddp_store_uv_open(&loop, &options, &hooks, &store, &why), DDP_E_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_hold");
    TCase *raw = tcase_create("raw");
    tcase_add_checked_fixture(raw, raw_setup, store_teardown);
    ADD_TESTS(raw, an_end_of_file_ends_it, a_reset_leaves_it_to_its_lease,
              a_reset_behind_data_is_one, who_does_not_hold_it_any_more_ends_nothing,
              a_connection_that_the_server_ends_leaves_it);
    suite_add_tcase(suite, raw);
    TCase *client = tcase_create("client");
    tcase_add_checked_fixture(client, setup, store_uv_teardown);
    ADD_TESTS(client, closing_the_handle_ends_it, it_is_kept_at_each_sixth,
              a_lost_connection_is_held_again, a_forged_end_is_one_in_clear,
              a_forged_end_is_none_by_tls, another_server_does_not_know_it, hooks_may_be_shorter);
    suite_add_tcase(suite, client);
    return suite;
}
