/*
 * test_store_clients.c - the contract of both clients of the store: every operation, limits of
 * arguments, deadlines, watches and sessions, and servers that are not there, are no store, fall
 * silent, stop or come back.
 */
#include "store_clients.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t set_text(struct store_client *client, const char *key, const char *text)
{
    return EXPECT(DDP_OK, client, .op = DDP_STORE_OP_SET, .key = key, .value = text,
                  .value_len = strlen(text))
        ->version;
}

static uint64_t assert_value(struct store_client *client, const char *key, const char *wanted)
{
    struct outcome *got = EXPECT(DDP_OK, client, .op = DDP_STORE_OP_GET, .key = key);
    ck_assert_uint_eq(got->value_len, strlen(wanted));
    ck_assert_str_eq(got->value, wanted);
    return got->version;
}

static void assert_usable(struct store_client *client)
{
    int64_t before =
        EXPECT(DDP_OK, client, .op = DDP_STORE_OP_ADD, .key = "alive", .number = 1)->number;
    int64_t after =
        EXPECT(DDP_OK, client, .op = DDP_STORE_OP_ADD, .key = "alive", .number = 1)->number;
    ck_assert_int_eq(after, before + 1);
}

static void assert_says(const struct outcome *outcome, const char *text)
{
    ck_assert_msg(strstr(outcome->err.msg, text) != NULL, "%s", outcome->err.msg);
}

START_TEST(every_operation)
{
    struct store_client *c = client_open("p/");
    struct outcome *o = EXPECT(DDP_E_NOT_FOUND, c, .op = DDP_STORE_OP_TRY_GET, .key = "k");
    assert_says(o, store_thread_endpoint(server));
    assert_says(o, "'k'");
    uint64_t version = set_text(c, "k", "v");
    o = EXPECT(DDP_OK, c, .op = DDP_STORE_OP_TRY_GET, .key = "k");
    ck_assert_uint_eq(o->version, version);
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_SET, .key = "empty");
    assert_value(c, "empty", "");
    o = EXPECT(DDP_E_CONFLICT, c, .op = DDP_STORE_OP_COMPARE_AND_SWAP, .key = "k", .version = 99);
    ck_assert_uint_eq(o->version, version);
    o = EXPECT(DDP_OK, c, .op = DDP_STORE_OP_COMPARE_AND_SWAP, .key = "k", .version = version,
               .value = "w", .value_len = 1);
    ck_assert_uint_gt(o->version, version);
    ck_assert_uint_eq(assert_value(c, "k", "w"), o->version);
    EXPECT(DDP_E_TYPE, c, .op = DDP_STORE_OP_ADD, .key = "k", .number = 1);
    o = EXPECT(DDP_OK, c, .op = DDP_STORE_OP_ADD, .key = "n", .number = -3);
    ck_assert_int_eq(o->number, -3);
    assert_value(c, "n", "-3");
    const char *keys[] = {"k", "empty"};
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_WAIT, .keys = keys, .count = 2);
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_DELETE, .key = "empty");
    EXPECT(DDP_E_NOT_FOUND, c, .op = DDP_STORE_OP_DELETE, .key = "empty");
    EXPECT(DDP_E_TIMEOUT, c, .op = DDP_STORE_OP_WAIT, .keys = keys, .count = 2,
           .timeout_ms = AT_ONCE);
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_BARRIER, .key = "b", .count = 1);
    o = EXPECT(DDP_OK, c, .op = DDP_STORE_OP_STATS);
    ck_assert_ptr_nonnull(strstr(o->value, "connections 1\n"));
    assert_usable(c);
    client_close(c);
}
END_TEST

