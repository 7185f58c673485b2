/*
 * perf_coll_context.c - the clock of a rank, and the greatest time of all ranks. Owns nothing.
 */
#include "perf_coll_context.h"

#include "clock.h"

double coll_now_us(void)
{
    return (double)ddpi_monotonic_us();
}

bool coll_rank_slowest(struct coll_rank *rank, double *us, struct ddp_error *err)
{
    return ddp_all_reduce(rank->side, us, us, 1, DDP_FLOAT64, DDP_MAX, NULL, err) == DDP_OK;
}
