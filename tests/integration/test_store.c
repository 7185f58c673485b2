/*
 * test_store.c - what only the blocking client has: calls without an operation of their own, and
 * threads with a client each. Also what the owner of a server sees of it. The contract of all
 * clients is in test_store_clients.c.
 */
#include "store_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void assert_value(ddp_store *store, const char *key, const char *wanted)
{
    void *value;
    size_t len;
    OK(ddp_store_get(store, key, LONG_MS, &value, &len, NULL, &why));
    ck_assert_uint_eq(len, strlen(wanted));
    ck_assert_str_eq(value, wanted); /* a NUL stands behind it */
    ddp_store_free(value);
}

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
    assert_alive(store);
    uint16_t port = store_thread_port(server);
    store_thread_stop(server);
    ck_assert_int_eq(ddp_store_try_get_many(store, keys, 3, 500, &values, &err), DDP_E_UNREACHABLE);
    ck_assert_ptr_null(values);
    server = store_thread_start(&(struct ddpi_server_options){.port = port});
    ddp_store_close(store);
    ddp_store_close(NULL);
}
END_TEST

START_TEST(compare_and_swap_by_value)
{
    ddp_store *store = open_prefix("g1/");
    struct ddp_error err;
    uint64_t first, version = 99;
    OK(ddp_store_set(store, "k", "v", 1, LONG_MS, &first, &why));
    ck_assert_int_eq(
        ddp_store_compare_and_swap_value(store, "k", "x", 1, "w", 1, LONG_MS, &version, &err),
        DDP_E_CONFLICT);
    ck_assert_uint_eq(version, first);
    ck_assert_ptr_nonnull(strstr(err.msg, "'k'"));
    ck_assert_int_eq(
        ddp_store_compare_and_swap_value(store, "no", NULL, 0, "w", 1, LONG_MS, &version, &err),
        DDP_E_CONFLICT);
    ck_assert_uint_eq(version, 0);
    OK(ddp_store_compare_and_swap_value(store, "k", "v", 1, "w", 1, LONG_MS, &version, &why));
    ck_assert_uint_gt(version, first);
    assert_value(store, "k", "w");
    ddp_store_close(store);
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

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        many_keys_at_once,
        compare_and_swap_by_value,
        the_owner_deletes_a_generation,
        many_clients_in_a_barrier,
        a_port_in_use,
        the_client_may_come_first,
    };
    return store_suite("store", tests, sizeof tests / sizeof *tests);
}
