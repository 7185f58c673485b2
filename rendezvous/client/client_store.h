/*
 * client_store.h - which store a handle has met, and for whom it vouches there: what programs of
 * ours ask of the clients beyond <ddprun/store.h>.
 */
#ifndef DDPI_CLIENT_STORE_H
#define DDPI_CLIENT_STORE_H

#include <ddprun/round.h>
#include <ddprun/store.h>
#include <stdbool.h>
#include <stdint.h>

/* The number of the store that a handle is connected to, or was last; false: there was none yet, or
 * it has not proven itself. A key of a role is made for one store (proof.h). */
bool ddpi_store_met(ddp_store *store, uint64_t *ret_number);
bool ddpi_store_uv_met(const ddp_store_uv *store, uint64_t *ret_number);
bool ddpi_round_met(const ddp_round *round, uint64_t *ret_number);

/* For the TCPStore clients of @job, and no other, who are on this host: an agent's word, given with
 * its proof on each connection that follows. */
void ddpi_store_uv_vouch_for(ddp_store_uv *store, const char *job);

#endif
