/*
 * test_store_listen.c - where a server listens: several addresses, sockets made by others, loopback
 * only; and how it stops: draining while requests wait. Its counters, too.
 */
#include "store_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* One attempt to listen, or to adopt @fd, made on the server's thread. */
struct attempt {
    const char *host; /* NULL: adopt */
    int fd;
    uint16_t port;
    ddp_status status;
    struct ddp_error err;
    char
        endpoint[DDPI_ENDPOINT_MAX]; /* of the listener at @index afterwards; "" if there is none */
    size_t index;
};

static void listen_there(struct ddpi_server *at, void *ctx)
{
    struct attempt *attempt = ctx;
    attempt->status = attempt->host != NULL ? ddpi_server_listen(at, attempt->host, attempt->port,
                                                                 NULL, &attempt->err)
                                            : ddpi_server_adopt(at, attempt->fd, &attempt->err);
    const char *endpoint = ddpi_server_endpoint_at(at, attempt->index);
    snprintf(attempt->endpoint, sizeof attempt->endpoint, "%s", endpoint != NULL ? endpoint : "");
}

static void try_to_listen(struct attempt *attempt)
{
    store_thread_call(server, listen_there, attempt);
}

static ddp_store *open_at(const char *endpoint)
{
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = LONG_MS};
    ddp_store *store = NULL;
    OK(ddp_store_connect(&options, &store, &why));
    return store;
}

/* What one client sets, a client of another listener gets. */
static void assert_same_store(const char *endpoint)
{
    ddp_store *here = open_store(), *there = open_at(endpoint);
    void *value;
    size_t len;
    OK(ddp_store_set(here, "key", endpoint, strlen(endpoint), LONG_MS, NULL, &why));
    OK(ddp_store_try_get(there, "key", LONG_MS, &value, &len, NULL, &why));
    ck_assert_str_eq(value, endpoint);
    ddp_store_free(value);
    ddp_store_close(here);
    ddp_store_close(there);
}

START_TEST(several_addresses_are_one_store)
{
    struct attempt second = {.host = "127.0.0.2", .index = 1};
    try_to_listen(&second);
    ck_assert_msg(second.status == DDP_OK, "%s", second.err.msg);
    ck_assert_int_eq(strncmp(second.endpoint, "127.0.0.2:", 10), 0);
    assert_same_store(second.endpoint);
    if (!has_ipv6())
        SKIP("IPv6");
    struct attempt third = {.host = "::1", .port = store_thread_port(server), .index = 2};
    try_to_listen(&third);
    ck_assert_msg(third.status == DDP_OK, "%s", third.err.msg);
    ck_assert_int_eq(strncmp(third.endpoint, "[::1]:", 6), 0);
    assert_same_store(third.endpoint);
}
END_TEST

START_TEST(ipv6_is_ipv6_only)
{
    if (!has_ipv6())
        SKIP("IPv6");
    restart(&(struct ddpi_server_options){.auth = DDPI_SERVER_AUTH_NEVER});
    struct attempt v6 = {.host = "::", .port = store_thread_port(server), .index = 1};
    try_to_listen(&v6);
    ck_assert_msg(v6.status == DDP_OK, "%s", v6.err.msg);
    struct attempt v4 = {.host = "0.0.0.0", .index = 2};
    try_to_listen(&v4);
    ck_assert_msg(v4.status == DDP_OK, "%s", v4.err.msg);
}
END_TEST

START_TEST(a_failure_to_listen_changes_nothing)
{
    struct attempt taken = {.host = "127.0.0.1", .port = store_thread_port(server), .index = 1};
    try_to_listen(&taken);
    ck_assert_int_eq(taken.status, DDP_E_SYSTEM);
    ck_assert_int_eq(taken.err.sys_errno, EADDRINUSE);
    ck_assert_str_eq(taken.endpoint, "");
    struct attempt nowhere = {.host = "no.such.host.invalid"};
    try_to_listen(&nowhere);
    ck_assert_int_eq(nowhere.status, DDP_E_UNREACHABLE);
    assert_same_store(nowhere.endpoint);
}
END_TEST

