/*
 * client_store.h - internal functions of the clients, beyond <ddprun/store.h>, for this project's
 * programs: the number of the connected store, and vouching for the TCPStore clients of a job.
 */
#ifndef DDPI_CLIENT_STORE_H
#define DDPI_CLIENT_STORE_H

#include <ddprun/round.h>
#include <ddprun/store.h>
#include <stdbool.h>
#include <stdint.h>

/* The number of the store that a handle is connected to, or was last connected to. False: it has
 * not connected yet, or the store proved no key. A role key is made for one store (proof.h). */
bool ddpi_store_met(ddp_store *store, uint64_t *ret_number);
/* The host of the server that is connected, or dialled, as it was given. */
const char *ddpi_store_uv_host(const ddp_store_uv *store);

bool ddpi_store_uv_met(const ddp_store_uv *store, uint64_t *ret_number);
/* The client under @round, which owns it: for requests of the same agent. */
ddp_store_uv *ddpi_round_store(const ddp_round *round);

/* Pass on the events of watches that were asked for there, by others than @round. */
void ddpi_round_pass_events(ddp_round *round,
                            void (*pass)(void *data, const struct ddp_store_event *event),
                            void *data);

/* A keeper (cmd/keeper), which proves the token; and its only operation: -> value. */
#define DDPI_STORE_KEEPER           ((enum ddp_store_role)3)
#define DDPI_STORE_OP_KEEPER_STATUS ((enum ddp_store_op)(DDP_STORE_OP_FENCE + 1))

/* Why the store refuses the connection; DDP_OK: it does not, or has not said so. */
ddp_status ddpi_store_uv_refusal(const ddp_store_uv *store);

/* Vouch for the TCPStore clients of @job on this host, and for no others: an agent sends this with
 * its proof on each connection that follows. */
void ddpi_store_uv_vouch_for(ddp_store_uv *store, const char *job);

#endif
