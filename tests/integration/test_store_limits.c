/*
 * test_store_limits.c - each limit of the server: what is at it is served, what is one beyond is
 * refused and counted as its own kind.
 */
#include "budget.h"
#include "store_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint64_t log_lines; /* of the server's thread, read once that has ended */

static void count_line(void *ctx, enum ddpi_log_level level, const char *line)
{
    (void)ctx, (void)level, (void)line;
    log_lines++;
}

START_TEST(keys_and_lists)
{
    restart(&(struct ddpi_server_options){.max_key_len = 8, .max_keys_per_wait = 2});
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    char payload[2048];
    struct ddpi_message set = {.op = DDPI_OP_SET, .key = {"12345678", 8}};
    raw_request(fd, &set);
    ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status, DDP_OK);
    set.key = ddpi_bytes_of("123456789", 9);
    raw_request(fd, &set);
    ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status, DDP_E_LIMIT);
    struct ddpi_buf keys;
    ddpi_buf_init(&keys, 1024);
    for (uint32_t count = 1; count <= 3; count++) {
        ck_assert(ddpi_keys_put(&keys, ddpi_bytes_of("12345678", 8)));
        struct ddpi_message wait = {
            .op = DDPI_OP_WAIT,
            .keys = {ddpi_buf_head(&keys), ddpi_buf_len(&keys), count, false},
            .timeout_ms = LONG_MS};
        raw_request(fd, &wait);
        ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status,
                         count <= 2 ? DDP_OK : DDP_E_LIMIT);
    }
    ck_assert_uint_eq(store_thread_stats(server).limited, 2);
    ddpi_buf_finish(&keys);
    close(fd);
}
END_TEST

START_TEST(watches_and_sessions)
{
    restart(&(struct ddpi_server_options){.max_watches = 2, .max_sessions = 2});
    int fd = raw_connect(store_thread_port(server));
    raw_greet_as(fd, "j");
    char payload[2048];
    for (uint64_t i = 1; i <= 3; i++) {
        struct ddpi_message watch = {.op = DDPI_OP_WATCH, .id = i, .key = {"k", 1}};
        raw_request(fd, &watch);
        ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status,
                         i <= 2 ? DDP_OK : DDP_E_LIMIT);
        struct ddpi_message session = {.op = DDPI_OP_SESSION_OPEN, .id = 10 + i, .count = 60000};
        raw_request(fd, &session);
        ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status,
                         i <= 2 ? DDP_OK : DDP_E_LIMIT);
    }
    ck_assert_uint_eq(store_thread_stats(server).limited, 2);
    close(fd);
}
END_TEST

static ddp_status watch_from(int fd, uint64_t version)
{
    char payload[2048];
    struct ddpi_message watch = {
        .op = DDPI_OP_WATCH, .id = 99, .key = {"k", 1}, .version = version};
    raw_request(fd, &watch);
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    return frame.status;
}

START_TEST(a_history_of_two_changes)
{
    restart(&(struct ddpi_server_options){.history_changes = 2});
    ddp_store *store = open_store();
    int first = raw_connect(store_thread_port(server)), fd = raw_connect(store_thread_port(server));
    raw_greet(first);
    raw_greet(fd);
    ck_assert_int_eq(watch_from(first, 0), DDP_OK); /* from now on there is one */
    uint64_t version[4];
    for (int i = 0; i < 4; i++)
        OK(ddp_store_set(store, "other", &i, sizeof i, LONG_MS, &version[i], &why));
    ck_assert_int_eq(watch_from(fd, version[1]), DDP_E_GONE);
    ck_assert_int_eq(watch_from(fd, version[2]), DDP_OK);
    close(first);
    close(fd);
    ddp_store_close(store);
}
END_TEST

