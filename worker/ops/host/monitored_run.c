/*
 * monitored_run.c - the barrier in which rank 0 knows which ranks have come: each sends it a
 * message without bytes, and when it has all of them it answers each. At the deadline rank 0 names
 * the ranks that are missing. What goes round the ring is only looked at.
 *
 * Ranks that share memory meet there before, where a rank sees at once what the others call.
 *
 * Before it answers rank 0 looks whether a rank has failed, and afterwards it succeeds, whatever
 * the others do. So no rank succeeds unless rank 0 does.
 *
 * Owns the exchange of its run.
 */
#include "host_algorithms.h"

#include "arena_run.h"
#include "clock.h"
#include "exchange.h"
#include "mem.h"
#include "rank_names.h"
#include "wait.h"

enum { GRACE_MS = 1000 };

/* The state of a run. */
struct monitored_run {
    struct ddpi_arena_run meeting; /* used where ranks share memory */
    bool met;
    struct ddpi_exchange exchange;
    bool answers; /* rank 0 has heard of all ranks */
};
DDPI_RUN_STATE_FITS(struct monitored_run);

static struct monitored_run *monitored_of(struct ddpi_run *run)
{
    return (struct monitored_run *)(void *)run->state;
}

/* Rank 0 receives from all ranks, or answers them; another rank does both with rank 0. */
static ddp_status monitored_exchange(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct monitored_run *monitored = monitored_of(run);
    struct ddpi_call call = run->task.call;
    unsigned others = comm->world_size - 1, count = 0;
    struct ddpi_exchange_piece *pieces = ddpi_calloc((size_t)others + 1, sizeof *pieces);
    if (pieces == NULL)
        return ddpi_comm_fail(comm, NULL, DDP_E_NOMEM, "rank %u: no memory for a barrier of %u",
                              comm->rank, comm->world_size);
    call.message_class = DDPI_PIECE;
    for (uint32_t peer = 1; comm->rank == 0 && peer <= others; peer++)
        pieces[count++] = (struct ddpi_exchange_piece){.peer = peer, .sends = monitored->answers};
    if (comm->rank != 0) {
        pieces[count++] = (struct ddpi_exchange_piece){.peer = 0, .sends = true};
        pieces[count++] = (struct ddpi_exchange_piece){.peer = 0, .sends = false};
    }
    ddp_status status = ddpi_exchange_begin(comm, &monitored->exchange, &call, pieces, count);
    ddpi_free(pieces);
    return status;
}

/* At the deadline rank 0 names all that are missing. So the others give it a moment more. */
static void let_rank_0_judge(const struct ddp_comm *comm, struct ddpi_run *run)
{
    uint64_t more = run->task.timeout_ms / 4 < GRACE_MS ? run->task.timeout_ms / 4 : GRACE_MS;
    run->wait.names_missing = comm->rank == 0;
    if (comm->rank == 0)
        return;
    run->task.timeout_ms += more;
    if (run->wait.deadline_ms != 0)
        run->wait.deadline_ms += more;
}

static ddp_status monitored_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    *monitored_of(run) = (struct monitored_run){0};
    let_rank_0_judge(comm, run);
    return monitored_exchange(comm, run);
}

static bool is_missing(const void *exchange, uint32_t rank)
{
    return ddpi_exchange_lacks(exchange, rank);
}

/* On rank 0: fail if the time is up. */
static ddp_status monitored_check_time(struct ddp_comm *comm, const struct ddpi_run *run,
                                       const struct ddpi_exchange *exchange)
{
    const struct ddpi_wait *wait = &run->wait;
    uint64_t now = ddpi_monotonic_ms(), elapsed = now - wait->started_ms;
    if (wait->deadline_ms == 0 || now < wait->deadline_ms)
        return DDP_OK;
    char call[DDPI_CALL_TEXT], names[DDPI_RANK_NAMES];
    ddpi_call_name(wait->call, call);
    uint32_t count = ddpi_comm_list_ranks(comm, is_missing, exchange, names);
    return ddpi_comm_fail(
        comm, NULL, DDP_E_TIMEOUT, "%s: rank 0 has waited %llu.%llu s for %s, which %s not come",
        call, (unsigned long long)elapsed / 1000, (unsigned long long)elapsed % 1000 / 100, names,
        count == 1 ? "has" : "have");
}

