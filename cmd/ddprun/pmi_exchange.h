/*
 * pmi_exchange.h - how the MPI ranks of several nodes meet: the texts of daemon/pmi go through the
 * job's store, a key for each node and exchange in the keyspace of the generation. Owns a client of
 * the store while MPI programs run; other jobs have none.
 */
#ifndef CMD_PMI_EXCHANGE_H
#define CMD_PMI_EXCHANGE_H

#include "pmi.h"

#include <ddprun/store_uv.h>

struct pmi_exchanges {
    uv_loop_t *loop;
    struct ddp_store_options options; /* as the node's member has them */
    ddp_store_uv *store;              /* NULL: no MPI program has asked for anything */
    struct pmi *pmi;
    struct pmi_link link;
};

/* @options and what it points to are kept; the job of its keys is in it. */
void pmi_exchanges_init(struct pmi_exchanges *exchanges, uv_loop_t *loop,
                        const struct ddp_store_options *options);

#endif
