/*
 * pmi_exchange.h - connects the MPI ranks of several nodes: passes the texts of daemon/pmi through
 * the job's store, with a key for each node and exchange in the keyspace of the generation. Owns a
 * client of the store, which only MPI programs need.
 */
#ifndef CMD_PMI_EXCHANGE_H
#define CMD_PMI_EXCHANGE_H

#include "pmi.h"

#include <ddprun/store_uv.h>

struct pmi_exchanges {
    uv_loop_t *loop;
    struct ddp_store_options options; /* the options of the node's member */
    ddp_store_uv *store;              /* NULL: no MPI program needs it */
    struct pmi *pmi;
    struct pmi_link link;
};

/* @options, which names the job, must outlive the exchanges, with all that it points to. */
void pmi_exchanges_init(struct pmi_exchanges *exchanges, uv_loop_t *loop,
                        const struct ddp_store_options *options);

#endif