START_TEST(transactions)
{
    struct store_client *c = client_open("g1/");
    uint64_t first = set_text(c, "k", "w");
    const struct ddp_store_clause move[] = {
        {.kind = DDP_STORE_IF_VERSION, .key = "k", .version = first},
        {.kind = DDP_STORE_IF_VALUE, .key = "k", .value = "w", .value_len = 1},
        {.kind = DDP_STORE_IF_VERSION, .key = "l"},
        {.kind = DDP_STORE_THEN_DELETE, .key = "k"},
        {.kind = DDP_STORE_THEN_SET, .key = "l", .value = "w", .value_len = 1},
    };
    struct outcome *o = EXPECT(DDP_OK, c, .op = DDP_STORE_OP_TRANSACT, .clauses = move, .count = 5);
    ck_assert_uint_gt(o->version, first);
    ck_assert_uint_eq(assert_value(c, "l", "w"), o->version);
    EXPECT(DDP_E_NOT_FOUND, c, .op = DDP_STORE_OP_TRY_GET, .key = "k");
    o = EXPECT(DDP_E_CONFLICT, c, .op = DDP_STORE_OP_TRANSACT, .clauses = move, .count = 5);
    ck_assert_uint_eq(o->version, 0); /* there is no 'k' */
    assert_says(o, "'k'");

    EXPECT(DDP_E_INVALID, c, .op = DDP_STORE_OP_TRANSACT, .clauses = move);
    EXPECT(DDP_E_INVALID, c, .op = DDP_STORE_OP_TRANSACT, .clauses = move, .count = 65);
    const struct ddp_store_clause twice[] = {move[3], move[3]}, unknown = {.key = "k"},
                                  large = {.kind = DDP_STORE_THEN_SET,
                                           .key = "k",
                                           .value = "",
                                           .value_len = DDP_STORE_VALUE_MAX + 1};
    EXPECT(DDP_E_INVALID, c, .op = DDP_STORE_OP_TRANSACT, .clauses = twice, .count = 2);
    EXPECT(DDP_E_INVALID, c, .op = DDP_STORE_OP_TRANSACT, .clauses = &unknown, .count = 1);
    EXPECT(DDP_E_LIMIT, c, .op = DDP_STORE_OP_TRANSACT, .clauses = &large, .count = 1);
    assert_usable(c);
    client_close(c);
}
END_TEST

START_TEST(prefixes_and_lists)
{
    struct store_client *all = client_open(NULL), *one = client_open("g1/");
    const struct {
        struct store_client *client;
        const char *prefix, *keys;
        size_t count;
    } cases[] = {{one, "", "a,b", 2}, {all, "g", "g1/a,g1/b,g2/c", 3}, {one, "none", "", 0}};
    set_text(one, "b", "1");
    set_text(one, "a", "2");
    set_text(all, "g2/c", "3");
    assert_value(all, "g1/b", "1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome *o =
            EXPECT(DDP_OK, cases[i].client, .op = DDP_STORE_OP_LIST, .key = cases[i].prefix);
        ck_assert_uint_eq(o->count, cases[i].count);
        ck_assert_str_eq(o->value, cases[i].keys);
    }
    client_close(all);
    client_close(one);
}
END_TEST

START_TEST(deadlines_leave_the_handle_usable)
{
    static const uint32_t timeouts_ms[] = {AT_ONCE, 30, 60};
    struct store_client *c = client_open(NULL);
    assert_usable(c); /* it is connected */
    for (size_t i = 0; i < 3; i++) {
        uint64_t start_ms = raw_now_ms();
        EXPECT(DDP_E_TIMEOUT, c, .op = DDP_STORE_OP_GET, .key = "no", .timeout_ms = timeouts_ms[i]);
        ck_assert_uint_ge(raw_now_ms() - start_ms + 2, i * 30); /* two clocks, in whole ms */
        assert_usable(c);
    }
    assert_says(EXPECT(DDP_E_TIMEOUT, c, .op = DDP_STORE_OP_BARRIER, .key = "b", .count = 3,
                       .timeout_ms = 10),
                "1 of 3");
    assert_usable(c);
    client_close(c);
}
END_TEST

