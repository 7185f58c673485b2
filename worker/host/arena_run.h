/*
 * arena_run.h - the algorithm that carries out operations in memory that all ranks share.
 */
#ifndef DDPI_ARENA_RUN_H
#define DDPI_ARENA_RUN_H

#include "run.h"

extern const struct ddpi_algorithm ddpi_arena_algorithm;

/* Whether collectives of @comm go through memory that all ranks share: they can, and the ring is
 * not asked for. */
bool ddpi_arena_is_chosen(const struct ddp_comm *comm);

#endif
