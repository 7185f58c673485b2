/*
 * sweep.c - which pairs of a type and a reduction belong to a sample.
 */
#include "sweep.h"

#include "elements.h"

static bool has(const struct sweep *sweep, unsigned dtype, unsigned op)
{
    return (op != DDP_PREMUL_SUM || sweep->premul) &&
           elements_reduce((ddp_dtype)dtype, (ddp_reduce_op)op);
}

/* How many reductions before @end the type has. */
static unsigned count_before(const struct sweep *sweep, unsigned dtype, unsigned end)
{
    unsigned count = 0;
    for (unsigned op = 0; op < end; op++)
        count += has(sweep, dtype, op);
    return count;
}

/* How many types before this one have as many reductions. */
static unsigned count_like(const struct sweep *sweep, unsigned all)
{
    unsigned count = 0;
    for (unsigned dtype = 0; dtype < sweep->dtype; dtype++)
        count += count_before(sweep, dtype, DDPI_REDUCE_OPS) == all;
    return count;
}

/* Of each type's reductions another one in each world, and in a world another one for each type of
 * a kind. */
static bool is_in_sample(const struct sweep *sweep)
{
    unsigned all = count_before(sweep, sweep->dtype, DDPI_REDUCE_OPS);
    unsigned place = count_before(sweep, sweep->dtype, sweep->op);
    return (place + count_like(sweep, all) + sweep->world) % all == 0;
}

bool sweep_next(struct sweep *sweep)
{
    while (sweep->next < DDPI_DTYPES * DDPI_REDUCE_OPS) {
        sweep->turn = sweep->next++;
        sweep->dtype = (ddp_dtype)(sweep->turn / DDPI_REDUCE_OPS);
        sweep->op = (ddp_reduce_op)(sweep->turn % DDPI_REDUCE_OPS);
        if (has(sweep, sweep->dtype, sweep->op) && (sample_is_whole() || is_in_sample(sweep)))
            return true;
    }
    return false;
}
