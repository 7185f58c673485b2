/*
 * test_store.c - a real server and real clients: every call, deadlines, limits, pipelining, and
 * peers that are hostile, slow or silent while others keep working.
 */
#include "check_main.h"
#include "raw.h"
#include "store_thread.h"

#include <ddprun/store.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOON_MS = 5000 };

/* The sentence of a call that should have succeeded. */
static _Thread_local struct ddp_error why;

#define OK(call) ck_assert_msg((call) == DDP_OK, "%s", why.msg)

static struct store_thread *server;

static void setup(void)
{
    server = store_thread_start(NULL);
}

static void teardown(void)
{
    store_thread_stop(server);
}

static ddp_store *open_prefix(const char *prefix)
{
    struct ddp_store_options options = {.size = sizeof options,
                                        .endpoint = store_thread_endpoint(server),
                                        .prefix = prefix,
                                        .connect_timeout_ms = SOON_MS};
    ddp_store *store = NULL;
    OK(ddp_store_connect(&options, &store, &why));
    return store;
}

static ddp_store *open_store(void)
{
    return open_prefix(NULL);
}

/* A client that works all right proves that the server does. */
static void assert_alive(ddp_store *store)
{
    int64_t before, after;
    OK(ddp_store_add(store, "alive", 1, SOON_MS, &before, &why));
    OK(ddp_store_add(store, "alive", 1, SOON_MS, &after, &why));
    ck_assert_int_eq(after, before + 1);
}

static void assert_value(ddp_store *store, const char *key, const char *wanted)
{
    void *value;
    size_t len;
    OK(ddp_store_get(store, key, SOON_MS, &value, &len, NULL, &why));
    ck_assert_uint_eq(len, strlen(wanted));
    ck_assert_str_eq(value, wanted); /* a NUL stands behind it */
    ddp_store_free(value);
}

START_TEST(every_call)
{
    ddp_store *store = open_store();
    struct ddp_error err;
    void *value;
    size_t len;
    uint64_t version, second;
    ck_assert_int_eq(ddp_store_try_get(store, "k", 100, &value, &len, NULL, &err), DDP_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.msg, store_thread_endpoint(server)));
    ck_assert_ptr_nonnull(strstr(err.msg, "'k'"));
    OK(ddp_store_set(store, "k", "v", 1, 100, &version, &why));
    OK(ddp_store_try_get(store, "k", 100, &value, &len, &second, &why));
    ck_assert_uint_eq(version, second);
    ddp_store_free(value);
    OK(ddp_store_set(store, "empty", NULL, 0, 100, NULL, &why));
    assert_value(store, "empty", "");

    ck_assert_int_eq(ddp_store_compare_and_swap(store, "k", 99, "w", 1, 100, &second, &err),
                     DDP_E_CONFLICT);
    ck_assert_uint_eq(second, version);
    OK(ddp_store_compare_and_swap(store, "k", version, "w", 1, 100, &second, &why));
    ck_assert_uint_gt(second, version);
    assert_value(store, "k", "w");
    ck_assert_int_eq(ddp_store_add(store, "k", 1, 100, NULL, &err), DDP_E_TYPE);

    const char *keys[] = {"k", "empty"};
    OK(ddp_store_wait(store, keys, 2, 100, &why));
    OK(ddp_store_delete(store, "empty", 100, &why));
    ck_assert_int_eq(ddp_store_delete(store, "empty", 100, &err), DDP_E_NOT_FOUND);
    ck_assert_int_eq(ddp_store_wait(store, keys, 2, 0, &err), DDP_E_TIMEOUT);
    OK(ddp_store_barrier(store, "b", 1, 100, &why));
    assert_alive(store);
    ddp_store_close(store);
    ddp_store_close(NULL);
}
END_TEST

