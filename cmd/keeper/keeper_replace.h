/*
 * keeper_replace.h - lets etcd replace the member of one machine: the old one is removed, and a new
 * one added at the same address, which an empty keeper may then start.
 *
 * Every step may be repeated, also by another leader: who is removed is looked up anew.
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
    /* @members: of the cluster after it, as bits; 0: it has failed, for the reason @why. */
    void (*done)(void *ctx, unsigned members, const char *why);
    void *ctx;
};

void keeper_replace_init(struct keeper_replace *replace);
void keeper_replace_begin(struct keeper_replace *replace, unsigned machine);
/* End it without done(). */
void keeper_replace_finish(struct keeper_replace *replace);

#endif
