/*
 * test_store_torch.c - clients of the TCPStore dialect on real sockets: beside native ones, many at
 * a time, across generations, and hostile.
 */
#include "dialect_tcpstore.h"
#include "store_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ddpi_buf wire;

static void begin(void)
{
    ddpi_buf_finish(&wire);
    ddpi_buf_init(&wire, 64 * 1024 * 1024);
}

static void put_type(uint8_t type)
{
    ck_assert(ddpi_buf_put_u8(&wire, type));
}

static void put_number(uint64_t number)
{
    ck_assert(ddpi_buf_put_u64(&wire, number));
}

static void put_bytes(const void *bytes, size_t len)
{
    put_number(len);
    ck_assert(ddpi_buf_append(&wire, bytes, len));
}

static void put_string(const char *text)
{
    put_bytes(text, strlen(text));
}

static void put_set(const char *key, const char *value)
{
    put_type(DDPI_TCPSTORE_SET);
    put_string(key);
    put_string(value);
}

static void put_wait(const char *key)
{
    put_type(DDPI_TCPSTORE_WAIT);
    put_number(1);
    put_string(key);
}

static void put_key(uint8_t type, const char *key)
{
    put_type(type);
    put_string(key);
}

static void put_hello(void)
{
    ck_assert(ddpi_buf_append(&wire, DDPI_TCPSTORE_HELLO, DDPI_TCPSTORE_HELLO_SIZE));
}

static void send_wire(int fd)
{
    raw_send(fd, ddpi_buf_head(&wire), ddpi_buf_len(&wire));
    begin();
}

/* VALIDATE and PING, as PyTorch's clients do. */
static int torch_connect(void)
{
    int fd = raw_connect(store_thread_port(server));
    begin();
    put_hello();
    ck_assert(ddpi_buf_append(&wire, "\x0dping", 5));
    send_wire(fd);
    char pong[4];
    raw_receive(fd, pong, sizeof pong);
    ck_assert_int_eq(memcmp(pong, "ping", 4), 0);
    return fd;
}

static void assert_receives(int fd, const void *wanted, size_t len)
{
    char got[64];
    ck_assert_uint_le(len, sizeof got);
    raw_receive(fd, got, len);
    ck_assert(memcmp(got, wanted, len) == 0);
}

static uint64_t receive_number(int fd)
{
    uint8_t bytes[8];
    raw_receive(fd, bytes, sizeof bytes);
    struct ddpi_rd rd = ddpi_rd_of(bytes, sizeof bytes);
    return ddpi_rd_u64(&rd);
}

static uint64_t num_keys(int fd)
{
    put_type(DDPI_TCPSTORE_GETNUMKEYS);
    send_wire(fd);
    return receive_number(fd);
}

START_TEST(two_dialects_on_one_port)
{
    ddp_store *store = open_store();
    int fd = torch_connect();
    put_set("/k", "from torch");
    ck_assert_uint_eq(num_keys(fd), 1);
    void *value;
    size_t len;
    OK(ddp_store_get(store, "tcp//k", LONG_MS, &value, &len, NULL, &why));
    ck_assert_str_eq(value, "from torch");
    ddp_store_free(value);
    put_wait("/n");
    send_wire(fd);
    await_waits(1);
    OK(ddp_store_set(store, "tcp//n", "1", 1, LONG_MS, NULL, &why));
    assert_receives(fd, "\0", 1);
    char key[8000];
    memset(key, 'k', sizeof key);
    put_type(DDPI_TCPSTORE_SET); /* longer than a native client may ask for; it can list it */
    put_bytes(key, sizeof key);
    put_string("");
    ck_assert_uint_eq(num_keys(fd), 3);
    char **keys;
    size_t count;
    OK(ddp_store_list(store, "tcp/", LONG_MS, &keys, &count, &why));
    ck_assert_uint_eq(count, 3);
    ddp_store_free(keys);
    close(fd);
    ddp_store_close(store);
}
END_TEST

