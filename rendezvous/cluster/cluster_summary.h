/*
 * cluster_summary.h - how three machines keep a store, for people: which one leads, which keep up,
 * and what the store survives now. The keeper whose store leads makes it. Pure; what is read from
 * a store is data to judge.
 */
#ifndef DDPI_CLUSTER_SUMMARY_H
#define DDPI_CLUSTER_SUMMARY_H

#include "cluster.h"

#include <jansson.h>

/* The key by which a store that keepers keep shows it, as JSON. */
#define DDPI_STORE_KEEPERS_KEY "store/keepers"

enum {
    DDPI_CLUSTER_SUMMARY_MAX = DDPI_KEEPER_STATUS_MAX, /* bytes of its JSON */
    DDPI_CLUSTER_SURVIVES = DDPI_CLUSTER_LIST_TEXT + 64,
};

enum ddpi_machine_state {
    MACHINE_MEMBER,  /* it keeps up: its etcd has a quorum, with that of the leader */
    MACHINE_MISSING, /* its keeper was not heard for a second */
    MACHINE_JOINING, /* its keeper has lost its data, or its etcd does not keep up yet */
};

struct ddpi_cluster_summary {
    unsigned leader; /* one of the machines */
    struct {
        struct ddpi_endpoint at; /* of its store */
        enum ddpi_machine_state state;
        uint32_t life; /* of the data that it has or had; 0: not known */
    } machines[DDPI_CLUSTER_SIZE];
};

/* False: this machine's store does not lead, or has not led for long enough to know the others. */
bool ddpi_cluster_summarize(const struct ddpi_cluster *cluster,
                            const struct ddpi_cluster_list *list, uint64_t now_ms,
                            struct ddpi_cluster_summary *ret);

/* The number of machines that keep up. */
unsigned ddpi_cluster_members(const struct ddpi_cluster_summary *summary);

/* "any one of node1, node2, node3", or "no other loss until node2 is back". */
void ddpi_cluster_survives(const struct ddpi_cluster_summary *summary,
                           char text[DDPI_CLUSTER_SURVIVES]);

/* "member", "missing", "joining". */
const char *ddpi_machine_state_name(enum ddpi_machine_state state);

/* A new reference; NULL: no memory. */
json_t *ddpi_cluster_summary_json(const struct ddpi_cluster_summary *summary);

/* The length of its JSON; 0: no memory, or no room. */
size_t ddpi_cluster_summary_put(const struct ddpi_cluster_summary *summary,
                                char text[DDPI_CLUSTER_SUMMARY_MAX]);

/* DDP_E_PROTOCOL: it is none. */
ddp_status ddpi_cluster_summary_get(const char *text, size_t len, struct ddpi_cluster_summary *ret,
                                    struct ddp_error *err);

#endif