START_TEST(arguments_are_checked)
{
    static char long_key[DDP_STORE_KEY_MAX + 2];
    static const char *const keys[] = {"alive", NULL};
    const struct ddp_store_request bad[] = {
        {.op = DDP_STORE_OP_GET},
        {.op = DDP_STORE_OP_SET},
        {.op = DDP_STORE_OP_SET, .key = "k", .value_len = 1},
        {.op = DDP_STORE_OP_BARRIER, .key = "b"},
        {.op = DDP_STORE_OP_WAIT},
        {.op = DDP_STORE_OP_WAIT, .keys = keys, .count = 2},
        {.op = DDP_STORE_OP_WAIT, .keys = keys, .count = DDP_STORE_MANY_MAX + 1},
        {.op = DDP_STORE_OP_TRANSACT},
        {.op = DDP_STORE_OP_WATCH, .key = "w", .flags = 2},
        {.op = DDP_STORE_OP_SESSION_OPEN},
        {.op = DDP_STORE_OP_SESSION_KEEP},
    };
    struct store_client *c = client_open(NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        client_expect(DDP_E_INVALID, client_finish(client_start(c, bad[i])));
    memset(long_key, 'k', DDP_STORE_KEY_MAX);
    set_text(c, long_key, "v");
    long_key[DDP_STORE_KEY_MAX] = 'k';
    EXPECT(DDP_E_LIMIT, c, .op = DDP_STORE_OP_SET, .key = long_key);
    assert_usable(c);
    client_close(c);
}
END_TEST

START_TEST(options_are_checked)
{
    static const char *const endpoints[] = {NULL, "", "host", "host:0", "host:x", "::1:5"};
    struct store_client *none = NULL;
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoints[i]};
        ck_assert_int_eq(client_try_open(&options, &none, &why), DDP_E_INVALID);
    }
    struct ddp_store_options no_size = {.endpoint = "127.0.0.1:1"};
    ck_assert_int_eq(client_try_open(&no_size, &none, &why), DDP_E_INVALID);
    ck_assert_ptr_null(none);
}
END_TEST

START_TEST(the_largest_value)
{
    struct store_client *c = client_open(NULL);
    size_t size = DDP_STORE_VALUE_MAX;
    char *sent = malloc(size + 1);
    for (size_t i = 0; i <= size; i++)
        sent[i] = (char)(i * 7 + i / 1000);
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_SET, .key = "big", .value = sent, .value_len = size);
    struct outcome *o = EXPECT(DDP_OK, c, .op = DDP_STORE_OP_GET, .key = "big");
    ck_assert_uint_eq(o->value_len, size);
    ck_assert(memcmp(sent, o->value, size) == 0);
    EXPECT(DDP_E_LIMIT, c, .op = DDP_STORE_OP_SET, .key = "big", .value = sent,
           .value_len = size + 1);
    assert_usable(c);
    free(sent);
    client_close(c);
}
END_TEST

/* ---- watches and sessions ---- */

static uint64_t watch_from(struct store_client *client, const char *name, uint32_t flags,
                           uint64_t version)
{
    return EXPECT(DDP_OK, client, .op = DDP_STORE_OP_WATCH, .key = name, .flags = flags,
                  .version = version)
        ->watch;
}

static uint64_t expect_event(struct store_client *client, uint64_t watch,
                             enum ddp_store_event_kind kind, const char *key, const char *value)
{
    struct seen_event event = client_next_event(client);
    ck_assert_uint_eq(event.watch, watch);
    ck_assert_int_eq(event.kind, kind);
    ck_assert_str_eq(event.key, key);
    ck_assert_str_eq(event.value, value);
    return event.version;
}

START_TEST(events_come_beside_other_calls)
{
    struct store_client *watcher = client_open("g1/"), *writer = client_open("g1/");
    uint64_t key = watch_from(watcher, "k", 0, 0);
    uint64_t all = watch_from(watcher, "", DDP_STORE_WATCH_PREFIX, 0);
    ck_assert(!client_has_event(watcher));
    set_text(writer, "k", "1");
    uint64_t version = assert_value(watcher, "k", "1"); /* overtakes nothing */
    EXPECT(DDP_OK, writer, .op = DDP_STORE_OP_DELETE, .key = "k");
    ck_assert_uint_eq(expect_event(watcher, all, DDP_STORE_EVENT_SET, "k", "1"), version);
    expect_event(watcher, key, DDP_STORE_EVENT_SET, "k", "1");
    ck_assert_uint_eq(expect_event(watcher, all, DDP_STORE_EVENT_DELETED, "k", ""), version + 1);
    expect_event(watcher, key, DDP_STORE_EVENT_DELETED, "k", "");

    set_text(watcher, "own", "2"); /* one's own changes, too */
    expect_event(watcher, all, DDP_STORE_EVENT_SET, "own", "2");
    EXPECT(DDP_OK, watcher, .op = DDP_STORE_OP_UNWATCH, .watch = all);
    EXPECT(DDP_E_NOT_FOUND, watcher, .op = DDP_STORE_OP_UNWATCH, .watch = all);
    set_text(watcher, "own", "3");
    assert_usable(watcher);
    ck_assert(!client_has_event(watcher));
    ck_assert_uint_eq(store_thread_stats(server).watches, 1);
    client_close(watcher);
    client_close(writer);
}
END_TEST

