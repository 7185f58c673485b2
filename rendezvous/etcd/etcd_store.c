/*
 * etcd_store.c - a store in etcd: begins with the version of etcd, and mediates between the lease,
 * the election and the contents, which do not know each other. Owns all of them.
 */
#include "etcd_store.h"
#include "etcd_parts.h"

#include "error.h"
#include "mem.h"

#include <stdio.h>

DDPI_SM_DEFINE(ddpi_etcd_store, ETCD_STORE_STATES);

enum { VERSION_TOTAL_MS = 5000, VERSION_RETRY_MS = 300 };

struct ddpi_etcd_store {
    struct ddpi_etcd_store_options options; /* its texts are below */
    struct ddpi_sm sm;
    struct ddpi_etcd_place place;
    struct ddpi_etcd_common common;
    struct ddpi_etcd_lease lease;
    struct ddpi_etcd_election election;
    struct ddpi_etcd_contents contents;
    struct ddpi_etcd_call version;
    uv_timer_t timer; /* until the version is asked again */
    bool closed;
    unsigned open; /* not closed yet: the timer, the lease, the election */
};

static void give_up(struct ddpi_etcd_common *common, const struct ddp_error *why)
{
    struct ddpi_etcd_store *store = ddpi_container_of(common, struct ddpi_etcd_store, common);
    if (store->sm.state == ETCD_OVER || store->closed)
        return;
    ddpi_sm_move(&store->sm, ETCD_OVER);
    store->options.over(store->options.ctx, why);
}

/* ---- the version ---- */

static void on_timer(uv_timer_t *timer);

static bool is_supported(const char *version)
{
    unsigned major = 0, minor = 0;
    const char *at = version;
    for (; *at >= '0' && *at <= '9' && major < 1000; at++)
        major = 10 * major + (unsigned)(*at - '0');
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9' && minor < 1000; at++)
            minor = 10 * minor + (unsigned)(*at - '0');
    return major > 3 || (major == 3 && minor >= 4);
}

static void on_version(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_store *store = call->ctx;
    struct ddp_error why;
    if (outcome->status != DDP_OK) {
        if (outcome->status == DDP_E_DENIED) {
            give_up(&store->common, outcome->err);
            return;
        }
        ddpi_etcd_complain(&store->common, outcome->err);
        uv_timer_start(&store->timer, on_timer, VERSION_RETRY_MS, 0);
        return;
    }
    const char *version = json_string_value(json_object_get(outcome->reply->root, "etcdserver"));
    char member[DDPI_ETCD_MEMBER_TEXT];
    ddpi_etcd_member_text(store->options.address, 0, member);
    if (version == NULL)
        ddpi_error_set(&why, DDP_E_PROTOCOL,
                       "what answers at %s is no etcd: its /version names none", member);
    else
        ddpi_error_set(&why, DDP_E_UNSUPPORTED,
                       "etcd has the version %.40s, and a state needs 3.4 or later", version);
    if (version == NULL || !is_supported(version)) {
        give_up(&store->common, &why);
        return;
    }
    ddpi_sm_move(&store->sm, ETCD_FOLLOWING);
    ddpi_etcd_election_look(&store->election);
}

static void ask_version(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_call *call = &store->version;
    ddpi_etcd_fresh_call(call, "/version", on_version, store);
    call->total_ms = VERSION_TOTAL_MS;
    ddpi_etcd_call_begin(store->common.client, call);
}

static void on_timer(uv_timer_t *timer)
{
    ask_version(timer->data);
}

/* ---- the contents ---- */

static bool leads(const struct ddpi_etcd_store *store)
{
    return store->sm.state == ETCD_LEADING && !store->closed;
}

static void on_change(void *ctx, const struct ddpi_mutation *mutation)
{
    struct ddpi_etcd_store *store = ctx;
    ddpi_etcd_contents_change(&store->contents, mutation);
}

static void on_commit(void *ctx, const struct ddpi_mark *mark, struct ddpi_committed done)
{
    struct ddpi_etcd_store *store = ctx;
    if (leads(store)) /* else the owner knows, or will, that it is over */
        ddpi_etcd_contents_commit(&store->contents, mark, done);
}

static bool may_answer(void *ctx)
{
    const struct ddpi_etcd_store *store = ctx;
    return leads(store) && ddpi_etcd_lease_is_valid(&store->lease);
}

static size_t backlog(void *ctx)
{
    const struct ddpi_etcd_store *store = ctx;
    return ddpi_etcd_contents_backlog(&store->contents);
}

static void put_counters(void *ctx, struct ddpi_buf *text)
{
    const struct ddpi_etcd_store *store = ctx;
    (void)ddpi_etcd_times_put(ddpi_etcd_client_times(store->common.client), text);
}

/* ---- what the parts report ---- */

static void follow_again(struct ddpi_etcd_store *store)
{
    ddpi_etcd_lease_forget(&store->lease);
    ddpi_sm_move(&store->sm, ETCD_FOLLOWING);
    ddpi_etcd_election_look_again(&store->election);
}

static void load(struct ddpi_etcd_store *store)
{
    ddpi_sm_move(&store->sm, ETCD_LOADING);
    /* An old leader that lives learns of it soon. */
    ddpi_etcd_lease_revoke(&store->lease, store->election.leader.lease);
    ddpi_etcd_contents_load(&store->contents, store->election.self.mod_revision);
}

static void lead(struct ddpi_etcd_store *store)
{
    const struct ddpi_sink sink = {.ctx = store,
                                   .change = on_change,
                                   .commit = on_commit,
                                   .may_answer = may_answer,
                                   .backlog = backlog,
                                   .put_counters = put_counters};
    ddpi_sm_move(&store->sm, ETCD_LEADING);
    store->options.leads(store->options.ctx, &store->contents.last.mark, &sink);
}

