/*
 * keeper_call.h - a request of a keeper to its etcd, of those that change something.
 */
#ifndef CMD_KEEPER_CALL_H
#define CMD_KEEPER_CALL_H

#include "etcd_client.h"

struct keeper_request {
    const char *path; /* lives as long as the call */
    const char *body; /* copied */
    uint32_t try_ms;
    uint32_t total_ms;
    void (*done)(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome);
    void *ctx;
};

/* Begin @call, which was initialized; one that is over, or under way, is ended first. */
void keeper_call_begin(struct ddpi_etcd_client *client, struct ddpi_etcd_call *call,
                       const struct keeper_request *request);

/* Why etcd has not done what it was asked; NULL: it has. */
const char *keeper_call_failure(const struct ddpi_etcd_outcome *outcome);

#endif
