/*
 * store_uv_fixture.c - the shared fixture of the asynchronous client's tests.
 */
#include "store_uv_fixture.h"

#include <signal.h>

uv_loop_t loop;

void store_uv_setup(void)
{
    store_setup();
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

void store_uv_teardown(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    store_teardown();
}

void on_uv_closed(void *data)
{
    bool *closed = data;
    *closed = true;
}

void close_uv(ddp_store_uv *store)
{
    bool closed = false;
    ddp_store_uv_close(store, on_uv_closed, &closed);
    ck_assert(!closed);
    UNTIL(closed);
}