static void lapsed(struct ddpi_etcd_store *store)
{
    struct ddp_error why;
    ddpi_error_set(&why, DDP_E_CLOSED,
                   "another ddprund may lead now, so this one stops serving: its lease in etcd is "
                   "over (%s)",
                   store->lease.failure.msg);
    give_up(&store->common, &why);
}

static void part_closed(struct ddpi_etcd_store *store)
{
    if (--store->open > 0)
        return;
    ddpi_etcd_client_destroy(store->common.client);
    ddpi_etcd_place_leave(&store->place);
    ddpi_free(store);
}

static void on_event(struct ddpi_etcd_common *common, enum ddpi_etcd_event event)
{
    struct ddpi_etcd_store *store = ddpi_container_of(common, struct ddpi_etcd_store, common);
    bool campaigns = store->sm.state == ETCD_CAMPAIGNING;
    if (store->sm.state == ETCD_OVER && event != ETCD_CLOSED)
        return; /* the owner has been told */
    switch (event) {
    case ETCD_VACANT:
        if (store->sm.state == ETCD_FOLLOWING) {
            ddpi_sm_move(&store->sm, ETCD_CAMPAIGNING);
            ddpi_etcd_lease_take(&store->lease);
        }
        return;
    case ETCD_GRANTED:
        ddpi_etcd_election_campaign(&store->election, store->lease.id);
        return;
    case ETCD_OUTRUN:
        ddpi_etcd_lease_revoke(&store->lease, store->lease.id);
        follow_again(store);
        return;
    case ETCD_NOT_GRANTED:
    case ETCD_LOST:
        follow_again(store);
        return;
    case ETCD_WON:
        load(store);
        return;
    case ETCD_LOADED:
        lead(store);
        return;
    case ETCD_RENEWED: /* That does not say who leads: the key may have been taken or deleted. */
        if (campaigns)
            ddpi_etcd_lease_extend(&store->lease);
        else
            ddpi_etcd_election_check(&store->election, (uint32_t)store->lease.ttl_ms);
        return;
    case ETCD_STILL_OURS:
        ddpi_etcd_lease_extend(&store->lease);
        return;
    case ETCD_NOT_CHECKED:
        ddpi_etcd_lease_renew_again(&store->lease, &store->election.failure);
        return;
    case ETCD_LAPSED:
        if (!campaigns) /* else the campaign fails, and begins anew */
            lapsed(store);
        return;
    case ETCD_CLOSED:
        part_closed(store);
    }
}

/* ---- opening and closing ---- */

static void on_away(void *ctx, const struct ddp_error *why)
{
    ddpi_etcd_complain(ctx, why);
}

static void on_back(void *ctx)
{
    ddpi_etcd_is_back(ctx);
}

static void on_timer_closed(uv_handle_t *timer)
{
    part_closed(timer->data);
}

static void init_common(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_common *common = &store->common;
    const char *prefix = store->options.address->prefix;
    common->options = &store->options;
    common->event = on_event;
    common->give_up = give_up;
    snprintf(common->root, sizeof common->root, "%s/v1/", prefix);
    snprintf(common->leader_key, sizeof common->leader_key, "%s/v1/leader", prefix);
    snprintf(common->meta_key, sizeof common->meta_key, "%s/v1/meta", prefix);
}

ddp_status ddpi_etcd_store_open(uv_loop_t *loop, const struct ddpi_etcd_store_options *options,
                                struct ddpi_etcd_store **ret, struct ddp_error *err)
{
    struct ddpi_etcd_store *store = ddpi_calloc(1, sizeof(*store));
    if (store == NULL)
        return ddpi_error_nomem(err, sizeof(*store));
    store->options = *options;
    init_common(store);
    ddp_status status =
        ddpi_etcd_place_take(&store->place, options->address->prefix, options->endpoint, err);
    if (status != DDP_OK)
        goto err_after_alloc;
    const struct ddpi_etcd_client_options client = {
        .address = options->address,
        .files = {options->ca_file, options->cert_file, options->key_file},
        .user = options->user,
        .password = options->password,
        .away = on_away,
        .back = on_back,
        .ctx = &store->common};
    status = ddpi_etcd_client_create(loop, &client, &store->common.client, err);
    if (status != DDP_OK)
        goto err_after_place;
    status =
        ddpi_etcd_election_init(&store->election, &store->common, loop, store->place.text, err);
    if (status != DDP_OK)
        goto err_after_client;
    ddpi_sm_init(&store->sm, &ddpi_etcd_store_sm);
    ddpi_etcd_lease_init(&store->lease, &store->common, loop);
    ddpi_etcd_contents_init(&store->contents, &store->common);
    ddpi_etcd_call_init(&store->version);
    uv_timer_init(loop, &store->timer);
    store->timer.data = store;
    store->open = 3;
    ask_version(store);
    *ret = store;
    return DDP_OK;

err_after_client:
    ddpi_etcd_client_destroy(store->common.client);
err_after_place:
    ddpi_etcd_place_leave(&store->place);
err_after_alloc:
    ddpi_free(store);
    return status;
}

void ddpi_etcd_store_close(struct ddpi_etcd_store *store)
{
    store->closed = true;
    ddpi_etcd_end_call(&store->common, &store->version);
    ddpi_etcd_contents_finish(&store->contents);
    ddpi_etcd_election_close(&store->election);
    ddpi_etcd_lease_close(&store->lease);
    uv_close((uv_handle_t *)&store->timer, on_timer_closed);
}
