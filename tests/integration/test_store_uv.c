/*
 * test_store_uv.c - what only the asynchronous client has: requests that are malformed, cancel,
 * close, many requests at once, reports of its state, sessions that it keeps. The contract of all
 * clients is in test_store_clients.c.
 */
#include "client_store.h"
#include "store_clients.h"
#include "uv_state.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <semaphore.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MANY = 300, LEASE_MS = 5000, NEVER_MS = 600000 };

static bool closed;

START_TEST(the_table_is_sound)
{
    ck_assert(ddpi_sm_table_valid(&ddpi_uv_link_sm));
}
END_TEST

static void never_done(void *data, const struct ddp_store_result *result)
{
    (void)data;
    ck_abort_msg("%s", result->message);
}

START_TEST(malformed_requests)
{
    struct store_client *c = client_open("p/");
    const struct ddp_store_request bad[] = {
        {.op = DDP_STORE_OP_GET, .key = "k"}, /* no size */
        {.size = sizeof *bad, .op = 0, .key = "k"},
        {.size = sizeof *bad, .op = DDP_STORE_OP_STATS + 1},
        {.size = sizeof *bad, .op = DDP_STORE_OP_GET, .key = "k", .flags = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(ddp_store_uv_submit(c->uv, &bad[i], never_done, NULL, NULL, &why),
                         DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_uv_submit(c->uv, NULL, never_done, NULL, NULL, NULL), DDP_E_INVALID);
    client_close(c);
}
END_TEST

START_TEST(cancel)
{
    struct store_client *c = client_open("p/");
    struct outcome *get = START(c, .op = DDP_STORE_OP_GET, .key = "no", .timeout_ms = NEVER_MS);
    struct outcome *unsent = START(c, .op = DDP_STORE_OP_SET, .key = "k");
    ck_assert_int_eq(ddp_store_uv_cancel(c->uv, unsent->id), DDP_OK);
    client_expect(DDP_E_CANCELED, client_finish(unsent));
    CALL(c, .op = DDP_STORE_OP_STATS);
    ck_assert_uint_eq(store_thread_stats(server).waits, 1);
    ck_assert_int_eq(ddp_store_uv_cancel(c->uv, get->id), DDP_OK);
    ck_assert(!get->there);
    client_expect(DDP_E_CANCELED, client_finish(get));
    ck_assert_int_eq(ddp_store_uv_cancel(c->uv, get->id), DDP_E_NOT_FOUND);
    ck_assert_int_eq(ddp_store_uv_cancel(c->uv, 4711), DDP_E_NOT_FOUND);
    CALL(c, .op = DDP_STORE_OP_STATS);
    ck_assert_uint_eq(store_thread_stats(server).waits, 0);
    ck_assert_uint_eq(store_thread_stats(server).keys, 0);
    client_close(c);
}
END_TEST

/* Close in each state that the handle can be in after so many turns. */
START_TEST(close_with_requests)
{
    struct outcome *outcomes[10];
    struct store_client *c = client_open("p/");
    for (size_t i = 0; i < 10; i++)
        outcomes[i] = START(c, .op = i % 2 ? DDP_STORE_OP_GET : DDP_STORE_OP_SET, .key = "no2",
                            .timeout_ms = NEVER_MS);
    for (int turn = 0; turn < _i; turn++)
        uv_run(&loop, UV_RUN_NOWAIT);
    ddp_store_uv_close(c->uv, on_uv_closed, &closed);
    EXPECT(DDP_E_CLOSED, c, .op = DDP_STORE_OP_STATS);
    UNTIL(closed);
    ck_assert_uint_eq(c->answers, 10);
    for (size_t i = 0; i < 10; i++)
        ck_assert(outcomes[i]->status == DDP_E_CANCELED || outcomes[i]->status == DDP_OK);
    free(c);
}
END_TEST

/* A resolver that answers for these names when it may; other names go to the system's. */
static struct slow_name {
    const char *name;
    const char *address; /* NULL: there is none */
    sem_t was_asked, may_answer;
} slow_names[] = {{.name = "silent.invalid"}, {.name = "late.invalid", .address = "127.0.0.1"}},
  *const silent = &slow_names[0], *const late = &slow_names[1];

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    int (*systems)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)(void *)&systems = dlsym(RTLD_NEXT, "getaddrinfo");
    for (struct slow_name *slow = silent; slow <= late; slow++) {
        if (name == NULL || strcmp(name, slow->name) != 0)
            continue;
        sem_post(&slow->was_asked);
        while (sem_wait(&slow->may_answer) != 0)
            ;
        return slow->address != NULL ? systems(slow->address, service, hints, ret) : EAI_AGAIN;
    }
    return systems(name, service, hints, ret);
}

