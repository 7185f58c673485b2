/*
 * bucket_pass.h - one backward pass: which gradients have come, which bucket may be reduced next.
 * Pure: no I/O, no clock, no lock. Owns its counters; the plan is the caller's.
 *
 * Buckets begin strictly in the order of their numbers, whatever the order in which they fill: so
 * all ranks start the same reductions in the same order.
 */
#ifndef DDPI_BUCKET_PASS_H
#define DDPI_BUCKET_PASS_H

#include "bucket_plan.h"

struct ddpi_bucket_pass {
    const struct ddpi_bucket_plan *plan;
    uint32_t *pending; /* by bucket: gradients that have not come */
    uint8_t *ready;    /* by parameter: its gradient has come */
    uint32_t *arrival; /* parameters in the order in which gradients came */
    uint32_t arrived;
    uint32_t next; /* the first bucket that has not begun */
};

/* False: memory is short. */
bool ddpi_bucket_pass_init(struct ddpi_bucket_pass *pass, const struct ddpi_bucket_plan *plan);
void ddpi_bucket_pass_free(struct ddpi_bucket_pass *pass);

/* Begin a pass over @plan, which has as many parameters as the one before. */
void ddpi_bucket_pass_begin(struct ddpi_bucket_pass *pass, const struct ddpi_bucket_plan *plan);

/* The gradient of @parameter, which had not come, is ready. */
void ddpi_bucket_pass_mark(struct ddpi_bucket_pass *pass, uint32_t parameter);

/* Take the bucket that begins next: false unless all its gradients are ready. */
bool ddpi_bucket_pass_take(struct ddpi_bucket_pass *pass, uint32_t *ret_bucket);

#endif
