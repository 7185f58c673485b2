/*
 * round_hooks.h - what rounds need of a server.
 */
#ifndef DDPI_ROUND_HOOKS_H
#define DDPI_ROUND_HOOKS_H

#include "server_state.h"

ddp_status ddpi_server_create_rounds(struct ddpi_server *server, const uint8_t seed[DDPI_SEED_SIZE],
                                     struct ddp_error *err);

#endif
