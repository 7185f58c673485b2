/*
 * test_etcd_pulse.c - the death of a process, seen by its connection: with listeners of this test
 * in place of a store. Also the table of the store's machine.
 */
#include "check_main.h"
#include "etcd_pulse.h"
#include "etcd_store.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUIET_MS = 200 };

static uv_loop_t loop;
static uv_timer_t quiet;
static struct ddpi_etcd_pulse *pulse;
static unsigned alive, dead;
static bool quiet_is_over;

static void on_alive(void *ctx)
{
    (void)ctx;
    alive++;
}

static void on_dead(void *ctx)
{
    (void)ctx;
    dead++;
}

static void run_until(const unsigned *count, unsigned wanted)
{
    while (*count != wanted)
        uv_run(&loop, UV_RUN_ONCE);
}

static void on_quiet(uv_timer_t *timer)
{
    (void)timer;
    quiet_is_over = true;
}

/* Time for what must not come. */
static void run_for(uint64_t ms)
{
    quiet_is_over = false;
    uv_timer_start(&quiet, on_quiet, ms, 0);
    while (!quiet_is_over)
        uv_run(&loop, UV_RUN_ONCE);
}

/* Until a connection can be accepted, which the loop must make. */
static int await_connection(int listener)
{
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    for (int ready = 0; ready == 0; ready = poll(&waiting, 1, 5))
        uv_run(&loop, UV_RUN_NOWAIT);
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static int listen_at(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t len = sizeof at;
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void pulse_setup(void)
{
    const struct ddpi_etcd_pulse_hooks hooks = {on_alive, on_dead, NULL};
    struct ddp_error err;
    alive = dead = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    uv_timer_init(&loop, &quiet);
    ck_assert_int_eq(ddpi_etcd_pulse_create(&loop, &hooks, &pulse, &err), DDP_OK);
}

static void pulse_teardown(void)
{
    ddpi_etcd_pulse_destroy(pulse);
    uv_close((uv_handle_t *)&quiet, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static int follow(const char *host, uint16_t port, int listener)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "%s:%u", host, port);
    ddpi_etcd_pulse_follow(pulse, endpoint);
    run_until(&alive, 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

START_TEST(a_process_that_ends)
{
    uint16_t port = 0;
    int listener = listen_at(&port);
    int fd = follow("127.0.0.1", port, listener);
    close(listener);
    close(fd);
    run_until(&dead, 1);
    run_for(QUIET_MS); /* said once */
    ck_assert_uint_eq(dead, 1);
}
END_TEST

/* A store ends connections that say nothing, and another process may hold its listener. */
START_TEST(a_connection_that_ends)
{
    uint16_t port = 0;
    int listener = listen_at(&port);
    int fd = follow("localhost", port, listener); /* which may be ::1 first */
    for (int i = 0; i < 3; i++) {
        close(fd);
        run_for(QUIET_MS / 4);
        fd = await_connection(listener);
        ck_assert_int_ge(fd, 0);
    }
    ck_assert_uint_eq(dead, 0);
    ck_assert_uint_eq(alive, 1);
    close(fd);
    close(listener);
    run_until(&dead, 1);
}
END_TEST

static unsigned accepted;

static void on_acceptable(uv_poll_t *poll, int uv_err, int events)
{
    int fd = accept4(*(const int *)poll->data, NULL, NULL, SOCK_CLOEXEC);
    (void)events;
    ck_assert_int_eq(uv_err, 0);
    ck_assert_int_ge(fd, 0);
    accepted++;
    close(fd);
}

/* So does a full store, or a throttled one. The next connection is 20 ms of the loop's time later,
 * then 40, 80 and 160; one that is not looked at for 100 ms has lasted, and is followed at once. */
START_TEST(connections_that_end_at_once)
{
    enum { WANTED = 5, LEAST_MS = 20 + 40 + 100 + 20 };
    uint16_t port = 0;
    char endpoint[64];
    uv_poll_t poll;
    int listener = listen_at(&port);
    accepted = 0;
    poll.data = &listener;
    uv_poll_init(&loop, &poll, listener);
    uv_poll_start(&poll, UV_READABLE, on_acceptable);
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    uint64_t since_ms = uv_now(&loop);
    ddpi_etcd_pulse_follow(pulse, endpoint);
    run_until(&accepted, WANTED);
    ck_assert_uint_ge(uv_now(&loop) - since_ms, LEAST_MS);
    ck_assert_uint_eq(dead, 0);
    uv_close((uv_handle_t *)&poll, NULL);
    close(listener);
    run_until(&dead, 1);
}
END_TEST

/* A resolver that does not know this name at first; other names go to the system's. */
static const char late_name[] = "late.invalid";
static atomic_uint asked;

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    int (*systems)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    bool late = name != NULL && strcmp(name, late_name) == 0;
    if (late && atomic_fetch_add(&asked, 1) == 0)
        return EAI_AGAIN;
    *(void **)(void *)&systems = dlsym(RTLD_NEXT, "getaddrinfo");
    return systems(late ? "127.0.0.1" : name, service, hints, ret);
}

START_TEST(a_name_that_is_known_later)
{
    uint16_t port = 0;
    int listener = listen_at(&port);
    atomic_store(&asked, 0);
    int fd = follow(late_name, port, listener);
    ck_assert_uint_eq(atomic_load(&asked), 2);
    close(listener);
    close(fd);
    run_until(&dead, 1);
}
END_TEST

/* Nobody listens there, but nobody was seen to do so: the address may be wrong. */
START_TEST(a_process_that_was_never_met)
{
    uint16_t port = 0;
    char endpoint[64];
    close(listen_at(&port));
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", port);
    ddpi_etcd_pulse_follow(pulse, endpoint);
    run_for(QUIET_MS);
    ck_assert_uint_eq(dead + alive, 0);
}
END_TEST

START_TEST(another_one_is_followed)
{
    uint16_t port = 0, second = 0;
    int listener = listen_at(&port), other = listen_at(&second);
    int fd = follow("127.0.0.1", port, listener);
    alive = 0;
    int new_fd = follow("127.0.0.1", second, other);
    close(fd);
    close(listener);
    run_for(QUIET_MS);
    ck_assert_uint_eq(dead, 0);
    ddpi_etcd_pulse_follow(pulse, "");
    close(new_fd);
    close(other);
    run_for(QUIET_MS);
    ck_assert_uint_eq(dead, 0);
}
END_TEST

START_TEST(the_machine_is_sound)
{
    ck_assert(ddpi_sm_table_valid(&ddpi_etcd_store_sm));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("etcd_pulse");
    TCase *group = tcase_create("loop");
    tcase_add_checked_fixture(group, pulse_setup, pulse_teardown);
    ADD_TESTS(group, a_process_that_ends, a_connection_that_ends, connections_that_end_at_once,
              a_name_that_is_known_later, a_process_that_was_never_met, another_one_is_followed,
              the_machine_is_sound);
    suite_add_tcase(suite, group);
    return suite;
}