START_TEST(prefixes_and_lists)
{
    ddp_store *all = open_store(), *one = open_prefix("g1/");
    OK(ddp_store_set(one, "b", "1", 1, 100, NULL, &why));
    OK(ddp_store_set(one, "a", "2", 1, 100, NULL, &why));
    OK(ddp_store_set(all, "g2/c", "3", 1, 100, NULL, &why));
    assert_value(all, "g1/b", "1");
    char **keys;
    size_t count;
    OK(ddp_store_list(one, "", 100, &keys, &count, &why));
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(keys[0], "a");
    ck_assert_str_eq(keys[1], "b");
    ddp_store_free(keys);
    OK(ddp_store_list(all, "g", 100, &keys, &count, &why));
    ck_assert_uint_eq(count, 3);
    ck_assert_str_eq(keys[2], "g2/c");
    ddp_store_free(keys);
    OK(ddp_store_list(one, "none", 100, &keys, &count, &why));
    ck_assert_uint_eq(count, 0);
    ddp_store_free(keys);
    ddp_store_close(all);
    ddp_store_close(one);
}
END_TEST

static void delete_g1(struct ddpi_server *at, void *ctx)
{
    *(size_t *)ctx = ddpi_server_delete_prefix(at, "g1/");
}

START_TEST(the_owner_deletes_a_generation)
{
    ddp_store *store = open_prefix("g1/");
    OK(ddp_store_set(store, "b", "1", 1, 100, NULL, &why));
    size_t count;
    store_thread_call(server, delete_g1, &count);
    ck_assert_uint_eq(count, 1);
    void *value;
    size_t len;
    ck_assert_int_eq(ddp_store_try_get(store, "b", 100, &value, &len, NULL, NULL), DDP_E_NOT_FOUND);
    struct ddpi_server_stats stats = store_thread_stats(server);
    ck_assert_uint_eq(stats.keys, 0);
    ck_assert_uint_eq(stats.accepted, 1);
    ck_assert_uint_eq(stats.connections, 1);
    ck_assert_uint_eq(stats.requests, 2);
    ddp_store_close(store);
}
END_TEST

START_TEST(deadlines_leave_the_handle_usable)
{
    ddp_store *store = open_store();
    void *value;
    size_t len;
    struct ddp_error err;
    for (uint32_t timeout_ms = 0; timeout_ms <= 60; timeout_ms += 30) {
        uint64_t start_ms = raw_now_ms();
        ck_assert_int_eq(ddp_store_get(store, "no", timeout_ms, &value, &len, NULL, &err),
                         DDP_E_TIMEOUT);
        uint64_t took_ms = raw_now_ms() - start_ms;
        ck_assert_uint_ge(took_ms + 2, timeout_ms); /* two clocks in whole milliseconds */
        ck_assert_uint_lt(took_ms, timeout_ms + SOON_MS);
        assert_alive(store);
    }
    ck_assert_int_eq(ddp_store_barrier(store, "b", 3, 10, &err), DDP_E_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(err.msg, "1 of 3"));
    assert_alive(store);
    ddp_store_close(store);
}
END_TEST

