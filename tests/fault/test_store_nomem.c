/*
 * test_store_nomem.c - the Nth allocation of the store fails, for every N until none does: each
 * call gives a result that it documents, nothing leaks, and the store works afterwards.
 */
#include "check_main.h"
#include "failmem.h"
#include "kv.h"
#include "raw.h"
#include "store_thread.h"

#include <ddprun/store_uv.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { N_MAX = 500, LONG_MS = 60000, ONCE = 1, FROM_NOW_ON = 1000000 };

static void ignore(void *ctx, struct ddpi_kv_client *client, const struct ddpi_message *reply)
{
    (void)client;
    size_t *replies = ctx;
    ++*replies;
    ck_assert(reply->status != DDP_E_INTERNAL);
}

static void core_requests(struct ddpi_kv *kv, struct ddpi_kv_client *clients)
{
    static const char clauses[] = "\3\0\0\0\0\0\0\0\0\1\0\0\0s\1\0\0\0v"
                                  "\3\0\0\0\0\0\0\0\0\1\0\0\0t\1\0\0\0v";
    static const char packed[] = "\1\0\0\0a\1\0\0\0z";
    const struct ddpi_message requests[] = {
        {.op = DDPI_OP_SET, .key = {"a", 1}, .value = {"1", 1}},
        {.op = DDPI_OP_SET, .key = {"a", 1}, .value = {"22", 2}},
        {.op = DDPI_OP_ADD, .key = {"n", 1}, .number = 1},
        {.op = DDPI_OP_CAS, .key = {"c", 1}, .value = {"1", 1}},
        {.op = DDPI_OP_LIST, .key = {"", 0}},
        {.op = DDPI_OP_GET, .key = {"g", 1}, .timeout_ms = 10},
        {.op = DDPI_OP_WAIT, .keys = {packed, sizeof packed - 1, 2, false}, .timeout_ms = 10},
        {.op = DDPI_OP_BARRIER, .key = {"b", 1}, .count = 3, .timeout_ms = 10},
        {.op = DDPI_OP_SET, .key = {"g", 1}, .value = {"1", 1}},
        {.op = DDPI_OP_BARRIER, .key = {"b", 1}, .count = 3, .timeout_ms = 5},
        {.op = DDPI_OP_WATCH, .key = {"s", 1}, .count = DDPI_WATCH_PREFIX},
        {.op = DDPI_OP_UNWATCH, .number = 4711},
        {.op = DDPI_OP_SESSION_OPEN, .count = 10},
        {.op = DDPI_OP_SESSION_KEEP, .session = {clauses, DDPI_SESSION_SIZE}},
        {.op = DDPI_OP_SESSION_HOLD, .session = {clauses, DDPI_SESSION_SIZE}},
        {.op = DDPI_OP_TRANSACT, .clauses = {clauses, sizeof clauses - 1, 2}},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        ddpi_kv_apply(kv, &clients[i % 2], &requests[i], 0);
}

/* Those that need not be answered. */
static void scoped_requests(struct ddpi_kv *kv, struct ddpi_kv_client *clients)
{
    static const char packed[] = "\1\0\0\0a\1\0\0\0z";
    const struct ddpi_message requests[] = {
        {.op = DDPI_OP_APPEND, .key = {"a", 1}, .value = {"33", 2}},
        {.op = DDPI_OP_COMPARE_SET, .key = {"x", 1}, .value = {"1", 1}},
        {.op = DDPI_OP_ADD_WRAP, .key = {"n", 1}, .number = 1},
        {.op = DDPI_OP_SET_MANY, .keys = {packed, sizeof packed - 1, 2, false}},
        {.op = DDPI_OP_PUSH, .key = {"q", 1}, .value = {"1", 1}},
        {.op = DDPI_OP_ARRIVE, .key = {"r", 1}, .number = 2},
        {.op = DDPI_OP_ARRIVE, .key = {"r", 1}, .number = 2},
        {.op = DDPI_OP_WAIT_EACH, .keys = {packed, sizeof packed - 1, 2, false}},
        {.op = DDPI_OP_POP, .key = {"q", 1}},
    };
    ddpi_kv_client_init(&clients[0]);
    ddpi_kv_client_init(&clients[1]);
    clients[0].tcpstore = clients[1].tcpstore = true;
    struct ddpi_kv_scope *scope = NULL;
    if (ddpi_kv_scope_get(kv, ddpi_bytes_of("a", 1), &scope, NULL) == DDP_OK)
        clients[0].scope = clients[1].scope = scope;
    if (scope != NULL)
        for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
            ddpi_kv_apply(kv, &clients[i % 2], &requests[i], 0);
    ddpi_kv_client_gone(kv, &clients[0]);
    ddpi_kv_client_gone(kv, &clients[1]);
    ddpi_kv_scope_put(kv, scope);
}

/* Each request is answered once, whatever fails; an account that is not even is a leak. */
static bool core_survives(int good, int bad)
{
    static const uint8_t seed[DDPI_SEED_SIZE];
    size_t replies = 0;
    struct ddpi_kv_client clients[2];
    failmem_start_some((unsigned)good, (unsigned)bad);
    struct ddpi_kv *kv = ddpi_kv_create(&ddpi_kv_limits_default, seed, ignore, &replies);
    if (kv != NULL) {
        ddpi_kv_client_init(&clients[0]);
        ddpi_kv_client_init(&clients[1]);
        core_requests(kv, clients);
        ddpi_kv_expire(kv, 1000);
        ck_assert_uint_ge(replies, 15);
        ck_assert_uint_le(replies, 17); /* the last is watched */
        ddpi_kv_client_gone(kv, &clients[0]);
        ddpi_kv_client_gone(kv, &clients[1]);
        scoped_requests(kv, clients);
        ddpi_kv_delete_prefix(kv, ddpi_bytes_of("", 0));
        ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0);
        ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
        ck_assert_uint_eq(ddpi_kv_stats(kv).watches, 0);
        ddpi_kv_destroy(kv);
    }
    return failmem_stop();
}

