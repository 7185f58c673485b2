/*
 * average_stage.c - see average_stage.h. Owns nothing.
 */
#include "average_stage.h"

#include "gradient_memory.h"

static double factor_before(const struct ddp_bucket *bucket, ddp_reducer_average average,
                            double predivide)
{
    if (average == DDP_REDUCER_AVERAGE_BEFORE)
        return 1.0 / bucket->divisor;
    return predivide != 0 ? 1 / predivide : 1;
}

static double factor_after(const struct ddp_bucket *bucket, ddp_reducer_average average,
                           double predivide)
{
    if (average != DDP_REDUCER_AVERAGE_AFTER)
        return 1;
    return (predivide != 0 ? predivide : 1) / bucket->divisor;
}

void ddpi_average_start(const struct ddp_bucket *bucket, ddp_reducer_average average,
                        double predivide, struct ddp_operation *operation)
{
    double factor = factor_before(bucket, average, predivide);
    operation->kind = DDP_KIND_ALL_REDUCE;
    operation->dtype = bucket->dtype;
    operation->op = factor != 1 ? DDP_PREMUL_SUM : DDP_SUM;
    operation->factor = factor;
    operation->buffers = bucket->gradients;
    operation->nbuffers = bucket->ngradients;
}

ddp_status ddpi_average_finish(const struct ddp_bucket *bucket, ddp_reducer_average average,
                               double predivide, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    double factor = factor_after(bucket, average, predivide);
    for (size_t i = 0; factor != 1 && i < bucket->ngradients && status == DDP_OK; i++)
        status = ddpi_gradients_scale(bucket->memory, bucket->gradients[i].recv,
                                      bucket->gradients[i].recv, bucket->gradients[i].count,
                                      bucket->dtype, factor, bucket->stream, err);
    return status;
}
