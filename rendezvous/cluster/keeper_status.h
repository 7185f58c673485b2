/*
 * keeper_status.h - what a keeper tells the other keepers of its list, as JSON. Pure; what arrives
 * is data to judge.
 */
#ifndef DDPI_KEEPER_STATUS_H
#define DDPI_KEEPER_STATUS_H

#include "cluster_list.h"

#include <stdint.h>

enum {
    DDPI_KEEPER_STATUS_MAX = 4096, /* bytes of its text */
    DDPI_KEEPER_JOB_MAX = 64,      /* of a name */
};

enum ddpi_keeper_phase {
    KEEPER_EMPTY,    /* it has no data, and belongs to no cluster of etcd */
    KEEPER_PROMISED, /* to the cluster @number, of which it has not seen a leader yet */
    KEEPER_MEMBER,   /* of the cluster @number */
    KEEPER_ENDING,   /* the same, but its job is over */
};

struct ddpi_keeper_status {
    char list[DDPI_CLUSTER_LIST_TEXT]; /* ddpi_cluster_list_put() */
    unsigned self;                     /* its number in the list */
    char job[DDPI_KEEPER_JOB_MAX + 1]; /* that its store is for; "": it was given none */
    enum ddpi_keeper_phase phase;
    uint64_t life;   /* random, of its folder: a keeper that has lost its data is another life */
    uint64_t number; /* random, of its cluster; 0: none */
    /* The lives for which the cluster was proposed; 0: that machine was not there. */
    uint64_t founders[DDPI_CLUSTER_SIZE];
    bool leads;        /* its etcd has a quorum and says that its store leads, ... */
    bool knows_leader; /* ... or some store */
    /* The lives that etcd has been told to take in place of a lost member. */
    uint64_t admitted[DDPI_CLUSTER_SIZE];
};

/* The length of the text; 0: no memory. */
size_t ddpi_keeper_status_put(const struct ddpi_keeper_status *status,
                              char text[DDPI_KEEPER_STATUS_MAX]);

/* DDP_E_PROTOCOL: it is none. */
ddp_status ddpi_keeper_status_get(const char *text, size_t len, struct ddpi_keeper_status *ret,
                                  struct ddp_error *err);

#endif
