/*
 * peer_owner.h - whose the other end of a TCP connection within this machine is, and whether other
 * users have sockets on a port, as the kernel tells.
 *
 * It is asked by its socket diagnosis, an exact look-up of some microseconds; where that is not to
 * be had (a kernel without the module, a service that may not open such sockets), by its table of
 * connections, whose cost grows with their number. What it does not know of is nobody's: a socket
 * of another network namespace, one that has been closed meanwhile, or one for whose question there
 * was no descriptor or memory.
 */
#ifndef DDPI_PEER_OWNER_H
#define DDPI_PEER_OWNER_H

#include "peer_owner_wire.h"

struct ddpi_owners {
    int fd;          /* of netlink; -1: there is none yet */
    uint32_t number; /* of the latest question */
    bool works;      /* an answer has shown that it does */
    bool has_none;   /* it does not: the table is read */
    bool whole;      /* all users of the machine have numbers of their own here */
    uint32_t nobody; /* else what those have who have none */
};

/* Opens nothing; looks once at the numbers of users. */
void ddpi_owners_init(struct ddpi_owners *owners);
void ddpi_owners_finish(struct ddpi_owners *owners);

/* Whether the process that has the other end of a connection, @peer, is the effective user's or
 * root's; *@ret_owner is its user id, if @ret_known. @here is our end. Does not block. */
bool ddpi_owners_ours(struct ddpi_owners *owners, const struct ddpi_end *peer,
                      const struct ddpi_end *here, uint32_t *ret_owner, bool *ret_known);

/* Whether a user who is neither the effective one nor root has a socket that listens on TCP port
 * @port of this machine, at any address: *@ret_owner is the user id of one. With @bound, which
 * takes the kernel some ms, also one that is bound to it and does nothing yet; only the diagnosis
 * tells of those, from Linux 6.8 on. Does not wait. */
bool ddpi_owners_stranger_on(const struct ddpi_owners *owners, uint16_t port, bool bound,
                             uint32_t *ret_owner);

#endif
