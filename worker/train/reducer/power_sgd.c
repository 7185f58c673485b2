/*
 * power_sgd.c - PowerSGD as a hook of three stages. Owns what lasts from step to step, by
 * parameter: the error and Q; and by bucket the list of buffers of an operation.
 *
 *     stage 0   add the error; P = M Q; sum P and the gradients that are not compressed
 *     stage 1   make P orthonormal; Q = M^T P; sum Q
 *     stage 2   M = P Q^T / N; keep what that lost as the error
 *
 * A bucket on a GPU is copied to host memory before the first stage, and back after the last one.
 */
#include "average_stage.h"
#include "error.h"
#include "gradient_memory.h"
#include "low_rank.h"
#include "mem.h"
#include "reduce.h"

#include <ddprun/ddp_hooks.h>
#include <math.h>
#include <string.h>

enum { RANK_MOST = 1024, START_STEP = 1000, RATE = 2 };

/* A compressed parameter. */
struct factors {
    size_t n, m, r;
    float *p, *q;
    float *error; /* while a step is under way: the gradient and the error before it */
    bool warm;    /* q is that of the step before */
};

struct ddp_power_sgd {
    struct ddp_power_sgd_options options;
    struct factors *factors; /* by parameter */
    size_t nfactors;
};

/* ---- memory ---- */

static bool is_compressed(const struct ddp_power_sgd *power_sgd, size_t count, size_t rows)
{
    if (rows == 0)
        return false;
    double n = (double)rows, m = (double)(count / rows);
    return (n + m) * power_sgd->options.rank * power_sgd->options.min_compression_rate <
           (double)count;
}

static ddp_status grow_factors(struct ddp_power_sgd *power_sgd, size_t count, struct ddp_error *err)
{
    if (count <= power_sgd->nfactors)
        return DDP_OK;
    struct factors *factors = ddpi_realloc(power_sgd->factors, count, sizeof *factors);
    if (factors == NULL)
        return ddpi_error_nomem(err, count * sizeof *factors);
    memset(&factors[power_sgd->nfactors], 0, (count - power_sgd->nfactors) * sizeof *factors);
    power_sgd->factors = factors;
    power_sgd->nfactors = count;
    return DDP_OK;
}

static ddp_status make_factors(struct ddp_power_sgd *power_sgd, uint32_t parameter, size_t count,
                               size_t rows, struct ddp_error *err)
{
    ddp_status status = grow_factors(power_sgd, (size_t)parameter + 1, err);
    if (status != DDP_OK)
        return status;
    struct factors *factors = &power_sgd->factors[parameter];
    if (factors->p != NULL)
        return DDP_OK;
    factors->n = rows;
    factors->m = count / rows;
    size_t least = factors->n < factors->m ? factors->n : factors->m;
    factors->r = power_sgd->options.rank < least ? power_sgd->options.rank : least;
    factors->q = ddpi_calloc(factors->m, factors->r * sizeof(float));
    factors->error =
        power_sgd->options.no_error_feedback ? NULL : ddpi_calloc(count, sizeof(float));
    if (factors->q != NULL && (power_sgd->options.no_error_feedback || factors->error != NULL))
        factors->p = ddpi_calloc(factors->n, factors->r * sizeof(float));
    if (factors->p != NULL)
        return DDP_OK;
    ddpi_free(factors->q);
    ddpi_free(factors->error);
    factors->q = factors->error = NULL;
    return ddpi_error_nomem(err, (factors->n + factors->m) * factors->r * sizeof(float) +
                                     count * sizeof(float));
}

static ddp_status prepare_bucket(struct ddp_power_sgd *power_sgd, struct ddp_bucket *bucket,
                                 struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (bucket->state == NULL)
        bucket->state = ddpi_calloc(bucket->ngradients, sizeof(struct ddp_buffer));
    if (bucket->state == NULL)
        return ddpi_error_nomem(err, bucket->ngradients * sizeof(struct ddp_buffer));
    for (size_t i = 0; i < bucket->ngradients && status == DDP_OK; i++)
        if (is_compressed(power_sgd, bucket->gradients[i].count, bucket->rows[i]))
            status = make_factors(power_sgd, bucket->parameters[i], bucket->gradients[i].count,
                                  bucket->rows[i], err);
    return status;
}

