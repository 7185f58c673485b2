/*
 * etcd_lease.c - the lease of the leader's key: taken before the campaign, renewed three times in
 * its time, given up at the end.
 *
 * The lease counts from the moment at which a request was sent that etcd has answered. etcd counts
 * from when it received it, which is later, so this process always stops first; a twentieth is left
 * for clocks that run at different speeds.
 *
 * A lease that is renewed does not say who leads: the key may have been taken or deleted. So a
 * leader looks at it after each renewal, and only then serves on.
 */
#include "error.h"
#include "etcd_store_state.h"
#include "token_file.h"

#include <inttypes.h>

enum { BEATS = 3, REVOKE_MS = 500, RETRY_MS = 50, CLOCK_MARGIN = 20 };

bool ddpi_etcd_lease_is_valid(const struct ddpi_etcd_store *store)
{
    return store->lease.id != 0 && ddpi_etcd_now_ms() < store->lease.valid_until_ms;
}

static void lapse_now(struct ddpi_etcd_store *store, const char *how)
{
    struct ddp_error why;
    if (store->sm.state == ETCD_CAMPAIGNING)
        return; /* the campaign fails, and begins anew */
    ddpi_error_set(&why, DDP_E_CLOSED,
                   "another ddprund may lead now, so this one stops serving: its lease in etcd is "
                   "over (%s)",
                   how);
    ddpi_etcd_give_up(store, &why);
}

static void on_lapse(uv_timer_t *timer)
{
    struct ddpi_etcd_store *store = timer->data;
    const char *why = store->lease.failure.msg;
    if (!ddpi_etcd_lease_is_valid(store))
        lapse_now(store, *why != '\0' ? why : "etcd has not renewed it in time");
}

static void on_beat(uv_timer_t *timer);

/* A renewal has failed: try again until the lease is over. */
static void beat_again(struct ddpi_etcd_store *store, const struct ddpi_etcd_outcome *outcome)
{
    struct ddp_error *why = &store->lease.failure;
    if (outcome->status != DDP_OK)
        *why = *outcome->err;
    else if (outcome->reply->code != DDPI_ETCD_OK)
        ddpi_etcd_explain(store, outcome->reply, why);
    else
        ddpi_error_set(why, DDP_E_PROTOCOL, "etcd's answer to a renewal is none");
    ddpi_etcd_complain(store, why);
    uv_timer_start(&store->lease.beat, on_beat, RETRY_MS, 0);
}

/* etcd has promised @ttl_s from a moment that was after @begun_ms. */
static void extend(struct ddpi_etcd_store *store, uint64_t begun_ms, uint64_t ttl_s)
{
    uint64_t ttl_ms = ttl_s * 1000;
    store->lease.ttl_ms = ttl_ms;
    store->lease.failure.msg[0] = '\0';
    store->lease.valid_until_ms = begun_ms + ttl_ms - ttl_ms / CLOCK_MARGIN;
    uint64_t now_ms = ddpi_etcd_now_ms();
    uint64_t until_ms = store->lease.valid_until_ms;
    uv_update_time(store->loop);
    uv_timer_start(&store->lease.lapse, on_lapse, until_ms > now_ms ? until_ms - now_ms : 0, 100);
    uv_timer_start(&store->lease.beat, on_beat, ttl_ms / BEATS, 0);
}

static void on_own_key(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_store *store = call->ctx;
    struct ddpi_etcd_leader leader;
    struct ddp_error why;
    if (outcome->status != DDP_OK || outcome->reply->code != DDPI_ETCD_OK ||
        ddpi_etcd_read_leader(outcome->reply->root, &leader, &why) != DDP_OK) {
        beat_again(store, outcome);
        return;
    }
    if (leader.exists && leader.mod_revision == store->self.mod_revision) {
        extend(store, store->lease.kept_ms, store->lease.kept_ttl_s);
        return;
    }
    ddpi_error_set(&why, DDP_E_CLOSED, "%s%s; this ddprund stops serving",
                   leader.exists ? "the store is led by " : "",
                   leader.exists ? leader.endpoint : "the leader's key was deleted from etcd");
    ddpi_etcd_give_up(store, &why);
}

static void look_at_own_key(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_call *call = &store->lease.look;
    const struct ddpi_etcd_range range = {.key = ddpi_etcd_text(store->leader_key)};
    ddpi_etcd_fresh_call(call, "/v3/kv/range", on_own_key, store);
    call->total_ms = (uint32_t)store->lease.ttl_ms;
    if (ddpi_etcd_put_range(&call->body, &range))
        ddpi_etcd_call_begin(store->client, call);
    else
        uv_timer_start(&store->lease.beat, on_beat, RETRY_MS, 0);
}