START_TEST(a_conversation_may_be_cut_anywhere)
{
    ddp_store *other = open_store();
    begin();
    put_hello();
    put_set("/k", "value");
    put_key(DDPI_TCPSTORE_GET, "/k");
    size_t len = ddpi_buf_len(&wire);
    uint8_t bytes[256];
    ck_assert_uint_le(len, sizeof bytes);
    memcpy(bytes, ddpi_buf_head(&wire), len);
    for (size_t cut = 1; cut < len; cut++) {
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, bytes, cut);
        assert_alive(other); /* lets the server read the first part */
        raw_send(fd, bytes + cut, len - cut);
        assert_receives(fd, "\5\0\0\0\0\0\0\0value", 13);
        close(fd);
    }
    ddp_store_close(other);
}
END_TEST

START_TEST(many_set_one_key_and_wait_for_all)
{
    enum { CLIENTS = 128 };
    int fds[CLIENTS];
    char key[16];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = torch_connect();
        snprintf(key, sizeof key, "/%d", i);
        put_set(key, "v");
        put_type(DDPI_TCPSTORE_WAIT);
        put_number(CLIENTS);
        for (int k = 0; k < CLIENTS; k++) {
            snprintf(key, sizeof key, "/%d", k);
            put_string(key);
        }
        send_wire(fds[i]);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_receives(fds[i], "\0", 1);
        ck_assert_uint_eq(num_keys(fds[i]), CLIENTS);
        close(fds[i]);
    }
}
END_TEST

static void next_generation(struct ddpi_server *at, void *ctx)
{
    ck_assert_int_eq(ddpi_server_set_tcpstore_prefix(at, ctx, NULL), DDP_OK);
}

START_TEST(a_generation_sees_its_own_keys)
{
    ddp_store *store = open_store();
    int old = torch_connect(), waiting = torch_connect();
    int greeting = raw_connect(store_thread_port(server));
    raw_send(greeting, DDPI_TCPSTORE_HELLO, 2);
    put_wait("/never");
    send_wire(waiting);
    put_set("/k", "old");
    ck_assert_uint_eq(num_keys(old), 1);
    await_waits(1);
    store_thread_call(server, next_generation, (void *)(uintptr_t) "g2/tcp/");
    raw_until_closed(old);
    raw_until_closed(waiting);
    raw_until_closed(greeting);
    ck_assert_uint_eq(store_thread_stats(server).waits, 0);
    close(old);
    close(waiting);
    close(greeting);
    int fresh = torch_connect();
    ck_assert_uint_eq(num_keys(fresh), 0);
    put_set("/k", "new");
    ck_assert_uint_eq(num_keys(fresh), 1);
    void *value;
    size_t len;
    OK(ddp_store_get(store, "g2/tcp//k", LONG_MS, &value, &len, NULL, &why));
    ddp_store_free(value);
    OK(ddp_store_delete(store, "tcp//k", LONG_MS, &why)); /* the owner's to delete */
    close(fresh);
    ddp_store_close(store);
}
END_TEST

/* The bytes in @wire close the connection; a PING before them is still answered, and a SET behind
 * them is not done. */
static void assert_closes(ddp_store *other)
{
    int fd = raw_connect(store_thread_port(server));
    put_set("/behind", "");
    struct ddpi_buf all;
    ddpi_buf_init(&all, 64 * 1024 * 1024);
    ck_assert(ddpi_buf_append(&all, DDPI_TCPSTORE_HELLO "\x0dping", 10) &&
              ddpi_buf_append(&all, ddpi_buf_head(&wire), ddpi_buf_len(&wire)));
    raw_send(fd, ddpi_buf_head(&all), ddpi_buf_len(&all));
    ddpi_buf_finish(&all);
    assert_receives(fd, "ping", 4);
    raw_until_closed(fd);
    close(fd);
    assert_alive(other);
    void *value;
    size_t len;
    ck_assert_int_eq(ddp_store_try_get(other, "tcp//behind", LONG_MS, &value, &len, NULL, NULL),
                     DDP_E_NOT_FOUND);
    begin();
}

