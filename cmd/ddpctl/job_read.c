/*
 * job_read.c - lists jobs, reads all keys of one job, and follows their changes; reads how the
 * store is kept. Owns nothing; a job is read into the call's view.
 */
#include "clock.h"
#include "ddpctl_job.h"
#include "error.h"
#include "mem.h"
#include "round_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PREFIX_SIZE = sizeof DDPI_ROUND_PREFIX + DDPI_JOB_MAX + 2,
    AT_ONCE = 64, /* keys per request, each up to 64 KiB (handle.c) */
};

uint32_t ddpctl_job_left_ms(const struct ddpctl_job_call *call)
{
    return (uint32_t)ddpi_remaining_ms(ddpi_monotonic_ms(), call->deadline_ms);
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ddpi_free(names[i]);
    ddpi_free(names);
}

static ddp_status take_names(char *const *keys, size_t nkeys, char ***ret_names, size_t *ret_count,
                             struct ddp_error *err)
{
    char name[DDPI_JOB_MAX + 1];
    size_t count = 0;
    char **names = ddpi_calloc(nkeys + 1, sizeof *names);
    bool done = names != NULL;
    for (size_t i = 0; done && i < nkeys; i++)
        if (job_view_name(keys[i], name)) {
            names[count] = ddpi_strdup(name);
            done = names[count] != NULL;
            count += done;
        }
    if (!done) {
        free_names(names, count);
        return ddpi_error_nomem(err, nkeys * sizeof *names);
    }
    *ret_names = names;
    *ret_count = count;
    return DDP_OK;
}

ddp_status ddpctl_job_list(struct ddpctl_job_call *call, char ***ret_names, size_t *ret_count,
                           struct ddp_error *err)
{
    char **keys;
    size_t count;
    ddp_status status = ddp_store_list(call->store, DDPI_ROUND_PREFIX, ddpctl_job_left_ms(call),
                                       &keys, &count, err);
    if (status != DDP_OK)
        return status;
    status = take_names(keys, count, ret_names, ret_count, err);
    ddp_store_free(keys);
    return status;
}

/* ---- one job ---- */

static ddp_status take_job_key(struct ddpctl_job_call *call, const char *key, uint64_t version,
                               const void *value, size_t len, struct ddp_error *err)
{
    ddp_status status = job_view_take(&call->view, key, version, value, len);
    return status == DDP_OK ? DDP_OK : ddpi_error_nomem(err, len);
}

static ddp_status read_keys(struct ddpctl_job_call *call, char *const *keys, size_t count,
                            struct ddp_error *err)
{
    struct ddp_store_value *values;
    ddp_status status = ddp_store_try_get_many(call->store, (const char *const *)keys, count,
                                               ddpctl_job_left_ms(call), &values, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        if (values[i].version != 0) /* else deleted since the listing */
            status = take_job_key(call, keys[i], values[i].version, values[i].value,
                                  values[i].value_len, err);
    ddp_store_free(values);
    return status;
}

ddp_status ddpctl_job_read(struct ddpctl_job_call *call, const char *job, struct ddp_error *err)
{
    char prefix[PREFIX_SIZE], name[DDPI_JOB_MAX + 1];
    char **keys;
    size_t count;
    snprintf(name, sizeof name, "%s", job); /* @job may point into the view */
    snprintf(prefix, sizeof prefix, DDPI_ROUND_PREFIX "%s/", name);
    job_view_finish(&call->view);
    job_view_init(&call->view, name);
    ddp_status status =
        ddp_store_list(call->store, prefix, ddpctl_job_left_ms(call), &keys, &count, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < count && status == DDP_OK; i += AT_ONCE)
        status = read_keys(call, keys + i, count - i < AT_ONCE ? count - i : AT_ONCE, err);
    ddp_store_free(keys);
    return status;
}

bool ddpctl_job_read_kept(struct ddpctl_job_call *call, struct ddpi_cluster_summary *ret)
{
    void *text;
    size_t len;
    if (ddp_store_try_get(call->store, DDPI_STORE_KEEPERS_KEY, ddpctl_job_left_ms(call), &text,
                          &len, NULL, NULL) != DDP_OK)
        return false;
    bool kept = ddpi_cluster_summary_get(text, len, ret, NULL) == DDP_OK;
    ddp_store_free(text);
    return kept;
}

static ddp_status no_such_job(const struct ddpctl_job_call *call, const char *job,
                              struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_NOT_FOUND,
                          "no job '%s' in the store at %s; 'ddpctl status' lists its jobs", job,
                          call->options->endpoint);
}

