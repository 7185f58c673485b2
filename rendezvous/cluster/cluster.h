/*
 * cluster.h - what the keeper of one of three machines does next: found a cluster of etcd, join the
 * one that there is, take in a keeper that has lost its data, or begin again. Pure.
 *
 * Nobody tells a keeper what to do. Each reads what the other two say of themselves
 * (keeper_status.h), several times a second, and decides by itself. The rules:
 *
 *   - A life is a folder of data, and starts one etcd, once, as one member. A keeper that has lost
 *     its data is another life, and another member. So no member of etcd ever forgets a vote.
 *   - The first cluster has all three machines as members, so two of them are a quorum. It begins
 *     when all are empty, or when two have been empty for a while and nobody knows a leader. The
 *     first empty one in the list proposes a number, for the lives that it sees. Whoever sees its
 *     own life there promises itself to this number, and to no other one. Two promises are enough
 *     to start. As each life makes one promise, two clusters cannot both have two.
 *   - The keeper whose store leads lets etcd replace the member of a machine that it sees to be
 *     empty, one at a time, and says for which life. That life starts as the new member. A new
 *     leader waits first, until nobody can begin any more with what the last one said.
 *   - A life whose cluster can never have a quorum again begins anew: no leader in 10 s after its
 *     promise, or the other machines belong to another cluster.
 *
 *   EMPTY --sees a proposal for its life, or proposes--> PROMISED --a leader is known--> MEMBER
 *     |                                                                                    ^
 *     +--the leader has let etcd take this life in place of a lost one---------------------+
 */
#ifndef DDPI_CLUSTER_H
#define DDPI_CLUSTER_H

#include "keeper_status.h"

enum {
    DDPI_CLUSTER_FRESH_MS = 1000,    /* what a keeper said longer ago does not count */
    DDPI_CLUSTER_PROMISE_MS = 10000, /* without a leader, a promise is given up after this */
};

struct ddpi_cluster {
    const struct ddpi_cluster_list *list;
    uint32_t quiet_ms; /* two empty keepers wait this long for a leader */
    struct ddpi_keeper_status own;
    struct {
        bool known;
        uint64_t at_ms;
        struct ddpi_keeper_status status;
    } heard[DDPI_CLUSTER_SIZE];
    bool started;    /* its etcd */
    bool replacing;  /* a member */
    uint64_t led_ms; /* when a leader was known last, or this life began */
    uint64_t promised_ms;
    uint64_t leads_ms; /* since when this machine's store leads */
};

enum ddpi_cluster_action {
    CLUSTER_NONE,
    CLUSTER_START_NEW,      /* start etcd as a founder of the cluster own.number */
    CLUSTER_START_EXISTING, /* start it as a new member among those with the bits @members */
    CLUSTER_REPLACE,        /* let etcd replace the member of machine @machine */
    CLUSTER_WIPE,           /* end etcd, delete the data, and begin another life */
};

struct ddpi_cluster_step {
    enum ddpi_cluster_action action;
    unsigned members;
    unsigned machine;
    uint64_t life;   /* of REPLACE: for ddpi_cluster_replaced() */
    const char *why; /* of WIPE: a clause */
};

/* Begin a life, without data. @list outlives it. What was heard stays. */
void ddpi_cluster_begin(struct ddpi_cluster *cluster, const struct ddpi_cluster_list *list,
                        unsigned self, uint64_t life, uint32_t quiet_ms, uint64_t now_ms);

/* The keeper of another machine has said this. */
void ddpi_cluster_hear(struct ddpi_cluster *cluster, const struct ddpi_keeper_status *status,
                       uint64_t now_ms);

/* Whether the keeper of @machine has said something in the last second. */
bool ddpi_cluster_hears(const struct ddpi_cluster *cluster, unsigned machine, uint64_t now_ms);

/* This machine's store leads, or knows who does; false, too, if its etcd has no quorum. */
void ddpi_cluster_led(struct ddpi_cluster *cluster, bool leads, bool knows_leader, uint64_t now_ms);

/* The replacement is over. @members: the bits of those that etcd has now; 0: it has failed, and is
 * tried again. */
void ddpi_cluster_replaced(struct ddpi_cluster *cluster, const struct ddpi_cluster_step *step,
                           unsigned members);

/* What to do now; call it after each of these, and ten times a second. @random: a new number that
 * nobody has used. */
struct ddpi_cluster_step ddpi_cluster_step(struct ddpi_cluster *cluster, uint64_t random,
                                           uint64_t now_ms);

#endif