START_TEST(what_has_no_answer_closes_one_connection)
{
    ddp_store *other = open_store();
    OK(ddp_store_set(other, "tcp//text", "abc", 3, LONG_MS, NULL, &why));
    begin();
    put_key(DDPI_TCPSTORE_ADD, "/text");
    put_number(1);
    assert_closes(other);
    put_key(DDPI_TCPSTORE_BARRIER, "/text");
    put_number(2);
    assert_closes(other);
    static const uint8_t lists[] = {DDPI_TCPSTORE_WAIT, DDPI_TCPSTORE_CHECK,
                                    DDPI_TCPSTORE_MULTI_GET, DDPI_TCPSTORE_MULTI_SET};
    static const uint64_t counts[] = {128 * 1024 + 1, UINT64_C(1) << 60, UINT64_MAX};
    for (size_t i = 0; i < sizeof lists; i++)
        for (size_t k = 0; k < 3; k++) {
            put_type(lists[i]);
            put_number(counts[k]);
            assert_closes(other);
        }
    put_type(DDPI_TCPSTORE_GET);
    put_number(8193);
    assert_closes(other);
    put_key(DDPI_TCPSTORE_SET, "/k");
    put_number(8 * 1024 * 1024 + 1);
    assert_closes(other);
    put_hello();
    assert_closes(other);
    put_type(DDPI_TCPSTORE_TYPES);
    assert_closes(other);
    ddp_store_close(other);
}
END_TEST

START_TEST(the_largest_key_and_value)
{
    enum { LEN = 8 * 1024 * 1024, KEY_LEN = 8192 };
    int fd = torch_connect();
    char *bytes = calloc(LEN, 1);
    memset(bytes, 'x', LEN);
    put_type(DDPI_TCPSTORE_SET);
    put_bytes(bytes, KEY_LEN);
    put_bytes(bytes, LEN);
    put_type(DDPI_TCPSTORE_GET);
    put_bytes(bytes, KEY_LEN);
    send_wire(fd);
    ck_assert_uint_eq(receive_number(fd), LEN);
    char *got = malloc(LEN);
    raw_receive(fd, got, LEN);
    ck_assert(memcmp(got, bytes, LEN) == 0);
    free(got);
    free(bytes);
    close(fd);
}
END_TEST

START_TEST(limits_are_options)
{
    restart(&(struct ddpi_server_options){.tcpstore_prefix = "",
                                          .tcpstore_max_key_len = 4,
                                          .tcpstore_max_value_len = 5,
                                          .tcpstore_max_keys = 1});
    ddp_store *other = open_store();
    int fd = torch_connect();
    put_set("/key", "value");
    put_wait("/key");
    send_wire(fd);
    assert_receives(fd, "\0", 1);
    close(fd);
    begin();
    put_set("/keys", "");
    assert_closes(other);
    put_set("/key", "values");
    assert_closes(other);
    put_type(DDPI_TCPSTORE_CHECK);
    put_number(2);
    assert_closes(other);
    ddp_store_close(other);
}
END_TEST

START_TEST(a_woken_client_that_dies_leaves_its_value)
{
    int first = torch_connect(), second = torch_connect(), producer = torch_connect();
    put_wait("/q");
    send_wire(first);
    await_waits(1);
    put_wait("/q");
    send_wire(second);
    await_waits(2);
    put_key(DDPI_TCPSTORE_QUEUE_PUSH, "/q");
    put_string("v");
    send_wire(producer);
    assert_receives(first, "\0", 1);
    close(first); /* instead of QUEUE_POP */
    assert_receives(second, "\0", 1);
    put_key(DDPI_TCPSTORE_QUEUE_POP, "/q");
    send_wire(second);
    assert_receives(second, "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0v", 17);
    close(second);
    close(producer);
}
END_TEST

START_TEST(a_half_close_is_answered_first)
{
    enum { LEN = 1024 * 1024, TIMES = 6 };
    char *value = calloc(LEN, 1);
    int fd = torch_connect();
    put_type(DDPI_TCPSTORE_SET);
    put_string("/k");
    put_bytes(value, LEN);
    for (int i = 0; i < TIMES; i++)
        put_key(DDPI_TCPSTORE_GET, "/k");
    send_wire(fd);
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    for (int i = 0; i < TIMES; i++) {
        ck_assert_uint_eq(receive_number(fd), LEN);
        raw_receive(fd, value, LEN);
    }
    raw_until_closed(fd);
    free(value);
    close(fd);
}
END_TEST