START_TEST(a_socket_made_by_others)
{
    uint16_t port;
    int fd = raw_listen(&port);
    struct attempt given = {.fd = fd, .index = 1};
    try_to_listen(&given);
    ck_assert_msg(given.status == DDP_OK, "%s", given.err.msg);
    assert_same_store(given.endpoint);
    ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);

    int bound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* does not listen */
    int local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const struct {
        int fd;
        const char *text;
    } bad[] = {{bound, "listening TCP"}, {local, "listening TCP"}, {file, "socket"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct attempt attempt = {.fd = bad[i].fd, .index = 2};
        try_to_listen(&attempt);
        ck_assert_int_lt(attempt.status, 0);
        ck_assert_ptr_nonnull(strstr(attempt.err.msg, bad[i].text));
        ck_assert_str_eq(attempt.endpoint, "");
        close(bad[i].fd);
    }
}
END_TEST

START_TEST(loopback_only_without_a_token)
{
    struct attempt fine = {.host = "127.1.2.3"};
    try_to_listen(&fine);
    ck_assert_int_eq(fine.status, DDP_OK);
    static const char *const open_hosts[] = {"0.0.0.0", "::", "192.0.2.1"};
    for (size_t i = 0; i < sizeof open_hosts / sizeof *open_hosts; i++) {
        struct attempt open_host = {.host = open_hosts[i]};
        try_to_listen(&open_host);
        ck_assert_int_eq(open_host.status, DDP_E_DENIED);
        ck_assert_ptr_nonnull(strstr(open_host.err.msg, open_hosts[i]));
        ck_assert_ptr_nonnull(strstr(open_host.err.msg, "not authenticated"));
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(listen(fd, 1), 0); /* on 0.0.0.0 */
    struct attempt given = {.fd = fd};
    try_to_listen(&given);
    ck_assert_int_eq(given.status, DDP_E_DENIED);
    close(fd);
}
END_TEST

/* ---- draining ---- */

static atomic_int drained;

static void on_drained(void *ctx)
{
    (void)ctx;
    drained++;
}

static void drain(struct ddpi_server *at, void *ctx)
{
    ddpi_server_drain(at, on_drained, ctx);
    ck_assert_int_eq(drained, 0);
    ck_assert_ptr_null(ddpi_server_endpoint(at));
}

static void await_drained(void)
{
    while (drained == 0)
        poll(NULL, 0, 10);
    ck_assert_uint_eq(store_thread_stats(server).waits, 0);
    ck_assert_int_eq(drained, 1);
}

static void wait_for_key(void *arg)
{
    ddp_store *store = arg;
    void *value;
    size_t len;
    OK(ddp_store_get(store, "late", LONG_MS, &value, &len, NULL, &why));
    ddp_store_free(value);
}

START_TEST(draining_lets_those_who_wait_be_answered)
{
    ddp_store *waiting = open_store(), *other = open_store();
    uint16_t port = store_thread_port(server);
    uv_thread_t thread;
    ck_assert_int_eq(uv_thread_create(&thread, wait_for_key, waiting), 0);
    await_waits(1);
    store_thread_call(server, drain, NULL);
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = 20};
    ddp_store *newcomer = NULL;
    ck_assert_int_eq(ddp_store_connect(&options, &newcomer, NULL), DDP_E_UNREACHABLE);
    assert_alive(other);
    ck_assert_int_eq(drained, 0);
    OK(ddp_store_set(other, "late", "", 0, LONG_MS, NULL, &why));
    uv_thread_join(&thread);
    await_drained();
    ddp_store_close(waiting);
    ddp_store_close(other);
}
END_TEST

START_TEST(draining_when_nobody_waits_is_over_at_once)
{
    ddp_store *idle = open_store();
    store_thread_call(server, drain, NULL);
    await_drained();
    ddp_store_close(idle);
}
END_TEST

/* ---- counters ---- */

static uint64_t counter(const char *text, const char *name)
{
    char wanted[32];
    snprintf(wanted, sizeof wanted, "%s ", name);
    const char *at = strstr(text, wanted);
    ck_assert_msg(at != NULL && (at == text || at[-1] == '\n'), "%s in %s", name, text);
    return strtoull(at + strlen(wanted), NULL, 10);
}

