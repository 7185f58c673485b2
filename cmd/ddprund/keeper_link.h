/*
 * keeper_link.h - the other end of a keeper's socket (cmd/keeper): what its ddprund is told.
 */
#ifndef CMD_KEEPER_LINK_H
#define CMD_KEEPER_LINK_H

#include <ddprun/status.h>
#include <uv.h>

struct keeper_link {
    int fd; /* 0: this ddprund has no keeper */
    uv_poll_t poll;
    uv_timer_t silence; /* of what it says by @kept */
    void *ctx;
    /* What other keepers are to be told. */
    void (*status)(void *ctx, const char *text, size_t len);
    /* The job that the store is for; a valid name. */
    void (*job)(void *ctx, const char *job);
    /* The state in etcd may be opened. Once. */
    void (*open)(void *ctx);
    /* How the store is kept, again and again while it leads (cluster_summary.h). @len 0: it has not
     * said so for a while. */
    void (*kept)(void *ctx, const char *text, size_t len);
};

/* Set all functions and @ctx before. DDP_E_INVALID: @fd is no socket of a keeper. */
DDP_MUST_CHECK ddp_status keeper_link_open(struct keeper_link *link, uv_loop_t *loop, int fd,
                                           struct ddp_error *err);
/* Tell it that this ddprund listens; without effect if there is no keeper. */
void keeper_link_ready(const struct keeper_link *link);
/* Tell it that the job is over, as the store knows that has led. */
void keeper_link_over(const struct keeper_link *link);
void keeper_link_close(struct keeper_link *link);

#endif
