/*
 * arena_wait.c - sleeps on the bell of an arena. Owns nothing.
 *
 * Other ranks ring it when they make progress, when they fail and when they leave, and when they
 * see that a rank has died (lives.h). One that connects rings nothing: so a sleep lasts some
 * milliseconds at most, and then the control sockets are read.
 *
 * Everybody can see who has arrived. So at the deadline the sentence names all ranks that have not.
 * Neighbours are asked before, as a rank that is missing may wait for another node, or in a
 * message.
 */
#include "wait.h"

#include "arena_op.h"
#include "clock.h"
#include "rank_names.h"

#include <stdio.h>

enum {
    SLEEP_MOST_US = 4000,
    SLEEP_DOUBT_US = 1000, /* while it is not certain that a rank has died */
};

/* An operation in the arena of the own node. */
struct node_op {
    const struct ddpi_nodes *nodes;
    const struct ddpi_arena_op *op;
};

static bool is_missing(const void *ctx, uint32_t rank)
{
    const struct node_op *here = ctx;
    return ddpi_node_has(here->nodes, rank) &&
           ddpi_arena_misses(here->op, rank - ddpi_node_first(here->nodes));
}

static bool misses(const struct ddp_comm *comm, const struct ddpi_arena_op *op, uint32_t rank)
{
    return is_missing(&(struct node_op){&comm->edges.nodes, op}, rank);
}

/* Whether @doubted is about a rank that is missing. */
static bool is_about_missing(const struct ddp_comm *comm, const struct ddpi_arena_op *op,
                             const char *doubted)
{
    for (uint32_t rank = 0; rank < comm->world_size; rank++)
        if (ddpi_question_is_about(doubted, rank))
            return misses(comm, op, rank);
    return false;
}

/* What is said of @count ranks that have not come. */
static void find_out(const struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_arena_op *op, uint32_t count, char *text, size_t size)
{
    const char *doubted = ddpi_question_doubted(comm, wait);
    bool missing = doubted != NULL && is_about_missing(comm, op, doubted);
    if (op->stage == DDPI_ARENA_STAGE_FAILS)
        snprintf(text, size, "which failed, and %s not said why", count == 1 ? "has" : "have");
    else if (doubted != NULL && !missing)
        snprintf(text, size, "which may wait as well, as %s", doubted);
    else
        snprintf(text, size, "which %s%s stopped%s%s",
                 op->checked  ? ""
                 : count == 1 ? "has not called it, or "
                              : "have not called it, or ",
                 count == 1 ? "is" : "are", missing && count > 1 ? "; " : "",
                 missing && count > 1 ? doubted : "");
}

static ddp_status fail_missing(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               const struct ddpi_arena_op *op, uint64_t now)
{
    char call[DDPI_CALL_TEXT], names[DDPI_RANK_NAMES], finding[DDP_ERROR_TEXT];
    uint64_t elapsed = now - wait->started_ms;
    ddpi_call_name(wait->call, call);
    const struct node_op here = {&comm->edges.nodes, op};
    uint32_t count = ddpi_comm_list_ranks(comm, is_missing, &here, names);
    if (count == 0) /* they have come at the last moment */
        return DDP_OK;
    find_out(comm, wait, op, count, finding, sizeof finding);
    return ddpi_comm_fail(comm, NULL, DDP_E_TIMEOUT,
                          "%s: rank %u has waited %llu.%llu s for %s, %s", call, comm->rank,
                          (unsigned long long)elapsed / 1000,
                          (unsigned long long)elapsed % 1000 / 100, names, finding);
}

ddp_status ddpi_arena_check_ring(struct ddp_comm *comm, const struct ddpi_call *call)
{
    struct ddpi_edge *prev = comm->edges.ring[DDPI_PREV];
    const uint8_t *header;
    if (prev->ops->peek(prev, DDPI_CALL_WIRE_SIZE, &header) < DDPI_CALL_WIRE_SIZE)
        return DDP_OK;
    return ddpi_comm_check_peer_call(comm, prev, header, call, call);
}

/* Where all ranks are in the arena, a neighbour matters that sends over the ring, as no rank goes
 * on to another operation before this one has its part of the current one. And one that is gone, if
 * this rank needs something from it. */
