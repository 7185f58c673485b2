/*
 * stream.c - streams: each is a thread that does its work one after the other.
 *
 * All work of the process has one numbering. The legacy default stream and the other streams of its
 * context (but non-blocking ones) wait for each other's earlier work, which is a comparison of
 * numbers: of the work that is about to run with the oldest that the other stream has not done.
 */
#include "host.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE_MS = 3000, LEGACY_HANDLE = 1 };

struct host_stream {
    struct ddpi_list link; /* host_context::streams */
    struct host_context *context;
    struct ddpi_list queue; /* host_work::link; the first may be running */
    bool non_blocking;
    bool capturing;
    bool captures_globally; /* until when other threads must not do much */
    bool destroyed; /* the program has no handle any more; it ends when the queue is empty */
    bool running;   /* it has a thread */
};

static uint64_t last_ticket;

void host_delay(void)
{
    static atomic_uint turn;
    unsigned most_us = host_settings()->delay_us;
    if (most_us == 0)
        return;
    unsigned noise = (atomic_fetch_add(&turn, 1) + 1) * 2654435761U >> 7;
    unsigned us = noise % (most_us + 1);
    const struct timespec pause = {us / 1000000, us % 1000000 * 1000L};
    nanosleep(&pause, NULL);
}

static uint64_t oldest_ticket(const struct host_stream *stream)
{
    if (ddpi_list_empty(&stream->queue))
        return UINT64_MAX;
    return ddpi_container_of(stream->queue.next, struct host_work, link)->ticket;
}

static bool may_run(const struct host_stream *stream, const struct host_work *work)
{
    const struct host_context *context = stream->context;
    if (stream->non_blocking)
        return true;
    if (stream != context->legacy)
        return context->legacy == NULL || oldest_ticket(context->legacy) > work->ticket;
    ddpi_list_for_each (node, &context->streams) {
        const struct host_stream *other = ddpi_container_of(node, struct host_stream, link);
        if (other != stream && !other->non_blocking && oldest_ticket(other) < work->ticket)
            return false;
    }
    return true;
}

/* Under the lock, which is given while the work runs. In a context that failed nothing runs. */
static void run_work(struct host_stream *stream, struct host_work *work)
{
    struct host_context *context = stream->context;
    if (!context->stopped) {
        host_unlock();
        ddpi_cu_result result = work->run(work);
        host_lock();
        if (context->error == DDPI_CU_SUCCESS)
            context->error = result;
        context->stopped = context->stopped || result != DDPI_CU_SUCCESS;
    }
    ddpi_list_remove(&work->link);
    free(work);
    host_changed();
}

static void *stream_main(void *arg)
{
    struct host_stream *stream = arg;
    host_lock();
    while (!stream->destroyed || !ddpi_list_empty(&stream->queue)) {
        struct host_work *work = NULL;
        if (!ddpi_list_empty(&stream->queue))
            work = ddpi_container_of(stream->queue.next, struct host_work, link);
        if (work != NULL && may_run(stream, work))
            run_work(stream, work);
        else
            host_wait(PATIENCE_MS);
    }
    ddpi_list_remove(&stream->link);
    free(stream);
    host_changed();
    host_unlock();
    return NULL;
}

/* The thread takes no signals: they are the program's. */
static bool start_thread(struct host_stream *stream)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    stream->running = pthread_create(&thread, &attributes, stream_main, stream) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return stream->running;
}

static struct host_stream *add_stream(struct host_context *context, bool non_blocking)
{
    struct host_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->context = context;
    stream->non_blocking = non_blocking;
    ddpi_list_init(&stream->queue);
    ddpi_list_append(&context->streams, &stream->link);
    return stream;
}

/* It goes on until its work is done, by itself. */
static void destroy_stream(struct host_stream *stream)
{
    stream->destroyed = true;
    if (stream->running) {
        host_changed();
    } else {
        ddpi_list_remove(&stream->link);
        free(stream);
    }
}

void host_streams_end(struct host_context *context)
{
    ddpi_list_for_each_safe (node, &context->streams)
        destroy_stream(ddpi_container_of(node, struct host_stream, link));
    while (!ddpi_list_empty(&context->streams))
        host_wait(PATIENCE_MS);
    context->legacy = NULL;
}

static struct host_stream *find_in(const struct host_context *context, ddpi_cu_stream handle)
{
    ddpi_list_for_each (node, &context->streams) {
        struct host_stream *stream = ddpi_container_of(node, struct host_stream, link);
        if ((const void *)stream == (const void *)handle && !stream->destroyed)
            return stream;
    }
    return NULL;
}

