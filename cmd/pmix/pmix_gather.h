/*
 * pmix_gather.h - nodes exchange texts: each node of a group gives one, and gets those of all. The
 * texts are keys of the job's store, below the prefix of its generation. A group of one node needs
 * no store.
 *
 * All calls and callbacks are of the loop's thread; only an exchange of one node, which touches
 * neither the loop nor the store, may be begun in any thread.
 */
#ifndef CMD_PMIX_GATHER_H
#define CMD_PMIX_GATHER_H

#include <ddprun/store_uv.h>
#include <uv.h>

struct pmix_gathering {
    uv_loop_t *loop;
    const struct ddp_store_options *options;
    uint32_t node_rank;
    ddp_store_uv *store; /* opened by the first group of several nodes */
};

struct pmix_text {
    void *bytes;
    size_t len;
};

/* One exchange. @name is the same on all nodes of the group, and used once in a generation. */
struct pmix_gather {
    const char *name;
    const uint32_t *nodes; /* node ranks of the group, this node's among them */
    uint32_t count;
    struct pmix_text own;
    /* @texts: in the order of @nodes, for as long as the call lasts. On any other status than
     * DDP_OK there are none, and @why is a sentence. */
    void (*done)(void *ctx, ddp_status status, const struct pmix_text *texts, const char *why);
    void *ctx;
};

/* Open the connection to the store, if there is none yet. Does not block. */
DDP_MUST_CHECK ddp_status pmix_gather_connect(struct pmix_gathering *gathering,
                                              struct ddp_error *err);

/* Copies what @gather points to. done() may be called before this returns. */
void pmix_gather_begin(struct pmix_gathering *gathering, const struct pmix_gather *gather);

#endif
