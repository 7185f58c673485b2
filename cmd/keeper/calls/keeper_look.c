/*
 * keeper_look.c - see keeper_look.h.
 */
#include "keeper_look.h"

#include "etcd_common.h"

#include <stdio.h>
#include <string.h>

enum { PAUSE_MS = 300, FRESH_MS = 1500, KEY_MAX = 64 };

static void on_answer(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct keeper_look *look = call->ctx;
    struct ddpi_etcd_leader leader;
    struct ddp_error err;
    if (outcome->status != DDP_OK || outcome->reply->code != DDPI_ETCD_OK ||
        ddpi_etcd_read_leader(outcome->reply->root, &leader, &err) != DDP_OK)
        return;
    look->quorum_ms = look->asked_ms;
    look->knows_leader = leader.exists;
    look->leads = leader.exists && strcmp(leader.endpoint, look->endpoint) == 0;
}

/* A read that two etcds must agree on. */
void keeper_look_ask(struct keeper_look *look, uint64_t now_ms)
{
    char key[KEY_MAX];
    struct ddpi_etcd_call *call = &look->call;
    bool due = look->quorum_ms == 0 || now_ms - look->asked_ms >= PAUSE_MS;
    if (ddpi_etcd_call_is_busy(call) || !due)
        return;
    look->asked_ms = now_ms;
    ddpi_etcd_call_finish(look->client, call);
    ddpi_etcd_call_init(call);
    call->path = "/v3/kv/range";
    call->total_ms = 1; /* one try */
    call->done = on_answer;
    call->ctx = look;
    int len = snprintf(key, sizeof key, "%s/v1/leader", look->prefix);
    const struct ddpi_etcd_range range = {.key = ddpi_bytes_of(key, (size_t)len)};
    (void)ddpi_etcd_put_range(&call->body, &range); /* without memory etcd refuses it */
    ddpi_etcd_call_begin(look->client, call);
}

void keeper_look_init(struct keeper_look *look)
{
    ddpi_etcd_call_init(&look->call);
}

void keeper_look_forget(struct keeper_look *look)
{
    ddpi_etcd_call_finish(look->client, &look->call);
    ddpi_etcd_call_init(&look->call);
    look->quorum_ms = 0;
}

bool keeper_look_is_fresh(const struct keeper_look *look, uint64_t now_ms)
{
    return look->quorum_ms != 0 && now_ms - look->quorum_ms < FRESH_MS;
}
