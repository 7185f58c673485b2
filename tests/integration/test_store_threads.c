/*
 * test_store_threads.c - one handle, many threads: none delays another, all can be canceled,
 * and a server that goes and comes back is missed by none for longer than it takes.
 */
#include "blocking_state.h"
#include "clock.h"
#include "store_fixture.h"

#include <dlfcn.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 40, IDLE_MS = 20 };

struct shared {
    ddp_store *store;
    atomic_int next;
    atomic_int failed;
    atomic_bool stop;
};

static void set_text(ddp_store *store, const char *key, const char *value)
{
    OK(ddp_store_set(store, key, value, strlen(value), LONG_MS, NULL, &why));
}

/* ---- no thread waits for another ---- */

static void get_own(void *arg)
{
    struct shared *shared = arg;
    char key[16];
    void *value;
    size_t len;
    snprintf(key, sizeof key, "k%d", atomic_fetch_add(&shared->next, 1));
    OK(ddp_store_get(shared->store, key, LONG_MS, &value, &len, NULL, &why));
    ck_assert_str_eq(value, key);
    ddp_store_free(value);
}

START_TEST(a_wait_does_not_delay_a_set)
{
    struct shared shared = {.store = open_store()};
    uv_thread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(uv_thread_create(&threads[i], get_own, &shared), 0);
    await_waits(THREADS);
    for (int i = THREADS - 1; i >= 0; i--) { /* the last to come is the first to go */
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        set_text(shared.store, key, key);
    }
    for (int i = 0; i < THREADS; i++)
        uv_thread_join(&threads[i]);
    assert_alive(shared.store);
    ddp_store_close(shared.store);
}
END_TEST

static void count_up(void *arg)
{
    struct shared *shared = arg;
    static const char large[40000];
    char key[32];
    void *value;
    size_t len;
    for (int i = 0; i < ROUNDS; i++) {
        int number = atomic_fetch_add(&shared->next, 1);
        snprintf(key, sizeof key, "large/%d", number);
        OK(ddp_store_set(shared->store, key, large, (size_t)number * 20, LONG_MS, NULL, &why));
        OK(ddp_store_add(shared->store, "sum", 1, LONG_MS, NULL, &why));
        OK(ddp_store_get(shared->store, key, LONG_MS, &value, &len, NULL, &why));
        ck_assert_uint_eq(len, (size_t)number * 20);
        ddp_store_free(value);
    }
}

START_TEST(all_at_once)
{
    struct shared shared = {.store = open_store()};
    uv_thread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(uv_thread_create(&threads[i], count_up, &shared), 0);
    for (int i = 0; i < THREADS; i++)
        uv_thread_join(&threads[i]);
    int64_t sum;
    OK(ddp_store_add(shared.store, "sum", 0, LONG_MS, &sum, &why));
    ck_assert_int_eq(sum, THREADS * ROUNDS);
    ck_assert_uint_eq(store_thread_stats(server).connections, 1);
    ddp_store_close(shared.store);
}
END_TEST

/* A short deadline beside a long one, which leads. */
START_TEST(each_has_its_own_deadline)
{
    struct shared shared = {.store = open_store()};
    uv_thread_t thread;
    ck_assert_int_eq(uv_thread_create(&thread, get_own, &shared), 0);
    await_waits(1);
    struct ddp_error err;
    struct ddp_store_event *event;
    void *value;
    size_t len;
    uint64_t start_ms = raw_now_ms();
    ck_assert_int_eq(ddp_store_get(shared.store, "no", 30, &value, &len, NULL, &err),
                     DDP_E_TIMEOUT);
    ck_assert_int_eq(ddp_store_next_event(shared.store, 30, &event, &err), DDP_E_TIMEOUT);
    ck_assert_uint_ge(raw_now_ms() - start_ms + 4, 60);
    set_text(shared.store, "k0", "k0");
    uv_thread_join(&thread);
    ddp_store_close(shared.store);
}
END_TEST

/* ---- cancel ---- */

