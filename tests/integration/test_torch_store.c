/*
 * test_torch_store.c - the client of PyTorch's TCPStore against a server that follows a script: the
 * bytes of each request are PyTorch's own (tcpstore_exchanges.def has more of them), and a server
 * that answers badly, late or not at all is refused with a sentence. Against a real store ranks
 * meet in test_init_failure_torch.
 */
#include "check_main.h"
#include "torch_store.h"
#include "world.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the server expects, in hexadecimal, and then answers; NULL: nothing. */
struct turn {
    const char *request, *reply;
};

struct server {
    const struct turn *turns; /* ends with a request NULL: then it hangs up */
    int listener;
    struct ddpi_endpoint endpoint;
    pthread_t thread;
};

static size_t unhex(const char *text, uint8_t *bytes)
{
    size_t len = 0;
    for (; text[2 * len] != '\0'; len++) {
        unsigned value;
        const char pair[3] = {text[2 * len], text[2 * len + 1], '\0'};
        char *end;
        value = (unsigned)strtoul(pair, &end, 16);
        CHECK(*end == '\0');
        bytes[len] = (uint8_t)value;
    }
    return len;
}

static void *serve(void *arg)
{
    const struct server *server = arg;
    uint8_t expected[1024], got[1024], reply[1024];
    int fd = accept(server->listener, NULL, NULL);
    for (const struct turn *turn = server->turns; turn->request != NULL; turn++) {
        size_t len = unhex(turn->request, expected);
        if (recv(fd, got, len, MSG_WAITALL) != (ssize_t)len)
            break; /* the client has given up */
        CHECK(memcmp(got, expected, len) == 0);
        /* In two parts: they need not come together. */
        len = turn->reply != NULL ? unhex(turn->reply, reply) : 0;
        if (len > 1)
            CHECK(send(fd, reply, 1, MSG_NOSIGNAL) == 1);
        if (len > 0)
            (void)!send(fd, reply + (len > 1), len - (len > 1), MSG_NOSIGNAL);
    }
    close(fd);
    return NULL;
}

static void start_server(struct server *server, const struct turn *turns)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    *server = (struct server){.turns = turns, .endpoint = {.host = "127.0.0.1"}};
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(server->listener, (struct sockaddr *)&address, len), 0);
    ck_assert_int_eq(listen(server->listener, 1), 0);
    ck_assert_int_eq(getsockname(server->listener, (struct sockaddr *)&address, &len), 0);
    server->endpoint.port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void stop_server(struct server *server)
{
    pthread_join(server->thread, NULL);
    close(server->listener);
}

#define VALIDATE           \
    {                      \
        "00cef7853c", NULL \
    }
#define CHECK_NONE                 \
    {                              \
        "050000000000000000", "00" \
    }
#define OPENED  VALIDATE, CHECK_NONE
#define KEY     "09000000000000002f64647072756e2f61" /* "/ddprun/a" */
#define ONE_KEY "0100000000000000" KEY

static struct ddpi_torch_store *open_on(const struct server *server)
{
    struct ddpi_torch_store *store;
    CHECK_OK(ddpi_torch_store_open(&server->endpoint, 10000, &store, err));
    return store;
}

START_TEST(requests_are_those_of_pytorch)
{
    static const struct turn turns[] = {
        OPENED,
        {"01" KEY "020000000000000078ff", NULL}, /* set "x\xff" */
        CHECK_NONE,
        {"05" ONE_KEY, "00"}, /* get */
        {"03" KEY, "020000000000000078ff"},
        {"05" ONE_KEY, "01"},           /* get what does not exist */
        {"06" ONE_KEY, "00"},           /* wait */
        {"08" KEY, "0100000000000000"}, /* remove */
        {NULL, NULL},
    };
    struct server server;
    struct ddp_error error;
    char value[8] = "";
    size_t len = 0;
    start_server(&server, turns);
    struct ddpi_torch_store *store = open_on(&server);
    const struct ddp_kv kv = ddpi_torch_store_kv(store);
    CHECK_OK(kv.set(kv.ctx, "a", "x\xff", 2, err));
    CHECK_OK(kv.get(kv.ctx, "a", value, sizeof value, &len, err));
    ck_assert(len == 2 && memcmp(value, "x\xff", 2) == 0);
    ck_assert_int_eq(kv.get(kv.ctx, "a", value, sizeof value, &len, &error), DDP_E_NOT_FOUND);
    CHECK_OK(kv.wait(kv.ctx, "a", 10000, err));
    CHECK_OK(kv.remove(kv.ctx, "a", err));
    ddpi_torch_store_close(store);
    stop_server(&server);
}
END_TEST

