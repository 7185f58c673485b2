/*
 * keeper_peers.c - see keeper_peers.h. Owns a client of each store that is asked.
 */
#include "keeper_peers.h"

#include "client_store.h"
#include "error.h"
#include "mem.h"

#include <stdio.h>
#include <string.h>

enum { ANSWER_MS = 1000, COMPLAIN_MS = 30000 };

struct peer {
    struct keeper_peers *peers;
    unsigned number;
    char endpoint[DDPI_CLUSTER_ENDPOINT];
    ddp_store_uv *store; /* NULL: it is not asked */
    bool asked;
    bool was_asked; /* the first question to it is over */
    uint64_t asked_ms;
    uint64_t complained_ms; /* 0: not yet */
};

struct keeper_peers {
    struct keeper_peers_options options;
    uv_loop_t *loop;
    struct peer peers[DDPI_CLUSTER_SIZE];
    bool closed;
    unsigned open; /* clients that are not closed yet */
};

/* That a machine is not there is said by who waits for it. What a person must mend is said here. */
static void complain(struct peer *peer, const char *why)
{
    uint64_t now_ms = uv_now(peer->peers->loop);
    if (peer->complained_ms != 0 && now_ms - peer->complained_ms < COMPLAIN_MS)
        return;
    peer->complained_ms = now_ms;
    ddpi_log(peer->peers->options.log, DDPI_LOG_WARN, "the keeper at %s: %s", peer->endpoint, why);
}

static void on_answer(void *data, const struct ddp_store_result *result)
{
    struct peer *peer = data;
    struct ddpi_keeper_status status;
    struct ddp_error err;
    peer->asked = false;
    peer->was_asked = true;
    if (peer->peers->closed)
        return;
    if (result->status == DDP_E_DENIED || result->status == DDP_E_PROTOCOL)
        complain(peer, result->message);
    if (result->status != DDP_OK)
        return;
    if (result->value_len == 0)
        return; /* its store has just started, or its keeper is stopped */
    if (ddpi_keeper_status_get(result->value, result->value_len, &status, &err) != DDP_OK)
        complain(peer, err.msg);
    else
        peer->peers->options.heard(peer->peers->options.ctx, peer->number, &status, peer->asked_ms);
}

void keeper_peers_ask(struct keeper_peers *peers)
{
    static const struct ddp_store_request question = {
        .size = sizeof question, .op = DDPI_STORE_OP_KEEPER_STATUS, .timeout_ms = ANSWER_MS};
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        struct peer *peer = &peers->peers[i];
        if (peer->store == NULL || peer->asked)
            continue;
        peer->asked_ms = uv_now(peers->loop);
        peer->asked =
            ddp_store_uv_submit(peer->store, &question, on_answer, peer, NULL, NULL) == DDP_OK;
    }
}

bool keeper_peers_were_asked(const struct keeper_peers *peers)
{
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        if (peers->peers[i].store != NULL && !peers->peers[i].was_asked)
            return false;
    return true;
}

static ddp_status open_peer(struct peer *peer, struct ddp_error *err)
{
    const struct keeper_peers_options *options = &peer->peers->options;
    const struct ddp_store_options store = {.size = sizeof store,
                                            .endpoint = peer->endpoint,
                                            .auth = DDP_STORE_AUTH_TOKEN,
                                            .token_fd = options->token_fd,
                                            .role = DDPI_STORE_KEEPER,
                                            .flags = options->tls ? DDP_STORE_TLS : 0};
    ddpi_endpoint_text(&options->list->at[peer->number], peer->endpoint, sizeof peer->endpoint);
    if (!options->asks[peer->number])
        return DDP_OK;
    ddp_status status = ddp_store_uv_open(peer->peers->loop, &store, NULL, &peer->store, err);
    if (status == DDP_OK)
        peer->peers->open++;
    return status;
}

ddp_status keeper_peers_open(uv_loop_t *loop, const struct keeper_peers_options *options,
                             struct keeper_peers **ret, struct ddp_error *err)
{
    struct keeper_peers *peers = ddpi_calloc(1, sizeof *peers);
    if (peers == NULL)
        return ddpi_error_nomem(err, sizeof *peers);
    peers->options = *options;
    peers->loop = loop;
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE && status == DDP_OK; i++) {
        peers->peers[i].peers = peers;
        peers->peers[i].number = i;
        status = open_peer(&peers->peers[i], err);
    }
    if (status == DDP_OK)
        *ret = peers;
    else
        keeper_peers_close(peers);
    return status;
}

static void on_closed(void *data)
{
    struct keeper_peers *peers = data;
    if (--peers->open == 0)
        ddpi_free(peers);
}

void keeper_peers_close(struct keeper_peers *peers)
{
    if (peers == NULL)
        return;
    peers->closed = true;
    if (peers->open == 0) {
        ddpi_free(peers);
        return;
    }
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        if (peers->peers[i].store != NULL)
            ddp_store_uv_close(peers->peers[i].store, on_closed, peers);
}
