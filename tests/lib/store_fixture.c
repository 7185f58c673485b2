/*
 * store_fixture.c - the shared fixture of the store's tests.
 */
#include "store_fixture.h"

#include <pthread.h>
#include <sodium.h>
#include <sys/mman.h>
#include <unistd.h>

_Thread_local struct ddp_error why;
struct store_thread *server;

void store_setup(void)
{
    server = store_thread_start(NULL);
}

void store_teardown(void)
{
    store_thread_stop(server);
}

static int token_fd;

static void make_token_fd(void)
{
    char line[2 * DDPI_KEY_SIZE + 1];
    token_fd = memfd_create("token", MFD_CLOEXEC);
    sodium_bin2hex(line, sizeof line, store_thread_token.secret, DDPI_KEY_SIZE);
    line[2 * DDPI_KEY_SIZE] = '\n';
    ck_assert_int_eq(write(token_fd, line, sizeof line), (ssize_t)sizeof line);
}

/* Threads of a test call it at the same time. */
void by_tls(struct ddp_store_options *options)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_token_fd);
    options->token_fd = token_fd;
    options->flags |= DDP_STORE_TLS;
}

void secure(struct ddp_store_options *options)
{
    if (store_thread_tls())
        by_tls(options);
}

static ddp_store *open_with(const char *prefix, uint32_t flags)
{
    struct ddp_store_options options = {.size = sizeof options,
                                        .endpoint = store_thread_endpoint(server),
                                        .prefix = prefix,
                                        .connect_timeout_ms = LONG_MS,
                                        .flags = flags};
    ddp_store *store = NULL;
    secure(&options);
    OK(ddp_store_connect(&options, &store, &why));
    return store;
}

ddp_store *open_prefix(const char *prefix)
{
    return open_with(prefix, 0);
}

ddp_store *open_mortal(void)
{
    return open_with(NULL, DDP_STORE_NO_RECONNECT);
}

ddp_store *open_store(void)
{
    return open_prefix(NULL);
}

void assert_alive(ddp_store *store)
{
    int64_t before, after;
    OK(ddp_store_add(store, "alive", 1, LONG_MS, &before, &why));
    OK(ddp_store_add(store, "alive", 1, LONG_MS, &after, &why));
    ck_assert_int_eq(after, before + 1);
}

void restart(const struct ddpi_server_options *options)
{
    store_thread_stop(server);
    server = store_thread_start(options);
}

void await_connections(size_t wanted)
{
    AWAIT_SERVER(now.connections == wanted);
}

void await_waits(size_t wanted)
{
    AWAIT_SERVER(now.waits == wanted);
}

Suite *store_suite(const char *name, const TTest *const *tests, size_t count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create("real");
    tcase_add_checked_fixture(tcase, store_setup, store_teardown);
    for (size_t i = 0; i < count; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return suite;
}
