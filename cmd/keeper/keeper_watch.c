/*
 * keeper_watch.c - see keeper_watch.h.
 */
#include "keeper_watch.h"

#include "keeper.h"

static void on_tick(uv_timer_t *timer)
{
    struct keeper_watch *watch = timer->data;
    watch->tick(watch->ctx);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct keeper_watch *watch = handle->data;
    watch->signal(watch->ctx, signum);
}

void keeper_watch_start(struct keeper_watch *watch, uv_loop_t *loop, uint64_t every_ms)
{
    static const int signums[KEEPER_WATCH_SIGNALS] = {SIGTERM, SIGINT, SIGHUP, KEEPER_END_SIGNAL};
    for (unsigned i = 0; i < KEEPER_WATCH_SIGNALS; i++) {
        uv_signal_init(loop, &watch->signals[i]);
        watch->signals[i].data = watch;
        uv_signal_start(&watch->signals[i], on_signal, signums[i]);
    }
    uv_timer_init(loop, &watch->timer);
    watch->timer.data = watch;
    uv_timer_start(&watch->timer, on_tick, 0, every_ms);
}

void keeper_watch_close(struct keeper_watch *watch)
{
    uv_close((uv_handle_t *)&watch->timer, NULL);
    for (unsigned i = 0; i < KEEPER_WATCH_SIGNALS; i++)
        uv_close((uv_handle_t *)&watch->signals[i], NULL);
}
