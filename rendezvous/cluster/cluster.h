/*
 * cluster.h - what the keeper of one of three machines does next: found a cluster of etcd, join the
 * one that there is, take in a keeper that has lost its data, or begin again. Pure.
 *
 * Nobody tells a keeper what to do. Each reads what the other two say of themselves
 * (keeper_status.h), many times a second, and decides by itself. The rules:
 *
 *   - A life is a folder of data, which one member of etcd alone ever uses. A keeper that has lost
 *     its data is another life, and another member. So no member of etcd ever forgets a vote.
 *   - The first cluster has all three machines as members, so two of them are a quorum. It begins
 *     when all are empty, or when two have been empty for a while and nobody knows a leader. The
 *     first empty one in the list proposes a number, and names the lives that it sees. A keeper
 *     whose life is named promises itself to this number, and to no other one. Two promises are
 *     enough to start. As each life makes one promise, two clusters cannot both have two.
 *   - A promise that leads to nothing is given up. So no store serves before the keepers of two
 *     machines have seen a quorum of their etcd, after which they give nothing up by the clock.
 *   - The keeper whose store leads lets etcd replace the member of a machine that it sees to be
 *     empty, one at a time, and says for which life. That life starts as the new member. A new
 *     leader waits first, until nobody can begin any more with what the last one said.
 *   - A life whose cluster can never have a quorum again begins anew: the other machines belong to
 *     another cluster.
 *   - A store that is for one job ends with it. The one that leads says that the job is over, when
 *     that is durable and nobody can come any more (server.h). Its keeper is ENDING then, and so is
 *     each that hears it of its own cluster. They go on, so that all hear it, and end when the
 *     others are ENDING, too, or not there. Who comes meanwhile is EMPTY, and waits.
 *
 * A keeper may be stopped for any time while its etcd goes on. What it has heard before counts by
 * when it was asked for, and its own time limits begin again.
 *
 *   EMPTY --sees a proposal for its life, or proposes--> PROMISED --etcd has a quorum--> MEMBER
 *     |                                                                                    ^
 *     +--the leader has let etcd take this life in place of a lost one---------------------+
 *
 *   PROMISED, MEMBER --the job is over--> ENDING
 */
#ifndef DDPI_CLUSTER_H
#define DDPI_CLUSTER_H

#include "keeper_status.h"

enum {
    DDPI_CLUSTER_FRESH_MS = 1000, /* what a keeper was asked longer ago does not count */
    DDPI_CLUSTER_PROMISE_MS =
        10000,                    /* a promise that leads to nothing is given up after this, ... */
    DDPI_CLUSTER_JOIN_MS = 60000, /* ... and a new member that never sees a quorum */
    DDPI_CLUSTER_AGAIN_MS = 1000, /* until a replacement that has failed is tried again */
    DDPI_CLUSTER_LINGER_MS = 300, /* from ENDING to the end, at least: the others hear it ... */
    DDPI_CLUSTER_END_MS = 2000,   /* ... and at most */
};

struct ddpi_cluster {
    uint32_t quiet_ms; /* two empty keepers wait this long for a leader */
    struct ddpi_keeper_status own;
    struct {
        bool known;
        uint64_t asked_ms;
        struct ddpi_keeper_status status;
    } heard[DDPI_CLUSTER_SIZE];
    bool started;        /* its etcd */
    bool had_quorum;     /* its etcd, in this life */
    bool serves;         /* its store may, for the rest of this life */
    bool replacing;      /* a member */
    uint64_t stepped_ms; /* the last step */
    uint64_t led_ms;     /* when a leader was known last, or this life began */
    uint64_t began_ms;   /* its promise, joining, or ending */
    uint64_t leads_ms;   /* since when this machine's store leads */
    uint64_t again_ms;   /* no replacement before */
};

enum ddpi_cluster_action {
    CLUSTER_NONE,
    CLUSTER_START_NEW,      /* start etcd as a founder of the cluster own.number */
    CLUSTER_START_EXISTING, /* start it as a new member */
    CLUSTER_REPLACE,        /* let etcd replace the member of machine @machine */
    CLUSTER_WIPE,           /* end etcd, delete the data, and begin another life */
    CLUSTER_END,            /* end for good: the job is over */
};

struct ddpi_cluster_step {
    enum ddpi_cluster_action action;
    unsigned machine;
    uint64_t life;   /* of REPLACE: for ddpi_cluster_replaced() */
    const char *why; /* of WIPE: a clause */
};

/* Begin a life, without data. What was heard stays. @job: that the store is for; "": none. */
void ddpi_cluster_begin(struct ddpi_cluster *cluster, const struct ddpi_cluster_list *list,
                        unsigned self, const char *job, uint64_t life, uint32_t quiet_ms,
                        uint64_t now_ms);

/* The keeper of another machine has said this, when it was asked at @asked_ms. */
void ddpi_cluster_hear(struct ddpi_cluster *cluster, const struct ddpi_keeper_status *status,
                       uint64_t asked_ms);

/* Whether the keeper of @machine has said something in the last second. */
bool ddpi_cluster_hears(const struct ddpi_cluster *cluster, unsigned machine, uint64_t now_ms);

/* The job of the store: this keeper's, or else that of another one of its cluster; "": none is
 * known. */
const char *ddpi_cluster_job(const struct ddpi_cluster *cluster);

/* This machine's store has led, and says that its job is over. */
void ddpi_cluster_over(struct ddpi_cluster *cluster, uint64_t now_ms);

/* How many other machines have a part of this keeper's cluster, as far as they were heard in the
 * last @within_ms. */
unsigned ddpi_cluster_others(const struct ddpi_cluster *cluster, uint64_t within_ms,
                             uint64_t now_ms);

/* Whether this keeper is of a job and without data, and the other two have a store that is of none:
 * it would become that of the job, and end with it. */
bool ddpi_cluster_is_of_no_job(const struct ddpi_cluster *cluster, uint64_t now_ms);

/* What this machine's etcd says. @had_quorum: it has had one in this life. @leads: it has one now,
 * and this machine's store leads; @knows_leader: the same, or another one does. */
void ddpi_cluster_led(struct ddpi_cluster *cluster, bool had_quorum, bool leads, bool knows_leader,
                      uint64_t now_ms);

/* Whether this machine's store may open its state, and so serve if it is to lead. */
bool ddpi_cluster_may_serve(struct ddpi_cluster *cluster, uint64_t now_ms);

/* The replacement is over; one that has failed is tried again. */
void ddpi_cluster_replaced(struct ddpi_cluster *cluster, const struct ddpi_cluster_step *step,
                           bool done, uint64_t now_ms);

/* What to do now; call it several times a second. @random: a new number that nobody has used. */
struct ddpi_cluster_step ddpi_cluster_step(struct ddpi_cluster *cluster, uint64_t random,
                                           uint64_t now_ms);

#endif