static const int bads[] = {ONCE, FROM_NOW_ON};

START_TEST(the_core)
{
    int n = 0;
    while (core_survives(n, bads[_i]))
        ck_assert_int_lt(++n, N_MAX);
    ck_assert_int_gt(n, 10);
}
END_TEST

static bool creation_survives(int good, int bad)
{
    static const struct ddpi_server_options options;
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct ddpi_server *server = NULL;
    struct ddp_error err;
    failmem_start_some((unsigned)good, (unsigned)bad);
    ddp_status status = ddpi_server_create(&loop, &options, &server, &err);
    bool failed = failmem_stop();
    ck_assert_int_eq(status, failed ? DDP_E_NOMEM : DDP_OK);
    if (status == DDP_OK)
        ddpi_server_close(server, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    return failed;
}

START_TEST(creating_a_server)
{
    int n = 0;
    while (creation_survives(n, bads[_i]))
        ck_assert_int_lt(++n, N_MAX);
    ck_assert_int_ge(n, 2);
}
END_TEST

static void allowed(ddp_status status)
{
    ck_assert_msg(status == DDP_OK || status == DDP_E_NOMEM || status == DDP_E_CLOSED ||
                      status == DDP_E_NOT_FOUND || status == DDP_E_TIMEOUT ||
                      status == DDP_E_UNREACHABLE,
                  "%s", ddp_status_name(status));
}

static void client_calls(ddp_store *store)
{
    const char *keys[] = {"a", "n"};
    char **names = NULL, *counters = NULL;
    void *value = NULL;
    size_t len;
    static char large[100000];
    struct ddp_store_event *event = NULL;
    struct ddp_store_value *values = NULL;
    allowed(ddp_store_watch(store, "", DDP_STORE_WATCH_PREFIX, 0, 200, NULL, NULL, NULL));
    allowed(ddp_store_set(store, "a", large, sizeof large, 200, NULL, NULL));
    allowed(ddp_store_add(store, "n", 1, 200, NULL, NULL));
    allowed(ddp_store_get(store, "a", 200, &value, &len, NULL, NULL));
    allowed(ddp_store_get(store, "later", 1, &value, &len, NULL, NULL));
    allowed(ddp_store_wait(store, keys, 2, 1, NULL));
    allowed(ddp_store_list(store, "", 200, &names, &len, NULL));
    allowed(ddp_store_barrier(store, "b", 2, 1, NULL));
    allowed(ddp_store_delete(store, "a", 200, NULL));
    allowed(ddp_store_stats(store, 200, &counters, NULL));
    struct ddp_store_session session = {{0}};
    allowed(ddp_store_session_open(store, 1000, 200, &session, NULL));
    allowed(ddp_store_set_ephemeral(store, &session, "e", "v", 1, 200, NULL, NULL));
    allowed(ddp_store_session_keep(store, &session, 200, NULL));
    allowed(ddp_store_next_event(store, 1, &event, NULL));
    allowed(ddp_store_try_get_many(store, keys, 2, 200, &values, NULL));
    ddp_store_free(values);
    ddp_store_free(event);
    ddp_store_free(value);
    ddp_store_free(names);
    ddp_store_free(counters);
}

/* Client and server share the count: whoever comes to the Nth allocation fails. */
static bool service_survives(int good)
{
    struct store_thread *server = store_thread_start(NULL);
    struct ddp_store_options options = {.size = sizeof options,
                                        .endpoint = store_thread_endpoint(server),
                                        .connect_timeout_ms = LONG_MS};
    ddp_store *store = NULL;
    failmem_start_some((unsigned)good, ONCE);
    ddp_status status = ddp_store_connect(&options, &store, NULL);
    allowed(status);
    if (status == DDP_OK)
        client_calls(store);
    bool failed = failmem_stop();
    ddp_store_close(store);
    ddp_store *after = NULL;
    ck_assert_int_eq(ddp_store_connect(&options, &after, NULL), DDP_OK);
    ck_assert_int_eq(ddp_store_set(after, "k", "v", 1, LONG_MS, NULL, NULL), DDP_OK);
    ddp_store_close(after);
    store_thread_stop(server);
    return failed;
}

START_TEST(server_and_client)
{
    int n = 0;
    while (service_survives(n))
        ck_assert_int_lt(++n, N_MAX);
    ck_assert_int_gt(n, 20);
}
END_TEST

static void on_done(void *data, const struct ddp_store_result *result)
{
    allowed(result->status);
    ++*(size_t *)data;
}

/* How many were asked; each of them is answered once. */
static size_t submit_all(ddp_store_uv *store, size_t *answers)
{
    static const char *const keys[] = {"a", "b"};
    static char large[100000];
    const struct ddp_store_clause clause = {.kind = DDP_STORE_THEN_SET, .key = "b"};
    const struct ddp_store_request requests[] = {
        {.op = DDP_STORE_OP_WATCH, .key = "", .flags = DDP_STORE_WATCH_PREFIX},
        {.op = DDP_STORE_OP_SET, .key = "a", .value = large, .value_len = sizeof large},
        {.op = DDP_STORE_OP_TRANSACT, .clauses = &clause, .count = 1},
        {.op = DDP_STORE_OP_GET, .key = "a"},
        {.op = DDP_STORE_OP_LIST, .key = ""},
        {.op = DDP_STORE_OP_WAIT, .keys = keys, .count = 2},
        {.op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = 1000, .flags = DDP_STORE_HOLD},
    };
    size_t asked = 0;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct ddp_store_request request = requests[i];
        request.size = sizeof request;
        request.timeout_ms = 500;
        ddp_status status = ddp_store_uv_submit(store, &request, on_done, answers, NULL, NULL);
        allowed(status);
        asked += status == DDP_OK;
    }
    return asked;
}

