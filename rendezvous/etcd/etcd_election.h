/*
 * etcd_election.h - which process leads: looking at the leader's key, taking it, and seeing whether
 * it is still this process's.
 *
 * The key is looked at a few times a second, in place of a watch: a watch can be lost, or hang at a
 * member without quorum, so the key would have to be looked at as often anyway.
 *
 * A process takes the key if it does not exist (the lease of the leader is over), if the leader's
 * process is seen to be dead, or if the key names a process at this one's own address in this very
 * kernel, which must then have died before (etcd_place.h). The transaction compares that nobody
 * else was faster.
 */
#ifndef DDPI_ETCD_ELECTION_H
#define DDPI_ETCD_ELECTION_H

#include "etcd_common.h"
#include "etcd_pulse.h"

struct ddpi_etcd_election {
    struct ddpi_etcd_common *common;
    struct ddpi_etcd_pulse *pulse;
    struct ddpi_etcd_call call;
    struct ddpi_etcd_call check; /* whether the key is still this process's */
    uv_timer_t timer;            /* the next look */
    struct ddpi_etcd_leader self;
    struct ddpi_etcd_leader leader; /* as of the last look */
    struct ddpi_etcd_leader told;   /* to the owner */
    bool has_meta;
    struct ddpi_etcd_meta meta;
    struct ddp_error failure; /* to see whether the key is still this process's */
    bool dead;                /* the leader's process */
    bool campaigns;           /* or has won */
};

/* @place: of this process. */
ddp_status ddpi_etcd_election_init(struct ddpi_etcd_election *election,
                                   struct ddpi_etcd_common *common, uv_loop_t *loop,
                                   const char *place, struct ddp_error *err);
/* Then ETCD_CLOSED. */
void ddpi_etcd_election_close(struct ddpi_etcd_election *election);

/* Look at the leader's key from now on; again, after a campaign: in a moment. */
void ddpi_etcd_election_look(struct ddpi_etcd_election *election);
void ddpi_etcd_election_look_again(struct ddpi_etcd_election *election);
/* @lease is granted: take the key with it. */
void ddpi_etcd_election_campaign(struct ddpi_etcd_election *election, uint64_t lease);
void ddpi_etcd_election_check(struct ddpi_etcd_election *election, uint32_t total_ms);

#endif
