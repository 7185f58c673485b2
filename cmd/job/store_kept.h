/*
 * store_kept.h - follows how three machines keep the store of an agent (cluster_summary.h), and
 * tells what happens to them. A store that is away leaves what is known as it is.
 */
#ifndef CMD_STORE_KEPT_H
#define CMD_STORE_KEPT_H

#include "cluster_summary.h"
#include "events.h"

#include <ddprun/store_uv.h>

/* Zeroed, with the first two set, it knows nothing. */
struct store_kept {
    /* @endpoint is the store of one of the machines; @why is a sentence. */
    void (*changed)(void *ctx, enum event event, const char *endpoint, const char *why);
    void *ctx;
    ddp_store_uv *store; /* borrowed; NULL: it has not been connected */
    uint64_t watch;      /* 0: none */
    bool known;          /* three machines keep the store, as in @now, ... */
    bool current;        /* ... which the store still says */
    struct ddpi_cluster_summary now;
    uint32_t lives[DDPI_CLUSTER_SIZE]; /* of each machine, when it kept up last; 0: not known */
};

/* @store is connected, for the first time or again. It answers all requests before @kept goes. */
void store_kept_connected(struct store_kept *kept, ddp_store_uv *store);

/* An event of any watch of that store. */
void store_kept_event(struct store_kept *kept, const struct ddp_store_event *event);

#endif
