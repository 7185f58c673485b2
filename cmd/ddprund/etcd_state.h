/*
 * etcd_state.h - a ddprund whose state is in etcd: what it tells its server as a standby and as the
 * leader.
 */
#ifndef CMD_ETCD_STATE_H
#define CMD_ETCD_STATE_H

#include "ddprund_options.h"

struct etcd_state;

struct etcd_state_options {
    const struct ddprund_options *options; /* this and the server outlive the state */
    struct ddpi_server *server;            /* listens, and stands by */
    const struct ddpi_log *log;
    void *ctx;
    void (*stands_by)(void *ctx);
    void (*leads)(void *ctx);
    /* It is over, once; DDP_E_CLOSED: another process leads or may lead. */
    void (*failed)(void *ctx, const struct ddp_error *why);
};

/* Whether --state names an etcd. */
bool etcd_state_is(const struct ddprund_options *options);

/* If so: lower the limits on keys and values to what fits into a transaction of etcd. */
void etcd_state_limit(struct ddprund_options *options);

ddp_status etcd_state_open(uv_loop_t *loop, const struct etcd_state_options *options,
                           struct etcd_state **ret, struct ddp_error *err);
/* NULL is allowed. Calls back no more; the loop frees what is left. */
void etcd_state_close(struct etcd_state *state);

#endif