START_TEST(a_new_connection_goes_on_where_the_last_was)
{
    struct store_client *first = client_open(NULL), *writer = client_open(NULL);
    uint64_t watch = watch_from(first, "a/", DDP_STORE_WATCH_PREFIX, 0);
    set_text(writer, "a/1", "1");
    uint64_t version = expect_event(first, watch, DDP_STORE_EVENT_SET, "a/1", "1");
    client_close(first);
    await_connections(1);
    set_text(writer, "a/2", "2");
    set_text(writer, "b", "2");
    set_text(writer, "a/1", "3");
    struct store_client *next = client_open(NULL);
    watch = watch_from(next, "a/", DDP_STORE_WATCH_PREFIX, version + 1);
    expect_event(next, watch, DDP_STORE_EVENT_SET, "a/2", "2");
    version = expect_event(next, watch, DDP_STORE_EVENT_SET, "a/1", "3");
    set_text(writer, "a/3", "4");
    expect_event(next, watch, DDP_STORE_EVENT_SET, "a/3", "4");
    struct outcome *gone =
        EXPECT(DDP_E_GONE, next, .op = DDP_STORE_OP_WATCH, .key = "a/", .version = version + 100);
    ck_assert_uint_eq(gone->version, version + 1);
    client_close(writer);
    client_close(next);
}
END_TEST

START_TEST(keys_vanish_with_their_session)
{
    struct store_client *first = client_open("g1/"), *other = client_open("g1/");
    struct ddp_store_session session, wrong = {{0}};
    session = EXPECT(DDP_OK, first, .op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = LONG_MS)->session;
    EXPECT(DDP_OK, first, .op = DDP_STORE_OP_SET_EPHEMERAL, .session = &session, .key = "rank0",
           .value = "here", .value_len = 4);
    EXPECT(DDP_E_NOT_FOUND, first, .op = DDP_STORE_OP_SET_EPHEMERAL, .session = &wrong, .key = "x");
    uint64_t watch = watch_from(other, "rank", DDP_STORE_WATCH_PREFIX, 0);
    client_close(first);
    await_connections(1);
    EXPECT(DDP_OK, other, .op = DDP_STORE_OP_SESSION_KEEP, .session = &session);
    assert_value(other, "rank0", "here"); /* on another connection */
    EXPECT(DDP_OK, other, .op = DDP_STORE_OP_SESSION_CLOSE, .session = &session);
    expect_event(other, watch, DDP_STORE_EVENT_DELETED, "rank0", "");
    EXPECT(DDP_E_NOT_FOUND, other, .op = DDP_STORE_OP_SESSION_CLOSE, .session = &session);

    session = EXPECT(DDP_OK, other, .op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = 30)->session;
    ck_assert_uint_le(store_thread_stats(server).sessions, 1); /* it is not renewed */
    ddp_status status =
        CALL(other, .op = DDP_STORE_OP_SET_EPHEMERAL, .session = &session, .key = "rank1")->status;
    if (status == DDP_OK) { /* in time, on a machine that is not too busy */
        expect_event(other, watch, DDP_STORE_EVENT_SET, "rank1", "");
        expect_event(other, watch, DDP_STORE_EVENT_DELETED, "rank1", "");
    }
    EXPECT(DDP_E_NOT_FOUND, other, .op = DDP_STORE_OP_SESSION_KEEP, .session = &session);
    client_close(other);
}
END_TEST

/* ---- servers that are not there, or no store ---- */

