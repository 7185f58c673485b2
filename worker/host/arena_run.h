/*
 * arena_run.h - the algorithm that carries out operations in memory that all ranks share.
 */
#ifndef DDPI_ARENA_RUN_H
#define DDPI_ARENA_RUN_H

#include "run.h"

extern const struct ddpi_algorithm ddpi_arena_algorithm;

/* Whether all ranks of @comm can share memory; every rank gets the same answer. */
bool ddpi_arena_is_possible(const struct ddp_comm *comm);

#endif
