/*
 * work.c - what can be put on a stream but kernels: copies, fills, words written and waited for,
 * and calls of the program's own functions.
 *
 * Arguments are looked at twice: when the work is given, where what is wrong is an argument that is
 * not valid, and when it runs, where memory that is gone is an access that fails the context.
 */
#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct copy {
    struct host_work work;
    ddpi_cu_deviceptr dst;
    ddpi_cu_deviceptr src;
    size_t size;
};

struct fill {
    struct host_work work;
    ddpi_cu_deviceptr dst;
    size_t size;
    unsigned char value;
};

struct word {
    struct host_work work;
    ddpi_cu_deviceptr address;
    uint32_t value;
    unsigned flags;
};

struct call {
    struct host_work work;
    void (*function)(void *argument);
    void *argument;
};

static ddpi_cu_result run_copy(struct host_work *work)
{
    const struct copy *copy = (const struct copy *)(const void *)work;
    host_delay();
    void *dst = host_memory_reach_any(copy->dst, copy->size);
    const void *src = host_memory_reach_any(copy->src, copy->size);
    if (dst == NULL || src == NULL)
        return DDPI_CU_ERROR_ILLEGAL_ADDRESS;
    memmove(dst, src, copy->size);
    return DDPI_CU_SUCCESS;
}

/* With memory that the driver does not know it has to be done with it when this returns. */
static ddpi_cu_result submit_copy(struct host_context *context, ddpi_cu_deviceptr dst,
                                  ddpi_cu_deviceptr src, size_t size, ddpi_cu_stream stream)
{
    if (size == 0)
        return DDPI_CU_SUCCESS;
    if (dst == 0 || src == 0 || host_memory_reach_any(dst, size) == NULL ||
        host_memory_reach_any(src, size) == NULL)
        return DDPI_CU_ERROR_INVALID_VALUE;
    struct copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    *copy = (struct copy){.work.run = run_copy, .dst = dst, .src = src, .size = size};
    ddpi_cu_result result = host_stream_submit(context, stream, &copy->work);
    if (result == DDPI_CU_SUCCESS && (host_is_foreign(dst) || host_is_foreign(src)))
        result = host_stream_wait(context, stream);
    return result;
}

ddpi_cu_result cuMemcpyAsync(ddpi_cu_deviceptr dst, ddpi_cu_deviceptr src, size_t size,
                             ddpi_cu_stream stream)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemcpyAsync, &context);
    return result == DDPI_CU_SUCCESS ? submit_copy(context, dst, src, size, stream) : result;
}

ddpi_cu_result cuMemcpyHtoDAsync(ddpi_cu_deviceptr dst, const void *src, size_t size,
                                 ddpi_cu_stream stream)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemcpyHtoDAsync, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (host_is_foreign(dst) || host_is_tagged((uintptr_t)src))
        return DDPI_CU_ERROR_INVALID_VALUE;
    return submit_copy(context, dst, (uintptr_t)src, size, stream);
}

ddpi_cu_result cuMemcpyDtoHAsync(void *dst, ddpi_cu_deviceptr src, size_t size,
                                 ddpi_cu_stream stream)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemcpyDtoHAsync, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (host_is_foreign(src) || host_is_tagged((uintptr_t)dst))
        return DDPI_CU_ERROR_INVALID_VALUE;
    return submit_copy(context, (uintptr_t)dst, src, size, stream);
}

static ddpi_cu_result run_fill(struct host_work *work)
{
    const struct fill *fill = (const struct fill *)(const void *)work;
    host_delay();
    void *dst = host_memory_reach_any(fill->dst, fill->size);
    if (dst == NULL)
        return DDPI_CU_ERROR_ILLEGAL_ADDRESS;
    memset(dst, fill->value, fill->size);
    return DDPI_CU_SUCCESS;
}

ddpi_cu_result cuMemsetD8Async(ddpi_cu_deviceptr dst, unsigned char value, size_t size,
                               ddpi_cu_stream stream)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(HOST_cuMemsetD8Async, &context);
    if (result != DDPI_CU_SUCCESS || size == 0)
        return result;
    if (host_is_foreign(dst) || host_memory_reach_any(dst, size) == NULL)
        return DDPI_CU_ERROR_INVALID_VALUE;
    struct fill *fill = calloc(1, sizeof *fill);
    if (fill == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    *fill = (struct fill){.work.run = run_fill, .dst = dst, .size = size, .value = value};
    return host_stream_submit(context, stream, &fill->work);
}