START_TEST(arguments_are_checked)
{
    ddp_store *store = open_store(), *none = NULL;
    struct ddp_error err;
    static char long_key[DDP_STORE_KEY_MAX + 2];
    memset(long_key, 'k', DDP_STORE_KEY_MAX);
    OK(ddp_store_set(store, long_key, "v", 1, SOON_MS, NULL, &why));
    long_key[DDP_STORE_KEY_MAX] = 'k';
    ck_assert_int_eq(ddp_store_set(store, long_key, "v", 1, 100, NULL, &err), DDP_E_LIMIT);
    ck_assert_int_eq(ddp_store_set(store, NULL, "v", 1, 100, NULL, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_set(store, "k", NULL, 1, 100, NULL, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_barrier(store, "k", 0, 100, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_wait(store, NULL, 0, 100, &err), DDP_E_INVALID);
    const char *keys[] = {"alive", NULL};
    ck_assert_int_eq(ddp_store_wait(store, keys, 2, 100, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_wait(store, keys, DDP_STORE_MANY_MAX + 1, 100, NULL), DDP_E_INVALID);
    static const char *const endpoints[] = {NULL, "", "host", "host:0", "host:x", "::1:5"};
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoints[i]};
        ck_assert_int_eq(ddp_store_connect(&options, &none, &err), DDP_E_INVALID);
    }
    struct ddp_store_options no_size = {.endpoint = "127.0.0.1:1"};
    ck_assert_int_eq(ddp_store_connect(&no_size, &none, &err), DDP_E_INVALID);
    ck_assert_ptr_null(none);
    assert_alive(store);
    ddp_store_close(store);
}
END_TEST

enum { PARTIES = 24, ROUNDS = 5 };

static void party(void *arg)
{
    (void)arg;
    ddp_store *store = open_store();
    for (int round = 0; round < ROUNDS; round++) {
        int64_t sum;
        OK(ddp_store_add(store, "came", 1, SOON_MS, NULL, &why));
        OK(ddp_store_barrier(store, "all", PARTIES, 2 * SOON_MS, &why));
        OK(ddp_store_add(store, "came", 0, SOON_MS, &sum, &why));
        ck_assert_int_ge(sum, (round + 1) * PARTIES); /* nobody leaves before all have come */
        OK(ddp_store_barrier(store, "read", PARTIES, 2 * SOON_MS, &why));
    }
    ddp_store_close(store);
}

START_TEST(many_clients_in_a_barrier)
{
    uv_thread_t threads[PARTIES];
    for (int i = 0; i < PARTIES; i++)
        ck_assert_int_eq(uv_thread_create(&threads[i], party, NULL), 0);
    for (int i = 0; i < PARTIES; i++)
        uv_thread_join(&threads[i]);
    ddp_store *store = open_store();
    assert_value(store, "came", "120");
    ddp_store_close(store);
}
END_TEST

START_TEST(the_largest_value)
{
    ddp_store *store = open_store();
    size_t size = DDP_STORE_VALUE_MAX, len;
    char *sent = malloc(size + 1);
    for (size_t i = 0; i <= size; i++)
        sent[i] = (char)(i * 7 + i / 1000);
    void *got;
    struct ddp_error err;
    OK(ddp_store_set(store, "big", sent, size, 4 * SOON_MS, NULL, &why));
    OK(ddp_store_get(store, "big", 4 * SOON_MS, &got, &len, NULL, &why));
    ck_assert_uint_eq(len, size);
    ck_assert(memcmp(sent, got, size) == 0);
    ddp_store_free(got);
    ck_assert_int_eq(ddp_store_set(store, "big", sent, size + 1, SOON_MS, NULL, &err), DDP_E_LIMIT);
    assert_alive(store);

    /* Who does not ask the library is stopped by the server: a sound frame loses the request, one
     * that is longer than any sound one loses the connection. */
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    char payload[2048];
    struct ddpi_message set = {.op = DDPI_OP_SET, .key = {"k", 1}, .value = {sent, size + 1}};
    raw_request(fd, &set);
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    ck_assert_int_eq(frame.status, DDP_E_LIMIT);
    ck_assert_int_eq(frame.type, ddpi_type_of_op(DDPI_OP_SET));
    char *long_key = calloc(DDP_STORE_KEY_MAX, 1);
    set.key = ddpi_bytes_of(long_key, DDP_STORE_KEY_MAX);
    raw_request(fd, &set);
    frame = raw_frame(fd, payload, sizeof payload);
    ck_assert_int_eq(frame.type, DDPI_FRAME_BYE);
    ck_assert_int_eq(frame.status, DDP_E_LIMIT);
    raw_until_closed(fd);
    close(fd);
    assert_alive(store);
    free(long_key);
    free(sent);
    ddp_store_close(store);
}
END_TEST

START_TEST(replies_overtake_those_that_wait)
{
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    struct ddpi_buf all;
    ddpi_buf_init(&all, 65536);
    struct ddpi_message requests[] = {
        {.op = DDPI_OP_GET, .id = 1, .key = {"k", 1}, .timeout_ms = SOON_MS},
        {.op = DDPI_OP_GET, .id = 2, .key = {"never", 5}, .timeout_ms = 30},
        {.op = DDPI_OP_TRY_GET, .id = 3, .key = {"k", 1}},
        {.op = DDPI_OP_SET, .id = 4, .key = {"k", 1}, .value = {"v", 1}},
    };
    for (size_t i = 0; i < 4; i++)
        ck_assert(ddpi_request_put(&all, &requests[i]));
    raw_send(fd, ddpi_buf_head(&all), ddpi_buf_len(&all));
    static const struct {
        uint64_t id;
        ddp_status status;
    } wanted[] = {{3, DDP_E_NOT_FOUND}, {1, DDP_OK}, {4, DDP_OK}, {2, DDP_E_TIMEOUT}};
    for (size_t i = 0; i < 4; i++) {
        char payload[2048];
        struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
        ck_assert_uint_eq(frame.id, wanted[i].id);
        ck_assert_int_eq(frame.status, wanted[i].status);
    }
    ddpi_buf_finish(&all);
    close(fd);
}
END_TEST

START_TEST(a_message_may_be_cut_anywhere)
{
    ddp_store *other = open_store();
    struct ddpi_buf all;
    ddpi_buf_init(&all, 65536);
    raw_put_greeting(&all, DDPI_AUTH_NONE);
    struct ddpi_message set = {.op = DDPI_OP_SET, .id = 1, .key = {"k", 1}, .value = {"value", 5}};
    struct ddpi_message get = {.op = DDPI_OP_TRY_GET, .id = 2, .key = {"k", 1}};
    ck_assert(ddpi_request_put(&all, &set) && ddpi_request_put(&all, &get));
    for (size_t cut = 1; cut < ddpi_buf_len(&all); cut++) {
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, ddpi_buf_head(&all), cut);
        assert_alive(other); /* lets the server read the first part */
        raw_send(fd, ddpi_buf_head(&all) + cut, ddpi_buf_len(&all) - cut);
        char payload[2048];
        raw_receive(fd, payload, DDPI_PREAMBLE_SIZE);
        ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status, DDP_OK);
        ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status, DDP_OK);
        struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
        struct ddpi_message reply;
        ck_assert_int_eq(ddpi_reply_get(&frame, payload, &reply, NULL), DDP_OK);
        ck_assert(reply.value.len == 5 && memcmp(reply.value.data, "value", 5) == 0);
        close(fd);
    }
    ddpi_buf_finish(&all);
    ddp_store_close(other);
}
END_TEST