START_TEST(counters)
{
    restart(&(struct ddpi_server_options){.max_connections = 2, .max_keys = 1});
    ddp_store *one = open_store(), *two = open_store();
    int fd = raw_connect(store_thread_port(server)); /* a client would try again */
    raw_until_closed(fd);
    close(fd);
    ddp_store_close(two);
    await_connections(1);
    fd = raw_connect(store_thread_port(server));
    raw_send(fd, "GET / HTTP/1.0\r\n", 16);
    raw_until_closed(fd);
    close(fd);
    await_connections(1);
    OK(ddp_store_set(one, "k", "value", 5, LONG_MS, NULL, &why));
    ck_assert_int_eq(ddp_store_set(one, "l", "", 0, LONG_MS, NULL, NULL), DDP_E_LIMIT);
    char *text;
    OK(ddp_store_stats(one, LONG_MS, &text, &why));
    ck_assert_uint_eq(counter(text, "accepted"), 3);
    ck_assert_uint_eq(counter(text, "refused"), 1);
    ck_assert_uint_eq(counter(text, "dismissed"), 1);
    ck_assert_uint_eq(counter(text, "requests"), 3);
    ck_assert_uint_eq(counter(text, "limited"), 1);
    ck_assert_uint_eq(counter(text, "connections"), 1);
    ck_assert_uint_eq(counter(text, "keys"), 1);
    ck_assert_uint_gt(counter(text, "bytes"), 5);
    ck_assert_uint_eq(counter(text, "waits"), 0);
    ddp_store_free(text);
    ddp_store_close(one);
}
END_TEST

/* ---- a standby ---- */

static void stand_by(struct ddpi_server *at, void *ctx)
{
    ddpi_server_stand_by(at, ctx, 7);
}

static void stand_in(struct ddpi_server *at, void *ctx)
{
    (void)ctx;
    ddpi_server_stand_in(at);
}

static void assert_stands_by(const char *expected)
{
    char payload[2048];
    uint64_t version;
    struct ddpi_bytes text;
    struct ddpi_buf greeting;
    int fd = raw_connect(store_thread_port(server));
    ddpi_buf_init(&greeting, 1024);
    raw_put_greeting(&greeting, DDPI_AUTH_NONE);
    raw_send(fd, ddpi_buf_head(&greeting), ddpi_buf_len(&greeting));
    raw_receive(fd, payload, DDPI_PREAMBLE_SIZE);
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    ck_assert(frame.type == DDPI_FRAME_BYE && frame.status == DDP_E_CLOSED);
    ck_assert(ddpi_refusal_get(payload, frame.payload_len, &version, &text));
    ck_assert(ddpi_bytes_equal(text, ddpi_bytes_of(expected, strlen(expected))));
    raw_until_closed(fd);
    close(fd);
    ddpi_buf_finish(&greeting);
}

START_TEST(a_standby_names_its_leader)
{
    restart(NULL);
    char nobody[] = "", leader[] = "10.0.0.1:29400";
    store_thread_call(server, stand_by, nobody);
    assert_stands_by("this store is a standby, and no store leads at the moment");
    store_thread_call(server, stand_by, leader);
    assert_stands_by("this store is a standby; the leader is 10.0.0.1:29400");
    int tcpstore = raw_connect(store_thread_port(server));
    raw_send(tcpstore, "\0\xce\xf7\x85\x3c", 5); /* VALIDATE of PyTorch's client */
    raw_until_closed(tcpstore);
    close(tcpstore);
    ck_assert_uint_eq(store_thread_stats(server).half_open, 0);
    store_thread_call(server, stand_in, NULL);
    ddp_store *store = open_store();
    assert_alive(store);
    ddp_store_close(store);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        several_addresses_are_one_store,
        ipv6_is_ipv6_only,
        a_failure_to_listen_changes_nothing,
        a_socket_made_by_others,
        loopback_only_without_a_token,
        draining_lets_those_who_wait_be_answered,
        draining_when_nobody_waits_is_over_at_once,
        counters,
        a_standby_names_its_leader,
    };
    return store_suite("store_listen", tests, sizeof tests / sizeof *tests);
}
