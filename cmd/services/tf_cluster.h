/*
 * tf_cluster.h - the part of TensorFlow's TF_CONFIG that all ranks of a generation share: at which
 * address and port each of them listens.
 *
 * A node knows where its own workers listen. Where those of the others do is in the records that
 * the nodes have published, so a node of several reads these before it starts its workers.
 */
#ifndef CMD_TF_CLUSTER_H
#define CMD_TF_CLUSTER_H

#include "job_keys.h"
#include "job_view.h"

/* @why: NULL if the addresses are known, else the reason. */
typedef void tf_cluster_done(void *ctx, const struct ddp_round_seat *seat, const char *why);

struct tf_cluster {
    char *text; /* JSON without its first brace; NULL: not known yet */
    struct job_keys keys;
    struct job_view view;
    struct ddp_round_seat seat; /* of which the addresses are read */
    tf_cluster_done *done;
    void *ctx;
};

/* From what @count nodes say, in the order of their ranks. DDP_E_INVALID: one of them does not say
 * where its workers listen. DDP_E_LIMIT: it is longer than a variable can be. DDP_E_NOMEM. */
DDP_MUST_CHECK ddp_status tf_cluster_make(struct tf_cluster *cluster,
                                          const struct ddp_round_member *const *nodes,
                                          uint32_t count, struct ddp_error *err);

/* @store must be closed before @cluster is finished. */
void tf_cluster_open(struct tf_cluster *cluster, ddp_store_uv *store, const char *job,
                     tf_cluster_done *done, void *ctx);

/* Read what the nodes of @seat's generation say: done() follows, mostly from the loop. If another
 * generation has begun meanwhile, nothing follows: this node gets another seat. */
void tf_cluster_read(struct tf_cluster *cluster, const struct ddp_round_seat *seat);

/* The seat is no longer this node's. */
void tf_cluster_stop(struct tf_cluster *cluster);

void tf_cluster_finish(struct tf_cluster *cluster);

#endif