START_TEST(garbage_closes_only_its_connection)
{
    ddp_store *other = open_store();
    static const struct {
        const char *bytes;
        size_t len;
    } hellos[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11},
        {"\x00\xce\xf7\x85\x3c\x0d\x01\x00\x00\x00", 10},
        {"DDPX", 4},
        {"DDPS\x00\x00\x00\x00", 8},
        {"DDPS\x09\x00\x0a\x00", 8},
        {"D\n", 2},
    };
    for (size_t i = 0; i < sizeof hellos / sizeof *hellos; i++) {
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, hellos[i].bytes, hellos[i].len);
        ck_assert_uint_lt(raw_until_closed(fd), SOON_MS);
        close(fd);
        assert_alive(other);
    }
    srand(7);
    for (int i = 0; i < 100; i++) {
        int fd = raw_connect(store_thread_port(server));
        if (i % 2)
            raw_greet(fd);
        uint8_t noise[512];
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (uint8_t)rand();
        noise[6] |= 1; /* surely not a header */
        raw_send(fd, noise, sizeof noise);
        ck_assert_uint_lt(raw_until_closed(fd), SOON_MS);
        close(fd);
    }
    assert_alive(other);
    ddp_store_close(other);
}
END_TEST

static void raw_bye(int fd, ddp_status status)
{
    char payload[2048];
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    ck_assert_int_eq(frame.type, DDPI_FRAME_BYE);
    ck_assert_int_eq(frame.status, status);
    raw_until_closed(fd);
}

