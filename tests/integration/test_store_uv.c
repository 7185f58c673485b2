/*
 * test_store_uv.c - the asynchronous client on the test's own loop, with a real server in a thread:
 * every operation, cancel, close, lost connections, sessions that are kept.
 */
#include "store_uv_fixture.h"
#include "uv_state.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <semaphore.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ANSWERS_MAX = 512, EVENTS_MAX = 64, LEASE_MS = 5000, NEVER_MS = 600000 };

struct answer {
    bool there;
    uint64_t request;
    ddp_status status;
    uint64_t version, watch;
    int64_t number;
    size_t count, value_len;
    char text[512]; /* the value, the first key, or the sentence */
    struct ddp_store_session session;
};

static struct answer answers[ANSWERS_MAX];
static unsigned nanswers;
static struct ddp_store_event events[EVENTS_MAX];
static char event_keys[EVENTS_MAX][32];
static unsigned nevents, connects, losses, refusals, ends, sessions_ended;
static bool closed, inside;

static void setup(void)
{
    store_uv_setup();
    memset(answers, 0, sizeof answers);
    nanswers = nevents = connects = losses = refusals = ends = sessions_ended = 0;
    closed = false;
}

static void on_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    (void)data;
    (void)store;
    ck_assert_uint_lt(nevents, EVENTS_MAX);
    snprintf(event_keys[nevents], sizeof event_keys[0], "%s", event->key);
    events[nevents++] = *event;
}

static void on_state(void *data, ddp_store_uv *store, enum ddp_store_uv_state state,
                     const char *text)
{
    ck_assert_ptr_eq(data, &loop);
    ck_assert_ptr_nonnull(store);
    connects += state == DDP_STORE_UV_CONNECTED;
    losses += state == DDP_STORE_UV_LOST;
    refusals += state == DDP_STORE_UV_REFUSED;
    ends += state == DDP_STORE_UV_ENDED;
    ck_assert((strlen(text) == 0) == (state == DDP_STORE_UV_CONNECTED));
}

static void on_session_end(void *data, ddp_store_uv *store, const struct ddp_store_session *session)
{
    (void)data;
    ck_assert(store != NULL && session != NULL);
    sessions_ended++;
}

static ddp_store_uv *open_at(const char *endpoint, uint32_t flags)
{
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .prefix = "p/", .flags = flags};
    secure(&options);
    const struct ddp_store_uv_hooks hooks = {.size = sizeof hooks,
                                             .data = &loop,
                                             .event = on_event,
                                             .state = on_state,
                                             .session_ended = on_session_end};
    ddp_store_uv *store;
    OK(ddp_store_uv_open(&loop, &options, &hooks, &store, &why));
    return store;
}

static ddp_store_uv *open_uv(void)
{
    return open_at(store_thread_endpoint(server), 0);
}

static void on_done(void *data, const struct ddp_store_result *result)
{
    struct answer *answer = data;
    ck_assert(!inside); /* never from within submit */
    ck_assert(!answer->there);
    *answer = (struct answer){.there = true,
                              .request = result->request,
                              .status = result->status,
                              .version = result->version,
                              .watch = result->watch,
                              .number = result->number,
                              .count = result->count,
                              .value_len = result->value_len};
    const char *text = result->keys != NULL && result->count > 0 ? result->keys[0]
                       : result->value != NULL                   ? result->value
                                                                 : result->message;
    snprintf(answer->text, sizeof answer->text, "%s", text);
    if (result->session != NULL)
        answer->session = *result->session;
    nanswers++;
}

static struct answer *ask(ddp_store_uv *store, size_t i, struct ddp_store_request request)
{
    request.size = sizeof request;
    if (request.timeout_ms == 0)
        request.timeout_ms = LONG_MS;
    uint64_t id = 0;
    answers[i] = (struct answer){0};
    inside = true;
    OK(ddp_store_uv_submit(store, &request, on_done, &answers[i], &id, &why));
    inside = false;
    answers[i].request = id;
    return &answers[i];
}

