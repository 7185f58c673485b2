/*
 * master_port.h - reserves a port of this node for rank 0, if the store is not the master, and
 * finds out whether another user has a socket on it.
 *
 * Linux lets any user share a bound port with SO_REUSEADDR if no socket listens on it, and rank 0
 * (PyTorch's store) sets only that option, so other users cannot be kept away. But they can be
 * detected: listeners before each generation, and any socket after a generation failed.
 */
#ifndef CMD_MASTER_PORT_H
#define CMD_MASTER_PORT_H

#include "agent_config.h"
#include "peer_owner.h"

struct master_port {
    uint16_t number;
    int fd;       /* reserves the port; -1: nothing does */
    bool asked;   /* the user chose this port */
    bool watched; /* look for other users of this machine */
    bool met;     /* another user was found; look for any socket from now on */
    struct ddpi_owners owners;
    struct agent_port agent; /* checks the port just before workers start */
};

/* No port is reserved yet. */
void master_port_init(struct master_port *port);

/* Reserve the port @asked; 0: a free one. agent.check() works also after a failure, which reserves
 * nothing. */
DDP_MUST_CHECK ddp_status master_port_keep(struct master_port *port, uint16_t asked, bool watched,
                                           struct ddp_error *err);

/* While no worker uses the port: replace it if another user is on it, unless the user chose it. */
void master_port_renew(struct master_port *port);

/* Works without a reserved port, too. */
void master_port_close(struct master_port *port);

#endif