START_TEST(rules_of_the_handshake)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 65536);
    raw_put_greeting(&buf, 1); /* an authentication that does not exist */
    int fd = raw_connect(store_thread_port(server));
    raw_send(fd, ddpi_buf_head(&buf), ddpi_buf_len(&buf));
    char preamble[DDPI_PREAMBLE_SIZE];
    raw_receive(fd, preamble, sizeof preamble);
    raw_bye(fd, DDP_E_DENIED);
    close(fd);

    ddpi_buf_consume(&buf, ddpi_buf_len(&buf)); /* a request before HELLO */
    raw_put_greeting(&buf, DDPI_AUTH_NONE);
    struct ddpi_message get = {.op = DDPI_OP_TRY_GET, .key = {"k", 1}};
    ck_assert(ddpi_request_put(&buf, &get));
    fd = raw_connect(store_thread_port(server));
    raw_send(fd, ddpi_buf_head(&buf), DDPI_PREAMBLE_SIZE);
    size_t at = DDPI_PREAMBLE_SIZE + DDPI_FRAME_HEADER_SIZE + 4;
    raw_send(fd, ddpi_buf_head(&buf) + at, ddpi_buf_len(&buf) - at);
    raw_receive(fd, preamble, sizeof preamble);
    raw_bye(fd, DDP_E_PROTOCOL);
    close(fd);

    fd = raw_connect(store_thread_port(server)); /* HELLO twice */
    raw_greet(fd);
    raw_send(fd, ddpi_buf_head(&buf) + DDPI_PREAMBLE_SIZE, DDPI_FRAME_HEADER_SIZE + 4);
    raw_bye(fd, DDP_E_PROTOCOL);
    close(fd);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(four_gigabytes_are_announced)
{
    ddp_store *other = open_store();
    for (unsigned type = 0; type < 256; type++) {
        int fd = raw_connect(store_thread_port(server));
        raw_greet(fd);
        uint8_t header[DDPI_FRAME_HEADER_SIZE] = {0xff, 0xff, 0xff, 0xff, (uint8_t)type};
        enum ddpi_op op;
        raw_send(fd, header, sizeof header);
        raw_bye(fd, ddpi_op_of_type((uint8_t)type, &op) ? DDP_E_LIMIT : DDP_E_PROTOCOL);
        close(fd);
    }
    assert_alive(other);
    ddp_store_close(other);
}
END_TEST

static void restart(const struct ddpi_server_options *options)
{
    store_thread_stop(server);
    server = store_thread_start(options);
}

START_TEST(half_a_message_is_not_waited_for)
{
    restart(&(struct ddpi_server_options){.handshake_ms = 150, .frame_ms = 150});
    ddp_store *other = open_store();
    static const char greeting[] = "DDPS\1\0\1\0\4\0\0\0\1";
    for (size_t len = 0; len <= 13; len += 13) {
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, greeting, len);
        uint64_t took_ms = raw_until_closed(fd);
        ck_assert_uint_ge(took_ms, 100);
        ck_assert_uint_lt(took_ms, SOON_MS);
        close(fd);
    }
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    raw_send(fd, "\4\0\0\0\20", 5);
    raw_bye(fd, DDP_E_TIMEOUT);
    close(fd);
    assert_alive(other); /* idle for longer than both, between its requests */
    ddp_store_close(other);
}
END_TEST

static void store_value(ddp_store *store, const char *key, size_t len)
{
    char *value = calloc(len, 1);
    OK(ddp_store_set(store, key, value, len, SOON_MS, NULL, &why));
    free(value);
}

static void ask_often(int fd, enum ddpi_op op, int times)
{
    struct ddpi_buf all;
    ddpi_buf_init(&all, 1 << 20);
    for (int i = 0; i < times; i++) {
        struct ddpi_message request = {
            .op = op, .id = (uint64_t)i, .key = {"big", 3}, .timeout_ms = 60000};
        ck_assert(ddpi_request_put(&all, &request));
    }
    raw_send(fd, ddpi_buf_head(&all), ddpi_buf_len(&all));
    ddpi_buf_finish(&all);
}

static void await_connections(size_t wanted)
{
    uint64_t start_ms = raw_now_ms();
    while (store_thread_stats(server).connections != wanted)
        ck_assert_uint_lt(raw_now_ms() - start_ms, 2 * SOON_MS);
}

