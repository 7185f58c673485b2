/*
 * etcd_election.c - which process leads: looking at the leader's key, taking it, and losing it.
 *
 * The key is looked at a few times a second, in place of a watch: a watch can be lost, or hang at a
 * member without quorum, so the key would have to be looked at as often anyway.
 *
 * A process takes the key if it does not exist (the lease of the leader is over), if the leader's
 * process is seen to be dead, or if the key names a process at this one's own address in this very
 * kernel, which must then have died before (etcd_place.h). The transaction compares that nobody
 * else was faster.
 */
#include "error.h"
#include "etcd_store_state.h"
#include "text.h"
#include "token_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOK_MS = 300, RETRY_MS = 50, LOOK_TOTAL_MS = 5000 };

/* ---- the leader's key ---- */

static void copy_text(const json_t *object, const char *name, char *ret, size_t size)
{
    const char *text = json_string_value(json_object_get(object, name));
    snprintf(ret, size, "%s", text != NULL ? text : "");
    ddpi_text_mask(ret);
}

static ddp_status take_leader(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    struct ddpi_etcd_leader *leader = ctx;
    json_t *root = json_loadb(kv->value.len > 0 ? kv->value.data : "", kv->value.len,
                              JSON_REJECT_DUPLICATES, NULL);
    leader->exists = true;
    leader->mod_revision = kv->mod_revision;
    copy_text(root, "endpoint", leader->endpoint, sizeof leader->endpoint);
    copy_text(root, "process", leader->process, sizeof leader->process);
    copy_text(root, "place", leader->place, sizeof leader->place);
    ddp_status status = ddpi_etcd_get_number(root, "lease", &leader->lease, err);
    json_decref(root);
    if (status == DDP_OK && leader->process[0] != '\0' && leader->endpoint[0] != '\0')
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_PROTOCOL, "the record 'leader' is damaged, or no ddprund's");
}

ddp_status ddpi_etcd_read_leader(const json_t *range, struct ddpi_etcd_leader *ret,
                                 struct ddp_error *err)
{
    *ret = (struct ddpi_etcd_leader){0};
    return ddpi_etcd_each_kv(range, take_leader, ret, err);
}

static char *write_leader(const struct ddpi_etcd_store *store, uint64_t number)
{
    char lease[32], text[DDPI_STORE_NUMBER];
    snprintf(lease, sizeof lease, "%" PRIu64, store->lease.id);
    ddpi_store_number_put(number, text);
    json_t *root =
        json_pack("{s:s,s:s,s:s,s:s,s:s}", "endpoint", store->self.endpoint, "store", text,
                  "process", store->self.process, "place", store->self.place, "lease", lease);
    char *value = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return value;
}

static bool is_self(const struct ddpi_etcd_store *store, const struct ddpi_etcd_leader *leader)
{
    return leader->exists && strcmp(leader->process, store->self.process) == 0;
}

/* Its address is ours, in this kernel and network. */
static bool is_predecessor(const struct ddpi_etcd_store *store,
                           const struct ddpi_etcd_leader *leader)
{
    return store->self.place[0] != '\0' && strcmp(leader->place, store->self.place) == 0 &&
           strcmp(leader->endpoint, store->self.endpoint) == 0;
}

/* ---- campaigning ---- */

static void tell_owner(struct ddpi_etcd_store *store, const struct ddpi_etcd_leader *leader)
{
    if (strcmp(store->election.told.process, leader->process) == 0 &&
        store->election.told.exists == leader->exists)
        return;
    store->election.told = *leader;
    store->options.stands_by(store->options.ctx, leader->endpoint,
                             store->election.has_meta ? store->election.meta.mark.incarnation : 0);
}

static void campaign(struct ddpi_etcd_store *store)
{
    uv_timer_stop(&store->timer);
    ddpi_sm_move(&store->sm, ETCD_CAMPAIGNING);
    ddpi_etcd_lease_take(store);
}

static void on_look(uv_timer_t *timer)
{
    ddpi_etcd_look(timer->data);
}

void ddpi_etcd_follow_again(struct ddpi_etcd_store *store)
{
    ddpi_etcd_lease_forget(store);
    ddpi_sm_move(&store->sm, ETCD_FOLLOWING);
    uv_timer_start(&store->timer, on_look, RETRY_MS, 0);
}

static void won(struct ddpi_etcd_store *store, uint64_t mod_revision)
{
    uint64_t old = store->election.leader.lease;
    store->self.mod_revision = mod_revision;
    ddpi_etcd_pulse_follow(store->pulse, "");
    ddpi_sm_move(&store->sm, ETCD_LOADING);
    ddpi_etcd_lease_revoke(store, old); /* an old leader that lives learns of it soon */
    ddpi_etcd_contents_load(store);
}

