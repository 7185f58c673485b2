/*
 * etcd_common.h - what the parts of a store in etcd share: the client, the names of the keys, what
 * the leader's key says, and how trouble with etcd is told. Below the parts, which do not know each
 * other: the lease, the election and the contents each own their state, and report to the store
 * (etcd_store.c).
 */
#ifndef DDPI_ETCD_COMMON_H
#define DDPI_ETCD_COMMON_H

#include "etcd_client.h"
#include "etcd_codec.h"
#include "etcd_options.h"
#include "etcd_place.h"
#include "etcd_record.h"

#include <string.h>

/* What the parts report. */
enum ddpi_etcd_event {
    /* of the lease */
    ETCD_GRANTED,
    ETCD_NOT_GRANTED, /* etcd does not answer */
    ETCD_RENEWED,     /* extend it, if what it is for still exists */
    ETCD_LAPSED,      /* because of its `failure` */
    /* of the election */
    ETCD_VACANT, /* there is no leader, or a dead one: campaign with a lease */
    ETCD_WON,
    ETCD_LOST,
    ETCD_OUTRUN, /* lost, and another process leads */
    ETCD_STILL_OURS,
    ETCD_NOT_CHECKED, /* whether it is, because of its `failure` */
    /* of the contents */
    ETCD_LOADED,
    /* of all */
    ETCD_CLOSED,
};

struct ddpi_etcd_common {
    const struct ddpi_etcd_store_options *options;
    struct ddpi_etcd_client *client;
    char root[DDPI_ETCD_ROOT_MAX]; /* PREFIX/v1/ */
    char leader_key[DDPI_ETCD_ROOT_MAX + 8];
    char meta_key[DDPI_ETCD_ROOT_MAX + 8];
    uint64_t complained_ms; /* that etcd does not answer; 0: not yet */
    bool told_away;         /* and not yet that it answers again */
    /* Of the store: */
    void (*event)(struct ddpi_etcd_common *common, enum ddpi_etcd_event event);
    void (*give_up)(struct ddpi_etcd_common *common, const struct ddp_error *why);
};

static inline struct ddpi_bytes ddpi_etcd_text(const char *text)
{
    return ddpi_bytes_of(text, strlen(text));
}

/* Forget the body of @call, and allow the next one. */
void ddpi_etcd_fresh_call(struct ddpi_etcd_call *call, const char *path,
                          void (*done)(struct ddpi_etcd_call *, const struct ddpi_etcd_outcome *),
                          void *ctx);
/* End @call without done(), and allow the next one. */
void ddpi_etcd_end_call(struct ddpi_etcd_common *common, struct ddpi_etcd_call *call);

/* DDP_OK: etcd has done what the call asked for. Otherwise @err has the sentence. */
ddp_status ddpi_etcd_judge(const struct ddpi_etcd_outcome *outcome, struct ddp_error *err);

/* Log that etcd does not answer, at most every ten seconds; and that it answers again. */
void ddpi_etcd_complain(struct ddpi_etcd_common *common, const struct ddp_error *why);
void ddpi_etcd_is_back(struct ddpi_etcd_common *common);

/* ---- the leader's key ---- */

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