/* ---- stages ---- */

/* The factors of gradient @i, NULL if it is not compressed. */
static struct factors *factors_of(const struct ddp_power_sgd *power_sgd,
                                  const struct ddp_bucket *bucket, size_t i)
{
    return is_compressed(power_sgd, bucket->gradients[i].count, bucket->rows[i])
               ? &power_sgd->factors[bucket->parameters[i]]
               : NULL;
}

/* A gradient of zero, or of a lower rank than ours, leaves zero columns in Q, which no later
 * gradient would ever fill: they begin anew. Q is the same on all ranks, so they all see it. */
static void project(const struct ddp_power_sgd *power_sgd, struct factors *factors, float *gradient,
                    uint64_t seed)
{
    size_t count = factors->n * factors->m;
    for (size_t i = 0; factors->error != NULL && i < count; i++)
        factors->error[i] = gradient[i] += factors->error[i];
    if (!factors->warm || power_sgd->options.no_warm_start)
        ddpi_fill_normal(factors->q, factors->m * factors->r, seed);
    factors->warm = true;
    ddpi_orthonormalize(factors->q, factors->m, factors->r);
    ddpi_complete_columns(factors->q, factors->m, factors->r, ~seed);
    ddpi_low_rank_left(factors->p, gradient, factors->q, factors->n, factors->m, factors->r);
}

static void project_back(struct factors *factors, const float *gradient)
{
    ddpi_orthonormalize(factors->p, factors->n, factors->r);
    ddpi_low_rank_right(factors->q, gradient, factors->p, factors->n, factors->m, factors->r);
}

/* An infinity or NaN in the gradient of a rank has spread to all of Q, on all ranks, and makes the
 * whole gradient NaN. It must not last: Q and the error begin anew. */
static void expand(struct factors *factors, float *gradient, uint32_t divisor)
{
    size_t count = factors->n * factors->m;
    ddpi_low_rank_expand(gradient, factors->p, factors->q, 1.0F / (float)divisor, factors->n,
                         factors->m, factors->r);
    if (!ddpi_is_finite(factors->q, factors->m * factors->r)) {
        factors->warm = false;
        if (factors->error != NULL)
            memset(factors->error, 0, count * sizeof *factors->error);
        return;
    }
    for (size_t i = 0; factors->error != NULL && i < count; i++)
        factors->error[i] -= gradient[i];
}

static uint64_t seed_of(const struct ddp_power_sgd *power_sgd, const struct ddp_bucket *bucket,
                        size_t i)
{
    return power_sgd->options.seed + bucket->step * UINT64_C(0x9e3779b97f4a7c15) +
           bucket->parameters[i] * UINT64_C(0xd1b54a32d192ed03);
}

static void sum_list(struct ddp_operation *operation, const struct ddp_buffer *list, size_t count)
{
    operation->kind = DDP_KIND_ALL_REDUCE;
    operation->dtype = DDP_FLOAT32;
    operation->op = DDP_SUM;
    operation->buffers = list;
    operation->nbuffers = count;
}

static struct ddp_buffer buffer_of(float *values, size_t count)
{
    return (struct ddp_buffer){.send = values, .recv = values, .count = count};
}

static void sum_left(const struct ddp_power_sgd *power_sgd, const struct ddp_bucket *bucket,
                     struct ddp_operation *operation)
{
    struct ddp_buffer *list = bucket->state;
    for (size_t i = 0; i < bucket->ngradients; i++) {
        struct factors *factors = factors_of(power_sgd, bucket, i);
        list[i] = bucket->gradients[i];
        if (factors == NULL)
            continue;
        project(power_sgd, factors, bucket->gradients[i].recv, seed_of(power_sgd, bucket, i));
        list[i] = buffer_of(factors->p, factors->n * factors->r);
    }
    sum_list(operation, list, bucket->ngradients);
}