static ddpi_cu_result run_write(struct host_work *work)
{
    const struct word *word = (const struct word *)(const void *)work;
    int device = host_stream_context(work->stream)->device;
    _Atomic uint32_t *at = host_memory_reach(word->address, sizeof *at, device);
    if (at == NULL)
        return DDPI_CU_ERROR_ILLEGAL_ADDRESS;
    atomic_store_explicit(at, word->value, memory_order_release);
    return DDPI_CU_SUCCESS;
}

static bool is_reached(const struct word *word, uint32_t now)
{
    if (word->flags == DDPI_CU_STREAM_WAIT_VALUE_EQ)
        return now == word->value;
    return (int32_t)(now - word->value) >= 0;
}

/* Looks again and again, as the device does; more rarely the longer it takes. */
static ddpi_cu_result run_wait(struct host_work *work)
{
    const struct word *word = (const struct word *)(const void *)work;
    const struct host_context *context = host_stream_context(work->stream);
    const _Atomic uint32_t *at = host_memory_reach(word->address, sizeof *at, context->device);
    if (at == NULL)
        return DDPI_CU_ERROR_ILLEGAL_ADDRESS;
    struct timespec pause = {0, 2000};
    while (!is_reached(word, atomic_load_explicit(at, memory_order_acquire))) {
        if (context->stopped)
            break;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 500000)
            pause.tv_nsec += pause.tv_nsec / 8;
    }
    return DDPI_CU_SUCCESS;
}

static ddpi_cu_result submit_word(enum host_call call, struct word wanted, ddpi_cu_stream stream)
{
    struct host_context *context = NULL;
    ddpi_cu_result result = host_enter_context(call, &context);
    if (result != DDPI_CU_SUCCESS)
        return result;
    if (wanted.address % sizeof(uint32_t) != 0 ||
        host_memory_reach(wanted.address, sizeof(uint32_t), context->device) == NULL)
        return DDPI_CU_ERROR_INVALID_VALUE;
    struct word *word = calloc(1, sizeof *word);
    if (word == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    *word = wanted;
    return host_stream_submit(context, stream, &word->work);
}

ddpi_cu_result cuStreamWriteValue32(ddpi_cu_stream stream, ddpi_cu_deviceptr address,
                                    uint32_t value, unsigned flags)
{
    if (flags != DDPI_CU_STREAM_WRITE_VALUE_DEFAULT)
        return DDPI_CU_ERROR_INVALID_VALUE;
    return submit_word(HOST_cuStreamWriteValue32,
                       (struct word){.work.run = run_write, .address = address, .value = value},
                       stream);
}

ddpi_cu_result cuStreamWaitValue32(ddpi_cu_stream stream, ddpi_cu_deviceptr address, uint32_t value,
                                   unsigned flags)
{
    if (flags > DDPI_CU_STREAM_WAIT_VALUE_EQ)
        return DDPI_CU_ERROR_INVALID_VALUE;
    return submit_word(
        HOST_cuStreamWaitValue32,
        (struct word){.work.run = run_wait, .address = address, .value = value, .flags = flags},
        stream);
}

/* Not in the table, as the library has no use for it; with host_memory_reach() a test can run
 * kernels of its own. */
DDP_API ddpi_cu_result cuLaunchHostFunc(ddpi_cu_stream stream, void (*function)(void *argument),
                                        void *argument);

static ddpi_cu_result run_call(struct host_work *work)
{
    const struct call *call = (const struct call *)(const void *)work;
    host_delay();
    call->function(call->argument);
    return DDPI_CU_SUCCESS;
}

DDP_API ddpi_cu_result cuLaunchHostFunc(ddpi_cu_stream stream, void (*function)(void *argument),
                                        void *argument)
{
    struct host_context *context = host_current();
    if (context == NULL)
        return DDPI_CU_ERROR_INVALID_CONTEXT;
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return DDPI_CU_ERROR_OUT_OF_MEMORY;
    *call = (struct call){.work.run = run_call, .function = function, .argument = argument};
    return host_stream_submit(context, stream, &call->work);
}
