/*
 * pmi_kvs.h - the keys that the MPI ranks of one generation have put, as known on this node. Pure.
 * Copies keys and values; the last value of a key counts.
 */
#ifndef DAEMON_PMI_KVS_H
#define DAEMON_PMI_KVS_H

#include <ddprun/status.h>
#include <stddef.h>

struct pmi_kvs {
    void *tree; /* of tsearch() */
    size_t bytes;
    size_t limit; /* for all keys and values together */
};

void pmi_kvs_init(struct pmi_kvs *kvs, size_t limit);
void pmi_kvs_finish(struct pmi_kvs *kvs);

/* DDP_E_LIMIT: above @limit. DDP_E_NOMEM. On failure nothing changes. */
DDP_MUST_CHECK ddp_status pmi_kvs_put(struct pmi_kvs *kvs, const char *key, const char *value);

/* NULL: not found. Valid until the next put. */
const char *pmi_kvs_get(const struct pmi_kvs *kvs, const char *key);

#endif
