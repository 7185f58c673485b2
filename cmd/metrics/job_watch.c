/*
 * job_watch.c - see job_watch.h. Owns a client of the store and the view.
 *
 * It watches first and lists then, so no change is missed; values carry versions, and the view
 * keeps the latest.
 */
#include "job_watch.h"

#include "mem.h"
#include "round_names.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ASK_MS = 10000 };

static uint64_t real_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Without memory a value is left out: the next one comes. */
static void take_value(struct job_watch *watch, const char *key, uint64_t version,
                       const void *value, size_t len)
{
    char job[DDPI_JOB_MAX + 1];
    if (job_view_take(&watch->view, key, version, value, len) != DDP_OK)
        return;
    if (job_view_name(key, job) && watch->view.state.there && !watch->view.state.bad)
        job_history_take(&watch->history, &watch->view.summary, real_now_ms());
}

static bool is_wanted(const struct job_watch *watch, const char *key)
{
    char job[DDPI_JOB_MAX + 1];
    return !watch->state_only || job_view_name(key, job);
}

/* A request for one key, whose result does not name it. */
struct asked_key {
    struct job_watch *watch;
    char key[];
};

static void on_value(void *data, const struct ddp_store_result *result)
{
    struct asked_key *asked = data;
    if (result->status == DDP_OK)
        take_value(asked->watch, asked->key, result->version, result->value, result->value_len);
    ddpi_free(asked);
}

static void ask_value(struct job_watch *watch, const char *key)
{
    size_t size = strlen(key) + 1;
    struct asked_key *asked = ddpi_calloc(1, sizeof *asked + size);
    const struct ddp_store_request request = {
        .size = sizeof request, .op = DDP_STORE_OP_TRY_GET, .timeout_ms = ASK_MS, .key = key};
    if (asked == NULL)
        return;
    asked->watch = watch;
    memcpy(asked->key, key, size);
    if (ddp_store_uv_submit(watch->store, &request, on_value, asked, NULL, NULL) != DDP_OK)
        ddpi_free(asked);
}

static void on_listed(void *data, const struct ddp_store_result *result)
{
    struct job_watch *watch = data;
    if (result->status != DDP_OK || watch->store == NULL)
        return;
    watch->state_only = result->count > JOB_WATCH_KEYS;
    for (size_t i = 0; i < result->count; i++)
        if (is_wanted(watch, result->keys[i]))
            ask_value(watch, result->keys[i]);
}

static void list_keys(struct job_watch *watch)
{
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = DDP_STORE_OP_LIST,
                                              .timeout_ms = ASK_MS,
                                              .key = watch->prefix};
    (void)!ddp_store_uv_submit(watch->store, &request, on_listed, watch, NULL, NULL);
}

static void on_watching(void *data, const struct ddp_store_result *result)
{
    struct job_watch *watch = data;
    if (result->status == DDP_OK && watch->store != NULL)
        list_keys(watch);
}

static void begin_watch(struct job_watch *watch)
{
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = DDP_STORE_OP_WATCH,
                                              .timeout_ms = DDP_STORE_FOREVER,
                                              .key = watch->prefix,
                                              .flags = DDP_STORE_WATCH_PREFIX};
    (void)!ddp_store_uv_submit(watch->store, &request, on_watching, watch, NULL, NULL);
}

static void on_job_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    struct job_watch *watch = data;
    (void)store;
    if (watch->store == NULL)
        return;
    if (event->kind == DDP_STORE_EVENT_LOST && event->value_len > 0)
        begin_watch(watch);
    else if (event->kind == DDP_STORE_EVENT_LOST)
        list_keys(watch);
    else if (is_wanted(watch, event->key))
        take_value(watch, event->key, event->version,
                   event->kind == DDP_STORE_EVENT_SET ? event->value : NULL, event->value_len);
    if (event->kind == DDP_STORE_EVENT_DELETED)
        job_view_forget_gone(&watch->view);
}

ddp_status job_watch_open(struct job_watch *watch, uv_loop_t *loop,
                          const struct ddp_store_options *options, const char *job,
                          struct ddp_error *err)
{
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .data = watch, .event = on_job_event};
    job_view_finish(&watch->view);
    job_view_init(&watch->view, job);
    snprintf(watch->prefix, sizeof watch->prefix, DDPI_ROUND_PREFIX "%s/", job);
    ddp_status status = ddp_store_uv_open(loop, options, &hooks, &watch->store, err);
    if (status == DDP_OK)
        begin_watch(watch);
    return status;
}

static void on_watch_closed(void *data)
{
    struct job_watch *watch = data;
    job_view_finish(&watch->view);
    if (watch->closed != NULL)
        watch->closed(watch->ctx);
}

void job_watch_close(struct job_watch *watch, void (*closed)(void *ctx), void *ctx)
{
    ddp_store_uv *store = watch->store;
    watch->closed = closed;
    watch->ctx = ctx;
    watch->store = NULL;
    if (store != NULL)
        ddp_store_uv_close(store, on_watch_closed, watch);
    else
        on_watch_closed(watch);
}
