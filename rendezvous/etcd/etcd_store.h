/*
 * etcd_store.h - a store's contents in etcd, and the election of the one ddprund that serves them.
 *
 * Several processes follow the key PREFIX/v1/leader. One of them wins it, with a lease; it gets the
 * contents, and a sink that writes each change there. Each write compares that the key is still its
 * own, so that one that was paused cannot write any more. README.md explains why that is enough.
 *
 *   CHECKING --etcd answers--> FOLLOWING --no leader, or a dead one--> CAMPAIGNING --won--> LOADING
 *                                  ^                                       |                   |
 *                                  +--another was faster-------------------+  contents given --+
 *   OVER <--the lease is over, another leads, the contents are unusable-- LEADING <------------+
 */
#ifndef DDPI_ETCD_STORE_H
#define DDPI_ETCD_STORE_H

#include "etcd_address.h"
#include "log.h"
#include "sink.h"
#include "sm.h"

#include <uv.h>

#define ETCD_STORE_STATES(X)                                                               \
    X(ETCD, CHECKING, DDPI_SM_TO(ETCD_FOLLOWING) | DDPI_SM_TO(ETCD_OVER), DDPI_SM_INITIAL) \
    X(ETCD, FOLLOWING, DDPI_SM_TO(ETCD_CAMPAIGNING) | DDPI_SM_TO(ETCD_OVER), 0)            \
    X(ETCD, CAMPAIGNING,                                                                   \
      DDPI_SM_TO(ETCD_FOLLOWING) | DDPI_SM_TO(ETCD_LOADING) | DDPI_SM_TO(ETCD_OVER), 0)    \
    X(ETCD, LOADING, DDPI_SM_TO(ETCD_LEADING) | DDPI_SM_TO(ETCD_OVER), 0)                  \
    X(ETCD, LEADING, DDPI_SM_TO(ETCD_OVER), 0)                                             \
    X(ETCD, OVER, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(ddpi_etcd_store, ETCD_STORE_STATES);

struct ddpi_etcd_store;

/* Texts are copied, unless said otherwise. */
struct ddpi_etcd_store_options {
    const struct ddpi_etcd_address *address; /* lives as long as the store, as the next three do */
    const char *ca_file;                     /* of TLS; NULL: the system's */
    const char *cert_file;
    const char *key_file;
    const char *user; /* of etcd; NULL: none */
    const char *password;
    const char *endpoint; /* at which clients reach this process */
    uint32_t lease_ms;    /* rounded up to seconds; etcd may make it longer */
    const struct ddpi_log *log;

    void *ctx;
    /* Another process leads; @leader: its endpoint, "": none at the moment. @number: of the store;
     * 0: not known. */
    void (*stands_by)(void *ctx, const char *leader, uint64_t number);
    /* This process has won: take all contents, in the order of ddpi_kv_restore(), ... */
    ddp_status (*restore)(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err);
    /* ... then the mark, and serve. The sink is valid until the store is closed. */
    void (*leads)(void *ctx, const struct ddpi_mark *mark, const struct ddpi_sink *sink);
    /* It is over, once: DDP_E_CLOSED: another process leads or may lead now, so serve nobody from
     * now on, and start anew; else the contents cannot be used, and a person must act. A failed
     * commit is reported by the sink instead. */
    void (*over)(void *ctx, const struct ddp_error *why);
};

/* Loads libcurl, and begins; never waits for etcd. */
ddp_status ddpi_etcd_store_open(uv_loop_t *loop, const struct ddpi_etcd_store_options *options,
                                struct ddpi_etcd_store **ret, struct ddp_error *err);

/* Calls back no more. Gives up the lease, if etcd answers within half a second, so that another
 * process need not wait for its end: the caller must serve nobody any more. Then the loop frees
 * all. */
void ddpi_etcd_store_close(struct ddpi_etcd_store *store);

#endif