START_TEST(the_oldest_half_open_gives_way)
{
    enum { MOST = 4 };
    restart(&(struct ddpi_server_options){.max_half_open = MOST, .handshake_ms = LONG_MS});
    ddp_store *store = open_store();
    int fds[2 * MOST];
    for (uint64_t i = 0; i < MOST; i++)
        fds[i] = raw_connect(store_thread_port(server));
    AWAIT_SERVER(now.half_open == MOST);
    ck_assert_uint_eq(store_thread_stats(server).displaced, 0);
    fds[MOST] = raw_connect(store_thread_port(server));
    raw_until_closed(fds[0]);
    AWAIT_SERVER(now.half_open == MOST);
    AWAIT_SERVER(now.displaced == 1);
    raw_greet(fds[1]); /* the others are untouched, */
    AWAIT_SERVER(now.half_open == MOST - 1);
    fds[MOST + 1] = raw_connect(store_thread_port(server)); /* and admitted clients do not count */
    AWAIT_SERVER(now.half_open == MOST);
    AWAIT_SERVER(now.displaced == 1);
    for (int i = 0; i < MOST + 2; i++)
        close(fds[i]);
    AWAIT_SERVER(now.half_open == 0);
    assert_alive(store);
    ddp_store_close(store);
}
END_TEST

START_TEST(half_open_ones_keep_nobody_out)
{
    restart(&(struct ddpi_server_options){.max_connections = 3, .handshake_ms = LONG_MS});
    int silent[3];
    for (int i = 0; i < 3; i++)
        silent[i] = raw_connect(store_thread_port(server));
    ddp_store *store = open_store();
    assert_alive(store);
    ck_assert_uint_ge(store_thread_stats(server).displaced, 1);
    ck_assert_uint_eq(store_thread_stats(server).refused, 0);
    for (int i = 0; i < 3; i++)
        close(silent[i]);
    ddp_store_close(store);
}
END_TEST

static const struct ddpi_credential token = {.is_token = true,
                                             .secret = "thirty-two bytes that are secret"};

/* Where loopback is a stranger, it is counted like others. */
START_TEST(who_fails_too_often_is_turned_away)
{
    enum { RATE = 1, BURST = 10 };
    log_lines = 0;
    const struct ddpi_log log = {.write = count_line, .max_level = DDPI_LOG_WARN};
    restart(&(struct ddpi_server_options){
        .token = &token, .auth = DDPI_SERVER_AUTH_ALWAYS, .connection_rate = RATE, .log = &log});
    uint64_t begin_ms = raw_now_ms();
    for (uint64_t i = 1; i <= BURST; i++) {
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, "GET", 3);
        raw_until_closed(fd);
        close(fd);
        AWAIT_SERVER(now.dismissed == i);
    }
    uint64_t tries = 0;
    while (store_thread_stats(server).throttled < 100) {
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, "GET", 3);
        raw_until_closed(fd);
        close(fd);
        ck_assert_uint_lt(++tries, 1000);
    }
    /* Some are let in as time goes by, one a second. */
    uint64_t passed_s = (raw_now_ms() - begin_ms) / 1000 + 1;
    ck_assert_uint_le(store_thread_stats(server).dismissed, BURST + passed_s);
    store_thread_stop(server);
    server = store_thread_start(NULL);
    ck_assert_uint_ge(log_lines, 20);
    ck_assert_uint_le(log_lines, 30 * (passed_s / 10 + 1)); /* so many in ten seconds */
}
END_TEST

START_TEST(loopback_may_fail)
{
    restart(&(struct ddpi_server_options){.connection_rate = 1});
    for (uint64_t i = 1; i <= 50; i++) {
        int fd = raw_connect(store_thread_port(server));
        raw_send(fd, "GET", 3);
        raw_until_closed(fd);
        close(fd);
    }
    ck_assert_uint_eq(store_thread_stats(server).throttled, 0);
}
END_TEST

/* A request of @len bytes, of which the last is missing. */
static int half_a_request(size_t len)
{
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    uint8_t *frame = calloc(DDPI_FRAME_HEADER_SIZE + len, 1);
    const uint32_t wire_len = (uint32_t)len; /* all machines that this runs on are little-endian */
    memcpy(frame, &wire_len, sizeof wire_len);
    frame[4] = ddpi_type_of_op(DDPI_OP_SET);
    raw_send(fd, frame, DDPI_FRAME_HEADER_SIZE + len - 1);
    free(frame);
    return fd;
}