static void setup(void)
{
    uv_clients.setup();
    closed = false;
    for (struct slow_name *slow = silent; slow <= late; slow++)
        ck_assert_int_eq(sem_init(&slow->was_asked, 0, 0) | sem_init(&slow->may_answer, 0, 0), 0);
}

static void await_question(struct slow_name *slow)
{
    while (sem_trywait(&slow->was_asked) != 0)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static bool is_asked_again(struct slow_name *slow)
{
    return sem_trywait(&slow->was_asked) == 0;
}

START_TEST(close_does_not_wait_for_the_resolver)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "%s:1", silent->name);
    struct store_client *c = client_open_at(endpoint, NULL, 0);
    struct outcome *stats = START(c, .op = DDP_STORE_OP_STATS, .timeout_ms = NEVER_MS);
    await_question(silent);
    client_close(c);
    client_expect(DDP_E_CANCELED, stats);
    ck_assert(uv_loop_alive(&loop));
    sem_post(&silent->may_answer); /* the loop ends, and all memory is given back */
}
END_TEST

/* Attempts end when the test says so. */
static struct store_client *open_two(const char *first, uint16_t first_port, const char *second)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "%s:%u,%s:%u", first, first_port, second,
             store_thread_port(server));
    struct store_client *c = client_open_at(endpoint, NULL, 0);
    c->uv->core.at_ms = UINT64_MAX;
    return c;
}

static void end_attempt(struct store_client *c)
{
    c->uv->core.at_ms = 0;
    ddpi_uv_soon(c->uv);
}

/* Until the core waits for the name of @endpoint. */
static void turn_to(struct store_client *c, uint32_t endpoint)
{
    struct ddpi_client *core = &c->uv->core;
    const unsigned before = core->attempts;
    end_attempt(c);
    UNTIL(core->attempts > before && core->endpoint == endpoint &&
          core->sm.state == CLIENT_DIALING);
    core->at_ms = UINT64_MAX;
}

START_TEST(a_slow_lookup_does_not_keep_from_other_endpoints)
{
    struct store_client *c = open_two(silent->name, 1, "127.0.0.1");
    await_question(silent);
    end_attempt(c);
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_STATS);
    ck_assert_ptr_nonnull(c->uv->lookups[0]); /* it hangs all the while */
    ck_assert_str_eq(ddpi_store_uv_host(c->uv), "127.0.0.1");
    sem_post(&silent->may_answer);
    UNTIL(c->uv->lookups[0] == NULL); /* nobody needs it any more */
    ck_assert_uint_eq(c->states[DDP_STORE_UV_CONNECTED], 1);
    ck_assert(!is_asked_again(silent));
    client_close(c);
}
END_TEST

/* One that fails, and one that does not, while the core has turned to the other endpoint. */
START_TEST(a_lookup_tells_of_its_own_endpoint)
{
    struct store_client *c = open_two(silent->name, 1, late->name);
    const struct ddpi_client *core = &c->uv->core;
    await_question(silent);
    turn_to(c, 1);
    await_question(late);
    sem_post(&silent->may_answer);
    UNTIL(c->uv->lookups[0]->ended);
    ck_assert(core->endpoint == 1 && core->sm.state == CLIENT_DIALING);
    turn_to(c, 1); /* the other's turn was short */
    ck_assert_msg(strstr(core->why.msg, "cannot resolve") != NULL, "%s", core->why.msg);
    turn_to(c, 0);
    await_question(silent);
    sem_post(&late->may_answer);
    UNTIL(c->uv->lookups[1]->ended);
    ck_assert(core->endpoint == 0 && core->sm.state == CLIENT_DIALING);
    end_attempt(c);
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_STATS);
    ck_assert_str_eq(ddpi_store_uv_host(c->uv), late->name);
    ck_assert(!is_asked_again(late) && !is_asked_again(silent));
    client_close(c);
    sem_post(&silent->may_answer);
}
END_TEST

