/*
 * keeper_peers.h - asks other keepers of the list how they are, over the native protocol: each
 * side proves the token, and what is said is sealed.
 */
#ifndef CMD_KEEPER_PEERS_H
#define CMD_KEEPER_PEERS_H

#include "keeper_status.h"
#include "log.h"

#include <ddprun/store_uv.h>
#include <uv.h>

struct keeper_peers;

struct keeper_peers_options {
    const struct ddpi_cluster_list *list;
    bool asks[DDPI_CLUSTER_SIZE]; /* which machines are asked */
    int token_fd;                 /* read at once */
    bool tls;
    const struct ddpi_log *log;
    void *ctx;
    /* The keeper of @machine has said this when it was asked at @asked_ms (uv_now()). Its list may
     * be another one, and so its number in it. */
    void (*heard)(void *ctx, unsigned machine, const struct ddpi_keeper_status *status,
                  uint64_t asked_ms);
};

DDP_MUST_CHECK ddp_status keeper_peers_open(uv_loop_t *loop,
                                            const struct keeper_peers_options *options,
                                            struct keeper_peers **ret, struct ddp_error *err);
/* Ask those that have answered the last question. Call it many times a second. */
void keeper_peers_ask(struct keeper_peers *peers);
/* Whether the first question to each of them is over: it was answered, or a second has passed. */
bool keeper_peers_were_asked(const struct keeper_peers *peers);
/* NULL is allowed. Hears no more; the loop frees what is left. */
void keeper_peers_close(struct keeper_peers *peers);

#endif
