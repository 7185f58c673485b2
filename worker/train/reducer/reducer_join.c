/*
 * reducer_join.c - a rank that has no more data takes part in the steps of the others with zeros,
 * until none has data. Owns nothing.
 */
#include "reducer.h"

#include "error.h"

/* Which rank has the newest model: all ranks tell in how many steps they had data. The highest of
 * the latest wins. */
static ddp_status find_last(struct ddp_reducer *reducer, uint64_t steps, uint32_t *ret_last,
                            struct ddp_error *err)
{
    uint64_t latest = steps, candidate;
    ddp_status status =
        ddp_all_reduce(reducer->comm, &latest, &latest, 1, DDP_UINT64, DDP_MAX, NULL, err);
    if (status != DDP_OK)
        return status;
    candidate = latest == steps ? reducer->rank : 0;
    status =
        ddp_all_reduce(reducer->comm, &candidate, &candidate, 1, DDP_UINT64, DDP_MAX, NULL, err);
    *ret_last = (uint32_t)candidate;
    return status;
}

static ddp_status share_last(struct ddp_reducer *reducer, uint64_t steps, uint32_t *ret_last,
                             struct ddp_error *err)
{
    ddp_status status = find_last(reducer, steps, ret_last, err);
    if (status == DDP_OK && !reducer->options.no_broadcast)
        status =
            ddpi_reducer_share(reducer, reducer->parameters, reducer->nparameters, *ret_last, err);
    if (status == DDP_OK && !reducer->options.no_broadcast)
        status = ddpi_reducer_share(reducer, reducer->buffers, reducer->nbuffers, *ret_last, err);
    return status;
}

/* Take part in one step; *@ret_others: whether some rank still had data. */
static ddp_status shadow_step(struct ddp_reducer *reducer, bool *ret_others, struct ddp_error *err)
{
    pthread_mutex_lock(&reducer->lock);
    ddp_status status = ddpi_step_begin(reducer, true, ret_others, err);
    pthread_mutex_unlock(&reducer->lock);
    return status == DDP_OK && *ret_others ? ddpi_step_finish(reducer, err) : status;
}

ddp_status ddp_reducer_join(ddp_reducer *reducer, uint32_t *ret_last, struct ddp_error *err)
{
    struct ddp_error cause;
    uint64_t steps = reducer->begun;
    uint32_t last = 0;
    ddp_status status = DDP_OK;
    if (!reducer->options.uneven_inputs)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "ddp_reducer_join(): the reducer was created without uneven_inputs");
    for (bool others = true; others && status == DDP_OK;)
        status = shadow_step(reducer, &others, err);
    if (status != DDP_OK)
        return status;
    pthread_mutex_lock(&reducer->lock);
    status = share_last(reducer, steps, &last, &cause);
    if (status != DDP_OK)
        status = ddpi_reducer_fail(reducer, status, &cause, err);
    reducer->static_map = false; /* this rank may not have seen the first step */
    reducer->begun = 0;
    pthread_mutex_unlock(&reducer->lock);
    if (ret_last != NULL)
        *ret_last = last;
    return status;
}
