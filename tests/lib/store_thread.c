/*
 * store_thread.c - the server thread. The test's thread and the loop's meet at one async handle
 * and one semaphore.
 */
#include "store_thread.h"

#include "check_main.h"

#include <signal.h>
#include <stdlib.h>

struct store_thread {
    uv_loop_t loop;
    uv_async_t async;
    uv_sem_t done;
    uv_thread_t thread;
    struct ddpi_server *server;
    void (*fn)(struct ddpi_server *server, void *ctx);
    void *ctx;
};

static void on_closed(void *ctx)
{
    struct store_thread *thread = ctx;
    uv_close((uv_handle_t *)&thread->async, NULL);
}

static void on_async(uv_async_t *async)
{
    struct store_thread *thread = async->data;
    if (thread->fn == NULL) {
        ddpi_server_close(thread->server, on_closed, thread);
        return;
    }
    thread->fn(thread->server, thread->ctx);
    uv_sem_post(&thread->done);
}

static void run(void *arg)
{
    struct store_thread *thread = arg;
    uv_run(&thread->loop, UV_RUN_DEFAULT);
}

const struct ddpi_credential store_thread_token = {.is_token = true,
                                                   .secret = "thirty-two bytes of all fixtures"};

bool store_thread_tls(void)
{
    return getenv("DDPRUN_TEST_TLS") != NULL;
}

struct store_thread *store_thread_start(const struct ddpi_server_options *options)
{
    struct ddpi_server_options given = {0};
    struct store_thread *thread = calloc(1, sizeof *thread);
    ck_assert_ptr_nonnull(thread);
    signal(SIGPIPE, SIG_IGN); /* as every program that has a server must */
    ck_assert_int_eq(uv_loop_init(&thread->loop), 0);
    ck_assert_int_eq(uv_async_init(&thread->loop, &thread->async, on_async), 0);
    thread->async.data = thread;
    ck_assert_int_eq(uv_sem_init(&thread->done, 0), 0);
    struct ddp_error err;
    if (options != NULL)
        given = *options;
    if (store_thread_tls()) {
        given.tls = true;
        given.token = given.token != NULL ? given.token : &store_thread_token;
    }
    ddp_status status = ddpi_server_create(&thread->loop, &given, &thread->server, &err);
    ck_assert_msg(status == DDP_OK, "%s", err.msg);
    ck_assert_int_eq(uv_thread_create(&thread->thread, run, thread), 0);
    return thread;
}

void store_thread_stop(struct store_thread *thread)
{
    thread->fn = NULL;
    uv_async_send(&thread->async);
    uv_thread_join(&thread->thread);
    ck_assert_int_eq(uv_loop_close(&thread->loop), 0);
    uv_sem_destroy(&thread->done);
    free(thread);
}

const char *store_thread_endpoint(const struct store_thread *thread)
{
    return ddpi_server_endpoint(thread->server);
}

uint16_t store_thread_port(const struct store_thread *thread)
{
    return ddpi_server_port(thread->server);
}

void store_thread_call(struct store_thread *thread,
                       void (*fn)(struct ddpi_server *server, void *ctx), void *ctx)
{
    thread->fn = fn;
    thread->ctx = ctx;
    uv_async_send(&thread->async);
    uv_sem_wait(&thread->done);
}

static void read_stats(struct ddpi_server *server, void *ctx)
{
    *(struct ddpi_server_stats *)ctx = ddpi_server_stats(server);
}

struct ddpi_server_stats store_thread_stats(struct store_thread *thread)
{
    struct ddpi_server_stats stats;
    store_thread_call(thread, read_stats, &stats);
    return stats;
}