START_TEST(half_requests_of_all_together)
{
    enum { EACH = 1 << 20 };
    restart(&(struct ddpi_server_options){.input_total = 3 * EACH});
    ddp_store *store = open_store();
    int one = half_a_request(EACH - 64);
    AWAIT_SERVER(now.input >= EACH);
    ck_assert_uint_eq(store_thread_stats(server).overloaded, 0);
    int two = half_a_request(EACH - 64);
    AWAIT_SERVER(now.input >= 2 * EACH);
    int three = half_a_request(3 * EACH);
    char payload[2048];
    ck_assert_int_eq(raw_frame(three, payload, sizeof payload).status, DDP_E_LIMIT);
    AWAIT_SERVER(now.overloaded == 1);
    assert_alive(store); /* clients that ask for little are not affected */
    close(one);
    close(two);
    close(three);
    await_connections(1);
    ck_assert_uint_lt(store_thread_stats(server).input, 8192);
    ddp_store_close(store);
}
END_TEST

START_TEST(unread_replies_of_all_together)
{
    enum { EACH = 1 << 20, READERS = 8, TIMES = 8 };
    restart(&(struct ddpi_server_options){.output_total = 16 * EACH});
    ddp_store *store = open_store();
    char *value = calloc(EACH, 1);
    int fds[READERS];
    for (uint64_t i = 0; i < READERS; i++) {
        fds[i] = raw_connect(store_thread_port(server));
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int));
        raw_greet(fds[i]);
        for (uint64_t k = 0; k < TIMES; k++) /* all are answered at once */
            raw_request(fds[i],
                        &(struct ddpi_message){
                            .op = DDPI_OP_GET, .id = k, .key = {"big", 3}, .timeout_ms = 60000});
        await_waits((i + 1) * TIMES);
    }
    OK(ddp_store_set(store, "big", value, EACH, LONG_MS, NULL, &why));
    free(value);
    assert_alive(store);
    struct ddpi_server_stats stats = store_thread_stats(server);
    ck_assert_uint_ge(stats.overloaded, 1);
    ck_assert_uint_lt(stats.overloaded, READERS);
    ck_assert_uint_le(stats.output, 2 * 16 * EACH + READERS * DDPI_BUDGET_OWN);
    for (int i = 0; i < READERS; i++)
        close(fds[i]);
    await_connections(1);
    ck_assert_uint_lt(store_thread_stats(server).output, 8192);
    ddp_store_close(store);
}
END_TEST

/* Pipelined without end by one, the requests of another are served in between. */
START_TEST(a_flood_has_one_share)
{
    ddp_store *store = open_store();
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    struct ddpi_buf all;
    ddpi_buf_init(&all, 1 << 22);
    enum { REQUESTS = 20000 };
    for (uint64_t i = 0; i < REQUESTS; i++)
        ck_assert(ddpi_request_put(
            &all, &(struct ddpi_message){.op = DDPI_OP_TRY_GET, .id = i, .key = {"none", 4}}));
    raw_send(fd, ddpi_buf_head(&all), ddpi_buf_len(&all));
    assert_alive(store);
    for (uint64_t i = 0; i < REQUESTS; i++) {
        char payload[256];
        ck_assert_uint_eq(raw_frame(fd, payload, sizeof payload).id, i);
    }
    ddpi_buf_finish(&all);
    close(fd);
    ddp_store_close(store);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        keys_and_lists,
        watches_and_sessions,
        a_history_of_two_changes,
        the_oldest_half_open_gives_way,
        half_open_ones_keep_nobody_out,
        who_fails_too_often_is_turned_away,
        loopback_may_fail,
        half_requests_of_all_together,
        unread_replies_of_all_together,
        a_flood_has_one_share,
    };
    return store_suite("store_limits", tests, sizeof tests / sizeof *tests);
}