/* The name of the store's only job. */
static ddp_status find_only(struct ddpctl_job_call *call, char job[DDPI_JOB_MAX + 1],
                            struct ddp_error *err)
{
    char **names;
    size_t count;
    ddp_status status = ddpctl_job_list(call, &names, &count, err);
    if (status != DDP_OK)
        return status;
    if (count == 1)
        snprintf(job, DDPI_JOB_MAX + 1, "%s", names[0]);
    free_names(names, count);
    if (count == 1)
        return DDP_OK;
    return ddpi_error_set(err, count == 0 ? DDP_E_NOT_FOUND : DDP_E_INVALID,
                          count == 0 ? "no job in the store at %s"
                                     : "the store at %s has more than one job; name one "
                                       "('ddpctl status' lists them)",
                          call->options->endpoint);
}

static ddp_status choose_job(struct ddpctl_job_call *call, char job[DDPI_JOB_MAX + 1],
                             struct ddp_error *err)
{
    if (call->job == NULL)
        return find_only(call, job, err);
    if (!ddpi_job_valid(call->job, strlen(call->job)))
        return no_such_job(call, call->job, err);
    snprintf(job, DDPI_JOB_MAX + 1, "%s", call->job);
    return DDP_OK;
}

static ddp_status read_job(struct ddpctl_job_call *call, const char *job, struct ddp_error *err)
{
    ddp_status status = ddpctl_job_read(call, job, err);
    return status == DDP_OK && !job_view_there(&call->view) ? no_such_job(call, job, err) : status;
}

ddp_status ddpctl_job_find(struct ddpctl_job_call *call, struct ddp_error *err)
{
    char job[DDPI_JOB_MAX + 1];
    ddp_status status = choose_job(call, job, err);
    return status == DDP_OK ? read_job(call, job, err) : status;
}

/* Watch before reading, so that no change is missed in between. */
ddp_status ddpctl_job_watch(struct ddpctl_job_call *call, struct ddp_error *err)
{
    char job[DDPI_JOB_MAX + 1], prefix[PREFIX_SIZE];
    ddp_status status = choose_job(call, job, err);
    if (status != DDP_OK)
        return status;
    snprintf(prefix, sizeof prefix, DDPI_ROUND_PREFIX "%s/", job);
    status = ddp_store_watch(call->store, prefix, DDP_STORE_WATCH_PREFIX, 0,
                             ddpctl_job_left_ms(call), NULL, NULL, err);
    return status == DDP_OK ? read_job(call, job, err) : status;
}

static ddp_status take_job_event(struct ddpctl_job_call *call, const struct ddp_store_event *event,
                                 struct ddp_error *err)
{
    bool set = event->kind == DDP_STORE_EVENT_SET;
    if (event->kind != DDP_STORE_EVENT_LOST)
        return take_job_key(call, event->key, event->version, set ? event->value : NULL,
                            set ? event->value_len : 0, err);
    if (event->value_len > 0)
        return ddpi_error_set(err, DDP_E_CLOSED, "%s", (const char *)event->value);
    return ddpctl_job_read(call, call->view.name, err);
}

ddp_status ddpctl_job_follow(struct ddpctl_job_call *call, uint32_t timeout_ms,
                             struct ddp_error *err)
{
    bool any = false;
    for (;;) {
        struct ddp_store_event *event;
        ddp_status status = ddp_store_next_event(call->store, any ? 0 : timeout_ms, &event, err);
        if (status == DDP_E_TIMEOUT && any)
            return DDP_OK;
        if (status != DDP_OK)
            return status;
        status = take_job_event(call, event, err);
        ddp_store_free(event);
        if (status != DDP_OK)
            return status;
        any = true;
    }
}
