/*
 * reducer_step.c - the life of a step: begin, gradients that come, finish. Owns nothing.
 *
 *     idle --begin--> open --finish--> closed --all reduced--> idle
 *
 * Any of them becomes failed, for good, by an error of the communicator.
 */
#include "reducer.h"

#include "clock.h"
#include "error.h"

#include <inttypes.h>

enum { NAMES_SHOWN = 6 };

/* ---- sentences ---- */

const char *ddpi_parameter_name(const struct ddp_reducer *reducer, uint32_t parameter,
                                char text[DDPI_PARAMETER_TEXT])
{
    snprintf(text, DDPI_PARAMETER_TEXT, "%s", reducer->parameters[parameter].name);
    return text;
}

ddp_status ddpi_reducer_fail(struct ddp_reducer *reducer, ddp_status status,
                             struct ddp_error *cause, struct ddp_error *err)
{
    ddpi_error_wrap(cause, status, "step %" PRIu64, reducer->steps);
    reducer->state = DDPI_REDUCER_FAILED;
    reducer->failure = *cause;
    return ddpi_error_set(err, status, "%s", cause->msg);
}

static ddp_status refuse_state(const struct ddp_reducer *reducer, const char *call,
                               struct ddp_error *err)
{
    static const char *const says[] = {
        [DDPI_REDUCER_IDLE] = "no step has begun: call ddp_reducer_begin() first",
        [DDPI_REDUCER_OPEN] = "a step has begun: call ddp_reducer_finish() first",
        [DDPI_REDUCER_CLOSED] = "the step is being finished by another thread",
    };
    if (reducer->state == DDPI_REDUCER_FAILED)
        return ddpi_error_set(err, reducer->failure.status, "%s", reducer->failure.msg);
    return ddpi_error_set(err, DDP_E_INVALID, "%s, rank %u, step %" PRIu64 ": %s", call,
                          reducer->rank, reducer->steps, says[reducer->state]);
}

/* ---- begin ---- */

enum { ACTIVE, SYNCS, ROLES = DDPI_REDUCER_ROLES };

/* With uneven inputs all ranks tell at the begin of a step whether they have data. */
static ddp_status count_active(struct ddp_reducer *reducer, bool *ret_others, struct ddp_error *err)
{
    uint8_t own[ROLES] = {!reducer->shadowing, reducer->sync}, *all = reducer->roles;
    ddp_status status = ddp_all_gather(reducer->comm, own, all, ROLES, DDP_UINT8, NULL, err);
    reducer->active = 0;
    for (uint32_t rank = 0; status == DDP_OK && rank < reducer->world_size; rank++)
        if (all[rank * ROLES + ACTIVE]) {
            reducer->active++;
            reducer->owner = rank;
            reducer->sync = all[rank * ROLES + SYNCS] != 0;
        }
    *ret_others = reducer->active != 0;
    return status;
}

static ddp_status prepare(struct ddp_reducer *reducer, bool *ret_others, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    *ret_others = true;
    if (reducer->options.uneven_inputs)
        status = count_active(reducer, ret_others, err);
    if (status == DDP_OK && reducer->rebuild_due && *ret_others)
        status = ddpi_reducer_rebuild(reducer, err);
    if (status == DDP_OK && reducer->sync && *ret_others && !reducer->options.no_broadcast)
        status =
            ddpi_reducer_share(reducer, reducer->buffers, reducer->nbuffers, reducer->owner, err);
    return status;
}

static void reset_buckets(struct ddp_reducer *reducer)
{
    ddpi_bucket_pass_begin(&reducer->pass, &reducer->plan);
    for (uint32_t i = 0; i < reducer->plan.nbuckets; i++) {
        struct ddpi_bucket *bucket = &reducer->buckets[i];
        bucket->first_ready_us = bucket->full_us = bucket->begin_us = bucket->end_us = 0;
    }
    for (uint32_t i = 0; i < reducer->nparameters; i++)
        reducer->parameters[i].marks = 0;
}