/* The first request of a client of @port, which the blocking client makes by itself. */
static struct ddp_error reach(uint16_t port, uint32_t timeout_ms, ddp_status wanted)
{
    char endpoint[32];
    struct ddp_error err;
    struct store_client *client = NULL;
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = timeout_ms};
    ddp_status status = client_try_open(&options, &client, &err);
    if (status == DDP_OK) {
        struct outcome *o = CALL(client, .op = DDP_STORE_OP_STATS, .timeout_ms = timeout_ms);
        status = o->status;
        err = o->err;
        client_close(client);
    }
    ck_assert_msg(status == wanted, "%s: %s", ddp_status_name(status), err.msg);
    return err;
}

START_TEST(nobody_listens)
{
    uint16_t port;
    int taken = raw_bind(&port); /* no other test can listen there */
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    uint64_t start_ms = raw_now_ms();
    struct ddp_error err = reach(port, 500, DDP_E_UNREACHABLE);
    ck_assert_uint_ge(raw_now_ms() - start_ms, 498);
    ck_assert_msg(strstr(err.msg, ": Connection refused") != NULL, "%s", err.msg);
    ck_assert_ptr_nonnull(strstr(err.msg, endpoint));
    close(taken);
}
END_TEST

/* A peer that answers a client's greeting with @bytes, and then nothing. */
struct fake {
    const char *bytes;
    size_t len;
    ddp_status wanted;
    int listen_fd;
    uint16_t port;
    uv_thread_t thread;
};

static void fake_server(void *arg)
{
    struct fake *fake = arg;
    int fd = raw_accept(fake->listen_fd);
    char greeting[DDPI_PREAMBLE_SIZE + DDPI_FRAME_HEADER_SIZE + 4];
    if (fake->len > 0) /* a client whose time is short may give up before it has greeted */
        raw_receive(fd, greeting, sizeof greeting);
    raw_send(fd, fake->bytes, fake->len);
    raw_until_closed(fd);
    close(fd);
}

static void start_fake(struct fake *fake)
{
    fake->listen_fd = raw_listen(&fake->port);
    ck_assert_int_eq(uv_thread_create(&fake->thread, fake_server, fake), 0);
}

static void stop_fake(struct fake *fake)
{
    uv_thread_join(&fake->thread);
    close(fake->listen_fd);
}

START_TEST(peers_that_are_no_store)
{
    static const char version_9[] = "DDPS\x09\0\x09";
    static const char bad_frame[] = "DDPS\3\0\3\0\377\377\377\377\1\0\0\0\0\0\0\0\0\0\0";
    struct fake fakes[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n", 28, .wanted = DDP_E_PROTOCOL},
        {version_9, 8, .wanted = DDP_E_PROTOCOL},
        {bad_frame, 24, .wanted = DDP_E_PROTOCOL},
        {"", 0, .wanted = DDP_E_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof fakes / sizeof *fakes; i++) {
        start_fake(&fakes[i]);
        reach(fakes[i].port, fakes[i].len > 0 ? LONG_MS : 300, fakes[i].wanted);
        stop_fake(&fakes[i]);
    }
}
END_TEST

START_TEST(a_server_that_falls_silent)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1024);
    struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_welcome welcome = {
        .key_max = 4096, .value_max = 4096, .many_max = 16, .incarnation = 1};
    ck_assert(ddpi_preamble_put(&buf, &preamble) && ddpi_welcome_put(&buf, 0, &welcome));
    struct fake fake = {.bytes = (const char *)ddpi_buf_head(&buf), .len = ddpi_buf_len(&buf)};
    start_fake(&fake);
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", fake.port);
    struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoint};
    struct store_client *c = NULL;
    OK(client_try_open(&options, &c, &why));
    struct outcome *o = CALL(c, .op = DDP_STORE_OP_SET, .key = "k", .timeout_ms = 5000);
    client_expect(DDP_E_CLOSED, o);
    assert_says(o, "did not answer");
    do /* until there is a connection again, which nobody answers */
        o = EXPECT(DDP_E_UNREACHABLE, c, .op = DDP_STORE_OP_SET, .key = "k", .timeout_ms = 500);
    while (strstr(o->err.msg, "does not answer") == NULL);
    client_close(c);
    stop_fake(&fake);
    ddpi_buf_finish(&buf);
}
END_TEST