/* The time of a wait is over; in the second, the key comes while it is cancelled. */
START_TEST(a_wait_is_cancelled)
{
    static const struct turn turns[] = {
        OPENED,         {"06" ONE_KEY, NULL},           {"0c", "01"}, {"06" ONE_KEY, NULL},
        {"0c", "0001"}, {"08" KEY, "0000000000000000"}, /* and the connection goes on */
        {NULL, NULL},
    };
    struct server server;
    struct ddp_error error;
    start_server(&server, turns);
    struct ddpi_torch_store *store = open_on(&server);
    const struct ddp_kv kv = ddpi_torch_store_kv(store);
    ck_assert_int_eq(kv.wait(kv.ctx, "a", 20, &error), DDP_E_TIMEOUT);
    CHECK_OK(kv.wait(kv.ctx, "a", 20, err));
    CHECK_OK(kv.remove(kv.ctx, "a", err));
    ddpi_torch_store_close(store);
    stop_server(&server);
}
END_TEST

/* What is longer than the buffer is dropped, and the next reply is read from its begin. */
START_TEST(a_long_value_is_cut)
{
    static const struct turn turns[] = {
        OPENED,
        {"05" ONE_KEY, "00"},
        {"03" KEY, "05000000000000006162636465"},
        {"08" KEY, "0000000000000000"},
        {NULL, NULL},
    };
    struct server server;
    char value[3] = "";
    size_t len;
    start_server(&server, turns);
    struct ddpi_torch_store *store = open_on(&server);
    const struct ddp_kv kv = ddpi_torch_store_kv(store);
    CHECK_OK(kv.get(kv.ctx, "a", value, 2, &len, err));
    ck_assert_uint_eq(len, 5);
    ck_assert_str_eq(value, "ab");
    CHECK_OK(kv.remove(kv.ctx, "a", err));
    ddpi_torch_store_close(store);
    stop_server(&server);
}
END_TEST

/* ---- servers that are none ---- */

static const struct {
    struct turn turns[6];
    bool opens; /* the connection stands, and the request fails */
    ddp_status status;
    const char *says;
} bad[] = {
    {{VALIDATE, {"050000000000000000", "02"}}, false, DDP_E_PROTOCOL, "PyTorch store"},
    {{VALIDATE, {"050000000000000000", "48"}}, false, DDP_E_PROTOCOL, "PyTorch store"}, /* HTTP */
    {{VALIDATE, {"050000000000000000", NULL}}, false, DDP_E_CLOSED, "closed the connection"},
    {{OPENED, {"05" ONE_KEY, "07"}}, true, DDP_E_PROTOCOL, "PyTorch store"},
    {{OPENED, {"05" ONE_KEY, NULL}}, true, DDP_E_CLOSED, "closed the connection"},
    {{OPENED, {"05" ONE_KEY, "00"}, {"03" KEY, "ffffffffffffffff"}}, true, DDP_E_PROTOCOL, "store"},
    {{OPENED, {"05" ONE_KEY, "00"}, {"03" KEY, "01008000000000"}}, true, DDP_E_CLOSED, "closed"},
    {{OPENED, {"05" ONE_KEY, "00"}, {"03" KEY, "090000000000000061"}},
     true,
     DDP_E_CLOSED,
     "closed"},
};

START_TEST(what_answers_badly_is_refused)
{
    struct server server;
    struct ddpi_torch_store *store = NULL;
    struct ddp_error error = {0};
    char value[600], place[32];
    size_t len;
    start_server(&server, bad[_i].turns);
    ddp_status status = ddpi_torch_store_open(&server.endpoint, 10000, &store, &error);
    ck_assert_msg((status == DDP_OK) == bad[_i].opens, "%s", error.msg);
    if (status == DDP_OK) {
        const struct ddp_kv kv = ddpi_torch_store_kv(store);
        status = kv.get(kv.ctx, "a", value, sizeof value, &len, &error);
        ddpi_torch_store_close(store);
    }
    snprintf(place, sizeof place, "127.0.0.1:%u", server.endpoint.port);
    ck_assert_int_eq(status, bad[_i].status);
    ck_assert_msg(strstr(error.msg, bad[_i].says) != NULL && strstr(error.msg, place) != NULL, "%s",
                  error.msg);
    stop_server(&server);
}
END_TEST

