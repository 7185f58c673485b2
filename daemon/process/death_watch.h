/*
 * death_watch.h - sees workers die before they can be waited for: by the page of life_slot.h, which
 * it makes and workers inherit. The kernel takes about 60 ms for each GiB that a dead process had
 * before its parent hears of it; the page is written to before that.
 *
 * A help only. What is written there by workers is a hint to look at one of them, and never more:
 * whether it is dying, the kernel says (reap_is_failing()).
 */
#ifndef DAEMON_DEATH_WATCH_H
#define DAEMON_DEATH_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct ddpi_life_slot;

enum { DEATH_WATCH_MAX = 127 }; /* slots, at most: the kernel waits for 128 futexes at once */

struct death_watch {
    int fd; /* of the page, for workers; 0: there is none */
    uint32_t count;
    struct ddpi_life_slot *page;
    size_t page_size;
    pthread_t thread;
    uv_async_t news;
    _Atomic uint32_t changes; /* the words are to be looked at again */
    atomic_bool over;
    atomic_uchar hints[DEATH_WATCH_MAX];
    void (*hint)(void *ctx, uint32_t slot);
    void *ctx;
};

/* Prepare for @count workers; @hint is called from @loop for each that may be dying. Where the
 * kernel cannot do it (before 5.16), there is no page. */
void death_watch_open(struct death_watch *watch, uv_loop_t *loop, uint32_t count,
                      void (*hint)(void *ctx, uint32_t slot), void *ctx);

/* Workers of before are gone; others will come. */
void death_watch_renew(struct death_watch *watch);

/* The handle closes while the loop turns. Without effect if there is no page. */
void death_watch_close(struct death_watch *watch);

#endif