/* Returns how many matrices there are. */
static size_t sum_right(const struct ddp_power_sgd *power_sgd, const struct ddp_bucket *bucket,
                        struct ddp_operation *operation)
{
    struct ddp_buffer *list = bucket->state;
    size_t count = 0;
    for (size_t i = 0; i < bucket->ngradients; i++) {
        struct factors *factors = factors_of(power_sgd, bucket, i);
        const struct ddp_buffer *gradient = &bucket->gradients[i];
        if (factors == NULL) {
            ddpi_scale(gradient->recv, gradient->recv, gradient->count, DDP_FLOAT32,
                       1.0 / bucket->divisor);
            continue;
        }
        project_back(factors, gradient->recv);
        list[count++] = buffer_of(factors->q, factors->m * factors->r);
    }
    sum_list(operation, list, count);
    return count;
}

static void expand_all(const struct ddp_power_sgd *power_sgd, const struct ddp_bucket *bucket)
{
    for (size_t i = 0; i < bucket->ngradients; i++) {
        struct factors *factors = factors_of(power_sgd, bucket, i);
        if (factors != NULL)
            expand(factors, bucket->gradients[i].recv, bucket->divisor);
    }
}

static ddp_status compressed_stage(struct ddp_power_sgd *power_sgd, struct ddp_bucket *bucket,
                                   uint32_t stage, struct ddp_operation *operation, int *ret_more,
                                   struct ddp_error *err)
{
    if (stage == 0) {
        ddp_status status = prepare_bucket(power_sgd, bucket, err);
        if (status != DDP_OK)
            return status;
        sum_left(power_sgd, bucket, operation);
        *ret_more = 1;
    } else if (stage == 1) {
        *ret_more = sum_right(power_sgd, bucket, operation) != 0;
    } else {
        expand_all(power_sgd, bucket);
    }
    return DDP_OK;
}

/* ---- a bucket on a GPU ---- */

/* Its copy in host memory, where the stages are carried out. */
struct host_copy {
    struct ddp_bucket bucket;
    struct ddp_buffer *gradients;
    float *elements;
};

static void free_host_copy(struct host_copy *copy)
{
    if (copy == NULL)
        return;
    ddpi_free(copy->bucket.state);
    ddpi_free(copy->gradients);
    ddpi_free(copy->elements);
    ddpi_free(copy);
}

static ddp_status make_host_copy(struct ddp_bucket *bucket, struct ddp_error *err)
{
    struct host_copy *copy = ddpi_calloc(1, sizeof *copy);
    if (copy == NULL)
        return ddpi_error_nomem(err, sizeof *copy);
    copy->gradients = ddpi_calloc(bucket->ngradients, sizeof *copy->gradients);
    copy->elements = ddpi_calloc(bucket->count, sizeof *copy->elements);
    if (copy->gradients == NULL || copy->elements == NULL) {
        free_host_copy(copy);
        return ddpi_error_nomem(err, bucket->count * sizeof *copy->elements);
    }
    float *at = copy->elements;
    for (size_t i = 0; i < bucket->ngradients; at += bucket->gradients[i++].count)
        copy->gradients[i] = buffer_of(at, bucket->gradients[i].count);
    bucket->state = copy;
    return DDP_OK;
}

static ddp_status move_gradients(const struct ddp_bucket *bucket, bool back, struct ddp_error *err)
{
    const struct host_copy *copy = bucket->state;
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < bucket->ngradients && status == DDP_OK; i++) {
        void *here = copy->gradients[i].recv, *there = bucket->gradients[i].recv;
        status =
            ddpi_gradients_copy(bucket->memory, back ? there : here, back ? here : there,
                                bucket->gradients[i].count * sizeof(float), bucket->stream, err);
    }
    return status;
}

/* Waits for the gradients: a stage that is carried out by the processor cannot be enqueued. */
static ddp_status begin_host_copy(struct ddp_bucket *bucket, struct ddp_error *err)
{
    ddp_status status = bucket->state == NULL ? make_host_copy(bucket, err) : DDP_OK;
    if (status == DDP_OK)
        status = move_gradients(bucket, false, err);
    if (status == DDP_OK)
        status = ddpi_gradients_await(bucket->memory, bucket->stream, err);
    if (status != DDP_OK)
        return status;
    struct host_copy *copy = bucket->state;
    void *list = copy->bucket.state;
    copy->bucket = *bucket;
    copy->bucket.state = list;
    copy->bucket.gradients = copy->gradients;
    return DDP_OK;
}

