/*
 * unique_id.h - what is in the 128 bytes of a unique id: the address at which rank 0 listens, a
 * secret, and the descriptor of the listener, for the process that has it.
 *
 * The id owns the descriptor, as the library keeps no list of ids: a process finds out by the
 * number of the file (inode) whether the descriptor in an id is its own. It is hostile until
 * checked, as it may come from anywhere.
 */
#ifndef DDPI_UNIQUE_ID_H
#define DDPI_UNIQUE_ID_H

#include "peer_card.h"
#include "rank_key.h"

#include <ddprun/comm.h>

struct ddpi_id {
    uint8_t secret[DDPI_KEY_SIZE];
    struct sockaddr_storage address;
    uint32_t pid; /* of the process that has made it; 0: unknown */
    char node[DDPI_NODE_TEXT];
    uint32_t fd; /* where it listens, in that process */
    uint64_t inode;
};

/* Listen at an address for @interfaces and @host (own_address.h), and fill @ret_id. Children of
 * fork() have the listener, too, if @inherited. */
ddp_status ddpi_id_make(const char *interfaces, const char *host, bool inherited,
                        struct ddp_unique_id *ret_id, struct ddp_error *err);

/* DDP_E_INVALID: these bytes are not a unique id. */
ddp_status ddpi_id_read(const struct ddp_unique_id *id, struct ddpi_id *ret, struct ddp_error *err);

/* The listener, if this process has it; -1 if not. */
int ddpi_id_listener(const struct ddpi_id *id);

/* The key of the ranks. */
void ddpi_id_key(const struct ddpi_id *id, struct ddpi_rank_key *ret);

#endif
