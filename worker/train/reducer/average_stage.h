/*
 * average_stage.h - the plain average as stages of a hook: what hooks do with gradients that they
 * do not compress.
 */
#ifndef DDPI_AVERAGE_STAGE_H
#define DDPI_AVERAGE_STAGE_H

#include <ddprun/ddp_reducer.h>

/* The operation of stage 0. */
void ddpi_average_start(const struct ddp_bucket *bucket, ddp_reducer_average average,
                        double predivide, struct ddp_operation *operation);

/* Stage 1: multiply the gradients, if that is left to do. */
ddp_status ddpi_average_finish(const struct ddp_bucket *bucket, ddp_reducer_average average,
                               double predivide, struct ddp_error *err);

#endif
