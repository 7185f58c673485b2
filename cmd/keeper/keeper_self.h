/*
 * keeper_self.h - which of the listed machines this one is, and whether the others can reach it.
 */
#ifndef CMD_KEEPER_SELF_H
#define CMD_KEEPER_SELF_H

#include "cluster_list.h"

struct keeper_self {
    unsigned number;               /* in the list */
    char peer_host[DDPI_HOST_MAX]; /* in digits, where its etcd listens */
};

/*
 * Find this machine in @list, which the user gave as @text: the one that @advertise names; without
 * it, the only one that has an address of this machine. May block as long as the resolver does.
 *
 * DDP_E_INVALID: none or several are this machine's, or its name has a loopback address here, at
 * which the others cannot reach it; or another program has its ports, for 3 s.
 */
DDP_MUST_CHECK ddp_status keeper_self_find(const struct ddpi_cluster_list *list, const char *text,
                                           const char *advertise, struct keeper_self *ret,
                                           struct ddp_error *err);

#endif
