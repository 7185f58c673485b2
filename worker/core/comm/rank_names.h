/*
 * rank_names.h - ranks as error sentences name them.
 */
#ifndef DDPI_RANK_NAMES_H
#define DDPI_RANK_NAMES_H

#include "communicator.h"

enum { DDPI_RANK_NAMES = 200 };

/* "rank 3 (pid 4711 on node-b)", from the rank's card. */
void ddpi_comm_rank_name(const struct ddp_comm *comm, uint32_t rank, char name[DDPI_PEER_NAME]);

/* "ranks 2, 5 and 7", of those for which @is_listed(@ctx) holds, or the name of the only one.
 * Returns how many there are; 0: @names is "". */
uint32_t ddpi_comm_list_ranks(const struct ddp_comm *comm,
                              bool (*is_listed)(const void *ctx, uint32_t rank), const void *ctx,
                              char names[DDPI_RANK_NAMES]);

#endif
