/*
 * pmi_kvs.h - the keys that the MPI ranks of one generation have put, as this node knows them.
 * Pure. Copies what it is given; a key that is put again has its last value.
 */
#ifndef DAEMON_PMI_KVS_H
#define DAEMON_PMI_KVS_H

#include <ddprun/status.h>
#include <stddef.h>

struct pmi_kvs {
    void *tree; /* of tsearch() */
    size_t bytes;
    size_t limit; /* of all keys and values together */
};

void pmi_kvs_init(struct pmi_kvs *kvs, size_t limit);
void pmi_kvs_finish(struct pmi_kvs *kvs);

/* DDP_E_LIMIT: there is no room for it. DDP_E_NOMEM. Neither changes anything. */
DDP_MUST_CHECK ddp_status pmi_kvs_put(struct pmi_kvs *kvs, const char *key, const char *value);

/* NULL: nobody has put it. Valid until the next put. */
const char *pmi_kvs_get(const struct pmi_kvs *kvs, const char *key);

#endif
