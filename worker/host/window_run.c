/*
 * window_run.c - a run in which each rank takes a descriptor from the previous one and passes it to
 * the next. Owns nothing: the descriptor is the caller's.
 */
#include "window_run.h"

#include "runs.h"

enum { WINDOW_TAG = 0x57494e44 }; /* of the descriptor on its way */

/* The state of a run. */
struct window_run {
    int *fd;
};
DDPI_RUN_STATE_FITS(struct window_run);

static struct window_run *window_run_of(struct ddpi_run *run)
{
    return (struct window_run *)(void *)run->state;
}

static ddp_status window_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                 enum ddpi_movement *ret_movement)
{
    int *fd = window_run_of(run)->fd;
    uint32_t tag = WINDOW_TAG;
    if (comm->rank > 0)
        *fd = ddpi_control_take_fd(&comm->edges.ring[DDPI_PREV]->control, &tag);
    if (*fd < 0)
        return DDP_OK;
    if (tag != WINDOW_TAG)
        return ddpi_comm_fail(comm, NULL, DDP_E_PROTOCOL,
                              "%s passed a descriptor that is not that of a window",
                              comm->edges.ring[DDPI_PREV]->peer_name);
    struct ddpi_edge *next = comm->edges.ring[DDPI_NEXT];
    if (comm->rank + 1 < comm->world_size && !ddpi_control_pass_fd(&next->control, WINDOW_TAG, *fd))
        return ddpi_wait_gone(comm, &run->wait, next);
    *ret_movement = DDPI_COMPLETE;
    return DDP_OK;
}

static unsigned window_most_needs(const struct ddpi_run *run)
{
    (void)run;
    return 1;
}

static unsigned window_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                             struct ddpi_need *needs)
{
    (void)run;
    *needs = (struct ddpi_need){.edge = comm->edges.ring[DDPI_PREV], .handover = true};
    return 1;
}

static const struct ddpi_algorithm window_algorithm = {.name = "window",
                                                       .uses_ring = true,
                                                       .advance = window_advance,
                                                       .most_needs = window_most_needs,
                                                       .needs = window_needs};

ddp_status ddpi_window_pass(struct ddp_comm *comm, int *fd, struct ddp_error *err)
{
    struct ddpi_run run = {.algorithm = &window_algorithm};
    run.task =
        (struct ddpi_task){.call = {.operation = DDPI_ALLOC}, .timeout_ms = comm->timeout_ms};
    window_run_of(&run)->fd = fd;
    ddp_status status = ddpi_comm_report(comm, err);
    if (status != DDP_OK)
        return status;
    ddpi_runs_carry_out(comm, &run);
    return run.status == DDP_OK ? DDP_OK : ddpi_comm_report(comm, err);
}
