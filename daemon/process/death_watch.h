/*
 * death_watch.h - early exit detection: sees workers die before waitpid() reports them. It makes
 * the page of life_slot.h, which workers inherit, and tells them there until when they may run. The
 * kernel needs about 60 ms per GiB of a dead process before it tells the parent; it writes to the
 * page before that.
 *
 * Optional, and only a hint: workers can write to the page, so the kernel is asked whether the
 * worker is dying (reap_is_failing()).
 */
#ifndef DAEMON_DEATH_WATCH_H
#define DAEMON_DEATH_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct ddpi_life_slot;

enum { DEATH_WATCH_MAX = 127 }; /* slots: the kernel waits for at most 128 futexes */

struct death_watch {
    int fd;         /* of the page, for workers; 0: no page */
    uint32_t count; /* slots that the thread waits for; 0: the kernel cannot wait for several */
    struct ddpi_life_slot *page;
    size_t page_size;
    pthread_t thread;
    bool runs; /* the thread */
    uv_async_t news;
    _Atomic uint32_t changes; /* incremented to make the thread look again */
    atomic_bool over;
    atomic_uchar hints[DEATH_WATCH_MAX];
    void (*hint)(void *ctx, uint32_t slot);
    void *ctx;
};

/* Make the page for @count workers. @hint is called from @loop for each that may be dying, once
 * death_watch_start() has been called. Before Linux 5.16, or where a sandbox hides
 * futex_waitv(2), there is no hint. */
void death_watch_open(struct death_watch *watch, uv_loop_t *loop, uint32_t count,
                      void (*hint)(void *ctx, uint32_t slot), void *ctx);

/* Start the thread, unless it runs. Workers that die earlier are small: waitpid() reports them as
 * soon as a watch would. Without memory for a thread there are no hints. */
void death_watch_start(struct death_watch *watch);

/* A new generation begins: reset the slots. */
void death_watch_renew(struct death_watch *watch);

/* From now on workers may run until @at_ms of the monotonic clock; 0: without such a limit. One
 * that looked while there was none does not look again. */
void death_watch_set_fence(struct death_watch *watch, uint64_t at_ms);

/* The handle closes while the loop turns. No effect without a page. */
void death_watch_close(struct death_watch *watch);

#endif