#define ASK(store, i, ...) ask(store, i, (struct ddp_store_request){__VA_ARGS__})

static void await(const struct answer *answer)
{
    uint64_t id = answer->request;
    while (!answer->there)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(answer->request, id);
}

/* Ask and wait. */
#define CALL(store, ...) call(store, (struct ddp_store_request){__VA_ARGS__})
static const struct answer *call(ddp_store_uv *store, struct ddp_store_request request)
{
    struct answer *answer = ask(store, ANSWERS_MAX - 1, request);
    await(answer);
    return answer;
}

START_TEST(the_table_is_sound)
{
    ck_assert(ddpi_sm_table_valid(&ddpi_uv_link_sm));
}
END_TEST

START_TEST(every_operation)
{
    ddp_store_uv *store = open_uv();
    const struct answer *a =
        CALL(store, .op = DDP_STORE_OP_SET, .key = "k", .value = "v", .value_len = 1);
    ck_assert_msg(a->status == DDP_OK, "%s", a->text);
    uint64_t version = a->version;
    a = CALL(store, .op = DDP_STORE_OP_GET, .key = "k");
    ck_assert(a->status == DDP_OK && a->version == version && a->value_len == 1);
    ck_assert_str_eq(a->text, "v");
    a = CALL(store, .op = DDP_STORE_OP_TRY_GET, .key = "none");
    ck_assert_int_eq(a->status, DDP_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(a->text, store_thread_endpoint(server)));
    a = CALL(store, .op = DDP_STORE_OP_ADD, .key = "n", .number = -3);
    ck_assert(a->status == DDP_OK && a->number == -3);
    a = CALL(store, .op = DDP_STORE_OP_COMPARE_AND_SWAP, .key = "k", .version = 99);
    ck_assert(a->status == DDP_E_CONFLICT && a->version == version);
    a = CALL(store, .op = DDP_STORE_OP_COMPARE_AND_SWAP, .key = "k", .version = version);
    ck_assert(a->status == DDP_OK && a->version > version);
    const struct ddp_store_clause clauses[] = {
        {.kind = DDP_STORE_IF_VALUE, .key = "n", .value = "-3", .value_len = 2},
        {.kind = DDP_STORE_THEN_SET, .key = "l", .value = "w", .value_len = 1}};
    a = CALL(store, .op = DDP_STORE_OP_TRANSACT, .clauses = clauses, .count = 2);
    ck_assert_msg(a->status == DDP_OK, "%s", a->text);
    const char *keys[] = {"k", "l"};
    ck_assert_int_eq(CALL(store, .op = DDP_STORE_OP_WAIT, .keys = keys, .count = 2)->status,
                     DDP_OK);
    a = CALL(store, .op = DDP_STORE_OP_LIST, .key = "");
    ck_assert(a->status == DDP_OK && a->count == 3);
    ck_assert_str_eq(a->text, "k");
    ck_assert_int_eq(CALL(store, .op = DDP_STORE_OP_DELETE, .key = "l")->status, DDP_OK);
    ck_assert_int_eq(CALL(store, .op = DDP_STORE_OP_BARRIER, .key = "b", .count = 1)->status,
                     DDP_OK);
    a = CALL(store, .op = DDP_STORE_OP_STATS);
    ck_assert_ptr_nonnull(strstr(a->text, "connections"));
    a = CALL(store, .op = DDP_STORE_OP_GET, .key = "no", .timeout_ms = 10);
    ck_assert_int_eq(a->status, DDP_E_TIMEOUT);
    close_uv(store);
    ck_assert_uint_eq(connects, 1);
    ck_assert_uint_eq(losses, 0);
}
END_TEST

