/*
 * etcd_leader.h - what the leader's key in etcd says. Pure.
 */
#ifndef DDPI_ETCD_LEADER_H
#define DDPI_ETCD_LEADER_H

#include "etcd_codec.h"
#include "etcd_place.h"

enum { ETCD_ENDPOINT_MAX = 300, ETCD_PROCESS_CHARS = 33 };

/* What the leader's key says. */
struct ddpi_etcd_leader {
    bool exists;
    uint64_t mod_revision;
    uint64_t lease;
    char endpoint[ETCD_ENDPOINT_MAX];
    char process[ETCD_PROCESS_CHARS]; /* a random number of the process, in hexadecimal digits */
    /* Where it runs (etcd_place.h), by which a process knows that another one with its address must
     * be dead; "": not known. */
    char place[DDPI_ETCD_PLACE_CHARS];
};

/* The answer to a range that is the leader's key. */
ddp_status ddpi_etcd_read_leader(const json_t *range, struct ddpi_etcd_leader *ret,
                                 struct ddp_error *err);

/* The value of the key, of a store with this @number. From jansson: free() it; NULL: no memory. */
char *ddpi_etcd_write_leader(const struct ddpi_etcd_leader *self, uint64_t number);

#endif