static ddp_status device_stage(struct ddp_power_sgd *power_sgd, struct ddp_bucket *bucket,
                               uint32_t stage, struct ddp_operation *operation, int *ret_more,
                               struct ddp_error *err)
{
    ddp_status status = stage == 0 ? begin_host_copy(bucket, err) : DDP_OK;
    if (status != DDP_OK)
        return status;
    struct host_copy *copy = bucket->state;
    operation->stream = NULL; /* of host memory */
    status = compressed_stage(power_sgd, &copy->bucket, stage, operation, ret_more, err);
    return status == DDP_OK && !*ret_more ? move_gradients(bucket, true, err) : status;
}

/* ---- the hook ---- */

static ddp_status power_sgd_stage(void *ctx, struct ddp_bucket *bucket, uint32_t stage,
                                  struct ddp_operation *operation, int *ret_more,
                                  struct ddp_error *err)
{
    struct ddp_power_sgd *power_sgd = ctx;
    if (bucket->dtype != DDP_FLOAT32 || bucket->step < power_sgd->options.start_step) {
        *ret_more = stage == 0;
        if (stage == 0)
            ddpi_average_start(bucket, DDP_REDUCER_AVERAGE_BEFORE, 0, operation);
        return DDP_OK;
    }
    return (bucket->on_device ? device_stage : compressed_stage)(power_sgd, bucket, stage,
                                                                 operation, ret_more, err);
}

static void power_sgd_forget(void *ctx, struct ddp_bucket *bucket)
{
    (void)ctx;
    if (bucket->on_device)
        free_host_copy(bucket->state);
    else
        ddpi_free(bucket->state);
    bucket->state = NULL;
}

/* ---- life ---- */

ddp_status ddp_power_sgd_create(const struct ddp_power_sgd_options *given,
                                ddp_power_sgd **ret_power_sgd, struct ddp_error *err)
{
    struct ddp_power_sgd_options options = {0};
    *ret_power_sgd = NULL;
    if (given->size < offsetof(struct ddp_power_sgd_options, start_step))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "ddp_power_sgd_create(): the size of the options is not set");
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    if (options.rank > RANK_MOST)
        return ddpi_error_set(err, DDP_E_INVALID, "ddp_power_sgd_create(): rank %u is above %d",
                              options.rank, RANK_MOST);
    if (!isfinite(options.min_compression_rate) || options.min_compression_rate < 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "ddp_power_sgd_create(): min_compression_rate is not a finite number "
                              "of at least 0");
    options.rank = options.rank != 0 ? options.rank : 1;
    options.start_step = options.start_step != 0 ? options.start_step : START_STEP;
    options.min_compression_rate =
        options.min_compression_rate != 0 ? options.min_compression_rate : RATE;
    ddp_power_sgd *power_sgd = ddpi_calloc(1, sizeof *power_sgd);
    if (power_sgd == NULL)
        return ddpi_error_nomem(err, sizeof *power_sgd);
    power_sgd->options = options;
    *ret_power_sgd = power_sgd;
    return DDP_OK;
}

void ddp_power_sgd_destroy(ddp_power_sgd *power_sgd)
{
    for (size_t i = 0; power_sgd != NULL && i < power_sgd->nfactors; i++) {
        ddpi_free(power_sgd->factors[i].p);
        ddpi_free(power_sgd->factors[i].q);
        ddpi_free(power_sgd->factors[i].error);
    }
    if (power_sgd != NULL)
        ddpi_free(power_sgd->factors);
    ddpi_free(power_sgd);
}

struct ddp_comm_hook ddp_power_sgd_hook(ddp_power_sgd *power_sgd)
{
    return (struct ddp_comm_hook){
        .stage = power_sgd_stage, .forget = power_sgd_forget, .ctx = power_sgd};
}
