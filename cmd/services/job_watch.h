/*
 * job_watch.h - follows the keys of one job in its store, for an agent that shows the job. The view
 * is what has been learned so far; a store that is away leaves it as it is.
 *
 * The state of the job is one key. Those of its nodes are read and watched only while there are at
 * most JOB_WATCH_NODES, so that agents that all watch do not cost the store its nodes squared.
 */
#ifndef CMD_JOB_WATCH_H
#define CMD_JOB_WATCH_H

#include "job_history.h"
#include "job_keys.h"
#include "job_view.h"

#include <ddprun/store_uv.h>
#include <uv.h>

enum { JOB_WATCH_NODES = 1024 };

struct job_watch {
    ddp_store_uv *store; /* NULL: not open */
    struct job_view view;
    struct job_history history;
    uint64_t of_state, of_nodes; /* the watches; 0: none, UINT64_MAX: asked for */
    bool with_nodes;             /* wanted */
    /* A reading of the keys, after which @next takes the place of the view. */
    struct job_keys keys;
    struct job_view next;
    void (*closed)(void *ctx);
    void *ctx;
};

/* Connect to the store of @options, which is not kept, and follow @job. */
ddp_status job_watch_open(struct job_watch *watch, uv_loop_t *loop,
                          const struct ddp_store_options *options, const char *job,
                          struct ddp_error *err);

/* Answers all requests at its store first; then @closed (may be NULL) is called from the loop.
 * Does nothing, but for that call, to a watch that is not open. */
void job_watch_close(struct job_watch *watch, void (*closed)(void *ctx), void *ctx);

#endif