static void on_campaigned(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_store *store = call->ctx;
    struct ddpi_etcd_leader leader;
    struct ddp_error why;
    if (outcome->status != DDP_OK) {
        ddpi_etcd_complain(store, outcome->err);
        ddpi_etcd_follow_again(store);
        return;
    }
    const struct ddpi_etcd_reply *reply = outcome->reply;
    if (reply->code == DDPI_ETCD_NOT_FOUND) { /* the lease is over already */
        ddpi_etcd_follow_again(store);
        return;
    }
    ddp_status status = reply->code == DDPI_ETCD_OK
                            ? ddpi_etcd_read_leader(ddpi_etcd_range_at(reply, 0), &leader, &why)
                            : ddpi_etcd_explain(store, reply, &why);
    if (status != DDP_OK) {
        ddpi_etcd_give_up(store, &why);
    } else if (ddpi_etcd_succeeded(reply)) {
        won(store, reply->revision);
    } else if (is_self(store, &leader) && leader.lease == store->lease.id) {
        won(store, leader.mod_revision); /* by a try whose answer was lost */
    } else {
        ddpi_etcd_lease_revoke(store, store->lease.id);
        ddpi_etcd_follow_again(store);
    }
}

/* The first leader of all makes the record of the contents, too. */
static bool put_campaign(struct ddpi_etcd_store *store, struct ddpi_buf *body, const char *value)
{
    struct ddpi_buf meta;
    bool first = !store->election.has_meta;
    uint64_t seen = store->election.leader.exists ? store->election.leader.mod_revision : 0;
    const struct ddpi_bytes leader_key = ddpi_etcd_text(store->leader_key);
    const struct ddpi_bytes meta_key = ddpi_etcd_text(store->meta_key);
    ddpi_buf_init(&meta, 256);
    bool good = ddpi_etcd_put_text(body, "{\"compare\":[") &&
                ddpi_etcd_put_compare_mod(body, leader_key, seen) &&
                (!first ||
                 (ddpi_etcd_put_text(body, ",") && ddpi_etcd_put_compare_mod(body, meta_key, 0))) &&
                ddpi_etcd_put_meta(&meta, &store->election.meta);
    const struct ddpi_etcd_op take = {DDPI_ETCD_PUT, leader_key, ddpi_etcd_text(value),
                                      store->lease.id};
    const struct ddpi_etcd_op make = {DDPI_ETCD_PUT, meta_key,
                                      ddpi_bytes_of(ddpi_buf_head(&meta), ddpi_buf_len(&meta)), 0};
    const struct ddpi_etcd_range range = {.key = leader_key};
    good = good && ddpi_etcd_put_text(body, "],\"success\":[") && ddpi_etcd_put_op(body, &take) &&
           (!first || (ddpi_etcd_put_text(body, ",") && ddpi_etcd_put_op(body, &make))) &&
           ddpi_etcd_put_text(body, "],\"failure\":[{\"request_range\":") &&
           ddpi_etcd_put_range(body, &range) && ddpi_etcd_put_text(body, "}]}");
    ddpi_buf_finish(&meta);
    return good;
}

void ddpi_etcd_run(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_call *call = &store->election.call;
    struct ddpi_etcd_meta *meta = &store->election.meta;
    if (store->sm.state != ETCD_CAMPAIGNING)
        return;
    if (!store->election.has_meta) {
        *meta = (struct ddpi_etcd_meta){0};
        ddpi_token_random(&meta->mark.incarnation, sizeof meta->mark.incarnation);
    }
    char *value = write_leader(store, meta->mark.incarnation);
    ddpi_etcd_fresh_call(call, "/v3/kv/txn", on_campaigned, store);
    call->total_ms = store->options.lease_ms;
    bool good = value != NULL && put_campaign(store, &call->body, value);
    free(value); /* jansson's */
    if (good)
        ddpi_etcd_call_begin(store->client, call);
    else
        ddpi_etcd_follow_again(store);
}

/* ---- looking ---- */

static ddp_status take_meta(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    struct ddpi_etcd_store *store = ctx;
    store->election.has_meta = true;
    return ddpi_etcd_get_meta(kv->value, &store->election.meta, err);
}

static ddp_status refuse_foreign(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    const struct ddpi_etcd_store *store = ctx;
    if (store->election.has_meta)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_PROTOCOL,
                          "the prefix %s of etcd has keys of another program, such as '%.*s'; name "
                          "another prefix",
                          store->options.address->prefix,
                          (int)(kv->key.len < 100 ? kv->key.len : 100), (const char *)kv->key.data);
}