ddp_status ddpi_step_begin(struct ddp_reducer *reducer, bool shadowing, bool *ret_others,
                           struct ddp_error *err)
{
    struct ddp_error cause;
    if (reducer->state != DDPI_REDUCER_IDLE)
        return refuse_state(reducer, "ddp_reducer_begin()", err);
    reducer->shadowing = shadowing;
    reducer->sync = reducer->want_sync;
    reducer->owner = 0;
    ddp_status status = prepare(reducer, ret_others, &cause);
    if (status != DDP_OK)
        return ddpi_reducer_fail(reducer, status, &cause, err);
    reducer->step_begin_us = ddpi_monotonic_us();
    reducer->learning = reducer->sync && reducer->options.static_graph && !reducer->static_map;
    reset_buckets(reducer);
    if (*ret_others)
        reducer->state = DDPI_REDUCER_OPEN;
    reducer->begun += !shadowing;
    return DDP_OK;
}

ddp_status ddp_reducer_begin(ddp_reducer *reducer, struct ddp_error *err)
{
    bool others;
    pthread_mutex_lock(&reducer->lock);
    ddp_status status = ddpi_step_begin(reducer, false, &others, err);
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

ddp_status ddp_reducer_set_sync(ddp_reducer *reducer, int sync, struct ddp_error *err)
{
    pthread_mutex_lock(&reducer->lock);
    ddp_status status = reducer->state == DDPI_REDUCER_IDLE
                            ? DDP_OK
                            : refuse_state(reducer, "ddp_reducer_set_sync()", err);
    if (status == DDP_OK)
        reducer->want_sync = sync != 0;
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

/* ---- gradients come ---- */

static bool delays(const struct ddp_reducer *reducer)
{
    return reducer->learning || reducer->options.delay_all_reduce;
}

static ddp_status start_full_buckets(struct ddp_reducer *reducer, struct ddp_error *err)
{
    struct ddp_error cause;
    for (uint32_t i; ddpi_bucket_pass_take(&reducer->pass, &i);) {
        ddp_status status = ddpi_bucket_start(reducer, &reducer->buckets[i], &cause);
        if (status != DDP_OK)
            return ddpi_reducer_fail(reducer, status, &cause, err);
    }
    return DDP_OK;
}

/* The gradient takes part as it is, or zeros in its place. */
static void note_arrival(struct ddp_reducer *reducer, uint32_t parameter)
{
    uint32_t number = reducer->plan.bucket_of[parameter];
    struct ddpi_bucket *bucket = &reducer->buckets[number];
    bool first = reducer->pass.pending[number] == bucket->shown.ngradients;
    bool last = reducer->pass.pending[number] == 1;
    if (first || last) {
        uint64_t now = ddpi_monotonic_us();
        bucket->first_ready_us = first ? now : bucket->first_ready_us;
        bucket->full_us = now;
    }
    ddpi_bucket_pass_mark(&reducer->pass, parameter);
}

static ddp_status refuse_mark(const struct ddp_reducer *reducer, uint32_t parameter,
                              struct ddp_error *err)
{
    const struct ddpi_parameter *marked = &reducer->parameters[parameter];
    if (reducer->static_map)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "rank %u, step %" PRIu64 ": the gradient of %s is marked %u times, but was %u times in "
            "the first step of this static graph",
            reducer->rank, reducer->steps, marked->name, marked->marks + 1, marked->expected);
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "rank %u, step %" PRIu64
        ": the gradient of %s is marked twice; mark it when it is complete, or set static_graph",
        reducer->rank, reducer->steps, marked->name);
}

/* How often a gradient may be marked in this step; UINT32_MAX: any number, and it counts as ready
 * from the first time on, as nothing is reduced before the step is finished. */
static uint32_t marks_allowed(const struct ddp_reducer *reducer,
                              const struct ddpi_parameter *parameter)
{
    if (!reducer->options.static_graph)
        return 1;
    return reducer->learning || !reducer->sync ? UINT32_MAX : parameter->expected;
}

static ddp_status refuse_stream(const struct ddp_reducer *reducer, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_INVALID,
                          "ddp_reducer_ready(), rank %u: gradients in host memory have no stream: "
                          "pass NULL, or set on_device",
                          reducer->rank);
}

