/*
 * finalize.c - the last run of a communicator: it moves nothing, and is complete when every peer
 * has taken what was sent to it, and no message is on its way. Owns nothing.
 *
 * The kernel tells nobody when the other end of a TCP connection has taken bytes, so a rank looks
 * again after each short sleep.
 */
#include "finalize.h"

#include "runs.h"

enum { LOOK_US = 500 };

static size_t edge_untaken(struct ddpi_edge *edge)
{
    return edge != NULL && edge->ops->untaken != NULL ? edge->ops->untaken(edge) : 0;
}

static uint64_t all_untaken(const struct ddp_comm *comm)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < ddpi_edges_places(&comm->edges); i++)
        bytes += edge_untaken(ddpi_edges_at(&comm->edges, i));
    return bytes;
}

/* The next message behind @node that moves: all but receives whose message has not come. */
static struct ddpi_run *next_moving(const struct ddp_comm *comm, const struct ddpi_list *node)
{
    for (node = node->next; node != &comm->runs.messages; node = node->next) {
        struct ddpi_run *run = ddpi_container_of(node, struct ddpi_run, link);
        if (run->wait.sends || run->wait.bytes_done > 0)
            return run;
    }
    return NULL;
}

static ddp_status finalize_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    const struct ddpi_run *moving = next_moving(comm, &comm->runs.messages);
    for (; moving != NULL; moving = next_moving(comm, &moving->link))
        run->task.own += moving->algorithm->most_needs(moving);
    run->wait.nap_us = LOOK_US;
    run->wait.sends = true;
    run->wait.bytes_wanted = all_untaken(comm);
    return DDP_OK;
}

static ddp_status finalize_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                   enum ddpi_movement *ret_movement)
{
    uint64_t bytes = all_untaken(comm);
    if (bytes <= run->wait.bytes_wanted)
        run->wait.bytes_done = run->wait.bytes_wanted - bytes;
    bool rests = bytes == 0 && next_moving(comm, &comm->runs.messages) == NULL;
    *ret_movement = rests ? DDPI_COMPLETE : DDPI_IDLE;
    return DDP_OK;
}

static unsigned finalize_most_needs(const struct ddpi_run *run)
{
    return (unsigned)run->task.own;
}

static unsigned finalize_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                               struct ddpi_need *needs)
{
    unsigned count = 0;
    struct ddpi_run *moving = next_moving(comm, &comm->runs.messages);
    for (; moving != NULL && count < run->task.own; moving = next_moving(comm, &moving->link))
        count += moving->algorithm->needs(comm, moving, needs + count);
    for (uint32_t i = 0; i < ddpi_edges_places(&comm->edges); i++) {
        struct ddpi_edge *edge = ddpi_edges_at(&comm->edges, i);
        if (edge_untaken(edge) > 0)
            needs[count++] = (struct ddpi_need){.edge = edge, .taken = true};
    }
    return count;
}

static const struct ddpi_algorithm finalize_algorithm = {.name = "finalize",
                                                         .begin = finalize_begin,
                                                         .advance = finalize_advance,
                                                         .most_needs = finalize_most_needs,
                                                         .needs = finalize_needs};

ddp_status ddpi_finalize(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err)
{
    struct ddpi_run run = {.algorithm = &finalize_algorithm};
    if (atomic_exchange(&comm->finalized, true))
        return ddpi_comm_report(comm, err);
    run.task = (struct ddpi_task){.call = {.operation = DDPI_FINALIZE},
                                  .own = ddpi_edges_places(&comm->edges),
                                  .timeout_ms = timeout_ms};
    ddpi_runs_carry_out(comm, &run);
    atomic_store(&comm->leaves, true);
    ddpi_runs_drain(comm);
    return ddpi_comm_report(comm, err);
}