static ddp_status read_look(struct ddpi_etcd_store *store, const struct ddpi_etcd_reply *reply,
                            struct ddp_error *err)
{
    store->election.has_meta = false;
    if (reply->code != DDPI_ETCD_OK)
        return ddpi_etcd_explain(store, reply, err);
    ddp_status status =
        ddpi_etcd_read_leader(ddpi_etcd_range_at(reply, 0), &store->election.leader, err);
    if (status == DDP_OK)
        status = ddpi_etcd_each_kv(ddpi_etcd_range_at(reply, 1), take_meta, store, err);
    if (status == DDP_OK)
        status = ddpi_etcd_each_kv(ddpi_etcd_range_at(reply, 2), refuse_foreign, store, err);
    return status;
}

static void follow(struct ddpi_etcd_store *store)
{
    const struct ddpi_etcd_leader *leader = &store->election.leader;
    bool same = strcmp(store->election.told.process, leader->process) == 0;
    if (!same) {
        store->election.dead = false;
        ddpi_etcd_pulse_follow(store->pulse, leader->endpoint);
    }
    tell_owner(store, leader);
    if (store->election.dead || is_predecessor(store, leader))
        campaign(store);
    else
        uv_timer_start(&store->timer, on_look, LOOK_MS, 0);
}

static void on_looked(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_store *store = call->ctx;
    struct ddp_error why;
    if (outcome->status == DDP_E_DENIED) {
        ddpi_etcd_give_up(store, outcome->err);
        return;
    }
    if (outcome->status != DDP_OK) {
        ddpi_etcd_complain(store, outcome->err);
        uv_timer_start(&store->timer, on_look, LOOK_MS, 0);
        return;
    }
    if (read_look(store, outcome->reply, &why) != DDP_OK) {
        ddpi_etcd_give_up(store, &why);
        return;
    }
    if (store->sm.state == ETCD_CHECKING)
        ddpi_sm_move(&store->sm, ETCD_FOLLOWING);
    if (store->election.leader.exists) {
        follow(store);
    } else {
        tell_owner(store, &store->election.leader);
        campaign(store);
    }
}

/* The leader, the record of the contents, and whether anything is there at all. */
static bool put_look(const struct ddpi_etcd_store *store, struct ddpi_buf *body)
{
    char all[sizeof store->root], end[sizeof store->root];
    snprintf(all, sizeof all, "%s/", store->options.address->prefix);
    snprintf(end, sizeof end, "%s0", store->options.address->prefix); /* '0' comes after '/' */
    const struct ddpi_etcd_range ranges[] = {
        {.key = ddpi_etcd_text(store->leader_key)},
        {.key = ddpi_etcd_text(store->meta_key)},
        {.key = ddpi_etcd_text(all), .end = ddpi_etcd_text(end), .limit = 1, .keys_only = true},
    };
    bool good = ddpi_etcd_put_text(body, "{\"success\":[");
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        good = good &&
               ddpi_etcd_put_text(body, i > 0 ? "},{\"request_range\":" : "{\"request_range\":") &&
               ddpi_etcd_put_range(body, &ranges[i]);
    return good && ddpi_etcd_put_text(body, "}]}");
}

void ddpi_etcd_look(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_call *call = &store->election.call;
    if (store->closed || ddpi_etcd_call_is_busy(call))
        return;
    ddpi_etcd_fresh_call(call, "/v3/kv/txn", on_looked, store);
    call->total_ms = LOOK_TOTAL_MS;
    if (put_look(store, &call->body))
        ddpi_etcd_call_begin(store->client, call);
    else
        uv_timer_start(&store->timer, on_look, LOOK_MS, 0);
}

void ddpi_etcd_on_alive(void *ctx)
{
    const struct ddpi_etcd_store *store = ctx;
    ddpi_log(store->options.log, DDPI_LOG_INFO,
             "connected to the leader, %s: the end of its process will be seen at once",
             store->election.told.endpoint);
}

/* The transaction compares with the key as it was seen last, which named this process. */
void ddpi_etcd_on_dead(void *ctx)
{
    struct ddpi_etcd_store *store = ctx;
    if (store->closed || store->sm.state != ETCD_FOLLOWING)
        return;
    ddpi_log(store->options.log, DDPI_LOG_WARN, "the process of the leader, %s, is dead",
             store->election.leader.endpoint);
    store->election.dead = true;
    if (!ddpi_etcd_call_is_busy(&store->election.call))
        campaign(store);
}
