/*
 * store_kept.c - see store_kept.h. It watches the key, then reads it, so no change is missed. The
 * store answers in order, so what comes last is the latest. Owns nothing.
 */
#include "store_kept.h"

#include <stdio.h>

enum { WHY_MAX = 2 * DDPI_CLUSTER_ENDPOINT + DDPI_CLUSTER_SURVIVES };

/* ---- what has changed ---- */

static void tell_leader(const struct store_kept *kept, const struct ddpi_cluster_summary *before)
{
    const struct ddpi_cluster_summary *now = &kept->now;
    char was[DDPI_CLUSTER_ENDPOINT], is[DDPI_CLUSTER_ENDPOINT], why[WHY_MAX];
    if (now->leader == before->leader)
        return;
    ddpi_endpoint_text(&before->machines[before->leader].at, was, sizeof was);
    ddpi_endpoint_text(&now->machines[now->leader].at, is, sizeof is);
    snprintf(why, sizeof why, "%s leads the store instead of %s", is, was);
    kept->changed(kept->ctx, EVENT_STORE_LEADER_CHANGED, is, why);
}

/* A machine that keeps up again may have other data than when it kept up last. */
static void tell_machine(const struct store_kept *kept, const struct ddpi_cluster_summary *before,
                         unsigned i)
{
    enum ddpi_machine_state state = kept->now.machines[i].state;
    bool kept_up = before->machines[i].state == MACHINE_MEMBER, keeps_up = state == MACHINE_MEMBER;
    bool replaced = kept->now.machines[i].life != kept->lives[i];
    char endpoint[DDPI_CLUSTER_ENDPOINT], survives[DDPI_CLUSTER_SURVIVES], why[WHY_MAX];
    if (kept->lives[i] == 0 || (kept_up == keeps_up && !(keeps_up && replaced)))
        return;
    ddpi_endpoint_text(&kept->now.machines[i].at, endpoint, sizeof endpoint);
    ddpi_cluster_survives(&kept->now, survives);
    snprintf(why, sizeof why, "%s %s: the store survives %s", endpoint,
             !keeps_up  ? state == MACHINE_MISSING ? "is missing" : "does not keep up"
             : replaced ? "is a new member, as it had lost its data"
                        : "keeps up again",
             survives);
    kept->changed(kept->ctx,
                  !keeps_up  ? EVENT_MEMBER_LOST
                  : replaced ? EVENT_MEMBER_REPLACED
                             : EVENT_MEMBER_RETURNED,
                  endpoint, why);
}

static void take(struct store_kept *kept, const void *value, size_t len)
{
    const struct ddpi_cluster_summary before = kept->now;
    if (ddpi_cluster_summary_get(value, len, &kept->now, NULL) != DDP_OK)
        return;
    if (kept->known)
        tell_leader(kept, &before);
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        if (kept->known)
            tell_machine(kept, &before, i);
        if (kept->now.machines[i].state == MACHINE_MEMBER)
            kept->lives[i] = kept->now.machines[i].life;
    }
    kept->known = kept->current = true;
}

/* ---- the key ---- */

static void on_kept_read(void *data, const struct ddp_store_result *result)
{
    if (result->status == DDP_OK)
        take(data, result->value, result->value_len);
}

static void ask(struct store_kept *kept, enum ddp_store_op op, ddp_store_uv_done *done)
{
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = op,
                                              .timeout_ms = DDP_STORE_FOREVER,
                                              .key = DDPI_STORE_KEEPERS_KEY};
    (void)!ddp_store_uv_submit(kept->store, &request, done, kept, NULL, NULL);
}

static void on_kept_watched(void *data, const struct ddp_store_result *result)
{
    struct store_kept *kept = data;
    if (result->status != DDP_OK)
        return;
    kept->watch = result->watch;
    ask(kept, DDP_STORE_OP_TRY_GET, on_kept_read);
}

void store_kept_connected(struct store_kept *kept, ddp_store_uv *store)
{
    kept->store = store;
    if (kept->watch == 0)
        ask(kept, DDP_STORE_OP_WATCH, on_kept_watched);
    else /* the last question may have been lost */
        ask(kept, DDP_STORE_OP_TRY_GET, on_kept_read);
}

/* Changes that were missed are read; a watch that has ended begins again. */
void store_kept_event(struct store_kept *kept, const struct ddp_store_event *event)
{
    if (kept->watch == 0 || event->watch != kept->watch)
        return;
    if (event->kind == DDP_STORE_EVENT_SET)
        take(kept, event->value, event->value_len);
    if (event->kind == DDP_STORE_EVENT_DELETED)
        kept->current = false; /* its keeper says nothing, and may have stopped */
    if (event->kind != DDP_STORE_EVENT_LOST)
        return;
    if (event->value_len > 0)
        kept->watch = 0;
    store_kept_connected(kept, kept->store);
}