START_TEST(who_does_not_read_is_closed)
{
    restart(&(struct ddpi_server_options){.output_soft = 65536, .output_ms = 200});
    ddp_store *other = open_store();
    store_value(other, "big", 1 << 20);
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    ask_often(fd, DDPI_OP_TRY_GET, 500);
    assert_alive(other);
    await_connections(1);
    struct ddpi_server_stats stats = store_thread_stats(server);
    ck_assert_uint_lt(stats.requests, 100); /* it stopped reading, so it did not serve them all */
    assert_alive(other);
    close(fd);
    ddp_store_close(other);
}
END_TEST

START_TEST(replies_that_nobody_reads_are_bounded)
{
    restart(&(struct ddpi_server_options){.output_hard = 8 << 20});
    ddp_store *other = open_store();
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    ask_often(fd, DDPI_OP_GET, 100); /* they wait, and then are all answered at once */
    uint64_t start_ms = raw_now_ms();
    while (store_thread_stats(server).waits != 100)
        ck_assert_uint_lt(raw_now_ms() - start_ms, SOON_MS);
    store_value(other, "big", 1 << 20);
    await_connections(1);
    ck_assert_uint_eq(store_thread_stats(server).waits, 0);
    assert_alive(other);
    close(fd);
    ddp_store_close(other);
}
END_TEST

START_TEST(who_reads_late_gets_everything)
{
    restart(&(struct ddpi_server_options){.output_soft = 65536});
    ddp_store *other = open_store();
    enum { LEN = 200000, TIMES = 200 };
    store_value(other, "big", LEN);
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    ask_often(fd, DDPI_OP_TRY_GET, TIMES);
    assert_alive(other);
    static char payload[LEN + 64];
    for (uint64_t i = 0; i < TIMES; i++) {
        struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
        ck_assert_uint_eq(frame.id, i);
        ck_assert_uint_eq(frame.payload_len, LEN + 12);
    }
    close(fd);
    ddp_store_close(other);
}
END_TEST

START_TEST(a_closed_connection_leaves_its_barrier)
{
    ddp_store *store = open_store();
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    raw_request(fd, &(struct ddpi_message){
                        .op = DDPI_OP_BARRIER, .key = {"b", 1}, .count = 2, .timeout_ms = 60000});
    uint64_t start_ms = raw_now_ms();
    while (store_thread_stats(server).waits != 1)
        ck_assert_uint_lt(raw_now_ms() - start_ms, SOON_MS);
    close(fd);
    await_connections(1);
    ck_assert_int_eq(ddp_store_barrier(store, "b", 2, 20, NULL), DDP_E_TIMEOUT);
    ddp_store_close(store);
}
END_TEST

START_TEST(a_port_in_use)
{
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct ddpi_server *second = NULL;
    struct ddp_error err;
    struct ddpi_server_options options = {.port = store_thread_port(server)};
    ck_assert_int_eq(ddpi_server_create(&loop, &options, &second, &err), DDP_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(err.msg, store_thread_endpoint(server)));
    ck_assert_ptr_nonnull(strstr(err.msg, "choose another port"));
    options = (struct ddpi_server_options){.host = "192.0.2.1"};
    ck_assert_int_eq(ddpi_server_create(&loop, &options, &second, &err), DDP_E_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(err.msg, "no such address"));
    ck_assert_ptr_null(second);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(nobody_listens)
{
    uint16_t port;
    int fd = raw_listen(&port);
    close(fd);
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = 60};
    ddp_store *store = NULL;
    struct ddp_error err;
    uint64_t start_ms = raw_now_ms();
    ck_assert_int_eq(ddp_store_connect(&options, &store, &err), DDP_E_UNREACHABLE);
    ck_assert_uint_ge(raw_now_ms() - start_ms, 58);
    ck_assert_ptr_nonnull(strstr(err.msg, "127.0.0.1: Connection refused"));
    ck_assert_ptr_nonnull(strstr(err.msg, endpoint));
    ck_assert_ptr_null(store);
}
END_TEST

