/*
 * arena_run.h - the algorithm that carries out operations in memory that all ranks share; and how
 * the ranks of a node come to the memory that they share.
 */
#ifndef DDPI_ARENA_RUN_H
#define DDPI_ARENA_RUN_H

#include "arena_op.h"
#include "run.h"

extern const struct ddpi_algorithm ddpi_arena_algorithm;

/* The state of a run, which an algorithm that begins in this way has first in its own. */
struct ddpi_arena_run {
    struct ddpi_arena_op op;
    bool under_way;
};

/* Whether collectives of @comm go through memory that all ranks share: they can, and the ring is
 * not asked for. */
bool ddpi_arena_is_chosen(const struct ddp_comm *comm);

/* Within @run of all ranks of the node, whose ring stands: get comm->arena, or go on later, when
 * the need of ddpi_arena_handover() may be met. */
ddp_status ddpi_arena_meet(struct ddp_comm *comm, const struct ddpi_run *run);
struct ddpi_need ddpi_arena_handover(const struct ddp_comm *comm);

/* Get comm->arena, where it is chosen, if there is none yet. Blocks until the ranks before this one
 * have called it as well, or begun a collective that goes through the arena. */
ddp_status ddpi_arena_have(struct ddp_comm *comm, struct ddp_error *err);

/* A rank has failed in @op: fail as it did. */
ddp_status ddpi_arena_fail_as_other(struct ddp_comm *comm, const struct ddpi_arena_op *op);

/* The rank at op->odd of the node has arrived with another call: fail. */
ddp_status ddpi_arena_fail_mismatch(struct ddp_comm *comm, const struct ddpi_arena_op *op);

#endif
