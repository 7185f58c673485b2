/*
 * etcd_place.h - the kernel and network in which this process runs, and its claim to be the only
 * one there that serves a store at an address. So a leader that etcd names with this place and this
 * address is dead, if it is not this process.
 *
 * The claim is a socket with a name of the network namespace, which the kernel gives back when the
 * process dies, however it does.
 */
#ifndef DDPI_ETCD_PLACE_H
#define DDPI_ETCD_PLACE_H

#include <ddprun/status.h>

enum { DDPI_ETCD_PLACE_CHARS = 96 };

struct ddpi_etcd_place {
    char text[DDPI_ETCD_PLACE_CHARS]; /* "": not known, or nothing could be claimed there */
    int claim;                        /* -1: none */
};

/* Claim @endpoint for the store at @prefix of etcd. DDP_E_INVALID: another process has it. */
ddp_status ddpi_etcd_place_take(struct ddpi_etcd_place *place, const char *prefix,
                                const char *endpoint, struct ddp_error *err);

void ddpi_etcd_place_leave(struct ddpi_etcd_place *place);

#endif
