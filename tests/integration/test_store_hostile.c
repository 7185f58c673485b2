/*
 * test_store_hostile.c - peers that are hostile, slow, cut in pieces or too many, while others keep
 * working.
 */
#include "store_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

START_TEST(values_beyond_the_limit)
{
    ddp_store *store = open_store();
    size_t size = DDP_STORE_VALUE_MAX;
    char *sent = calloc(size + 1, 1);

    /* A client that bypasses the library is stopped by the server: a well-formed frame loses the
     * request, one that is longer than any sound one loses the connection. */
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
        {.op = DDPI_OP_GET, .id = 1, .key = {"k", 1}, .timeout_ms = LONG_MS},
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
        {"\x00\xce\xf7\x85\x3d\x0d\x01\x00\x00\x00", 10},
        {"DDPX", 4},
        {"DDPS\x00\x00\x00\x00", 8},
        {"DDPS\x09\x00\x0a\x00", 8},
        {"D\n", 2},
    };
    for (size_t i = 0; i < sizeof hellos / sizeof *hellos; i++) {
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, hellos[i].bytes, hellos[i].len);
        raw_until_closed(fd);
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
        raw_until_closed(fd);
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

START_TEST(half_a_message_is_not_waited_for)
{
    restart(&(struct ddpi_server_options){.handshake_ms = 2000, .frame_ms = 2000});
    ddp_store *other = open_store();
    static const char greeting[] = "DDPS\3\0\3\0\4\0\0\0\1";
    for (size_t len = 0; len <= 13; len += 13) {
        uint64_t start_ms = raw_now_ms();
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, greeting, len);
        raw_until_closed(fd);
        ck_assert_uint_ge(raw_now_ms() - start_ms, 1900);
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
    OK(ddp_store_set(store, key, value, len, LONG_MS, NULL, &why));
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
    await_waits(100);
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
    await_waits(1);
    close(fd);
    await_connections(1);
    ck_assert_int_eq(ddp_store_barrier(store, "b", 2, 20, NULL), DDP_E_TIMEOUT);
    ddp_store_close(store);
}
END_TEST

START_TEST(too_many_connections)
{
    restart(&(struct ddpi_server_options){.max_connections = 2});
    ddp_store *one = open_store(), *two = open_store(), *three = NULL;
    struct ddp_store_options options = {.size = sizeof options,
                                        .endpoint = store_thread_endpoint(server),
                                        .connect_timeout_ms = 2000};
    struct ddp_error err;
    ck_assert_int_eq(ddp_store_connect(&options, &three, &err), DDP_E_LIMIT);
    ck_assert_ptr_null(three);
    ck_assert_uint_ge(store_thread_stats(server).refused, 1); /* it has tried again */
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

/* The store is there; it is the client that cannot have a socket. */
START_TEST(no_file_descriptor_left_for_the_client)
{
    char endpoint[32], advice[64];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", store_thread_port(server));
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = 200};
    struct rlimit limit;
    struct ddp_error err;
    ddp_store *store = NULL;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC); /* all below it are taken */
    ck_assert_int_ge(next, 0);
    for (int left = 0; left < 2; left++) { /* for its eventfd, but not for a socket */
        struct rlimit low = {.rlim_cur = (rlim_t)(next + 1 + left), .rlim_max = limit.rlim_max};
        snprintf(advice, sizeof advice, "may have %llu open files (RLIMIT_NOFILE)",
                 (unsigned long long)low.rlim_cur);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
        ddp_status status = ddp_store_connect(&options, &store, &err);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        ck_assert_int_eq(status, DDP_E_SYSTEM);
        ck_assert_msg(strstr(err.msg, advice) != NULL, "%s", err.msg);
        ck_assert_msg(strstr(err.msg, "'ulimit -n'") != NULL, "%s", err.msg);
        ck_assert_msg(strstr(err.msg, "no store answers") == NULL, "%s", err.msg);
    }
    close(next);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        values_beyond_the_limit,
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
        too_many_connections,
        no_file_descriptor_left,
        no_file_descriptor_left_for_the_client,
    };
    return store_suite("store_hostile", tests, sizeof tests / sizeof *tests);
}
