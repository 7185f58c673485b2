/*
 * compression.c - a hook that casts gradients to another type, lets another hook or an average
 * reduce them, and casts them back. Owns the cast copy of a bucket, which lies in the memory of the
 * gradients.
 */
#include "average_stage.h"
#include "error.h"
#include "gradient_memory.h"
#include "mem.h"
#include "reduce.h"

#include <ddprun/ddp_hooks.h>

/* A bucket as it is reduced. */
struct cast {
    struct ddp_bucket bucket;
    struct ddp_buffer *gradients;
    void *elements;
};

/* ---- the copy of a bucket ---- */

static void free_cast(struct ddpi_gradient_memory *memory, struct cast *cast)
{
    ddpi_gradients_free(memory, cast->elements);
    ddpi_free(cast->gradients);
    ddpi_free(cast);
}

static ddp_status make_cast(struct ddp_bucket *bucket, ddp_dtype dtype, struct ddp_error *err)
{
    size_t size = ddp_dtype_size(dtype);
    struct cast *cast = ddpi_calloc(1, sizeof *cast);
    if (cast == NULL)
        return ddpi_error_nomem(err, sizeof *cast);
    cast->gradients = ddpi_calloc(bucket->ngradients, sizeof *cast->gradients);
    ddp_status status =
        cast->gradients == NULL
            ? ddpi_error_nomem(err, bucket->ngradients * sizeof *cast->gradients)
            : ddpi_gradients_alloc(bucket->memory, bucket->count * size, &cast->elements, err);
    if (status != DDP_OK) {
        free_cast(bucket->memory, cast);
        return status;
    }
    char *at = cast->elements;
    for (size_t i = 0; i < bucket->ngradients; i++) {
        size_t count = bucket->gradients[i].count;
        cast->gradients[i] = (struct ddp_buffer){.send = at, .recv = at, .count = count};
        at += count * size;
    }
    bucket->state = cast;
    return DDP_OK;
}

/* Gradients to their copies, or back. */
static ddp_status cast_all(const struct ddp_bucket *bucket, ddp_dtype dtype, bool back,
                           struct ddp_error *err)
{
    const struct cast *cast = bucket->state;
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < bucket->ngradients && status == DDP_OK; i++) {
        void *copy = cast->gradients[i].recv, *gradient = bucket->gradients[i].recv;
        size_t count = bucket->gradients[i].count;
        status = back ? ddpi_gradients_cast(bucket->memory, gradient, bucket->dtype, copy, dtype,
                                            count, bucket->stream, err)
                      : ddpi_gradients_cast(bucket->memory, copy, dtype, gradient, bucket->dtype,
                                            count, bucket->stream, err);
    }
    return status;
}

/* The state of @inner stays from step to step. */
static ddp_status begin_cast(struct ddp_bucket *bucket, ddp_dtype dtype, struct ddp_error *err)
{
    ddp_status status = bucket->state == NULL ? make_cast(bucket, dtype, err) : DDP_OK;
    if (status != DDP_OK)
        return status;
    struct cast *cast = bucket->state;
    void *inner_state = cast->bucket.state;
    cast->bucket = *bucket;
    cast->bucket.state = inner_state;
    cast->bucket.dtype = dtype;
    cast->bucket.gradients = cast->gradients;
    return cast_all(bucket, dtype, false, err);
}

/* ---- stages ---- */

static ddp_status reduce_stage(const struct ddp_compression *compression, struct ddp_bucket *bucket,
                               uint32_t stage, struct ddp_operation *operation, int *ret_more,
                               struct ddp_error *err)
{
    if (compression->inner != NULL)
        return compression->inner->stage(compression->inner->ctx, bucket, stage, operation,
                                         ret_more, err);
    *ret_more = stage == 0;
    if (stage != 0)
        return ddpi_average_finish(bucket, compression->average, compression->predivide, err);
    ddpi_average_start(bucket, compression->average, compression->predivide, operation);
    return DDP_OK;
}

/* The copies lie without gaps, so they are one buffer. */
static void reduce_as_one(const struct cast *cast, struct ddp_operation *operation)
{
    operation->buffers = NULL;
    operation->nbuffers = 0;
    operation->send = operation->recv = cast->elements;
    operation->count = cast->bucket.count;
}

static ddp_status compression_stage(void *ctx, struct ddp_bucket *bucket, uint32_t stage,
                                    struct ddp_operation *operation, int *ret_more,
                                    struct ddp_error *err)
{
    const struct ddp_compression *compression = ctx;
    if (!ddpi_dtype_can_cast(compression->dtype))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "gradients cannot be compressed to %s, only to float16, bfloat16, "
                              "float32 or float64",
                              ddp_dtype_name(compression->dtype));
    if (!ddpi_dtype_can_cast(bucket->dtype) || bucket->dtype == compression->dtype)
        return reduce_stage(compression, bucket, stage, operation, ret_more, err);
    ddp_status status = stage == 0 ? begin_cast(bucket, compression->dtype, err) : DDP_OK;
    if (status != DDP_OK)
        return status;
    struct cast *cast = bucket->state;
    cast->bucket.stream = bucket->stream;
    status = reduce_stage(compression, &cast->bucket, stage, operation, ret_more, err);
    if (status == DDP_OK && compression->inner == NULL && *ret_more)
        reduce_as_one(cast, operation);
    return status == DDP_OK && !*ret_more ? cast_all(bucket, compression->dtype, true, err)
                                          : status;
}

static void forget_inner(const struct ddp_comm_hook *inner, struct ddp_bucket *bucket)
{
    if (inner != NULL && inner->forget != NULL)
        inner->forget(inner->ctx, bucket);
}

static void compression_forget(void *ctx, struct ddp_bucket *bucket)
{
    const struct ddp_compression *compression = ctx;
    struct cast *cast = bucket->state;
    if (!ddpi_dtype_can_cast(bucket->dtype) || bucket->dtype == compression->dtype) {
        forget_inner(compression->inner, bucket);
        return;
    }
    if (cast == NULL)
        return;
    forget_inner(compression->inner, &cast->bucket);
    free_cast(bucket->memory, cast);
}

struct ddp_comm_hook ddp_compression_hook(const struct ddp_compression *compression)
{
    return (struct ddp_comm_hook){.stage = compression_stage,
                                  .forget = compression_forget,
                                  .ctx = (void *)(uintptr_t)compression};
}