static void on_done_close(void *data, const struct ddp_store_result *result)
{
    ck_assert_int_eq(result->status, DDP_OK);
    ddp_store_uv_close(data, on_uv_closed, &closed);
}

START_TEST(close_within_a_callback)
{
    struct store_client *c = client_open("p/");
    const struct ddp_store_request stats = {
        .size = sizeof stats, .op = DDP_STORE_OP_STATS, .timeout_ms = LONG_MS};
    OK(ddp_store_uv_submit(c->uv, &stats, on_done_close, c->uv, NULL, &why));
    struct outcome *get = START(c, .op = DDP_STORE_OP_GET, .key = "no", .timeout_ms = NEVER_MS);
    UNTIL(closed);
    client_expect(DDP_E_CANCELED, get);
    free(c);
}
END_TEST

/* Each gets an answer, and they are carried out in their order. */
static void set_many(struct store_client *c, unsigned count)
{
    static const char large[100000];
    static struct outcome *outcomes[MANY];
    const unsigned before = c->answers;
    for (unsigned i = 0; i < count; i++)
        outcomes[i] = START(c, .op = DDP_STORE_OP_SET, .key = "large", .value = large,
                            .value_len = sizeof large);
    UNTIL(c->answers == before + count);
    for (unsigned i = 0; i < count; i++) {
        client_expect(DDP_OK, outcomes[i]);
        ck_assert(i == 0 || outcomes[i]->version > outcomes[i - 1]->version);
    }
    ck_assert_uint_eq(CALL(c, .op = DDP_STORE_OP_GET, .key = "large")->value_len, sizeof large);
}

START_TEST(many_at_once)
{
    struct store_client *c = client_open("p/");
    set_many(c, MANY);
    ck_assert_uint_eq(c->states[DDP_STORE_UV_CONNECTED], 1);
    ck_assert_uint_eq(c->states[DDP_STORE_UV_LOST], 0);
    client_close(c);
}
END_TEST

START_TEST(a_server_that_comes_later_and_goes)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "localhost:%u", same.port);
    store_thread_stop(server);
    struct store_client *c = client_open_at(endpoint, "p/", 0);
    const unsigned *losses = &c->states[DDP_STORE_UV_LOST];
    struct outcome *set = START(c, .op = DDP_STORE_OP_SET, .key = "k");
    UNTIL(*losses == 1); /* that was never there */
    struct outcome *none = EXPECT(DDP_E_UNREACHABLE, c, .op = DDP_STORE_OP_STATS, .timeout_ms = 1);
    ck_assert_msg(strstr(none->err.msg, "Connection refused") != NULL, "%s", none->err.msg);
    ck_assert_uint_eq(*losses, 1);
    server = store_thread_start(&same);
    client_expect(DDP_OK, client_finish(set));
    restart(&same);
    UNTIL(c->states[DDP_STORE_UV_CONNECTED] == 2);
    ck_assert_uint_eq(*losses, 2);
    client_close(c);
}
END_TEST

