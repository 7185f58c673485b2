/*
 * master_port.h - the port that is kept on this node for rank 0, where the store is not what the
 * workers meet at, and who else is on it.
 *
 * Linux lets whoever sets SO_REUSEADDR share a port that is bound and not listened on, and rank 0
 * (PyTorch's store) sets nothing else; so another user of the machine cannot be kept from it. But
 * he can be seen: whether he listens, before each generation, and whether he is there at all, when
 * one has failed.
 */
#ifndef CMD_MASTER_PORT_H
#define CMD_MASTER_PORT_H

#include "agent_config.h"
#include "peer_owner.h"

struct master_port {
    uint16_t number;
    int fd;       /* keeps it; -1: nothing does */
    bool asked;   /* the user wants this one, and no other */
    bool watched; /* other users of this machine are not trusted */
    bool met;     /* one has been seen there, and is looked for more closely */
    struct ddpi_owners owners;
    struct agent_port agent; /* to look at it just before workers start; see there */
};

/* None is kept. */
void master_port_init(struct master_port *port);

/* Keep the port @asked, 0 for a free one. On failure nothing is kept, and agent.check() works all
 * the same. */
DDP_MUST_CHECK ddp_status master_port_keep(struct master_port *port, uint16_t asked, bool watched,
                                           struct ddp_error *err);

/* Nothing runs at it: take another one if somebody else is on it, unless this one was asked for. */
void master_port_renew(struct master_port *port);

/* For one that was never kept, too. */
void master_port_close(struct master_port *port);

#endif
