/*
 * bootstrap.h - how ranks that know only the store become a ring.
 */
#ifndef DDPI_BOOTSTRAP_H
#define DDPI_BOOTSTRAP_H

#include "communicator.h"

/* Fill the edges and the spin limit of @comm, whose world is larger than one. Returns when all
 * ranks have done so. */
ddp_status ddpi_bootstrap(struct ddp_comm *comm, const struct ddpi_config *config,
                          struct ddp_error *err);

#endif
