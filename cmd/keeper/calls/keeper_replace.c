/*
 * keeper_replace.c - see keeper_replace.h.
 */
#include "keeper_replace.h"

#include "keeper_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    STEP_MS = 5000,
    /* A member that has just connected counts as healthy after 5 s, and etcd adds none before. */
    ADD_MS = 15000,
};

static void ask(struct keeper_replace *replace, const char *path, const char *body,
                uint32_t total_ms,
                void (*done)(struct ddpi_etcd_call *, const struct ddpi_etcd_outcome *))
{
    const struct keeper_request request = {.path = path,
                                           .body = body,
                                           .try_ms = 2 * DDPI_ETCD_TRY_MS, /* for a write */
                                           .total_ms = total_ms,
                                           .done = done,
                                           .ctx = replace};
    keeper_call_begin(replace->client, &replace->call, &request);
}

/* Whether etcd has done what it was asked; else the end is reported. */
static bool is_done(struct keeper_replace *replace, const struct ddpi_etcd_outcome *outcome)
{
    const char *why = keeper_call_failure(outcome);
    if (why != NULL)
        replace->done(replace->ctx, why);
    return why == NULL;
}

static bool is_at(const json_t *member, const char *url)
{
    const char *at = json_string_value(json_array_get(json_object_get(member, "peerURLs"), 0));
    return at != NULL && strcmp(at, url) == 0;
}

static void on_added(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct keeper_replace *replace = call->ctx;
    if (is_done(replace, outcome))
        replace->done(replace->ctx, NULL);
}

static void add(struct keeper_replace *replace)
{
    char url[DDPI_CLUSTER_ENDPOINT + 8], body[DDPI_CLUSTER_ENDPOINT + 64];
    ddpi_cluster_list_peer_url(replace->list, replace->machine, url);
    snprintf(body, sizeof body, "{\"peerURLs\":[\"%s\"]}", url);
    ask(replace, "/v3/cluster/member/add", body, ADD_MS, on_added);
}

static void on_removed(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct keeper_replace *replace = call->ctx;
    bool gone = outcome->status == DDP_OK && outcome->reply->code == DDPI_ETCD_NOT_FOUND;
    if (gone || is_done(replace, outcome))
        add(replace);
}

static void on_listed(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct keeper_replace *replace = call->ctx;
    char url[DDPI_CLUSTER_ENDPOINT + 8];
    size_t i;
    const json_t *member;
    struct ddp_error err;
    uint64_t id;
    if (!is_done(replace, outcome))
        return;
    ddpi_cluster_list_peer_url(replace->list, replace->machine, url);
    json_array_foreach(json_object_get(outcome->reply->root, "members"), i, member)
    {
        if (!is_at(member, url))
            continue;
        if (ddpi_etcd_get_number(member, "ID", &id, &err) != DDP_OK) {
            replace->done(replace->ctx, err.msg);
            return;
        }
        char body[64];
        snprintf(body, sizeof body, "{\"ID\":\"%" PRIu64 "\"}", id);
        ask(replace, "/v3/cluster/member/remove", body, STEP_MS, on_removed);
        return;
    }
    add(replace); /* an earlier leader has removed it */
}

void keeper_replace_init(struct keeper_replace *replace)
{
    ddpi_etcd_call_init(&replace->call);
}

void keeper_replace_begin(struct keeper_replace *replace, unsigned machine)
{
    replace->machine = machine;
    ask(replace, "/v3/cluster/member/list", "{}", STEP_MS, on_listed);
}

void keeper_replace_finish(struct keeper_replace *replace)
{
    ddpi_etcd_call_finish(replace->client, &replace->call);
    ddpi_etcd_call_init(&replace->call);
}
