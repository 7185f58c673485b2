/*
 * keeper_replace.h - lets etcd replace the member of one machine: the old one is removed, and a new
 * one added at the same address, which an empty keeper may then start.
 *
 * A call to etcd may be applied twice without harm. A second removal finds no member. A second
 * addition is refused, and then the replacement begins again. The removal looks up the member by
 * its address, so the caller must know that this member is lost (cluster.h).
 */
#ifndef CMD_KEEPER_REPLACE_H
#define CMD_KEEPER_REPLACE_H

#include "cluster_list.h"
#include "etcd_client.h"

/* Zeroed, then init; it is under way from begin to done(). */
struct keeper_replace {
    struct ddpi_etcd_client *client;
    const struct ddpi_cluster_list *list;
    struct ddpi_etcd_call call;
    unsigned machine;
    /* @why: a reason why it has failed; NULL: it has not. */
    void (*done)(void *ctx, const char *why);
    void *ctx;
};

void keeper_replace_init(struct keeper_replace *replace);
void keeper_replace_begin(struct keeper_replace *replace, unsigned machine);
/* End it without done(). */
void keeper_replace_finish(struct keeper_replace *replace);

#endif
