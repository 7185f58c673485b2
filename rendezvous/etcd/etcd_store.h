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

#include "etcd_options.h"
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

/* Loads libcurl, and begins; never waits for etcd. */
ddp_status ddpi_etcd_store_open(uv_loop_t *loop, const struct ddpi_etcd_store_options *options,
                                struct ddpi_etcd_store **ret, struct ddp_error *err);

/* Calls back no more. Gives up the lease, if etcd answers within half a second, so that another
 * process need not wait for its end: the caller must serve nobody any more. Then the loop frees
 * all. */
void ddpi_etcd_store_close(struct ddpi_etcd_store *store);

#endif