/* The process may have no socket: the loop is told how to raise the limit. */
START_TEST(no_file_descriptor_left)
{
    struct rlimit limit;
    struct store_client *c = client_open("p/");
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC); /* all below it are taken */
    ck_assert_int_ge(next, 0);
    const struct rlimit low = {.rlim_cur = (rlim_t)next + 1, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct outcome *served = START(c, .op = DDP_STORE_OP_STATS, .timeout_ms = NEVER_MS);
    UNTIL(c->states[DDP_STORE_UV_LOST] == 1);
    const struct outcome *none = CALL(c, .op = DDP_STORE_OP_STATS, .timeout_ms = 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(none->status, DDP_E_UNREACHABLE);
    ck_assert_msg(strstr(none->err.msg, "ulimit -n") != NULL, "%s", none->err.msg);
    close(next);
    client_expect(DDP_OK, client_finish(served));
    client_close(c);
}
END_TEST

/* Sealed frames, on one connection and on the next. */
START_TEST(a_token_is_proven_on_every_connection)
{
    static const struct ddpi_credential token = {.is_token = true,
                                                 .secret = "thirty-two bytes that are secret"};
    const struct ddpi_server_options strict = {
        .port = store_thread_port(server), .token = &token, .auth = DDPI_SERVER_AUTH_ALWAYS};
    char line[2 * DDPI_KEY_SIZE + 2];
    sodium_bin2hex(line, sizeof line, token.secret, DDPI_KEY_SIZE);
    int fd = memfd_create("secret", MFD_CLOEXEC);
    ck_assert_int_eq(dprintf(fd, "%s\n", line), 2 * DDPI_KEY_SIZE + 1);
    restart(&strict);
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = store_thread_endpoint(server),
                                              .auth = DDP_STORE_AUTH_TOKEN,
                                              .token_fd = fd};
    struct store_client *c = NULL;
    OK(client_try_open(&options, &c, &why));
    for (unsigned round = 0; round < 2; round++) {
        set_many(c, 100);
        restart(&strict);
        UNTIL(c->states[DDP_STORE_UV_LOST] == round + 1);
    }
    client_close(c);
    struct store_client *stranger = client_open("p/");
    struct outcome *denied = EXPECT(DDP_E_DENIED, stranger, .op = DDP_STORE_OP_STATS);
    UNTIL(stranger->states[DDP_STORE_UV_REFUSED] == 1);
    ck_assert_msg(strstr(denied->err.msg, "token") != NULL, "%s", denied->err.msg);
    client_close(stranger);
    close(fd);
}
END_TEST

/* ---- keepers ---- */

static const char keeper_says[] = "{\"phase\":\"empty\"}";

static void stand_by(struct ddpi_server *at, void *ctx)
{
    (void)ctx;
    ddpi_server_stand_by(at, "", 0);
    ck_assert_int_eq(ddpi_server_set_keeper_status(at, keeper_says, strlen(keeper_says), &why),
                     DDP_OK);
}

static struct store_client *client_as(enum ddp_store_role role, int token_fd)
{
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = store_thread_endpoint(server),
                                              .auth = token_fd > 0 ? DDP_STORE_AUTH_TOKEN
                                                                   : DDP_STORE_AUTH_NONE,
                                              .token_fd = token_fd,
                                              .role = role};
    struct store_client *client = NULL;
    OK(client_try_open(&options, &client, &why));
    return client;
}

/* A standby refuses everybody else, also who only claims to be one. */
START_TEST(a_standby_answers_keepers)
{
    restart(&(const struct ddpi_server_options){.token = &store_thread_token});
    store_thread_call(server, stand_by, NULL);
    int fd = memfd_create("secret", MFD_CLOEXEC);
    char line[2 * DDPI_KEY_SIZE + 2];
    sodium_bin2hex(line, sizeof line, store_thread_token.secret, DDPI_KEY_SIZE);
    ck_assert_int_eq(dprintf(fd, "%s\n", line), 2 * DDPI_KEY_SIZE + 1);
    struct store_client *keeper = client_as(DDPI_STORE_KEEPER, fd);
    const struct outcome *told = EXPECT(DDP_OK, keeper, .op = DDPI_STORE_OP_KEEPER_STATUS);
    ck_assert_str_eq(told->value, keeper_says);
    EXPECT(DDP_E_DENIED, keeper, .op = DDP_STORE_OP_STATS);
    struct store_client *claims = client_as(DDPI_STORE_KEEPER, 0);
    EXPECT(DDP_E_UNREACHABLE, claims, .op = DDPI_STORE_OP_KEEPER_STATUS, .timeout_ms = 300);
    struct store_client *agent = client_as(DDP_STORE_AGENT, fd);
    EXPECT(DDP_E_UNREACHABLE, agent, .op = DDPI_STORE_OP_KEEPER_STATUS, .timeout_ms = 300);
    client_close(agent);
    client_close(claims);
    client_close(keeper);
    close(fd);
}
END_TEST