static void on_kept(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_store *store = call->ctx;
    uint64_t ttl_s = 0;
    if (outcome->status != DDP_OK || outcome->reply->code != DDPI_ETCD_OK ||
        ddpi_etcd_get_number(outcome->reply->root, "TTL", &ttl_s, NULL) != DDP_OK) {
        beat_again(store, outcome);
        return;
    }
    if (ttl_s == 0 || ttl_s > UINT32_MAX) {
        lapse_now(store, "etcd does not know it any more");
    } else if (store->sm.state == ETCD_CAMPAIGNING) {
        extend(store, outcome->begun_ms, ttl_s);
    } else {
        store->lease.kept_ms = outcome->begun_ms;
        store->lease.kept_ttl_s = ttl_s;
        look_at_own_key(store);
    }
}

static void put_id(struct ddpi_etcd_call *call, uint64_t id)
{
    (void)(ddpi_etcd_put_text(&call->body, "{") && ddpi_etcd_put_number(&call->body, "ID", id) &&
           ddpi_etcd_put_text(&call->body, "}"));
}

static void beat(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_call *call = &store->lease.keep;
    if (store->lease.id == 0 || store->closed || ddpi_etcd_call_is_busy(call) ||
        ddpi_etcd_call_is_busy(&store->lease.look))
        return;
    ddpi_etcd_fresh_call(call, "/v3/lease/keepalive", on_kept, store);
    call->total_ms = (uint32_t)store->lease.ttl_ms;
    put_id(call, store->lease.id);
    ddpi_etcd_call_begin(store->client, call);
}

static void on_beat(uv_timer_t *timer)
{
    beat(timer->data);
}

/* ---- taking and giving up ---- */

static void on_granted(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_store *store = call->ctx;
    uint64_t ttl_s = (store->options.lease_ms + 999) / 1000, granted_s = 0;
    if (outcome->status != DDP_OK) {
        ddpi_etcd_complain(store, outcome->err);
        ddpi_etcd_follow_again(store);
        return;
    }
    struct ddp_error why;
    enum ddpi_etcd_code code = outcome->reply->code;
    if (code != DDPI_ETCD_OK && code != DDPI_ETCD_EXISTS) { /* an earlier try has made it */
        ddpi_etcd_explain(store, outcome->reply, &why);
        ddpi_etcd_give_up(store, &why);
        return;
    }
    if (ddpi_etcd_get_number(outcome->reply->root, "TTL", &granted_s, NULL) == DDP_OK &&
        granted_s > ttl_s && granted_s < UINT32_MAX)
        ttl_s = granted_s;
    uint64_t begun_ms = code == DDPI_ETCD_OK && call->tries == 0 ? outcome->begun_ms : 0;
    if (begun_ms == 0) /* from the first try */
        begun_ms = call->until_ms - call->total_ms;
    extend(store, begun_ms, ttl_s);
    ddpi_etcd_run(store);
}

void ddpi_etcd_lease_take(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_call *call = &store->lease.grant;
    uint64_t id;
    ddpi_token_random(&id, sizeof id);
    store->lease.id = (id & INT64_MAX) | 1;
    ddpi_etcd_fresh_call(call, "/v3/lease/grant", on_granted, store);
    call->total_ms = store->options.lease_ms;
    (void)(ddpi_etcd_put_text(&call->body, "{") &&
           ddpi_etcd_put_number(&call->body, "TTL", (store->options.lease_ms + 999) / 1000) &&
           ddpi_etcd_put_text(&call->body, ",") &&
           ddpi_etcd_put_number(&call->body, "ID", store->lease.id) &&
           ddpi_etcd_put_text(&call->body, "}"));
    ddpi_etcd_call_begin(store->client, call);
}

void ddpi_etcd_lease_forget(struct ddpi_etcd_store *store)
{
    store->lease.id = 0;
    uv_timer_stop(&store->lease.beat);
    uv_timer_stop(&store->lease.lapse);
}

static void on_revoked(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    (void)call;
    (void)outcome; /* else it ends by itself */
}

void ddpi_etcd_lease_revoke(struct ddpi_etcd_store *store, uint64_t id)
{
    struct ddpi_etcd_call *call = &store->lease.revoke;
    if (id == 0 || ddpi_etcd_call_is_busy(call))
        return;
    ddpi_etcd_fresh_call(call, "/v3/lease/revoke", on_revoked, store);
    call->total_ms = REVOKE_MS;
    put_id(call, id);
    ddpi_etcd_call_begin(store->client, call);
}
