/*
 * etcd_lease.h - a lease at etcd: taken, renewed three times in its time, given up.
 *
 * It counts from the moment at which a request was sent that etcd has answered. etcd counts from
 * when it received it, which is later, so this process always stops first; a twentieth is left for
 * clocks that run at different speeds.
 */
#ifndef DDPI_ETCD_LEASE_H
#define DDPI_ETCD_LEASE_H

#include "etcd_common.h"

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

#endif