struct starter {
    uint16_t port;
    ddp_status status;
    uv_sem_t tried;
};

static void connect_early(void *arg)
{
    struct starter *starter = arg;
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "localhost:%u", starter->port);
    struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoint};
    ddp_store *store = NULL;
    uv_sem_post(&starter->tried);
    starter->status = ddp_store_connect(&options, &store, NULL);
    ddp_store_close(store);
}

START_TEST(the_client_may_come_first)
{
    uint16_t port = store_thread_port(server);
    struct starter starter = {.port = port};
    ck_assert_int_eq(uv_sem_init(&starter.tried, 0), 0);
    store_thread_stop(server);
    uv_thread_t thread;
    ck_assert_int_eq(uv_thread_create(&thread, connect_early, &starter), 0);
    uv_sem_wait(&starter.tried);
    server = store_thread_start(&(struct ddpi_server_options){.port = port});
    uv_thread_join(&thread);
    ck_assert_int_eq(starter.status, DDP_OK);
    uv_sem_destroy(&starter.tried);
}
END_TEST

/* A peer that answers a client's greeting with @bytes, and then nothing. */
struct fake {
    int listen_fd;
    const void *bytes;
    size_t len;
    bool hang_up;
};

static void fake_server(void *arg)
{
    struct fake *fake = arg;
    int fd = raw_accept(fake->listen_fd);
    char greeting[DDPI_PREAMBLE_SIZE + DDPI_FRAME_HEADER_SIZE + 4];
    raw_receive(fd, greeting, sizeof greeting);
    raw_send(fd, fake->bytes, fake->len);
    if (!fake->hang_up)
        raw_until_closed(fd);
    close(fd);
}

static ddp_status connect_to_fake(struct fake *fake, uint16_t port, ddp_store **ret,
                                  struct ddp_error *err)
{
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = 300};
    ddp_status status = ddp_store_connect(&options, ret, err);
    (void)fake;
    return status;
}

START_TEST(peers_that_are_no_store)
{
    static const char version_9[] = "DDPS\x09\0\x09";
    static const char bad_frame[] = "DDPS\1\0\1\0\377\377\377\377\1\0\0\0\0\0\0\0\0\0\0";
    const struct {
        const char *bytes;
        size_t len;
        ddp_status wanted;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n", 28, DDP_E_PROTOCOL},
        {version_9, 8, DDP_E_PROTOCOL},
        {bad_frame, 24, DDP_E_PROTOCOL},
        {"", 0, DDP_E_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t port;
        struct fake fake = {.bytes = cases[i].bytes, .len = cases[i].len};
        fake.listen_fd = raw_listen(&port);
        uv_thread_t thread;
        ck_assert_int_eq(uv_thread_create(&thread, fake_server, &fake), 0);
        ddp_store *store = NULL;
        struct ddp_error err;
        ck_assert_int_eq(connect_to_fake(&fake, port, &store, &err), cases[i].wanted);
        ck_assert_ptr_null(store);
        uv_thread_join(&thread);
        close(fake.listen_fd);
    }
}
END_TEST

START_TEST(a_server_that_falls_silent)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1024);
    struct ddpi_preamble preamble = {1, 1};
    struct ddpi_welcome welcome = {4096, 4096, 16};
    ck_assert(ddpi_preamble_put(&buf, &preamble) && ddpi_welcome_put(&buf, 0, &welcome));
    uint16_t port;
    struct fake fake = {.bytes = ddpi_buf_head(&buf), .len = ddpi_buf_len(&buf)};
    fake.listen_fd = raw_listen(&port);
    uv_thread_t thread;
    ck_assert_int_eq(uv_thread_create(&thread, fake_server, &fake), 0);
    ddp_store *store = NULL;
    struct ddp_error err;
    ck_assert_int_eq(connect_to_fake(&fake, port, &store, &err), DDP_OK);
    ck_assert_int_eq(ddp_store_set(store, "k", welcome.key_max ? "v" : "", 1, 50, NULL, &err),
                     DDP_E_CLOSED);
    ck_assert_ptr_nonnull(strstr(err.msg, "did not answer"));
    ck_assert_int_eq(ddp_store_set(store, "k", "v", 1, 50, NULL, &err), DDP_E_CLOSED);
    ddp_store_close(store);
    uv_thread_join(&thread);
    close(fake.listen_fd);
    ddpi_buf_finish(&buf);
}
END_TEST

