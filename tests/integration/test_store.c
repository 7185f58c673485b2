/*
 * test_store.c - a real server and real clients: every call, deadlines, and servers that are not
 * there, not a store, silent, or about to stop.
 */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_value(ddp_store *store, const char *key, const char *wanted)
{
    void *value;
    size_t len;
    OK(ddp_store_get(store, key, LONG_MS, &value, &len, NULL, &why));
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
    ck_assert_int_eq(ddp_store_try_get(store, "k", LONG_MS, &value, &len, NULL, &err),
                     DDP_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.msg, store_thread_endpoint(server)));
    ck_assert_ptr_nonnull(strstr(err.msg, "'k'"));
    OK(ddp_store_set(store, "k", "v", 1, LONG_MS, &version, &why));
    OK(ddp_store_try_get(store, "k", LONG_MS, &value, &len, &second, &why));
    ck_assert_uint_eq(version, second);
    ddp_store_free(value);
    OK(ddp_store_set(store, "empty", NULL, 0, LONG_MS, NULL, &why));
    assert_value(store, "empty", "");

    ck_assert_int_eq(ddp_store_compare_and_swap(store, "k", 99, "w", 1, LONG_MS, &second, &err),
                     DDP_E_CONFLICT);
    ck_assert_uint_eq(second, version);
    OK(ddp_store_compare_and_swap(store, "k", version, "w", 1, LONG_MS, &second, &why));
    ck_assert_uint_gt(second, version);
    assert_value(store, "k", "w");
    ck_assert_int_eq(ddp_store_add(store, "k", 1, LONG_MS, NULL, &err), DDP_E_TYPE);

    const char *keys[] = {"k", "empty"};
    OK(ddp_store_wait(store, keys, 2, LONG_MS, &why));
    OK(ddp_store_delete(store, "empty", LONG_MS, &why));
    ck_assert_int_eq(ddp_store_delete(store, "empty", LONG_MS, &err), DDP_E_NOT_FOUND);
    ck_assert_int_eq(ddp_store_wait(store, keys, 2, 0, &err), DDP_E_TIMEOUT);
    OK(ddp_store_barrier(store, "b", 1, LONG_MS, &why));
    assert_alive(store);
    ddp_store_close(store);
    ddp_store_close(NULL);
}
END_TEST

START_TEST(many_keys_at_once)
{
    enum { KEYS = DDP_STORE_MANY_MAX };
    static char names[KEYS][16];
    static const char *keys[KEYS + 1];
    ddp_store *store = open_prefix("g1/");
    struct ddp_store_value *values = NULL;
    struct ddp_error err;
    uint64_t versions[KEYS] = {0};
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof names[i], "k%zu", i);
        keys[i] = names[i];
        if (i % 64 == 1)
            OK(ddp_store_set(store, keys[i], names, i, LONG_MS, &versions[i], &why));
    }
    OK(ddp_store_try_get_many(store, keys, KEYS, LONG_MS, &values, &why));
    for (size_t i = 0; i < KEYS; i++) {
        ck_assert_uint_eq(values[i].version, versions[i]);
        if (versions[i] == 0)
            continue;
        ck_assert_uint_eq(values[i].value_len, i);
        ck_assert_mem_eq(values[i].value, names, i);
        ck_assert_int_eq(((const char *)values[i].value)[i], '\0');
    }
    ddp_store_free(values);
    values = NULL;
    ck_assert_int_eq(ddp_store_try_get_many(store, keys, KEYS + 1, LONG_MS, &values, &err),
                     DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_try_get_many(store, keys, 0, LONG_MS, &values, &err), DDP_E_INVALID);
    keys[7] = NULL;
    ck_assert_int_eq(ddp_store_try_get_many(store, keys, KEYS, LONG_MS, &values, &err),
                     DDP_E_INVALID);
    ck_assert_ptr_null(values);
    assert_alive(store);
    ddp_store_close(store);
}
END_TEST

