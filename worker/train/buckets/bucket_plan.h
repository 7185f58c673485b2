/*
 * bucket_plan.h - which parameters share a bucket, by the rule of PyTorch's
 * DistributedDataParallel. Pure: no I/O, no clock. Owns the arrays of a plan.
 *
 * Parameters are taken in order. One bucket is open for each key (element type). A parameter joins
 * the open bucket of its key; if that now holds at least the limit, it is closed. So a bucket may
 * exceed its limit by one parameter. Each key has its own place in the list of limits: closing a
 * bucket moves it to the next one, and the last one repeats. (PyTorch: "PyTorch Distributed:
 * Experiences on Accelerating Data Parallel Training", Li et al., 2020, section 4.2.)
 */
#ifndef DDPI_BUCKET_PLAN_H
#define DDPI_BUCKET_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum { DDPI_PLAN_KEYS = 32 };

struct ddpi_plan_parameter {
    uint64_t weight; /* in the unit of the limits: bytes, or elements */
    uint32_t key;    /* below DDPI_PLAN_KEYS; a bucket holds parameters of one key */
};

/* Buckets as slices of an array: bucket b has parameters order[ends[b - 1]] to order[ends[b] - 1],
 * bucket 0 begins at 0. */
struct ddpi_bucket_plan {
    uint32_t *order;
    uint32_t *ends;
    uint32_t *bucket_of; /* by parameter */
    uint32_t nparameters;
    uint32_t nbuckets;
};

/*
 * Assign @count parameters to buckets; free the result with ddpi_bucket_plan_free(). False: memory
 * is short, and *@ret is as before.
 *
 * @order NULL: parameters are taken in the order of their numbers, and buckets come in the reverse
 * order of their first parameters, as gradients come in about the reverse order of registration.
 * Else @order lists every parameter once, and buckets come in the order in which they were closed,
 * those that stay open last. @limits: @nlimits of them, at least one; UINT64_MAX is none.
 */
bool ddpi_bucket_plan_make(const struct ddpi_plan_parameter *parameters, const uint32_t *order,
                           uint32_t count, const uint64_t *limits, uint32_t nlimits,
                           struct ddpi_bucket_plan *ret);

void ddpi_bucket_plan_free(struct ddpi_bucket_plan *plan);

/* Whether @order, which came from another rank, lists @count parameters, each once. @seen: room for
 * @count marks. */
bool ddpi_plan_order_is_complete(const uint32_t *order, uint32_t count, uint8_t *seen);

static inline uint32_t ddpi_bucket_begin(const struct ddpi_bucket_plan *plan, uint32_t bucket)
{
    return bucket == 0 ? 0 : plan->ends[bucket - 1];
}

static inline uint32_t ddpi_bucket_size(const struct ddpi_bucket_plan *plan, uint32_t bucket)
{
    return plan->ends[bucket] - ddpi_bucket_begin(plan, bucket);
}

#endif
