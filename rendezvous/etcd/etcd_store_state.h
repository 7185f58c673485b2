/*
 * etcd_store_state.h - the state of a store in etcd. etcd_store.c has its life and what it asks
 * etcd at the start; etcd_election.c the leader's key; etcd_lease.c the lease; etcd_contents.c
 * reading and writing.
 */
#ifndef DDPI_ETCD_STORE_STATE_H
#define DDPI_ETCD_STORE_STATE_H

#include "etcd_client.h"
#include "etcd_load.h"
#include "etcd_place.h"
#include "etcd_pulse.h"
#include "etcd_store.h"
#include "sm.h"

#define ETCD_STORE_STATES(X)                                                               \
    X(ETCD, CHECKING, DDPI_SM_TO(ETCD_FOLLOWING) | DDPI_SM_TO(ETCD_OVER), DDPI_SM_INITIAL) \
    X(ETCD, FOLLOWING, DDPI_SM_TO(ETCD_CAMPAIGNING) | DDPI_SM_TO(ETCD_OVER), 0)            \
    X(ETCD, CAMPAIGNING,                                                                   \
      DDPI_SM_TO(ETCD_FOLLOWING) | DDPI_SM_TO(ETCD_LOADING) | DDPI_SM_TO(ETCD_OVER), 0)    \
    X(ETCD, LOADING, DDPI_SM_TO(ETCD_LEADING) | DDPI_SM_TO(ETCD_OVER), 0)                  \
    X(ETCD, LEADING, DDPI_SM_TO(ETCD_OVER), 0)                                             \
    X(ETCD, OVER, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(ddpi_etcd_store, ETCD_STORE_STATES);

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

struct ddpi_etcd_store {
    struct ddpi_etcd_store_options options; /* its texts are below */
    struct ddpi_sm sm;
    uv_loop_t *loop;
    struct ddpi_etcd_client *client;
    struct ddpi_etcd_pulse *pulse;
    bool closed;
    char root[DDPI_ETCD_ROOT_MAX]; /* PREFIX/v1/ */
    char leader_key[DDPI_ETCD_ROOT_MAX + 8];
    char meta_key[DDPI_ETCD_ROOT_MAX + 8];
    struct ddpi_etcd_leader self;
    struct ddpi_etcd_place place;
    uv_timer_t timer;       /* the next look at the leader, or try */
    unsigned handles;       /* not closed yet, of this one and the two of the lease */
    uint64_t complained_ms; /* that etcd does not answer; 0: not yet */
    bool told_away;         /* and not yet that it answers again */

    struct {
        struct ddpi_etcd_call call;
        struct ddpi_etcd_leader leader; /* as of the last look */
        struct ddpi_etcd_leader told;   /* to the owner */
        bool has_meta;
        struct ddpi_etcd_meta meta;
        bool dead; /* the leader's process */
    } election;

    struct {
        struct ddpi_etcd_call grant;
        struct ddpi_etcd_call keep;
        struct ddpi_etcd_call revoke;
        struct ddpi_etcd_call look;   /* whether the key is still this process's */
        uint64_t kept_ms, kept_ttl_s; /* the renewal before that look */
        struct ddp_error failure;     /* of the latest renewal; "": it succeeded */
        uint64_t id;                  /* 0: none */
        uint64_t ttl_ms;
        uint64_t valid_until_ms; /* by ddpi_etcd_now_ms() */
        uv_timer_t beat;
        uv_timer_t lapse;
    } lease;

    struct {
        struct ddpi_etcd_call call;
        struct ddpi_etcd_load load;
        unsigned failures; /* to ask for a page at all, in succession */
        struct ddpi_etcd_batch batch;
        bool has_batch;
        struct ddp_error failure;   /* of a change since the last commit */
        struct ddpi_list sending;   /* chunks; the first is under way */
        size_t sending_size;        /* of these, as ddpi_etcd_chunk_size() */
        struct ddpi_buf meta;       /* what etcd's meta is */
        struct ddpi_buf next_meta;  /* what the chunk under way makes of it */
        struct ddpi_committed done; /* call NULL: no commit is under way */
        struct ddpi_etcd_meta last; /* after the latest commit */
    } contents;
};

static inline struct ddpi_bytes ddpi_etcd_text(const char *text)
{
    return ddpi_bytes_of(text, strlen(text));
}

/* etcd_store.c */
/* Forget the body of @call, and allow the next one. */
void ddpi_etcd_fresh_call(struct ddpi_etcd_call *call, const char *path,
                          void (*done)(struct ddpi_etcd_call *, const struct ddpi_etcd_outcome *),
                          struct ddpi_etcd_store *store);
/* Everything is over: the owner is told. */
void ddpi_etcd_give_up(struct ddpi_etcd_store *store, const struct ddp_error *why);
/* Log that etcd does not answer, at most every ten seconds. */
void ddpi_etcd_complain(struct ddpi_etcd_store *store, const struct ddp_error *why);
/* The sentence for an answer with an error. */
ddp_status ddpi_etcd_explain(const struct ddpi_etcd_store *store,
                             const struct ddpi_etcd_reply *reply, struct ddp_error *err);

/* etcd_election.c */
void ddpi_etcd_look(struct ddpi_etcd_store *store);
void ddpi_etcd_run(struct ddpi_etcd_store *store); /* the lease is granted */
void ddpi_etcd_follow_again(struct ddpi_etcd_store *store);
void ddpi_etcd_on_alive(void *store); /* these two: the leader's process */
void ddpi_etcd_on_dead(void *store);
ddp_status ddpi_etcd_read_leader(const json_t *range, struct ddpi_etcd_leader *ret,
                                 struct ddp_error *err);

/* etcd_lease.c */
void ddpi_etcd_lease_take(struct ddpi_etcd_store *store);
void ddpi_etcd_lease_revoke(struct ddpi_etcd_store *store, uint64_t id);
void ddpi_etcd_lease_forget(struct ddpi_etcd_store *store);
bool ddpi_etcd_lease_is_valid(const struct ddpi_etcd_store *store);

/* etcd_contents.c */
void ddpi_etcd_contents_load(struct ddpi_etcd_store *store);
void ddpi_etcd_contents_finish(struct ddpi_etcd_store *store);

#endif