static const struct turn no_turns[] = {{NULL, NULL}};

START_TEST(where_no_store_is)
{
    struct ddp_error error;
    struct ddpi_torch_store *store;
    struct server server;
    start_server(&server, no_turns);
    const struct ddpi_endpoint endpoint = server.endpoint;
    ck_assert_int_eq(ddpi_torch_store_open(&endpoint, 10000, &store, &error), DDP_E_CLOSED);
    stop_server(&server);
    ck_assert_int_eq(ddpi_torch_store_open(&endpoint, 150, &store, &error), DDP_E_UNREACHABLE);
    ck_assert_msg(strstr(error.msg, "TORCHELASTIC_USE_AGENT_STORE") != NULL, "%s", error.msg);
}
END_TEST

/* ---- a host of two addresses, the first of which drops what comes ---- */

static const char two_addresses[] = "two.invalid";
static uint16_t deaf_port;
static int first_wait_ms; /* -1: nothing waits yet; 0: this test does not look */

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    int (*systems)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    char deaf[8];
    *(void **)(void *)&systems = dlsym(RTLD_NEXT, "getaddrinfo");
    if (name == NULL || strcmp(name, two_addresses) != 0)
        return systems(name, service, hints, ret);
    snprintf(deaf, sizeof deaf, "%u", deaf_port);
    CHECK(systems("127.0.0.1", deaf, hints, ret) == 0);
    CHECK(systems("127.0.0.1", service, hints, &(*ret)->ai_next) == 0);
    return 0;
}

/* The first wait is over at once, and only its length is kept: so the test takes no time. */
__attribute__((visibility("default"))) int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    int (*systems)(struct pollfd *, nfds_t, int);
    *(void **)(void *)&systems = dlsym(RTLD_NEXT, "poll");
    if (first_wait_ms != -1)
        return systems(fds, count, timeout_ms);
    first_wait_ms = timeout_ms;
    return 0;
}

/* A socket whose queue is full, so that a further connection stays on its way. */
static void fill_queue(int listener, int *fds, size_t count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, len), 0);
    ck_assert_int_eq(listen(listener, 0), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &len), 0);
    deaf_port = ntohs(address.sin_port);
    for (size_t i = 0; i < count; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fds[i], (struct sockaddr *)&address, len);
    }
}

START_TEST(an_address_that_does_not_answer_leaves_time_for_the_next)
{
    static const struct turn turns[] = {OPENED, {NULL, NULL}};
    enum { TIMEOUT_MS = 600 * 1000 };
    struct server server;
    struct ddpi_torch_store *store;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[4];
    fill_queue(listener, fds, 4);
    start_server(&server, turns);
    snprintf(server.endpoint.host, sizeof server.endpoint.host, "%s", two_addresses);
    first_wait_ms = -1;
    CHECK_OK(ddpi_torch_store_open(&server.endpoint, TIMEOUT_MS, &store, err));
    ddpi_torch_store_close(store);
    ck_assert_int_gt(first_wait_ms, 0);
    ck_assert_int_le(first_wait_ms, TIMEOUT_MS / 2);
    stop_server(&server);
    for (size_t i = 0; i < 4; i++)
        close(fds[i]);
    close(listener);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("client of PyTorch's store");
    TCase *tcase = tcase_create("script");
    ADD_TESTS(tcase, requests_are_those_of_pytorch, a_wait_is_cancelled, a_long_value_is_cut);
    tcase_add_loop_test(tcase, what_answers_badly_is_refused, 0, sizeof bad / sizeof *bad);
    tcase_add_test(tcase, where_no_store_is);
    tcase_add_test(tcase, an_address_that_does_not_answer_leaves_time_for_the_next);
    suite_add_tcase(suite, tcase);
    return suite;
}