START_TEST(watches)
{
    ddp_store_uv *store = open_uv();
    const struct answer *a =
        CALL(store, .op = DDP_STORE_OP_WATCH, .key = "w", .flags = DDP_STORE_WATCH_PREFIX);
    ck_assert_msg(a->status == DDP_OK, "%s", a->text);
    uint64_t watch = a->watch;
    CALL(store, .op = DDP_STORE_OP_SET, .key = "w1");
    CALL(store, .op = DDP_STORE_OP_SET, .key = "x1");
    CALL(store, .op = DDP_STORE_OP_DELETE, .key = "w1");
    UNTIL(nevents == 2);
    ck_assert_uint_eq(events[0].watch, watch);
    ck_assert_int_eq(events[1].kind, DDP_STORE_EVENT_DELETED);
    ck_assert_str_eq(event_keys[1], "w1");
    a = CALL(store, .op = DDP_STORE_OP_UNWATCH, .watch = watch);
    ck_assert_int_eq(a->status, DDP_OK);
    CALL(store, .op = DDP_STORE_OP_SET, .key = "w2");
    a = CALL(store, .op = DDP_STORE_OP_UNWATCH, .watch = watch);
    ck_assert_int_eq(a->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(nevents, 2);
    close_uv(store);
}
END_TEST

START_TEST(bad_requests)
{
    ddp_store_uv *store = open_uv();
    const struct ddp_store_request bad[] = {
        {.op = DDP_STORE_OP_GET, .key = "k"}, /* no size */
        {.size = sizeof *bad, .op = 0, .key = "k"},
        {.size = sizeof *bad, .op = DDP_STORE_OP_STATS + 1},
        {.size = sizeof *bad, .op = DDP_STORE_OP_GET},
        {.size = sizeof *bad, .op = DDP_STORE_OP_GET, .key = "k", .flags = 1},
        {.size = sizeof *bad, .op = DDP_STORE_OP_SET, .key = "k", .value_len = 1},
        {.size = sizeof *bad, .op = DDP_STORE_OP_WAIT},
        {.size = sizeof *bad, .op = DDP_STORE_OP_TRANSACT},
        {.size = sizeof *bad, .op = DDP_STORE_OP_BARRIER, .key = "b"},
        {.size = sizeof *bad, .op = DDP_STORE_OP_SESSION_OPEN},
        {.size = sizeof *bad, .op = DDP_STORE_OP_SESSION_KEEP},
        {.size = sizeof *bad, .op = DDP_STORE_OP_WATCH, .key = "w", .flags = 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(ddp_store_uv_submit(store, &bad[i], on_done, NULL, NULL, &why),
                         DDP_E_INVALID);
    ck_assert_int_eq(ddp_store_uv_submit(store, NULL, on_done, NULL, NULL, NULL), DDP_E_INVALID);
    ddp_store_uv *none = NULL;
    const struct ddp_store_options options = {.size = sizeof options, .endpoint = "x"};
    ck_assert_int_eq(ddp_store_uv_open(&loop, &options, NULL, &none, &why), DDP_E_INVALID);
    ck_assert_ptr_null(none);
    close_uv(store);
    ck_assert_uint_eq(nanswers, 0);
}
END_TEST

START_TEST(cancel)
{
    ddp_store_uv *store = open_uv();
    struct answer *get = ASK(store, 0, .op = DDP_STORE_OP_GET, .key = "no", .timeout_ms = NEVER_MS);
    struct answer *unsent = ASK(store, 1, .op = DDP_STORE_OP_SET, .key = "k");
    ck_assert_int_eq(ddp_store_uv_cancel(store, unsent->request), DDP_OK);
    await(unsent);
    ck_assert_int_eq(unsent->status, DDP_E_CANCELED);
    CALL(store, .op = DDP_STORE_OP_STATS);
    ck_assert_uint_eq(store_thread_stats(server).waits, 1);
    ck_assert_int_eq(ddp_store_uv_cancel(store, get->request), DDP_OK);
    ck_assert(!get->there);
    await(get);
    ck_assert_int_eq(get->status, DDP_E_CANCELED);
    ck_assert_int_eq(ddp_store_uv_cancel(store, get->request), DDP_E_NOT_FOUND);
    ck_assert_int_eq(ddp_store_uv_cancel(store, 4711), DDP_E_NOT_FOUND);
    CALL(store, .op = DDP_STORE_OP_STATS);
    ck_assert_uint_eq(store_thread_stats(server).waits, 0);
    ck_assert_uint_eq(store_thread_stats(server).keys, 0);
    close_uv(store);
}
END_TEST

/* Close in each state that the handle can be in after so many turns. */
START_TEST(close_with_requests)
{
    ddp_store_uv *store = open_uv();
    for (size_t i = 0; i < 10; i++)
        ASK(store, i, .op = i % 2 ? DDP_STORE_OP_GET : DDP_STORE_OP_SET, .key = "no2",
            .timeout_ms = NEVER_MS);
    for (int turn = 0; turn < _i; turn++)
        uv_run(&loop, UV_RUN_NOWAIT);
    ddp_store_uv_close(store, on_uv_closed, &closed);
    const struct ddp_store_request late = {.size = sizeof late, .op = DDP_STORE_OP_STATS};
    ck_assert_int_eq(ddp_store_uv_submit(store, &late, on_done, NULL, NULL, &why), DDP_E_CLOSED);
    UNTIL(closed);
    ck_assert_uint_eq(nanswers, 10);
    for (size_t i = 0; i < 10; i++)
        ck_assert(answers[i].status == DDP_E_CANCELED || answers[i].status == DDP_OK);
}
END_TEST

/* A resolver without an answer for this name; other names go to the system's. */
static const char silent_name[] = "silent.invalid";
static sem_t was_asked, may_answer;

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    int (*systems)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (name != NULL && strcmp(name, silent_name) == 0) {
        sem_post(&was_asked);
        while (sem_wait(&may_answer) != 0)
            ;
        return EAI_AGAIN;
    }
    *(void **)(void *)&systems = dlsym(RTLD_NEXT, "getaddrinfo");
    return systems(name, service, hints, ret);
}

START_TEST(close_does_not_wait_for_the_resolver)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "%s:1", silent_name);
    ck_assert_int_eq(sem_init(&was_asked, 0, 0) | sem_init(&may_answer, 0, 0), 0);
    ddp_store_uv *store = open_at(endpoint, 0);
    ASK(store, 0, .op = DDP_STORE_OP_STATS, .timeout_ms = NEVER_MS);
    while (sem_trywait(&was_asked) != 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    close_uv(store);
    ck_assert_int_eq(answers[0].status, DDP_E_CANCELED);
    ck_assert(uv_loop_alive(&loop));
    sem_post(&may_answer); /* the loop ends, and all memory is given back */
}
END_TEST

static void on_done_close(void *data, const struct ddp_store_result *result)
{
    ck_assert_int_eq(result->status, DDP_OK);
    ddp_store_uv_close(data, on_uv_closed, &closed);
}

START_TEST(close_within_a_callback)
{
    ddp_store_uv *store = open_uv();
    const struct ddp_store_request stats = {
        .size = sizeof stats, .op = DDP_STORE_OP_STATS, .timeout_ms = LONG_MS};
    OK(ddp_store_uv_submit(store, &stats, on_done_close, store, NULL, &why));
    ASK(store, 0, .op = DDP_STORE_OP_GET, .key = "no", .timeout_ms = NEVER_MS);
    UNTIL(closed);
    ck_assert_int_eq(answers[0].status, DDP_E_CANCELED);
}
END_TEST

START_TEST(many_at_once)
{
    ddp_store_uv *store = open_uv();
    static char large[100000];
    for (size_t i = 0; i < 300; i++)
        ASK(store, i, .op = DDP_STORE_OP_SET, .key = "large", .value = large,
            .value_len = sizeof large);
    UNTIL(nanswers == 300);
    for (size_t i = 0; i < 300; i++) {
        ck_assert_msg(answers[i].status == DDP_OK, "%s", answers[i].text);
        ck_assert(i == 0 || answers[i].version > answers[i - 1].version);
    }
    const struct answer *a = CALL(store, .op = DDP_STORE_OP_GET, .key = "large");
    ck_assert_uint_eq(a->value_len, sizeof large);
    close_uv(store);
}
END_TEST

START_TEST(a_server_that_comes_later_and_goes)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "localhost:%u", same.port);
    store_thread_stop(server);
    ddp_store_uv *store = open_at(endpoint, 0);
    struct answer *set = ASK(store, 0, .op = DDP_STORE_OP_SET, .key = "k");
    UNTIL(losses == 1); /* that was never there */
    ck_assert_int_eq(CALL(store, .op = DDP_STORE_OP_STATS, .timeout_ms = 1)->status,
                     DDP_E_UNREACHABLE);
    ck_assert_msg(strstr(answers[ANSWERS_MAX - 1].text, "Connection refused") != NULL, "%s",
                  answers[ANSWERS_MAX - 1].text);
    ck_assert_uint_eq(losses, 1);
    server = store_thread_start(&same);
    await(set);
    ck_assert_int_eq(set->status, DDP_OK);
    ck_assert_int_eq(CALL(store, .op = DDP_STORE_OP_WATCH, .key = "k")->status, DDP_OK);
    struct answer *get = ASK(store, 1, .op = DDP_STORE_OP_GET, .key = "later");
    CALL(store, .op = DDP_STORE_OP_STATS);
    restart(&same);
    UNTIL(connects == 2);
    ck_assert_uint_eq(losses, 2);
    UNTIL(nevents == 1); /* another store: changes were missed */
    ck_assert_int_eq(events[0].kind, DDP_STORE_EVENT_LOST);
    CALL(store, .op = DDP_STORE_OP_SET, .key = "k");
    UNTIL(nevents == 2);
    ck_assert_str_eq(event_keys[1], "k");
    CALL(store, .op = DDP_STORE_OP_SET, .key = "later", .value = "x", .value_len = 1);
    await(get); /* it was asked again */
    ck_assert_str_eq(get->text, "x");
    close_uv(store);
}
END_TEST

