/*
 * keeper_self.h - which of the listed machines this one is, and whether the others can reach it.
 */
#ifndef CMD_KEEPER_SELF_H
#define CMD_KEEPER_SELF_H

#include "cluster_list.h"
#include "log.h"

struct keeper_self_question {
    const struct ddpi_cluster_list *list;
    const char *text;      /* the list, as the user gave it */
    const char *advertise; /* NULL: the only one that has an address of this machine */
    const char *option;    /* that a message advises to say it by */
    /* NULL: it waits a while for names that have no address yet. Else as long as it takes, and this
     * is called when it begins to. */
    void (*waits)(void *ctx);
    void *ctx;
    const struct ddpi_log *log;
};

struct keeper_self {
    unsigned number;               /* in the list */
    char peer_host[DDPI_HOST_MAX]; /* in digits, where its etcd listens */
};

/*
 * Find this machine in the list: the one that @advertise names, or else the one that has an address
 * of this machine. May block as long as the resolver does, and for 40 s, or for ever with @waits,
 * while none is this machine's and a name, which could be, has no address yet.
 *
 * DDP_E_NOT_FOUND: none is this machine's. DDP_E_INVALID: several are, or one that could be has no
 * address, or a loopback address here, at which the others cannot reach it.
 */
DDP_MUST_CHECK ddp_status keeper_self_find(const struct keeper_self_question *question,
                                           struct keeper_self *ret, struct ddp_error *err);

/* See whether its ports are free; another program that has one may take 3 s to end. */
DDP_MUST_CHECK ddp_status keeper_self_await_ports(const struct keeper_self *self,
                                                  const struct ddpi_cluster_list *list,
                                                  struct ddp_error *err);

#endif