static void be_canceled(void *arg)
{
    struct shared *shared = arg;
    struct ddp_error err;
    struct ddp_store_event *event;
    void *value;
    size_t len;
    const char *keys[] = {"no"};
    ddp_status status;
    switch (atomic_fetch_add(&shared->next, 1) % 4) {
    case 0:
        status = ddp_store_get(shared->store, "no", LONG_MS, &value, &len, NULL, &err);
        break;
    case 1:
        status = ddp_store_wait(shared->store, keys, 1, LONG_MS, &err);
        break;
    case 2:
        status = ddp_store_barrier(shared->store, "b", 100, LONG_MS, &err);
        break;
    default:
        status = ddp_store_next_event(shared->store, LONG_MS, &event, &err);
    }
    ck_assert_int_eq(status, DDP_E_CANCELED);
    ck_assert_ptr_nonnull(strstr(err.msg, "canceled"));
    atomic_fetch_add(&shared->failed, 1);
}

START_TEST(cancel_ends_all_that_wait)
{
    struct shared shared = {.store = open_store()};
    uv_thread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(uv_thread_create(&threads[i], be_canceled, &shared), 0);
    await_waits(THREADS * 3 / 4);
    while (atomic_load(&shared.failed) < THREADS) {
        ddp_store_cancel(shared.store); /* a thread that waits for events cannot be observed */
        poll(NULL, 0, 1);
    }
    for (int i = 0; i < THREADS; i++)
        uv_thread_join(&threads[i]);
    await_waits(0);             /* no request waits at the server */
    assert_alive(shared.store); /* and later calls are not concerned */
    ddp_store_close(shared.store);
}
END_TEST

/* ---- a server that goes and comes back ---- */

/* Whatever happens, each call ends as documented. */
static void go_on(void *arg)
{
    struct shared *shared = arg;
    char key[32];
    snprintf(key, sizeof key, "go/%d", atomic_fetch_add(&shared->next, 1));
    struct ddp_error err;
    while (!atomic_load(&shared->stop)) {
        void *value = NULL;
        size_t len;
        ddp_status status = ddp_store_set(shared->store, key, "v", 1, LONG_MS, NULL, &err);
        ck_assert_msg(status == DDP_OK || status == DDP_E_CLOSED || status == DDP_E_CANCELED, "%s",
                      err.msg);
        status = ddp_store_get(shared->store, key, 50, &value, &len, NULL, &err);
        ck_assert_msg(status == DDP_OK || status == DDP_E_TIMEOUT || status == DDP_E_CANCELED ||
                          status == DDP_E_UNREACHABLE,
                      "%s", err.msg);
        ddp_store_free(value);
    }
}

static void read_events(void *arg)
{
    struct shared *shared = arg;
    struct ddp_store_event *event;
    struct ddp_error err;
    while (!atomic_load(&shared->stop)) {
        ddp_status status = ddp_store_next_event(shared->store, 20, &event, &err);
        ck_assert_msg(status == DDP_OK || status == DDP_E_TIMEOUT || status == DDP_E_CANCELED, "%s",
                      err.msg);
        if (status == DDP_OK)
            ddp_store_free(event);
    }
}

START_TEST(a_server_that_comes_and_goes)
{
    struct shared shared = {.store = open_store()};
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    uv_thread_t threads[THREADS];
    OK(ddp_store_watch(shared.store, "go/", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, NULL, NULL, &why));
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(
            uv_thread_create(&threads[i], i < THREADS - 2 ? go_on : read_events, &shared), 0);
    for (int round = 0; round < 5; round++) {
        restart(&same);
        await_connections(1);
        ddp_store_cancel(shared.store);
        uint64_t before = store_thread_stats(server).requests;
        AWAIT_SERVER(now.requests >= before + 200);
    }
    atomic_store(&shared.stop, true);
    for (int i = 0; i < THREADS; i++)
        uv_thread_join(&threads[i]);
    assert_alive(shared.store);
    ck_assert_uint_eq(store_thread_stats(server).watches, 1);
    ddp_store_close(shared.store);
}
END_TEST

