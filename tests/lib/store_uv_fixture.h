/*
 * store_uv_fixture.h - what the tests of the asynchronous client share: a loop beside the server of
 * store_fixture.h.
 */
#ifndef TESTS_STORE_UV_FIXTURE_H
#define TESTS_STORE_UV_FIXTURE_H

#include "store_fixture.h"

#include <ddprun/store_uv.h>

/* Between store_uv_setup() and store_uv_teardown(), a checked fixture. */
extern uv_loop_t loop;

void store_uv_setup(void);
void store_uv_teardown(void);

#define UNTIL(condition)                \
    do {                                \
        while (!(condition))            \
            uv_run(&loop, UV_RUN_ONCE); \
    } while (0)

/* For ddp_store_uv_close(): sets the bool that @data is. */
void on_uv_closed(void *data);
/* Close @store and wait until it is closed, which is not before this returns to the loop. */
void close_uv(ddp_store_uv *store);

#endif