/* The work on @stream so far computes this gradient, and all of its bucket that came before. */
static void note_stream(struct ddp_reducer *reducer, uint32_t parameter, void *stream)
{
    struct ddpi_bucket *bucket = &reducer->buckets[reducer->plan.bucket_of[parameter]];
    bucket->stream = reducer->stream = stream;
    bucket->has_stream = true;
}

static ddp_status mark_in_step(struct ddp_reducer *reducer, uint32_t parameter, void *stream,
                               struct ddp_error *err)
{
    struct ddpi_parameter *marked = &reducer->parameters[parameter];
    uint32_t most = marks_allowed(reducer, marked);
    bool skipped = reducer->pass.ready[parameter] && marked->marks == 0;
    if (marked->marks >= most || skipped)
        return refuse_mark(reducer, parameter, err);
    if (stream != NULL && reducer->memory == NULL)
        return refuse_stream(reducer, err);
    note_stream(reducer, parameter, stream);
    marked->marks++;
    marked->used = true;
    bool complete = most == UINT32_MAX ? marked->marks == 1 : marked->marks == most;
    if (!reducer->sync || !complete)
        return DDP_OK;
    note_arrival(reducer, parameter);
    return delays(reducer) ? DDP_OK : start_full_buckets(reducer, err);
}

static ddp_status check_parameter(const struct ddp_reducer *reducer, size_t parameter,
                                  const char *call, struct ddp_error *err)
{
    if (reducer->state != DDPI_REDUCER_OPEN)
        return refuse_state(reducer, call, err);
    if (parameter < reducer->nparameters)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%s, rank %u: there is no parameter %zu, only 0 to %" PRIu32, call,
                          reducer->rank, parameter, reducer->nparameters - 1);
}

ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t parameter, void *stream,
                             struct ddp_error *err)
{
    pthread_mutex_lock(&reducer->lock);
    ddp_status status = check_parameter(reducer, parameter, "ddp_reducer_ready()", err);
    if (status == DDP_OK)
        status = mark_in_step(reducer, (uint32_t)parameter, stream, err);
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

static ddp_status skip_in_step(struct ddp_reducer *reducer, uint32_t parameter,
                               struct ddp_error *err)
{
    if (!reducer->options.find_unused)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "ddp_reducer_skip(): the reducer was created without find_unused");
    if (reducer->pass.ready[parameter] || reducer->parameters[parameter].marks != 0)
        return refuse_mark(reducer, parameter, err);
    if (reducer->static_map && reducer->parameters[parameter].expected != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "rank %u, step %" PRIu64
                              ": %s is skipped, but the first step of this static graph used it",
                              reducer->rank, reducer->steps, reducer->parameters[parameter].name);
    if (!reducer->sync)
        return DDP_OK;
    /* What an earlier step without synchronisation has added up counts. */
    ddp_status status =
        reducer->parameters[parameter].used ? DDP_OK : ddpi_park(reducer, parameter, err);
    if (status != DDP_OK)
        return status;
    note_arrival(reducer, parameter);
    return delays(reducer) ? DDP_OK : start_full_buckets(reducer, err);
}