START_TEST(transactions)
{
    ddp_store *store = open_prefix("g1/");
    struct ddp_error err;
    uint64_t first, version = 99;
    OK(ddp_store_set(store, "k", "v", 1, LONG_MS, &first, &why));
    ck_assert_int_eq(
        ddp_store_compare_and_swap_value(store, "k", "x", 1, "w", 1, LONG_MS, &version, &err),
        DDP_E_CONFLICT);
    ck_assert_uint_eq(version, first);
    ck_assert_ptr_nonnull(strstr(err.msg, "'g1/k'"));
    ck_assert_int_eq(
        ddp_store_compare_and_swap_value(store, "no", NULL, 0, "w", 1, LONG_MS, &version, &err),
        DDP_E_CONFLICT);
    ck_assert_uint_eq(version, 0);
    OK(ddp_store_compare_and_swap_value(store, "k", "v", 1, "w", 1, LONG_MS, &version, &why));
    ck_assert_uint_gt(version, first);
    assert_value(store, "k", "w");

    const struct ddp_store_clause move[] = {
        {.kind = DDP_STORE_IF_VERSION, .key = "k", .version = version},
        {.kind = DDP_STORE_IF_VALUE, .key = "k", .value = "w", .value_len = 1},
        {.kind = DDP_STORE_IF_VERSION, .key = "l"},
        {.kind = DDP_STORE_THEN_DELETE, .key = "k"},
        {.kind = DDP_STORE_THEN_SET, .key = "l", .value = "w", .value_len = 1},
    };
    OK(ddp_store_transact(store, move, 5, LONG_MS, &version, &why));
    assert_value(store, "l", "w");
    void *value;
    size_t len;
    ck_assert_int_eq(ddp_store_try_get(store, "k", LONG_MS, &value, &len, NULL, &err),
                     DDP_E_NOT_FOUND);
    ck_assert_int_eq(ddp_store_transact(store, move, 5, LONG_MS, NULL, &err), DDP_E_CONFLICT);

    ck_assert_int_eq(ddp_store_transact(store, move, 0, LONG_MS, NULL, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_transact(store, move, 65, LONG_MS, NULL, &err), DDP_E_INVALID);
    const struct ddp_store_clause twice[] = {move[3], move[3]}, unknown = {.key = "k"},
                                  large = {.kind = DDP_STORE_THEN_SET,
                                           .key = "k",
                                           .value = "",
                                           .value_len = DDP_STORE_VALUE_MAX + 1};
    ck_assert_int_eq(ddp_store_transact(store, twice, 2, LONG_MS, NULL, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_transact(store, &unknown, 1, LONG_MS, NULL, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_transact(store, &large, 1, LONG_MS, NULL, &err), DDP_E_LIMIT);
    assert_alive(store);
    ddp_store_close(store);
}
END_TEST

START_TEST(prefixes_and_lists)
{
    ddp_store *all = open_store(), *one = open_prefix("g1/");
    OK(ddp_store_set(one, "b", "1", 1, LONG_MS, NULL, &why));
    OK(ddp_store_set(one, "a", "2", 1, LONG_MS, NULL, &why));
    OK(ddp_store_set(all, "g2/c", "3", 1, LONG_MS, NULL, &why));
    assert_value(all, "g1/b", "1");
    char **keys;
    size_t count;
    OK(ddp_store_list(one, "", LONG_MS, &keys, &count, &why));
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(keys[0], "a");
    ck_assert_str_eq(keys[1], "b");
    ddp_store_free(keys);
    OK(ddp_store_list(all, "g", LONG_MS, &keys, &count, &why));
    ck_assert_uint_eq(count, 3);
    ck_assert_str_eq(keys[2], "g2/c");
    ddp_store_free(keys);
    OK(ddp_store_list(one, "none", LONG_MS, &keys, &count, &why));
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
    OK(ddp_store_set(store, "b", "1", 1, LONG_MS, NULL, &why));
    size_t count;
    store_thread_call(server, delete_g1, &count);
    ck_assert_uint_eq(count, 1);
    void *value;
    size_t len;
    ck_assert_int_eq(ddp_store_try_get(store, "b", LONG_MS, &value, &len, NULL, NULL),
                     DDP_E_NOT_FOUND);
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
    OK(ddp_store_set(store, long_key, "v", 1, LONG_MS, NULL, &why));
    long_key[DDP_STORE_KEY_MAX] = 'k';
    ck_assert_int_eq(ddp_store_set(store, long_key, "v", 1, LONG_MS, NULL, &err), DDP_E_LIMIT);
    ck_assert_int_eq(ddp_store_set(store, NULL, "v", 1, LONG_MS, NULL, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_set(store, "k", NULL, 1, LONG_MS, NULL, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_barrier(store, "k", 0, LONG_MS, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_wait(store, NULL, 0, LONG_MS, &err), DDP_E_INVALID);
    const char *keys[] = {"alive", NULL};
    ck_assert_int_eq(ddp_store_wait(store, keys, 2, LONG_MS, &err), DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_wait(store, keys, DDP_STORE_MANY_MAX + 1, LONG_MS, NULL),
                     DDP_E_INVALID);
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
        OK(ddp_store_add(store, "came", 1, LONG_MS, NULL, &why));
        OK(ddp_store_barrier(store, "all", PARTIES, LONG_MS, &why));
        OK(ddp_store_add(store, "came", 0, LONG_MS, &sum, &why));
        ck_assert_int_ge(sum, (round + 1) * PARTIES); /* none leaves before all have arrived */
        OK(ddp_store_barrier(store, "read", PARTIES, LONG_MS, &why));
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
    OK(ddp_store_set(store, "big", sent, size, LONG_MS, NULL, &why));
    OK(ddp_store_get(store, "big", LONG_MS, &got, &len, NULL, &why));
    ck_assert_uint_eq(len, size);
    ck_assert(memcmp(sent, got, size) == 0);
    ddp_store_free(got);
    ck_assert_int_eq(ddp_store_set(store, "big", sent, size + 1, LONG_MS, NULL, &err), DDP_E_LIMIT);
    assert_alive(store);
    free(sent);
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
    options = (struct ddpi_server_options){.host = "192.0.2.1", .auth = DDPI_SERVER_AUTH_NEVER};
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
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = 500};
    ddp_store *store = NULL;
    struct ddp_error err;
    uint64_t start_ms = raw_now_ms();
    ck_assert_int_eq(ddp_store_connect(&options, &store, &err), DDP_E_UNREACHABLE);
    ck_assert_uint_ge(raw_now_ms() - start_ms, 498);
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

static ddp_status connect_to_fake(uint16_t port, uint32_t timeout_ms, ddp_store **ret,
                                  struct ddp_error *err)
{
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = timeout_ms};
    return ddp_store_connect(&options, ret, err);
}

START_TEST(peers_that_are_no_store)
{
    static const char version_9[] = "DDPS\x09\0\x09";
    static const char bad_frame[] = "DDPS\3\0\3\0\377\377\377\377\1\0\0\0\0\0\0\0\0\0\0";
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
        uint32_t timeout_ms = cases[i].len > 0 ? LONG_MS : 300;
        ck_assert_int_eq(connect_to_fake(port, timeout_ms, &store, &err), cases[i].wanted);
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
    struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_welcome welcome = {
        .key_max = 4096, .value_max = 4096, .many_max = 16, .incarnation = 1};
    ck_assert(ddpi_preamble_put(&buf, &preamble) && ddpi_welcome_put(&buf, 0, &welcome));
    uint16_t port;
    struct fake fake = {.bytes = ddpi_buf_head(&buf), .len = ddpi_buf_len(&buf)};
    fake.listen_fd = raw_listen(&port);
    uv_thread_t thread;
    ck_assert_int_eq(uv_thread_create(&thread, fake_server, &fake), 0);
    ddp_store *store = NULL;
    struct ddp_error err;
    ck_assert_int_eq(connect_to_fake(port, LONG_MS, &store, &err), DDP_OK);
    ck_assert_int_eq(ddp_store_set(store, "k", "v", 1, 50, NULL, &err), DDP_E_CLOSED);
    ck_assert_ptr_nonnull(strstr(err.msg, "did not answer"));
    do /* until there is a connection again, which nobody answers */
        ck_assert_int_eq(ddp_store_set(store, "k", "v", 1, 500, NULL, &err), DDP_E_UNREACHABLE);
    while (strstr(err.msg, "does not answer") == NULL);
    const char *keys[] = {"k", "l", "m"};
    struct ddp_store_value *values;
    ck_assert_int_eq(ddp_store_try_get_many(store, keys, 3, 500, &values, &err), DDP_E_UNREACHABLE);
    ddp_store_close(store);
    uv_thread_join(&thread);
    close(fake.listen_fd);
    ddpi_buf_finish(&buf);
}
END_TEST

static void wait_forever(void *arg)
{
    ddp_store *store = open_mortal();
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
    await_waits(1);
    uint16_t port = store_thread_port(server);
    store_thread_stop(server);
    uv_thread_join(&thread);
    ck_assert_ptr_nonnull(strstr(err.msg, "shutting down"));
    server = store_thread_start(&(struct ddpi_server_options){.port = port}); /* at once */
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        every_call,
        many_keys_at_once,
        transactions,
        prefixes_and_lists,
        the_owner_deletes_a_generation,
        deadlines_leave_the_handle_usable,
        arguments_are_checked,
        many_clients_in_a_barrier,
        the_largest_value,
        a_port_in_use,
        nobody_listens,
        the_client_may_come_first,
        peers_that_are_no_store,
        a_server_that_falls_silent,
        a_server_that_stops_says_so,
    };
    return store_suite("store", tests, sizeof tests / sizeof *tests);
}
