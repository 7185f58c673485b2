/*
 * store_thread.h - a real store server on a loop of its own, in a thread of the test.
 */
#ifndef TESTS_STORE_THREAD_H
#define TESTS_STORE_THREAD_H

#include "server.h"

struct store_thread;

/* Where DDPRUN_TEST_TLS is set, each server has this token and speaks TLS, so that what is tested
 * of the store is tested by TLS, too. */
extern const struct ddpi_credential store_thread_token;
bool store_thread_tls(void);

/* The server listens when this returns; @options NULL: the defaults. Fails the test on error. */
struct store_thread *store_thread_start(const struct ddpi_server_options *options);
/* Fails the test if the loop has handles left. */
void store_thread_stop(struct store_thread *thread);

const char *store_thread_endpoint(const struct store_thread *thread);
uint16_t store_thread_port(const struct store_thread *thread);

/* Run @fn on the loop's thread, and wait for it. */
void store_thread_call(struct store_thread *thread,
                       void (*fn)(struct ddpi_server *server, void *ctx), void *ctx);
struct ddpi_server_stats store_thread_stats(struct store_thread *thread);

#endif