ddp_status ddp_reducer_skip(ddp_reducer *reducer, size_t parameter, struct ddp_error *err)
{
    pthread_mutex_lock(&reducer->lock);
    ddp_status status = check_parameter(reducer, parameter, "ddp_reducer_skip()", err);
    if (status == DDP_OK)
        status = skip_in_step(reducer, (uint32_t)parameter, err);
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

/* ---- finish ---- */

static ddp_status name_missing(const struct ddp_reducer *reducer, uint32_t missing,
                               struct ddp_error *err)
{
    char names[640] = "";
    size_t used = 0, shown = 0;
    for (uint32_t i = 0; i < reducer->nparameters && shown < NAMES_SHOWN; i++) {
        if (reducer->pass.ready[i])
            continue;
        int len = snprintf(names + used, sizeof names - used, "%s%.96s", shown != 0 ? ", " : "",
                           reducer->parameters[i].name);
        used += (size_t)len;
        shown++;
    }
    return ddpi_error_set(err, DDP_E_INVALID,
                          "rank %u, step %" PRIu64 ": %" PRIu32 " of %" PRIu32
                          " gradients are not ready: %s%s; mark them, or set find_unused if the "
                          "step does not use them",
                          reducer->rank, reducer->steps, missing, reducer->nparameters, names,
                          missing > shown ? ", ..." : "");
}

/* In a static graph a step must use what the first one has used. */
static bool may_be_missing(const struct ddp_reducer *reducer, uint32_t parameter)
{
    if (reducer->shadowing || reducer->learning)
        return true;
    if (reducer->static_map)
        return reducer->parameters[parameter].expected == 0;
    return reducer->options.find_unused != 0;
}

static ddp_status check_missing(const struct ddp_reducer *reducer, struct ddp_error *err)
{
    uint32_t missing = 0;
    bool allowed = true;
    for (uint32_t i = 0; i < reducer->nparameters; i++)
        if (!reducer->pass.ready[i]) {
            missing++;
            allowed = allowed && may_be_missing(reducer, i);
        }
    return allowed ? DDP_OK : name_missing(reducer, missing, err);
}

static ddp_status park_missing(struct ddp_reducer *reducer, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < reducer->nparameters && status == DDP_OK; i++) {
        if (reducer->pass.ready[i])
            continue;
        if (!reducer->parameters[i].used || reducer->shadowing)
            status = ddpi_park(reducer, i, err);
        if (status == DDP_OK)
            note_arrival(reducer, i);
    }
    return status;
}

/* Everything is started: nothing else is to come from this rank. */
static ddp_status close_step(struct ddp_reducer *reducer, struct ddp_error *err)
{
    struct ddp_error cause;
    ddp_status status = check_missing(reducer, err);
    if (status == DDP_OK)
        status = park_missing(reducer, err);
    if (status != DDP_OK)
        return status;
    reducer->state = DDPI_REDUCER_CLOSED;
    reducer->non_finite = false;
    reducer->finish_us = ddpi_monotonic_us();
    status = start_full_buckets(reducer, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_used_map_start(reducer, &cause);
    return status == DDP_OK ? DDP_OK : ddpi_reducer_fail(reducer, status, &cause, err);
}

static void end_step(struct ddp_reducer *reducer)
{
    reducer->stream = NULL;
    for (uint32_t i = 0; i < reducer->plan.nbuckets; i++)
        reducer->buckets[i].has_stream = false;
    for (uint32_t i = 0; i < reducer->nparameters; i++) {
        if (reducer->learning)
            reducer->parameters[i].expected = reducer->parameters[i].marks;
        reducer->parameters[i].used = false;
    }
    if (!reducer->rebuilt)
        reducer->rebuild_due = true;
    reducer->step_end_us = ddpi_monotonic_us();
    reducer->steps++;
    ddpi_trace_step(reducer);
    reducer->state = DDPI_REDUCER_IDLE;
}

static ddp_status complete_step(struct ddp_reducer *reducer, struct ddp_error *err)
{
    struct ddp_error cause;
    ddp_status status = ddpi_buckets_complete(reducer, &cause);
    if (status == DDP_OK)
        status = ddpi_used_map_complete(reducer, &cause);
    if (status == DDP_OK)
        status = ddpi_unpark_all(reducer, &cause);
    if (status == DDP_OK)
        status = ddpi_buckets_settle(reducer, &cause);
    pthread_mutex_lock(&reducer->lock);
    if (status == DDP_OK)
        end_step(reducer);
    else
        status = ddpi_reducer_fail(reducer, status, &cause, err);
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

ddp_status ddpi_step_finish(struct ddp_reducer *reducer, struct ddp_error *err)
{
    pthread_mutex_lock(&reducer->lock);
    ddp_status status = reducer->state == DDPI_REDUCER_OPEN
                            ? DDP_OK
                            : refuse_state(reducer, "ddp_reducer_finish()", err);
    bool sync = reducer->sync;
    if (status == DDP_OK && sync)
        status = close_step(reducer, err);
    else if (status == DDP_OK)
        reducer->state = DDPI_REDUCER_IDLE;
    pthread_mutex_unlock(&reducer->lock);
    return status == DDP_OK && sync ? complete_step(reducer, err) : status;
}

ddp_status ddp_reducer_finish(ddp_reducer *reducer, struct ddp_error *err)
{
    return ddpi_step_finish(reducer, err);
}