START_TEST(an_end_is_reported)
{
    struct store_client *c = client_open_at(NULL, "p/", DDP_STORE_NO_RECONNECT);
    CALL(c, .op = DDP_STORE_OP_STATS);
    restart(NULL);
    UNTIL(c->states[DDP_STORE_UV_ENDED] == 1);
    EXPECT(DDP_E_CLOSED, c, .op = DDP_STORE_OP_STATS);
    client_close(c);
}
END_TEST

START_TEST(kept_sessions_live_on)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    struct store_client *c = client_open("p/");
    struct ddp_store_session session = EXPECT(DDP_OK, c, .op = DDP_STORE_OP_SESSION_OPEN,
                                              .lease_ms = LEASE_MS, .flags = DDP_STORE_KEEP)
                                           ->session;
    ck_assert_uint_eq(c->uv->core.backoff_max_ms, LEASE_MS / 8); /* it is to be found in time */
    CALL(c, .op = DDP_STORE_OP_SET_EPHEMERAL, .key = "e", .session = &session);
    EXPECT(DDP_E_TIMEOUT, c, .op = DDP_STORE_OP_GET, .key = "no",
           .timeout_ms = LEASE_MS + LEASE_MS / 4); /* more than a lease later */
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_GET, .key = "e");
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_SESSION_KEEP, .session = &session);
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_SESSION_CLOSE, .session = &session);
    ck_assert_uint_eq(c->uv->core.backoff_max_ms, 0);
    EXPECT(DDP_E_NOT_FOUND, c, .op = DDP_STORE_OP_TRY_GET, .key = "e");
    EXPECT(DDP_OK, c, .op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = LEASE_MS,
           .flags = DDP_STORE_KEEP);
    ck_assert_uint_eq(c->sessions_ended, 0);
    restart(&same); /* which knows no session */
    UNTIL(c->sessions_ended == 1);
    client_close(c);
}
END_TEST

static unsigned times_kept;

static void on_kept_close(void *data, ddp_store_uv *store, const struct ddp_store_session *session,
                          uint64_t since_ms)
{
    const struct ddp_store_request end = {.size = sizeof end,
                                          .op = DDP_STORE_OP_SESSION_CLOSE,
                                          .session = session,
                                          .timeout_ms = LONG_MS};
    (void)data;
    (void)since_ms;
    times_kept++;
    OK(ddp_store_uv_submit(store, &end, on_done_close, store, NULL, &why));
}

START_TEST(a_session_is_closed_when_it_is_told_to_be_kept)
{
    struct ddp_store_options options = {.size = sizeof options,
                                        .endpoint = store_thread_endpoint(server)};
    const struct ddp_store_uv_hooks hooks = {.size = sizeof hooks, .session_kept = on_kept_close};
    const struct ddp_store_request begin = {.size = sizeof begin,
                                            .op = DDP_STORE_OP_SESSION_OPEN,
                                            .lease_ms = LEASE_MS,
                                            .flags = DDP_STORE_HOLD, /* it is kept at once */
                                            .timeout_ms = LONG_MS};
    ddp_store_uv *store = NULL;
    times_kept = 0;
    secure(&options);
    OK(ddp_store_uv_open(&loop, &options, &hooks, &store, &why));
    OK(ddp_store_uv_submit(store, &begin, NULL, NULL, NULL, &why));
    UNTIL(closed);
    ck_assert_uint_eq(times_kept, 1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_uv");
    TCase *tcase = tcase_create("real");
    tcase_add_checked_fixture(tcase, setup, uv_clients.teardown);
    ADD_TESTS(tcase, the_table_is_sound, malformed_requests, cancel);
    tcase_add_loop_test(tcase, close_with_requests, 0, 12);
    ADD_TESTS(tcase, close_within_a_callback, close_does_not_wait_for_the_resolver,
              a_slow_lookup_does_not_keep_from_other_endpoints, a_lookup_tells_of_its_own_endpoint,
              many_at_once, a_server_that_comes_later_and_goes, no_file_descriptor_left,
              a_token_is_proven_on_every_connection, a_standby_answers_keepers, an_end_is_reported,
              kept_sessions_live_on, a_session_is_closed_when_it_is_told_to_be_kept);
    suite_add_tcase(suite, tcase);
    return suite;
}
