/*
 * peer_owner.h - which user owns the peer's end of a TCP connection within this machine, and
 * whether other users have sockets on a port.
 *
 * The kernel's socket diagnosis answers that in some microseconds. If it is not available (a kernel
 * without the module, a service that may not open such sockets), the table of connections is read,
 * at a cost that grows with their number. The owner is unknown if the socket is in another network
 * namespace, has been closed meanwhile, or if there was no descriptor or memory for the request.
 */
#ifndef DDPI_PEER_OWNER_H
#define DDPI_PEER_OWNER_H

#include "peer_owner_wire.h"

struct ddpi_owners {
    int fd;          /* netlink; -1: none yet */
    uint32_t number; /* of the latest request */
    bool works;      /* the diagnosis has answered once */
    bool has_none;   /* it does not work: read the table */
    bool whole;      /* this user namespace maps all user ids */
    uint32_t nobody; /* else the id that unmapped users have */
};

/* Opens no socket; reads the map of user ids. */
void ddpi_owners_init(struct ddpi_owners *owners);
void ddpi_owners_finish(struct ddpi_owners *owners);

/* Whether the socket at @peer, the other end of a connection whose local end is @here, is owned by
 * the effective user or root. *@ret_owner is its user id, if *@ret_known. Does not block. */
bool ddpi_owners_ours(struct ddpi_owners *owners, const struct ddpi_end *peer,
                      const struct ddpi_end *here, uint32_t *ret_owner, bool *ret_known);

/* The same for the peer of the socket @fd. False, too, if that is not connected. Reads the map of
 * user ids and opens a socket of its own: for a connection now and then. */
bool ddpi_owners_peer_is_ours(int fd);

/* Whether a user other than the effective one and root has a socket that listens on TCP port @port,
 * at any address: *@ret_owner is the id of one. @bound includes sockets that are only bound; the
 * kernel takes some ms for that, and reports them through the diagnosis only, since Linux 6.8. Does
 * not block. */
bool ddpi_owners_stranger_on(const struct ddpi_owners *owners, uint16_t port, bool bound,
                             uint32_t *ret_owner);

#endif
