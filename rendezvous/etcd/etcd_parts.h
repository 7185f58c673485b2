/*
 * etcd_parts.h - the three parts of a store in etcd, which etcd_store.c connects: the lease, the
 * election, the contents. For this folder alone.
 */
#ifndef DDPI_ETCD_PARTS_H
#define DDPI_ETCD_PARTS_H

#include "etcd_common.h"
#include "etcd_load.h"
#include "etcd_pulse.h"

/* ---- a lease at etcd: taken, renewed three times in its time, given up (etcd_lease.c) ---- */

/* It counts from the moment at which a request was sent that etcd has answered. etcd counts from
 * when it received it, which is later, so this process always stops first; a twentieth is left for
 * clocks that run at different speeds. */

struct ddpi_etcd_lease {
    struct ddpi_etcd_common *common;
    struct ddpi_etcd_call grant;
    struct ddpi_etcd_call keep;
    struct ddpi_etcd_call revoke;
    uint64_t promised_ms; /* etcd has promised `promised_s` from a moment that was after this one */
    uint64_t promised_s;
    struct ddp_error failure; /* of the latest renewal, or its end; "": none */
    uint64_t id;              /* 0: none */
    uint64_t ttl_ms;
    uint64_t valid_until_ms; /* by ddpi_etcd_now_ms() */
    uv_timer_t beat;
    uv_timer_t lapse;
};

void ddpi_etcd_lease_init(struct ddpi_etcd_lease *lease, struct ddpi_etcd_common *common,
                          uv_loop_t *loop);
/* Revoke it, if etcd answers within half a second; then ETCD_CLOSED. */
void ddpi_etcd_lease_close(struct ddpi_etcd_lease *lease);

void ddpi_etcd_lease_take(struct ddpi_etcd_lease *lease);
/* It holds for as long as etcd has promised last. */
void ddpi_etcd_lease_extend(struct ddpi_etcd_lease *lease);
/* The renewal has failed because of @why: try again until the lease is over. */
void ddpi_etcd_lease_renew_again(struct ddpi_etcd_lease *lease, const struct ddp_error *why);
void ddpi_etcd_lease_forget(struct ddpi_etcd_lease *lease);
/* Revoke any lease; 0: none. */
void ddpi_etcd_lease_revoke(struct ddpi_etcd_lease *lease, uint64_t id);
bool ddpi_etcd_lease_is_valid(const struct ddpi_etcd_lease *lease);

/* ---- which process leads (etcd_election.c) ---- */

/* A process looks at the leader's key, takes it, and sees whether it is still this process's. The
 * key is looked at a few times a second, in place of a watch: a watch can be lost, or hang at a
 * member without quorum, so the key would have to be looked at as often anyway.
 *
 * A process takes the key if it does not exist (the lease of the leader is over), if the leader's
 * process is seen to be dead, or if the key names a process at this one's own address in this very
 * kernel, which must then have died before (etcd_place.h). The transaction compares that nobody
 * else was faster. */

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

/* ---- the contents of the store in etcd (etcd_contents.c) ---- */

/* They are read when this process has won, and each turn's changes are written while it leads. */

struct ddpi_etcd_contents {
    struct ddpi_etcd_common *common;
    struct ddpi_etcd_call call;
    struct ddpi_etcd_load load;
    uint64_t leader_revision; /* of the leader's key, while it is this process's */
    bool loaded;
    unsigned failures; /* to ask for a page at all, in succession */
    struct ddpi_etcd_batch batch;
    bool has_batch;
    struct ddp_error failure;   /* of a change since the last commit */
    struct ddpi_list sending;   /* chunks; the first is under way */
    size_t sending_size;        /* of these, as ddpi_etcd_chunk_size() */
    struct ddpi_buf meta;       /* what etcd's meta is */
    struct ddpi_buf next_meta;  /* what the chunk under way makes of it */
    uint64_t transaction;       /* the number of that chunk */
    struct ddpi_committed done; /* call NULL: no commit is under way */
    struct ddpi_etcd_meta last; /* after the latest commit */
};

void ddpi_etcd_contents_init(struct ddpi_etcd_contents *contents, struct ddpi_etcd_common *common);
void ddpi_etcd_contents_finish(struct ddpi_etcd_contents *contents);

/* Load them, then ETCD_LOADED. From now on, write only while the leader's key has
 * @leader_revision. */
void ddpi_etcd_contents_load(struct ddpi_etcd_contents *contents, uint64_t leader_revision);

/* As in struct ddpi_sink. */
void ddpi_etcd_contents_change(struct ddpi_etcd_contents *contents,
                               const struct ddpi_mutation *mutation);
void ddpi_etcd_contents_commit(struct ddpi_etcd_contents *contents, const struct ddpi_mark *mark,
                               struct ddpi_committed done);
size_t ddpi_etcd_contents_backlog(const struct ddpi_etcd_contents *contents);

#endif