/* The process may have no socket: the loop is told how to raise the limit. */
START_TEST(no_file_descriptor_left)
{
    struct rlimit limit;
    ddp_store_uv *store = open_uv();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC); /* all below it are taken */
    ck_assert_int_ge(next, 0);
    const struct rlimit low = {.rlim_cur = (rlim_t)next + 1, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct answer *served = ASK(store, 0, .op = DDP_STORE_OP_STATS, .timeout_ms = NEVER_MS);
    UNTIL(losses == 1);
    const struct answer *none = CALL(store, .op = DDP_STORE_OP_STATS, .timeout_ms = 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(none->status, DDP_E_UNREACHABLE);
    ck_assert_msg(strstr(none->text, "ulimit -n") != NULL, "%s", none->text);
    close(next);
    await(served);
    ck_assert_int_eq(served->status, DDP_OK);
    close_uv(store);
}
END_TEST

/* Sealed frames, on one connection and on the next. */
START_TEST(a_token_is_proven_on_every_connection)
{
    static const struct ddpi_credential token = {.is_token = true,
                                                 .secret = "thirty-two bytes that are secret"};
    static char large[100000];
    const struct ddpi_server_options strict = {
        .port = store_thread_port(server), .token = &token, .auth = DDPI_SERVER_AUTH_ALWAYS};
    char line[2 * DDPI_KEY_SIZE + 2];
    sodium_bin2hex(line, sizeof line, token.secret, DDPI_KEY_SIZE);
    int fd = memfd_create("secret", MFD_CLOEXEC);
    ck_assert_int_eq(dprintf(fd, "%s\n", line), 2 * DDPI_KEY_SIZE + 1);
    restart(&strict);
    ddp_store_uv *store;
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = store_thread_endpoint(server),
                                              .auth = DDP_STORE_AUTH_TOKEN,
                                              .token_fd = fd};
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .data = &loop, .state = on_state};
    OK(ddp_store_uv_open(&loop, &options, &hooks, &store, &why));
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < 100; i++)
            ASK(store, i, .op = DDP_STORE_OP_SET, .key = "large", .value = large,
                .value_len = sizeof large);
        UNTIL(nanswers == 100);
        for (size_t i = 0; i < 100; i++)
            ck_assert_msg(answers[i].status == DDP_OK, "%s", answers[i].text);
        nanswers = 0;
        restart(&strict);
        UNTIL(losses == round + 1);
    }
    close_uv(store);
    ddp_store_uv *stranger = open_uv();
    ck_assert_int_eq(CALL(stranger, .op = DDP_STORE_OP_STATS, .timeout_ms = 60000)->status,
                     DDP_E_DENIED);
    UNTIL(refusals == 1);
    ck_assert_msg(strstr(answers[ANSWERS_MAX - 1].text, "token") != NULL, "%s",
                  answers[ANSWERS_MAX - 1].text);
    close_uv(stranger);
    close(fd);
}
END_TEST

