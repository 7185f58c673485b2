/*
 * looptest.c - helpers for tests on a loop. Owns nothing between calls.
 */
#include "looptest.h"

#include "check_main.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

enum { LOOK_AGAIN_MS = 10 };

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void on_closed(uv_handle_t *handle)
{
    bool *closed = handle->data;
    *closed = true;
}

/* It looks again now and then, as what is waited for may be no event of the loop. */
void looptest_run_until(uv_loop_t *loop, bool (*done)(void *ctx), void *ctx)
{
    static uv_timer_t timer; /* outlives a test that fails in here */
    bool closed = false;
    ck_assert_int_eq(uv_timer_init(loop, &timer), 0);
    ck_assert_int_eq(uv_timer_start(&timer, on_tick, LOOK_AGAIN_MS, LOOK_AGAIN_MS), 0);
    while (!done(ctx))
        uv_run(loop, UV_RUN_ONCE);
    timer.data = &closed;
    uv_close((uv_handle_t *)&timer, on_closed);
    while (!closed)
        uv_run(loop, UV_RUN_NOWAIT);
}

static void name_open_handle(uv_handle_t *handle, void *ctx)
{
    (void)ctx;
    if (!uv_is_closing(handle))
        ck_abort_msg("a handle of type %s is still open", uv_handle_type_name(handle->type));
}

void looptest_close(uv_loop_t *loop)
{
    uv_walk(loop, name_open_handle, NULL);
    uv_run(loop, UV_RUN_DEFAULT); /* all are closing, so that it does not wait */
    ck_assert_int_eq(uv_loop_close(loop), 0);
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    ck_assert_ptr_nonnull(entries);
    while (readdir(entries) != NULL)
        count++;
    closedir(entries);
    return count;
}

void looptest_await_threads(void)
{
    enum { ONE = 3 }; /* with "." and ".." */
    while (count_entries("/proc/self/task") > ONE)
        poll(NULL, 0, 10);
}

int looptest_open_fds(void)
{
    return count_entries("/proc/self/fd");
}

int looptest_capture(int fd)
{
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(dup2(ends[1], fd), fd);
    close(ends[1]);
    ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    return ends[0];
}

bool looptest_read(int fd, char *text, size_t size, size_t *used)
{
    for (;;) {
        ck_assert_uint_lt(*used, size);
        ssize_t len = read(fd, text + *used, size - *used);
        if (len > 0)
            *used += (size_t)len;
        else if (len == 0)
            return false;
        else if (errno != EINTR) {
            ck_assert_int_eq(errno, EAGAIN);
            return true;
        }
    }
}