static void wait_forever(void *arg)
{
    ddp_store *store = open_store();
    struct ddp_error *err = arg;
    void *value;
    size_t len;
    ck_assert_int_eq(ddp_store_get(store, "never", DDP_STORE_FOREVER, &value, &len, NULL, err),
                     DDP_E_CLOSED);
    ddp_store_close(store);
}

START_TEST(a_server_that_stops_says_so)
{
    struct ddp_error err;
    uv_thread_t thread;
    ck_assert_int_eq(uv_thread_create(&thread, wait_forever, &err), 0);
    uint64_t start_ms = raw_now_ms();
    while (store_thread_stats(server).waits != 1)
        ck_assert_uint_lt(raw_now_ms() - start_ms, SOON_MS);
    uint16_t port = store_thread_port(server);
    store_thread_stop(server);
    uv_thread_join(&thread);
    ck_assert_ptr_nonnull(strstr(err.msg, "shutting down"));
    server = store_thread_start(&(struct ddpi_server_options){.port = port}); /* at once */
}
END_TEST

START_TEST(too_many_connections)
{
    restart(&(struct ddpi_server_options){.max_connections = 2});
    ddp_store *one = open_store(), *two = open_store(), *three = NULL;
    struct ddp_store_options options = {.size = sizeof options,
                                        .endpoint = store_thread_endpoint(server)};
    struct ddp_error err;
    ck_assert_int_eq(ddp_store_connect(&options, &three, &err), DDP_E_LIMIT);
    ck_assert_ptr_null(three);
    ck_assert_uint_eq(store_thread_stats(server).refused, 1);
    ddp_store_close(two);
    await_connections(1);
    two = open_store();
    assert_alive(one);
    ddp_store_close(one);
    ddp_store_close(two);
}
END_TEST

START_TEST(no_file_descriptor_left)
{
    enum { SOCKETS = 8 };
    ddp_store *store = open_store();
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC); /* all below it are taken */
    ck_assert_int_ge(next, 0);
    int fds[SOCKETS];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(store_thread_port(server)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int top = next;
    for (int i = 0; i < SOCKETS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(fds[i], 0);
        top = fds[i] > top ? fds[i] : top;
    }
    struct rlimit low = {.rlim_cur = (rlim_t)top + 1, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < SOCKETS; i++) {
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&address, sizeof address), 0);
        raw_until_closed(fds[i]);
    }
    ck_assert_uint_eq(store_thread_stats(server).refused, SOCKETS);
    assert_alive(store);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ddp_store *again = open_store();
    assert_alive(again);
    for (int i = 0; i < SOCKETS; i++)
        close(fds[i]);
    close(next);
    ddp_store_close(again);
    ddp_store_close(store);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store");
    const TTest *const tests[] = {
        every_call,
        prefixes_and_lists,
        the_owner_deletes_a_generation,
        deadlines_leave_the_handle_usable,
        arguments_are_checked,
        many_clients_in_a_barrier,
        the_largest_value,
        replies_overtake_those_that_wait,
        a_message_may_be_cut_anywhere,
        garbage_closes_only_its_connection,
        rules_of_the_handshake,
        four_gigabytes_are_announced,
        half_a_message_is_not_waited_for,
        who_does_not_read_is_closed,
        replies_that_nobody_reads_are_bounded,
        who_reads_late_gets_everything,
        a_closed_connection_leaves_its_barrier,
        a_port_in_use,
        nobody_listens,
        the_client_may_come_first,
        peers_that_are_no_store,
        a_server_that_falls_silent,
        a_server_that_stops_says_so,
        too_many_connections,
        no_file_descriptor_left,
    };
    TCase *tcase = tcase_create("real");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return suite;
}