/* The header that the previous rank has sent round the ring; NULL: none has come. */
static const uint8_t *header_on_ring(const struct ddp_comm *comm)
{
    struct ddpi_edge *prev = comm->edges.ring[DDPI_PREV];
    const uint8_t *header;
    bool has_come =
        prev != NULL && prev->ops->peek(prev, DDPI_CALL_WIRE_SIZE, &header) >= DDPI_CALL_WIRE_SIZE;
    return has_come ? header : NULL;
}

/* A rank that has called a collective of the ring instead tells rank 0 nothing, but its next rank.
 * If some ranks have, one that has not comes after one that has, and finds that out here. One that
 * has its answer may be ahead, in a later collective. */
static ddp_status monitored_check_ring(struct ddp_comm *comm, const struct ddpi_run *run)
{
    const struct ddpi_call *ours = &run->task.call;
    const uint8_t *header = header_on_ring(comm);
    struct ddpi_call theirs;
    if (header == NULL || !ddpi_call_decode(header, &theirs) || theirs.seq != ours->seq)
        return DDP_OK;
    return ddpi_comm_check_peer_call(comm, comm->edges.ring[DDPI_PREV], header, ours, ours);
}

static ddp_status monitored_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                    enum ddpi_movement *ret_movement)
{
    struct monitored_run *monitored = monitored_of(run);
    ddp_status status = ddpi_exchange_advance(comm, &monitored->exchange, run, ret_movement);
    if (status == DDP_OK && *ret_movement == DDPI_IDLE)
        status = monitored_check_ring(comm, run);
    if (status != DDP_OK || comm->rank != 0 || monitored->answers)
        return status;
    if (*ret_movement != DDPI_COMPLETE)
        return monitored_check_time(comm, run, &monitored->exchange);
    ddpi_exchange_end(comm, &monitored->exchange);
    if (!ddpi_notices_may_succeed(comm, &run->wait))
        return comm->failed;
    monitored->answers = run->decided = true;
    run->wait.names_missing = false;
    *ret_movement = DDPI_MOVED;
    return monitored_exchange(comm, run);
}

static unsigned monitored_most_needs(const struct ddpi_run *run)
{
    const struct monitored_run *monitored = (const void *)run->state;
    return 1 + (run->begun ? monitored->exchange.count : 0);
}

static unsigned monitored_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                                struct ddpi_need *needs)
{
    struct ddpi_edge *prev = comm->edges.ring[DDPI_PREV];
    unsigned count = ddpi_exchange_needs(comm, &monitored_of(run)->exchange, needs);
    if (header_on_ring(comm) == NULL && prev != NULL && prev->gone_ms == 0 && prev->broken == NULL)
        needs[count++] =
            (struct ddpi_need){.edge = prev, .recv_bytes = DDPI_CALL_WIRE_SIZE, .optional = true};
    return count;
}

static void monitored_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    (void)status;
    if (run->begun)
        ddpi_exchange_end(comm, &monitored_of(run)->exchange);
}

const struct ddpi_algorithm ddpi_monitored_algorithm = {.name = "monitored",
                                                        .begin = monitored_begin,
                                                        .advance = monitored_advance,
                                                        .most_needs = monitored_most_needs,
                                                        .needs = monitored_needs,
                                                        .end = monitored_end};

/* ---- where ranks share memory ---- */

static ddp_status met_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    *monitored_of(run) = (struct monitored_run){0};
    return ddpi_arena_algorithm.begin(comm, run);
}

static ddp_status met_advance(struct ddp_comm *comm, struct ddpi_run *run,
                              enum ddpi_movement *ret_movement)
{
    struct monitored_run *monitored = monitored_of(run);
    if (monitored->met)
        return monitored_advance(comm, run, ret_movement);
    ddp_status status = ddpi_arena_algorithm.advance(comm, run, ret_movement);
    if (status != DDP_OK || *ret_movement != DDPI_COMPLETE)
        return status;
    monitored->met = true;
    let_rank_0_judge(comm, run);
    *ret_movement = DDPI_MOVED;
    return monitored_exchange(comm, run);
}

static unsigned met_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                          struct ddpi_need *needs)
{
    return monitored_of(run)->met ? monitored_needs(comm, run, needs)
                                  : ddpi_arena_algorithm.needs(comm, run, needs);
}

const struct ddpi_algorithm ddpi_monitored_meeting = {.name = "monitored in shared memory",
                                                      .uses_ring = true,
                                                      .begin = met_begin,
                                                      .advance = met_advance,
                                                      .most_needs = monitored_most_needs,
                                                      .needs = met_needs,
                                                      .end = monitored_end};
