/*
 * etcd_model.h - what only the sink of etcd has, on the model of etcd that sink_in_etcd writes to.
 */
#ifndef TESTS_ETCD_MODEL_H
#define TESTS_ETCD_MODEL_H

#include <stddef.h>

#define ETCD_MODEL_ROOT "/test/v1/"

/* As sink_commit(), but this leader dies after @most transactions. Returns how many there were. */
size_t etcd_model_commit_some(size_t most);

#endif
