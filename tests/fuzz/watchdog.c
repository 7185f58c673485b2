/*
 * watchdog.c - fuzzes the requests that workers write to the FIFO of countdowns. No process is a
 * worker here, so no request signals a process. The same input arrives once in pieces and once
 * whole, with the same result.
 *
 * The input's first byte is the size of the pieces (0: one byte).
 */
#include "watchdog.h"
#include "fuzz.h"
#include "logmux.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_MAX = 32 * 1024 /* always fits a pipe */ };

/* What is left when all has been read. */
struct left {
    size_t used;
    bool skipping, told_bad;
};

static void check(const struct watchdog *watchdog)
{
    HOLDS(watchdog->used <= sizeof watchdog->line);
    HOLDS(watchdog->timers.count <= TIMERS_MAX);
    for (size_t i = 0; i < watchdog->timers.count; i++) {
        const struct timer_entry *entry = &watchdog->timers.entries[i];
        HOLDS(entry->pid > 0 && entry->signal >= 0 && entry->signal < NSIG);
        HOLDS(entry->scope != NULL);
    }
}

/* One piece is read in a turn of the loop. */
static void arrive(struct watchdog *watchdog, uv_loop_t *loop, int fd, const uint8_t *bytes,
                   size_t len)
{
    HOLDS(write(fd, bytes, len) == (ssize_t)len);
    for (size_t read = 0; read < len; read += PIPE_BUF)
        uv_run(loop, UV_RUN_NOWAIT);
    check(watchdog);
}

static struct left play(const uint8_t *bytes, size_t len, size_t at_once)
{
    struct watchdog watchdog;
    struct logmux mux = {0};
    uv_loop_t loop;
    int fds[2];
    HOLDS(uv_loop_init(&loop) == 0 && pipe2(fds, O_NONBLOCK | O_CLOEXEC) == 0);
    logmux_init(&mux, &loop);
    logmux_discard(&mux);
    HOLDS(watchdog_open(&watchdog, &loop, fds[0], NULL, 0, &mux, NULL) == DDP_OK);
    for (size_t at = 0; at < len; at += at_once) {
        at_once = at_once < len - at ? at_once : len - at;
        arrive(&watchdog, &loop, fds[1], bytes + at, at_once);
    }
    struct left left = {watchdog.used, watchdog.skipping, watchdog.told_bad};
    watchdog_hold(&watchdog);
    HOLDS(watchdog.timers.count == 0);
    watchdog_close(&watchdog);
    logmux_close(&mux);
    uv_run(&loop, UV_RUN_DEFAULT);
    logmux_finish(&mux);
    HOLDS(uv_loop_close(&loop) == 0);
    close(fds[0]);
    close(fds[1]);
    return left;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > INPUT_MAX)
        return 0;
    size_t at_once = data[0] > 0 ? data[0] : 1;
    struct left split = play(data + 1, size - 1, at_once), whole = play(data + 1, size - 1, size);
    HOLDS(split.used == whole.used && split.skipping == whole.skipping);
    HOLDS(split.told_bad == whole.told_bad);
    return 0;
}