START_TEST(many_large_values_come_in_one_request)
{
    enum { LEN = 8 * 1024 * 1024, TIMES = 6 };
    char *value = calloc(LEN, 1), *got = malloc(LEN);
    int fd = torch_connect();
    memset(value, 'x', LEN);
    put_type(DDPI_TCPSTORE_SET);
    put_string("/k");
    put_bytes(value, LEN);
    put_type(DDPI_TCPSTORE_MULTI_GET);
    put_number(TIMES + 1);
    for (int i = 0; i < TIMES; i++)
        put_string("/k");
    put_string("/none");
    put_type(DDPI_TCPSTORE_GETNUMKEYS);
    send_wire(fd);
    for (int i = 0; i < TIMES; i++) {
        ck_assert_uint_eq(receive_number(fd), LEN);
        raw_receive(fd, got, LEN);
        ck_assert(memcmp(got, value, LEN) == 0);
    }
    ck_assert_uint_eq(receive_number(fd), 0);
    ck_assert_uint_eq(receive_number(fd), 1);
    free(got);
    free(value);
    close(fd);
}
END_TEST

START_TEST(small_requests_for_much_are_bounded)
{
    restart(&(struct ddpi_server_options){.output_soft = 65536, .output_ms = 200});
    enum { LEN = 1024 * 1024, TIMES = 100000 };
    ddp_store *other = open_store();
    char *value = calloc(LEN, 1);
    int fd = torch_connect();
    put_type(DDPI_TCPSTORE_SET);
    put_string("/k");
    put_bytes(value, LEN);
    put_type(DDPI_TCPSTORE_MULTI_GET); /* 100 GB */
    put_number(TIMES);
    for (int i = 0; i < TIMES; i++)
        put_string("/k");
    send_wire(fd);
    assert_alive(other);
    await_connections(1); /* it does not read */
    ck_assert_uint_lt(store_thread_stats(server).requests, 100);
    assert_alive(other);
    free(value);
    close(fd);
    ddp_store_close(other);
}
END_TEST

START_TEST(half_a_request_is_not_waited_for)
{
    restart(&(struct ddpi_server_options){.handshake_ms = 2000, .frame_ms = 2000});
    ddp_store *other = open_store();
    int fd = raw_connect(store_thread_port(server));
    raw_send(fd, DDPI_TCPSTORE_HELLO, 4);
    raw_until_closed(fd);
    close(fd);
    fd = torch_connect();
    int idle = torch_connect();
    put_key(DDPI_TCPSTORE_SET, "/k");
    send_wire(fd);
    raw_until_closed(fd);
    close(fd);
    ck_assert_uint_eq(num_keys(idle), 0); /* a client that is silent between requests may stay */
    close(idle);
    ddp_store_close(other);
}
END_TEST

START_TEST(noise_closes_only_its_connection)
{
    ddp_store *other = open_store();
    srand(7);
    for (int i = 0; i < 200; i++) {
        int fd = torch_connect();
        uint8_t noise[512];
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (uint8_t)rand();
        noise[0] = (uint8_t)(noise[0] % DDPI_TCPSTORE_TYPES);
        raw_send(fd, noise, sizeof noise);
        ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
        raw_until_closed(fd);
        close(fd);
    }
    assert_alive(other);
    ddp_store_close(other);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        two_dialects_on_one_port,
        a_conversation_may_be_cut_anywhere,
        many_set_one_key_and_wait_for_all,
        a_generation_sees_its_own_keys,
        what_has_no_answer_closes_one_connection,
        the_largest_key_and_value,
        limits_are_options,
        a_woken_client_that_dies_leaves_its_value,
        a_half_close_is_answered_first,
        many_large_values_come_in_one_request,
        small_requests_for_much_are_bounded,
        half_a_request_is_not_waited_for,
        noise_closes_only_its_connection,
    };
    return store_suite("store_torch", tests, sizeof tests / sizeof *tests);
}
