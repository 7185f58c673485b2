/*
 * job_watch.c - see job_watch.h. Owns a client of the store and the view.
 *
 * It watches first and reads then, so no change is missed; values carry versions, and a view keeps
 * the latest. After changes were missed all is read into a new view: a store that has started again
 * may count its versions anew, and keys may be gone.
 */
#include "job_watch.h"

#include "clock.h"

#include <stdio.h>

#define ASKED_FOR UINT64_MAX

static void begin_watches(struct job_watch *watch);

static bool submit(struct job_watch *watch, struct ddp_store_request request,
                   ddp_store_uv_done *done, void *data)
{
    request.size = sizeof request;
    return watch->store != NULL &&
           ddp_store_uv_submit(watch->store, &request, done, data, NULL, NULL) == DDP_OK;
}

/* ---- values ---- */

/* Without memory a value is left out: the next one comes. */
static void take_value(struct job_watch *watch, struct job_view *view, const char *key,
                       uint64_t version, const void *value, size_t len)
{
    char job[DDPI_JOB_MAX + 1];
    if (job_view_take(view, key, version, value, len) != DDP_OK || !job_view_name(key, job) ||
        !view->state.there || view->state.bad)
        return;
    job_history_take(&watch->history, &view->summary, ddpi_now_real_ns() / 1000000);
    bool few = view->summary.members <= JOB_WATCH_NODES;
    if (few == watch->with_nodes)
        return;
    watch->with_nodes = few;
    begin_watches(watch);
}

static void on_reading(void *ctx)
{
    struct job_watch *watch = ctx;
    job_view_finish(&watch->next);
    job_view_init(&watch->next, watch->view.name);
}

static void on_read(void *ctx, const char *key, uint64_t version, const void *value, size_t len)
{
    struct job_watch *watch = ctx;
    take_value(watch, &watch->next, key, version, value, len);
}

static void on_read_all(void *ctx)
{
    struct job_watch *watch = ctx;
    job_view_finish(&watch->view);
    watch->view = watch->next;
    watch->next = (struct job_view){.nnodes = 0};
}

static void begin_reading(struct job_watch *watch)
{
    job_keys_read(&watch->keys, !watch->with_nodes);
}

/* ---- watches ---- */

static void end_watch(struct job_watch *watch, uint64_t *number)
{
    const struct ddp_store_request unwatch = {
        .op = DDP_STORE_OP_UNWATCH, .timeout_ms = DDP_STORE_FOREVER, .watch = *number};
    if (*number == 0 || *number == ASKED_FOR)
        return;
    (void)!submit(watch, unwatch, NULL, NULL);
    *number = 0;
    begin_reading(watch); /* without what it has brought */
}

static void on_nodes_watched(void *data, const struct ddp_store_result *result)
{
    struct job_watch *watch = data;
    if (result->status != DDP_OK || watch->store == NULL)
        return;
    watch->of_nodes = result->watch;
    if (watch->with_nodes)
        begin_reading(watch);
    else
        end_watch(watch, &watch->of_nodes);
}

static void on_state_watched(void *data, const struct ddp_store_result *result)
{
    struct job_watch *watch = data;
    if (result->status != DDP_OK || watch->store == NULL)
        return;
    watch->of_state = result->watch;
    begin_reading(watch);
}

/* Those that are missing begin, each with a reading; one that is not wanted ends. */
static void begin_watches(struct job_watch *watch)
{
    char key[sizeof watch->keys.prefix + sizeof "state"];
    snprintf(key, sizeof key, "%sstate", watch->keys.prefix);
    struct ddp_store_request request = {
        .op = DDP_STORE_OP_WATCH, .timeout_ms = DDP_STORE_FOREVER, .key = key};
    if (watch->of_state == 0 && submit(watch, request, on_state_watched, watch))
        watch->of_state = ASKED_FOR;
    request.key = watch->keys.prefix;
    request.flags = DDP_STORE_WATCH_PREFIX;
    if (!watch->with_nodes)
        end_watch(watch, &watch->of_nodes);
    else if (watch->of_nodes == 0 && submit(watch, request, on_nodes_watched, watch))
        watch->of_nodes = ASKED_FOR;
}

/* Both views learn of a change while one is read. */
static void take_event(struct job_watch *watch, const struct ddp_store_event *event)
{
    bool set = event->kind == DDP_STORE_EVENT_SET;
    const void *value = set ? event->value : NULL;
    size_t len = set ? event->value_len : 0;
    if (watch->keys.reading != 0)
        (void)!job_view_take(&watch->next, event->key, event->version, value, len);
    take_value(watch, &watch->view, event->key, event->version, value, len);
    if (!set)
        job_view_forget_gone(&watch->view);
}

static void on_job_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    struct job_watch *watch = data;
    (void)store;
    if (watch->store == NULL)
        return;
    if (event->kind != DDP_STORE_EVENT_LOST) {
        take_event(watch, event);
        return;
    }
    if (event->value_len == 0) { /* the watch goes on */
        begin_reading(watch);
        return;
    }
    watch->of_state = event->watch == watch->of_state ? 0 : watch->of_state;
    watch->of_nodes = event->watch == watch->of_nodes ? 0 : watch->of_nodes;
    begin_watches(watch);
}

/* ---- life ---- */

ddp_status job_watch_open(struct job_watch *watch, uv_loop_t *loop,
                          const struct ddp_store_options *options, const char *job,
                          struct ddp_error *err)
{
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .data = watch, .event = on_job_event};
    job_view_finish(&watch->view);
    job_view_init(&watch->view, job);
    job_keys_init(&watch->keys, job,
                  &(struct job_keys_hooks){watch, on_reading, on_read, on_read_all});
    ddp_status status = ddp_store_uv_open(loop, options, &hooks, &watch->store, err);
    watch->keys.store = watch->store;
    if (status == DDP_OK)
        begin_watches(watch);
    return status;
}

static void on_watch_closed(void *data)
{
    struct job_watch *watch = data;
    job_view_finish(&watch->view);
    job_view_finish(&watch->next);
    if (watch->closed != NULL)
        watch->closed(watch->ctx);
}

void job_watch_close(struct job_watch *watch, void (*closed)(void *ctx), void *ctx)
{
    ddp_store_uv *store = watch->store;
    watch->closed = closed;
    watch->ctx = ctx;
    watch->store = watch->keys.store = NULL;
    if (store != NULL)
        ddp_store_uv_close(store, on_watch_closed, watch);
    else
        on_watch_closed(watch);
}