/* ---- servers that go ---- */

START_TEST(a_server_that_stops_says_so)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    struct store_client *c = client_open_at(NULL, NULL, DDP_STORE_NO_RECONNECT);
    struct outcome *get =
        START(c, .op = DDP_STORE_OP_GET, .key = "never", .timeout_ms = DDP_STORE_FOREVER);
    client_await_waits(1);
    store_thread_stop(server);
    client_expect(DDP_E_CLOSED, client_finish(get));
    assert_says(get, "shutting down");
    server = store_thread_start(&same); /* at once */
    EXPECT(DDP_E_CLOSED, c, .op = DDP_STORE_OP_STATS);
    client_close(c);
}
END_TEST

START_TEST(a_wait_survives_a_restart)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    struct store_client *c = client_open(NULL);
    struct outcome *get = START(c, .op = DDP_STORE_OP_GET, .key = "k0");
    client_await_waits(1);
    restart(&same);
    client_await_waits(1);
    struct store_client *other = client_open(NULL);
    set_text(other, "k0", "x");
    client_expect(DDP_OK, client_finish(get));
    ck_assert_str_eq(get->value, "x");
    client_close(other);
    client_close(c);
}
END_TEST

START_TEST(another_store_in_its_place)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    struct store_client *c = client_open(NULL);
    uint64_t watch = watch_from(c, "a", DDP_STORE_WATCH_PREFIX, 0);
    set_text(c, "a1", "1");
    expect_event(c, watch, DDP_STORE_EVENT_SET, "a1", "1");
    restart(&same);
    expect_event(c, watch, DDP_STORE_EVENT_LOST, "", "");
    uint64_t version = set_text(c, "a2", "2");
    ck_assert_uint_eq(expect_event(c, watch, DDP_STORE_EVENT_SET, "a2", "2"), version);
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_UNWATCH, .watch = watch);
    client_close(c);
}
END_TEST

/* The only descriptor of this process at whose other end is the server's port. */
static int socket_to_server(void)
{
    for (int fd = 0; fd < sysconf(_SC_OPEN_MAX); fd++) {
        struct sockaddr_in peer = {0};
        socklen_t len = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_family == AF_INET &&
            ntohs(peer.sin_port) == store_thread_port(server))
            return fd;
    }
    ck_abort_msg("no socket to the server");
}

/* Nothing else ends a wait at a machine that has lost its power. */
START_TEST(the_kernel_looks_after_the_connection)
{
    static const struct {
        int level, name, value;
    } wanted[] = {{IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, 4}, {IPPROTO_TCP, TCP_KEEPINTVL, 2},
                  {IPPROTO_TCP, TCP_KEEPCNT, 3},  {IPPROTO_TCP, TCP_USER_TIMEOUT, 10000}};
    struct store_client *c = client_open(NULL);
    assert_usable(c);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int value = 0;
        socklen_t len = sizeof value;
        ck_assert_int_eq(
            getsockopt(socket_to_server(), wanted[i].level, wanted[i].name, &value, &len), 0);
        ck_assert_int_eq(value, wanted[i].value);
    }
    client_close(c);
}
END_TEST

static void add_contract(Suite *suite, const struct client_row *row)
{
    TCase *tcase = tcase_create(row->name);
    tcase_add_checked_fixture(tcase, row->setup, row->teardown);
    ADD_TESTS(tcase, every_operation, transactions, prefixes_and_lists,
              deadlines_leave_the_handle_usable, arguments_are_checked, options_are_checked,
              the_largest_value, events_come_beside_other_calls,
              a_new_connection_goes_on_where_the_last_was, keys_vanish_with_their_session,
              nobody_listens, peers_that_are_no_store, a_server_that_falls_silent,
              a_server_that_stops_says_so, a_wait_survives_a_restart, another_store_in_its_place,
              the_kernel_looks_after_the_connection);
    suite_add_tcase(suite, tcase);
}

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_clients");
    add_contract(suite, &blocking_clients);
    add_contract(suite, &uv_clients);
    return suite;
}