struct host_stream *host_stream_find(ddpi_cu_stream handle, struct host_context **context)
{
    if (handle == NULL || (uintptr_t)handle == LEGACY_HANDLE) {
        if ((*context)->legacy == NULL)
            (*context)->legacy = add_stream(*context, false);
        return (*context)->legacy;
    }
    for (int i = 0; i < host_settings()->devices; i++) {
        struct host_context *other = host_device_context(i);
        struct host_stream *stream = other->retained > 0 ? find_in(other, handle) : NULL;
        if (stream != NULL) {
            *context = other;
            return stream;
        }
    }
    return NULL;
}

struct host_context *host_stream_context(const struct host_stream *stream)
{
    return stream->context;
}

/* As a GPU's driver does: nothing is enqueued while another thread waits for the whole context. */
static void await_drains(const struct host_context *context)
{
    while (context->drains > 0 && !pthread_equal(context->drainer, pthread_self()))
        host_wait(PATIENCE_MS);
}

ddpi_cu_result host_stream_submit(struct host_context *context, ddpi_cu_stream handle,
                                  struct host_work *work)
{
    if (work == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    ddpi_cu_result result = DDPI_CU_SUCCESS;
    host_lock();
    await_drains(context);
    struct host_stream *stream = host_stream_find(handle, &context);
    if (stream == NULL)
        result = DDPI_CU_ERROR_INVALID_HANDLE;
    else if (context->error != DDPI_CU_SUCCESS)
        result = context->error;
    else if (stream->capturing) /* nothing of this driver can be replayed */
        result = DDPI_CU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (!stream->running && !start_thread(stream))
        result = DDPI_CU_ERROR_OUT_OF_MEMORY;
    if (result == DDPI_CU_SUCCESS) {
        work->stream = stream;
        work->ticket = ++last_ticket;
        ddpi_list_append(&stream->queue, &work->link);
        host_changed();
    }
    host_unlock();
    if (result != DDPI_CU_SUCCESS)
        free(work);
    return result;
}

static bool is_idle(const struct host_context *context)
{
    ddpi_list_for_each (node, &context->streams) {
        const struct host_stream *stream = ddpi_container_of(node, struct host_stream, link);
        if (!ddpi_list_empty(&stream->queue))
            return false;
    }
    return true;
}

void host_context_drain(struct host_context *context, const char *who)
{
    bool told = false; /* once, as a runner takes whatever is written for progress */
    context->drains++;
    context->drainer = pthread_self();
    while (context->retained > 0 && !is_idle(context)) {
        struct timespec before, now;
        clock_gettime(CLOCK_MONOTONIC, &before);
        host_wait(PATIENCE_MS);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (told || now.tv_sec - before.tv_sec < PATIENCE_MS / 1000)
            continue;
        told = true;
        fprintf(stderr, "libcuda (host): %s waits for all work of device %d; a real one may too\n",
                who, context->device);
    }
    context->drains--;
    host_changed();
}

ddpi_cu_result cuStreamCreate(ddpi_cu_stream *ret_stream, unsigned flags)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuStreamCreate, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (flags > DDPI_CU_STREAM_NON_BLOCKING)
        return DDPI_CU_ERROR_INVALID_VALUE;
    host_lock();
    struct host_stream *stream = add_stream(context, flags == DDPI_CU_STREAM_NON_BLOCKING);
    host_unlock();
    if (stream == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    *ret_stream = (ddpi_cu_stream)(void *)stream;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuCtxGetStreamPriorityRange, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    *ret_least = 0;
    *ret_greatest = -5;
    return DDPI_CU_SUCCESS;
}

/* Every stream has a thread of its own, whatever its priority. */
ddpi_cu_result cuStreamCreateWithPriority(ddpi_cu_stream *ret_stream, unsigned flags, int priority)
{
    (void)priority;
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuStreamCreateWithPriority, &context);
    return result == DDPI_CU_SUCCESS ? cuStreamCreate(ret_stream, flags) : result;
}

enum { CAPTURE_MODE_GLOBAL };

static _Thread_local unsigned capture_mode;
static atomic_uint global_captures; /* that are under way */

bool host_capture_forbids(void)
{
    return atomic_load(&global_captures) > 0 && capture_mode != DDPI_CU_STREAM_CAPTURE_MODE_RELAXED;
}

ddpi_cu_result cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    ddpi_cu_result result = host_enter(HOST_cuThreadExchangeStreamCaptureMode);
    if (result != DDPI_CU_SUCCESS)
        return result;
    unsigned before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuStreamDestroy(ddpi_cu_stream handle)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuStreamDestroy, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    struct host_stream *stream = host_stream_find(handle, &context);
    if (stream == NULL || stream == context->legacy)
        result = DDPI_CU_ERROR_INVALID_HANDLE;
    else
        destroy_stream(stream);
    host_unlock();
    return result;
}