static void wait_for_the_end(void *arg)
{
    struct shared *shared = arg;
    struct ddp_error err;
    struct ddp_store_event *event;
    void *value;
    size_t len;
    ddp_status status = atomic_fetch_add(&shared->next, 1) % 2
                            ? ddp_store_get(shared->store, "no", LONG_MS, &value, &len, NULL, &err)
                            : ddp_store_next_event(shared->store, LONG_MS, &event, &err);
    ck_assert_int_eq(status, DDP_E_CLOSED);
    ck_assert_ptr_nonnull(strstr(err.msg, "shutting down"));
}

START_TEST(the_end_of_a_handle_is_told_to_all)
{
    struct shared shared = {.store = open_mortal()};
    uv_thread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(uv_thread_create(&threads[i], wait_for_the_end, &shared), 0);
    await_waits(THREADS / 2);
    restart(NULL);
    for (int i = 0; i < THREADS; i++)
        uv_thread_join(&threads[i]);
    ddp_store_close(shared.store);
}
END_TEST

/* The server's end of the connection has arrived, and the handle was idle long enough to look. */
static void await_hangup(const ddp_store *store)
{
    struct pollfd ended = {.fd = store->link.fd, .events = POLLRDHUP};
    ck_assert_int_eq(poll(&ended, 1, -1), 1);
    uv_sleep(IDLE_MS);
}

START_TEST(an_idle_handle_notices_a_restart_before_it_asks)
{
    ddp_store *store = open_store();
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    set_text(store, "k", "1");
    restart(&same);
    await_hangup(store);
    set_text(store, "k", "2"); /* would be DDP_E_CLOSED if it had been sent in vain */
    struct ddp_error err;
    store_thread_stop(server);
    await_hangup(store);
    do /* until it has tried to connect */
        ck_assert_int_eq(ddp_store_set(store, "k", "3", 1, 100, NULL, &err), DDP_E_UNREACHABLE);
    while (strstr(err.msg, "127.0.0.1: Connection refused") == NULL);
    server = store_thread_start(&same);
    set_text(store, "k", "4");
    ddp_store_close(store);
}
END_TEST

/* ---- a slow resolver ---- */

enum { LOOKUP_S = 6 }; /* by a clock that is put forward: longer than an attempt to connect */

static const char slow_name[] = "slow.invalid";
static atomic_int ahead_s;
static unsigned lookups;
static ddp_store *waits_too; /* a handle with another thread, which looks at the time */

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret)
{
    long done = syscall(SYS_clock_gettime, clock, ret);
    ret->tv_sec += clock == CLOCK_MONOTONIC ? atomic_load(&ahead_s) : 0;
    return (int)done;
}

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    int (*systems)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)(void *)&systems = dlsym(RTLD_NEXT, "getaddrinfo");
    if (name == NULL || strcmp(name, slow_name) != 0)
        return systems(name, service, hints, ret);
    lookups++;
    atomic_fetch_add(&ahead_s, LOOKUP_S);
    if (waits_too != NULL) {
        pthread_mutex_lock(&waits_too->lock);
        ddpi_client_tick(&waits_too->core, ddpi_monotonic_ms());
        pthread_mutex_unlock(&waits_too->lock);
    }
    return systems("127.0.0.1", service, hints, ret);
}

START_TEST(a_slow_lookup_takes_no_time_from_the_attempt)
{
    const struct ddpi_server_options same = {.port = store_thread_port(server)};
    char endpoint[64];
    struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = LONG_MS};
    ddp_store *store = NULL;
    snprintf(endpoint, sizeof endpoint, "%s:%u", slow_name, same.port);
    secure(&options);
    OK(ddp_store_connect(&options, &store, &why));
    ck_assert_uint_eq(lookups, 1);
    waits_too = store;
    restart(&same);
    atomic_fetch_add(&ahead_s, 1); /* the handle has been idle */
    set_text(store, "k", "v");
    ck_assert_uint_eq(lookups, 2);
    ddp_store_close(store);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        a_wait_does_not_delay_a_set,
        all_at_once,
        each_has_its_own_deadline,
        cancel_ends_all_that_wait,
        a_server_that_comes_and_goes,
        the_end_of_a_handle_is_told_to_all,
        an_idle_handle_notices_a_restart_before_it_asks,
        a_slow_lookup_takes_no_time_from_the_attempt,

    };
    return store_suite("store_threads", tests, sizeof tests / sizeof *tests);
}
