/*
 * store_fixture.h - what the tests of the store share: a server per test, and clients of it.
 */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include "check_main.h"
#include "raw.h"
#include "store_thread.h"

#include <ddprun/store.h>
#include <poll.h>

/* For calls that are to succeed, and for waits that something else ends. */
enum { LONG_MS = 60000 };

/* The sentence of a call that should have succeeded. */
extern _Thread_local struct ddp_error why;

#define OK(call) ck_assert_msg((call) == DDP_OK, "%s", why.msg)

/* Between store_setup() and store_teardown(), a checked fixture. */
extern struct store_thread *server;

void store_setup(void);
void store_teardown(void);
/* Another server in its place. */
void restart(const struct ddpi_server_options *options);

/* By TLS and store_thread_token; or only where that is what is tested. */
void by_tls(struct ddp_store_options *options);
void secure(struct ddp_store_options *options);

ddp_store *open_prefix(const char *prefix);
ddp_store *open_store(void);
/* With DDP_STORE_NO_RECONNECT. */
ddp_store *open_mortal(void);

/* A client that works all right proves that the server does. */
void assert_alive(ddp_store *store);

/* Look at the server's statistics until they are so, as in AWAIT_SERVER(now.waits == 1). */
#define AWAIT_SERVER(condition)                                                   \
    for (struct ddpi_server_stats now = store_thread_stats(server); !(condition); \
         now = store_thread_stats(server))                                        \
    poll(NULL, 0, 30)

void await_connections(size_t wanted);
void await_waits(size_t wanted);

/* @tests, each with the fixture. */
Suite *store_suite(const char *name, const TTest *const *tests, size_t count);

#endif
