/*
 * parts_run.c - gather, scatter and all_to_all as an exchange of pieces (exchange.h). A run owns
 * the exchange.
 *
 * Pieces pass only between ranks that have something for each other, so calls are compared over the
 * ring (ring_compare.h).
 */
#include "host_algorithms.h"

#include "exchange.h"
#include "mem.h"
#include "ring_compare.h"

#include <string.h>

/* The state of a run. */
struct parts_run {
    struct ddpi_exchange exchange;
    struct ddpi_ring_compare compare;
    bool exchanged;
};
DDPI_RUN_STATE_FITS(struct parts_run);

static struct parts_run *parts_of(struct ddpi_run *run)
{
    return (struct parts_run *)(void *)run->state;
}

static void add_piece(struct ddpi_exchange_piece *pieces, unsigned *count, uint32_t peer,
                      bool sends, const struct ddpi_range *piece)
{
    pieces[(*count)++] = (struct ddpi_exchange_piece){
        .peer = peer, .sends = sends, .bytes = piece->bytes, .len = piece->len};
}

/* Begin with the next rank, so that not all send to the same one at first. */
static unsigned list_pieces(const struct ddp_comm *comm, const struct ddpi_task *task,
                            struct ddpi_exchange_piece *pieces)
{
    unsigned count = 0;
    for (uint32_t ahead = 1; ahead < comm->world_size; ahead++) {
        uint32_t peer = (comm->rank + ahead) % comm->world_size;
        struct ddpi_range piece;
        if (ddpi_task_to_peer(task, comm->rank, peer, &piece))
            add_piece(pieces, &count, peer, true, &piece);
        if (ddpi_task_from_peer(task, comm->rank, peer, &piece))
            add_piece(pieces, &count, peer, false, &piece);
    }
    return count;
}

static ddp_status parts_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct parts_run *parts = parts_of(run);
    struct ddpi_call call = run->task.call;
    struct ddpi_copy own = ddpi_task_own_copy(&run->task, comm->rank);
    *parts = (struct parts_run){0};
    ddpi_ring_compare_begin(&parts->compare, &call);
    if (own.len > 0)
        memcpy(own.to, own.from, own.len);
    struct ddpi_exchange_piece *pieces = ddpi_calloc(2 * (size_t)comm->world_size, sizeof *pieces);
    if (pieces == NULL)
        return ddpi_comm_fail(comm, NULL, DDP_E_NOMEM,
                              "rank %u: no memory for the parts of %u ranks", comm->rank,
                              comm->world_size);
    call.message_class = DDPI_PIECE;
    ddp_status status = ddpi_exchange_begin(comm, &parts->exchange, &call, pieces,
                                            list_pieces(comm, &run->task, pieces));
    ddpi_free(pieces);
    return status;
}

static ddp_status parts_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                enum ddpi_movement *ret_movement)
{
    struct parts_run *parts = parts_of(run);
    bool moved = false;
    ddp_status status = ddpi_ring_compare_advance(comm, &parts->compare, &run->task.call, &moved);
    enum ddpi_movement movement = DDPI_IDLE;
    if (status == DDP_OK && !parts->exchanged)
        status = ddpi_exchange_advance(comm, &parts->exchange, run, &movement);
    parts->exchanged |= movement == DDPI_COMPLETE;
    *ret_movement = moved || movement != DDPI_IDLE ? DDPI_MOVED : DDPI_IDLE;
    if (parts->exchanged && ddpi_ring_compare_is_done(&parts->compare))
        *ret_movement = DDPI_COMPLETE;
    return status;
}

static unsigned parts_most_needs(const struct ddpi_run *run)
{
    const struct parts_run *parts = (const struct parts_run *)(const void *)run->state;
    return DDPI_RING_EDGES + (run->begun ? parts->exchange.count : 0);
}

static unsigned parts_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                            struct ddpi_need *needs)
{
    struct parts_run *parts = parts_of(run);
    unsigned count = ddpi_ring_compare_needs(comm, &parts->compare, needs);
    if (!parts->exchanged)
        count += ddpi_exchange_needs(comm, &parts->exchange, needs + count);
    return count;
}

static void parts_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    (void)status;
    if (run->begun)
        ddpi_exchange_end(comm, &parts_of(run)->exchange);
}

const struct ddpi_algorithm ddpi_parts_algorithm = {.name = "parts",
                                                    .uses_ring = true,
                                                    .begin = parts_begin,
                                                    .advance = parts_advance,
                                                    .most_needs = parts_most_needs,
                                                    .needs = parts_needs,
                                                    .end = parts_end};