static bool loop_survives(int good)
{
    struct store_thread *server = store_thread_start(NULL);
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = store_thread_endpoint(server)};
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ddp_store_uv *store = NULL;
    failmem_start_some((unsigned)good, ONCE);
    ddp_status status = ddp_store_uv_open(&loop, &options, NULL, &store, NULL);
    allowed(status);
    size_t answers = 0, asked = status == DDP_OK ? submit_all(store, &answers) : 0;
    while (answers < asked)
        uv_run(&loop, UV_RUN_ONCE);
    bool failed = failmem_stop();
    if (status == DDP_OK)
        ddp_store_uv_close(store, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_uint_eq(answers, asked);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    store_thread_stop(server);
    return failed;
}

START_TEST(server_and_asynchronous_client)
{
    int n = 0;
    signal(SIGPIPE, SIG_IGN); /* the server closes what it has no memory for */
    while (loop_survives(n))
        ck_assert_int_lt(++n, N_MAX);
    ck_assert_int_gt(n, 20);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_nomem");
    TCase *tcase = tcase_create("fail the Nth allocation");
    tcase_add_loop_test(tcase, the_core, 0, 2);
    tcase_add_loop_test(tcase, creating_a_server, 0, 2);
    tcase_add_test(tcase, server_and_client);
    tcase_add_test(tcase, server_and_asynchronous_client);
    suite_add_tcase(suite, tcase);
    return suite;
}