START_TEST(an_end_with_the_first_loss)
{
    ddp_store_uv *store = open_at(store_thread_endpoint(server), DDP_STORE_NO_RECONNECT);
    struct answer *get = ASK(store, 0, .op = DDP_STORE_OP_GET, .key = "no");
    CALL(store, .op = DDP_STORE_OP_STATS);
    restart(NULL);
    await(get);
    ck_assert_int_eq(get->status, DDP_E_CLOSED);
    UNTIL(ends == 1);
    const struct ddp_store_request late = {.size = sizeof late, .op = DDP_STORE_OP_STATS};
    ck_assert_int_eq(ddp_store_uv_submit(store, &late, on_done, NULL, NULL, &why), DDP_E_CLOSED);
    close_uv(store);
}
END_TEST

START_TEST(kept_sessions_live_on)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    ddp_store_uv *store = open_uv();
    const struct answer *a =
        CALL(store, .op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = LEASE_MS, .flags = DDP_STORE_KEEP);
    ck_assert_msg(a->status == DDP_OK, "%s", a->text);
    struct ddp_store_session session = a->session;
    ck_assert_uint_eq(store->core.backoff_max_ms, LEASE_MS / 8); /* it is to be found in time */
    CALL(store, .op = DDP_STORE_OP_SET_EPHEMERAL, .key = "e", .session = &session);
    a = CALL(store, .op = DDP_STORE_OP_GET, .key = "no", .timeout_ms = LEASE_MS + LEASE_MS / 4);
    ck_assert_int_eq(a->status, DDP_E_TIMEOUT); /* more than a lease later */
    ck_assert_int_eq(CALL(store, .op = DDP_STORE_OP_GET, .key = "e")->status, DDP_OK);
    ck_assert_int_eq(CALL(store, .op = DDP_STORE_OP_SESSION_KEEP, .session = &session)->status,
                     DDP_OK);
    ck_assert_int_eq(CALL(store, .op = DDP_STORE_OP_SESSION_CLOSE, .session = &session)->status,
                     DDP_OK);
    ck_assert_uint_eq(store->core.backoff_max_ms, 0);
    a = CALL(store, .op = DDP_STORE_OP_TRY_GET, .key = "e");
    ck_assert_int_eq(a->status, DDP_E_NOT_FOUND);
    a = CALL(store, .op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = LEASE_MS, .flags = DDP_STORE_KEEP);
    ck_assert_int_eq(a->status, DDP_OK);
    ck_assert_uint_eq(sessions_ended, 0);
    restart(&same); /* which knows no session */
    UNTIL(sessions_ended == 1);
    close_uv(store);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_uv");
    TCase *tcase = tcase_create("real");
    tcase_add_checked_fixture(tcase, setup, store_uv_teardown);
    ADD_TESTS(tcase, the_table_is_sound, every_operation, watches, bad_requests, cancel);
    tcase_add_loop_test(tcase, close_with_requests, 0, 12);
    ADD_TESTS(tcase, close_within_a_callback, close_does_not_wait_for_the_resolver, many_at_once,
              a_server_that_comes_later_and_goes, no_file_descriptor_left,
              a_token_is_proven_on_every_connection, an_end_with_the_first_loss,
              kept_sessions_live_on);
    suite_add_tcase(suite, tcase);
    return suite;
}