static ddp_status check_neighbours(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                   const struct ddpi_arena_op *op)
{
    const struct ddpi_edge *prev = comm->edges.ring[DDPI_PREV];
    const uint8_t *header;
    bool sends = prev->ops->peek(comm->edges.ring[DDPI_PREV], DDPI_CALL_WIRE_SIZE, &header) > 0;
    if (op->stage == DDPI_ARENA_STAGE_FAILS) /* others may be ahead */
        return DDP_OK;
    if (sends && ddpi_edges_share_memory(&comm->edges) && !ddpi_arena_is_ready(op))
        return ddpi_arena_check_ring(comm, wait->call);
    for (unsigned i = 0; i < DDPI_RING_EDGES; i++) {
        struct ddpi_edge *edge = comm->edges.ring[i];
        if (edge->gone_ms != 0 && misses(comm, op, edge->peer) && !ddpi_arena_is_ready(op))
            return ddpi_judge_gone(comm, wait, edge);
    }
    return DDP_OK;
}

/* A rank that the operation waits for and that seems to have died; false: there is none. */
static bool seems_dead(const struct ddp_comm *comm, const struct ddpi_arena_op *op,
                       uint32_t *ret_rank)
{
    return ddpi_judge_finds_death(comm, ret_rank) && misses(comm, op, *ret_rank) &&
           !ddpi_arena_is_ready(op);
}

/* What the rank has sent before it died comes first. */
static ddp_status check_lives(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              const struct ddpi_arena_op *op)
{
    uint32_t rank;
    char call[DDPI_CALL_TEXT], name[DDPI_PEER_NAME];
    if (!seems_dead(comm, op, &rank) || !ddpi_judge_is_dead(comm, rank))
        return DDP_OK;
    ddp_status status = ddpi_notices_read_ready(comm, wait, NULL);
    if (status != DDP_OK)
        return status;
    ddpi_call_name(wait->call, call);
    ddpi_comm_rank_name(comm, rank, name);
    return ddpi_comm_fail(comm, NULL, DDP_E_PEER_DEAD, "%s has died; rank %u noticed it in %s",
                          name, comm->rank, call);
}

/* A rank that is missing may wait for another one, which waits as well. */
static ddp_status question_neighbours(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                      const struct ddpi_arena_op *op, uint64_t now)
{
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < DDPI_RING_EDGES && status == DDP_OK; i++)
        if (misses(comm, op, comm->edges.ring[i]->peer) && !ddpi_arena_is_ready(op))
            status = ddpi_judge_peer(comm, wait, comm->edges.ring[i], now);
    return status;
}

ddp_status ddpi_arena_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                            const struct ddpi_need *need, bool *ret_ready)
{
    const struct ddpi_arena_op *op = need->arena_op;
    uint64_t now = ddpi_monotonic_ms();
    *ret_ready = ddpi_arena_is_ready(op);
    if (*ret_ready)
        return DDP_OK;
    ddp_status status = check_neighbours(comm, wait, op);
    if (status == DDP_OK)
        status = check_lives(comm, wait, op);
    bool late = now >= wait->deadline_ms && ddpi_edges_share_memory(&comm->edges);
    if (status == DDP_OK && now >= ddpi_question_begins_ms(wait) && !late)
        status = question_neighbours(comm, wait, op, now);
    if (status == DDP_OK && now >= wait->deadline_ms)
        status = fail_missing(comm, wait, op, now);
    return status == DDP_OK ? ddpi_comm_check_abort(comm) : status;
}

/* In microseconds. */
static uint32_t sleep_time(const struct ddpi_wait *wait, uint64_t until_ms, uint32_t most_us)
{
    uint64_t now = ddpi_monotonic_ms(), left_ms = most_us;
    if (wait->deadline_ms > now)
        left_ms = wait->deadline_ms - now;
    if (until_ms != 0 && until_ms < now + left_ms)
        left_ms = until_ms > now ? until_ms - now : 0;
    if (left_ms == 0)
        return 1;
    return left_ms < most_us / 1000 ? (uint32_t)left_ms * 1000 : most_us;
}

ddp_status ddpi_arena_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct ddpi_need *need)
{
    const struct ddpi_wait *own = need->wait != NULL ? need->wait : wait;
    struct ddpi_arena *arena = need->arena_op->arena;
    bool ready;
    uint32_t dead;
    uint32_t ticket = ddpi_arena_doze(arena);
    ddp_status status = ddpi_arena_judge(comm, own, need, &ready);
    if (status == DDP_OK && !ready)
        ddpi_arena_sleep(
            arena, ticket,
            sleep_time(own, wait->until_ms,
                       seems_dead(comm, need->arena_op, &dead) ? SLEEP_DOUBT_US : SLEEP_MOST_US));
    ddpi_arena_awake(arena);
    if (status == DDP_OK && !ready)
        status = ddpi_notices_read_ready(comm, own, NULL);
    return status == DDP_OK ? ddpi_comm_check_abort(comm) : status;
}
