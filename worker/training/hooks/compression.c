/*
 * compression.c - a hook that casts gradients to another type, lets another hook or an average
 * reduce them, and casts them back. Owns the cast copy of a bucket.
 */
#include "average_stage.h"
#include "error.h"
#include "mem.h"
#include "reduce.h"

#include <ddprun/ddp_hooks.h>

enum { BLOCK = 1024 };

/* A bucket as it is reduced. */
struct cast {
    struct ddp_bucket bucket;
    struct ddp_buffer *gradients;
    char *elements;
};

/* ---- casts ---- */

static bool can_cast(ddp_dtype dtype)
{
    return dtype == DDP_FLOAT32 || dtype == DDP_FLOAT64 || dtype == DDP_FLOAT16 ||
           dtype == DDP_BFLOAT16;
}

static void to_float(float *wide, const void *in, size_t count, ddp_dtype dtype)
{
    if (ddpi_dtype_is_narrow(dtype))
        ddpi_widen(wide, in, count, dtype);
    else
        for (size_t i = 0; i < count; i++)
            wide[i] =
                dtype == DDP_FLOAT64 ? (float)((const double *)in)[i] : ((const float *)in)[i];
}

static void from_float(void *out, const float *wide, size_t count, ddp_dtype dtype)
{
    if (ddpi_dtype_is_narrow(dtype)) {
        ddpi_narrow(out, wide, count, dtype);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (dtype == DDP_FLOAT64)
            ((double *)out)[i] = wide[i];
        else
            ((float *)out)[i] = wide[i];
}

/* A block at a time, which stays in the first cache. */
static void cast_elements(void *out, ddp_dtype to, const void *in, ddp_dtype from, size_t count)
{
    float block[BLOCK];
    size_t in_size = ddp_dtype_size(from), out_size = ddp_dtype_size(to);
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t part = count - i < BLOCK ? count - i : BLOCK;
        to_float(block, (const char *)in + i * in_size, part, from);
        from_float((char *)out + i * out_size, block, part, to);
    }
}

/* ---- the copy of a bucket ---- */

static struct cast *make_cast(const struct ddp_bucket *bucket, ddp_dtype dtype)
{
    struct cast *cast = ddpi_calloc(1, sizeof *cast);
    if (cast == NULL)
        return NULL;
    size_t size = ddp_dtype_size(dtype);
    cast->gradients = ddpi_calloc(bucket->ngradients, sizeof *cast->gradients);
    cast->elements = ddpi_calloc(bucket->count, size);
    if (cast->gradients == NULL || cast->elements == NULL) {
        ddpi_free(cast->gradients);
        ddpi_free(cast->elements);
        ddpi_free(cast);
        return NULL;
    }
    char *at = cast->elements;
    for (size_t i = 0; i < bucket->ngradients; i++) {
        size_t count = bucket->gradients[i].count;
        cast->gradients[i] = (struct ddp_buffer){.send = at, .recv = at, .count = count};
        at += count * size;
    }
    return cast;
}

/* The state of @inner stays from step to step. */
static ddp_status begin_cast(struct ddp_bucket *bucket, ddp_dtype dtype, struct ddp_error *err)
{
    struct cast *cast = bucket->state;
    if (cast == NULL)
        bucket->state = cast = make_cast(bucket, dtype);
    if (cast == NULL)
        return ddpi_error_nomem(err, bucket->count * ddp_dtype_size(dtype));
    void *inner_state = cast->bucket.state;
    cast->bucket = *bucket;
    cast->bucket.state = inner_state;
    cast->bucket.dtype = dtype;
    cast->bucket.gradients = cast->gradients;
    for (size_t i = 0; i < bucket->ngradients; i++)
        cast_elements(cast->gradients[i].recv, dtype, bucket->gradients[i].recv, bucket->dtype,
                      bucket->gradients[i].count);
    return DDP_OK;
}

static void end_cast(const struct ddp_bucket *bucket, ddp_dtype dtype)
{
    const struct cast *cast = bucket->state;
    for (size_t i = 0; i < bucket->ngradients; i++)
        cast_elements(bucket->gradients[i].recv, bucket->dtype, cast->gradients[i].recv, dtype,
                      bucket->gradients[i].count);
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
    if (stage == 0)
        ddpi_average_start(bucket, compression->average, compression->predivide, operation);
    else
        ddpi_average_finish(bucket, compression->average, compression->predivide);
    return DDP_OK;
}

static ddp_status compression_stage(void *ctx, struct ddp_bucket *bucket, uint32_t stage,
                                    struct ddp_operation *operation, int *ret_more,
                                    struct ddp_error *err)
{
    const struct ddp_compression *compression = ctx;
    if (!can_cast(compression->dtype))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "gradients cannot be compressed to %s, only to float16, bfloat16, "
                              "float32 or float64",
                              ddp_dtype_name(compression->dtype));
    if (!can_cast(bucket->dtype) || bucket->dtype == compression->dtype)
        return reduce_stage(compression, bucket, stage, operation, ret_more, err);
    ddp_status status = stage == 0 ? begin_cast(bucket, compression->dtype, err) : DDP_OK;
    if (status != DDP_OK)
        return status;
    struct cast *cast = bucket->state;
    status = reduce_stage(compression, &cast->bucket, stage, operation, ret_more, err);
    if (status == DDP_OK && !*ret_more)
        end_cast(bucket, compression->dtype);
    return status;
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
    if (!can_cast(bucket->dtype) || bucket->dtype == compression->dtype) {
        forget_inner(compression->inner, bucket);
        return;
    }
    if (cast == NULL)
        return;
    forget_inner(compression->inner, &cast->bucket);
    ddpi_free(cast->gradients);
    ddpi_free(cast->elements);
    ddpi_free(cast);
}

struct ddp_comm_hook ddp_compression_hook(const struct ddp_compression *compression)
{
    return (struct ddp_comm_hook){.stage = compression_stage,
                                  .forget = compression_forget,
                                  .ctx = (void *)(uintptr_t)compression};
}