ddpi_cu_result cuStreamQuery(ddpi_cu_stream handle)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuStreamQuery, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    const struct host_stream *stream = host_stream_find(handle, &context);
    if (stream == NULL)
        result = DDPI_CU_ERROR_INVALID_HANDLE;
    else if (context->error != DDPI_CU_SUCCESS)
        result = context->error;
    else if (!ddpi_list_empty(&stream->queue))
        result = DDPI_CU_ERROR_NOT_READY;
    host_unlock();
    return result;
}

/* Until everything is done that was in the stream when this was called, or the context has failed.
 * The default stream stands for all that its work waits for. */
static ddpi_cu_result wait_for(struct host_context *context, const struct host_stream *stream)
{
    uint64_t until = last_ticket;
    bool done = false;
    while (!done && context->error == DDPI_CU_SUCCESS) {
        done = true;
        ddpi_list_for_each (node, &context->streams) {
            const struct host_stream *each = ddpi_container_of(node, struct host_stream, link);
            if (each == stream || (stream == context->legacy && !each->non_blocking))
                done = done && oldest_ticket(each) > until;
        }
        if (!done)
            host_wait(PATIENCE_MS);
    }
    return context->error;
}

ddpi_cu_result host_stream_wait(struct host_context *context, ddpi_cu_stream handle)
{
    ddpi_cu_result result = DDPI_CU_ERROR_INVALID_HANDLE;
    host_lock();
    const struct host_stream *stream = host_stream_find(handle, &context);
    if (stream != NULL)
        result = wait_for(context, stream);
    host_unlock();
    return result;
}

ddpi_cu_result cuStreamSynchronize(ddpi_cu_stream handle)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuStreamSynchronize, &context);
    return result == DDPI_CU_SUCCESS ? host_stream_wait(context, handle) : result;
}

ddpi_cu_result cuStreamGetCtx(ddpi_cu_stream handle, ddpi_cu_context *ret_context)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuStreamGetCtx, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    if (host_stream_find(handle, &context) == NULL)
        result = DDPI_CU_ERROR_INVALID_HANDLE;
    else
        *ret_context = (ddpi_cu_context)(void *)context;
    host_unlock();
    return result;
}

ddpi_cu_result cuStreamIsCapturing(ddpi_cu_stream handle, unsigned *ret_status)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuStreamIsCapturing, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    host_lock();
    const struct host_stream *stream = host_stream_find(handle, &context);
    if (stream == NULL)
        result = DDPI_CU_ERROR_INVALID_HANDLE;
    else
        *ret_status = stream->capturing ? DDPI_CU_STREAM_CAPTURE_STATUS_ACTIVE
                                        : DDPI_CU_STREAM_CAPTURE_STATUS_NONE;
    host_unlock();
    return result;
}

/* Not in the table, as the library refuses such streams: tests look them up by their symbols. */
DDP_API ddpi_cu_result cuStreamBeginCapture_v2(ddpi_cu_stream handle, unsigned mode);
DDP_API ddpi_cu_result cuStreamEndCapture(ddpi_cu_stream handle, void **ret_graph);

static void set_global(struct host_stream *stream, bool global)
{
    if (global != stream->captures_globally)
        atomic_fetch_add(&global_captures, global ? 1U : -1U);
    stream->captures_globally = global;
}

static ddpi_cu_result set_capturing(ddpi_cu_stream handle, bool capturing, bool global)
{
    struct host_context *context = host_current();
    ddpi_cu_result result = DDPI_CU_SUCCESS;
    if (context == NULL)
        return DDPI_CU_ERROR_INVALID_CONTEXT;
    host_lock();
    struct host_stream *stream = host_stream_find(handle, &context);
    if (stream == NULL || stream == context->legacy) {
        result = DDPI_CU_ERROR_INVALID_HANDLE;
    } else {
        stream->capturing = capturing;
        set_global(stream, global);
    }
    host_unlock();
    return result;
}

DDP_API ddpi_cu_result cuStreamBeginCapture_v2(ddpi_cu_stream handle, unsigned mode)
{
    return set_capturing(handle, true, mode == CAPTURE_MODE_GLOBAL);
}

DDP_API ddpi_cu_result cuStreamEndCapture(ddpi_cu_stream handle, void **ret_graph)
{
    *ret_graph = NULL;
    return set_capturing(handle, false, false);
}
