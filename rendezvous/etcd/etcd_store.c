/*
 * etcd_store.c - the life of a store in etcd: it begins with the version of etcd, and ends when
 * another process leads or the contents cannot be used. Owns all parts.
 */
#include "error.h"
#include "etcd_store_state.h"
#include "mem.h"
#include "token_file.h"

#include <inttypes.h>
#include <stdio.h>

DDPI_SM_DEFINE(ddpi_etcd_store, ETCD_STORE_STATES);

enum { COMPLAIN_MS = 10000, VERSION_TOTAL_MS = 5000, VERSION_RETRY_MS = 300 };

/* ---- for all parts ---- */

void ddpi_etcd_fresh_call(struct ddpi_etcd_call *call, const char *path,
                          void (*done)(struct ddpi_etcd_call *, const struct ddpi_etcd_outcome *),
                          struct ddpi_etcd_store *store)
{
    ddpi_buf_consume(&call->body, ddpi_buf_len(&call->body));
    call->path = path;
    call->done = done;
    call->ctx = store;
}

void ddpi_etcd_give_up(struct ddpi_etcd_store *store, const struct ddp_error *why)
{
    if (store->sm.state == ETCD_OVER || store->closed)
        return;
    ddpi_sm_move(&store->sm, ETCD_OVER);
    uv_timer_stop(&store->timer);
    store->options.over(store->options.ctx, why);
}

void ddpi_etcd_complain(struct ddpi_etcd_store *store, const struct ddp_error *why)
{
    uint64_t now_ms = ddpi_etcd_now_ms();
    if (store->complained_ms != 0 && now_ms - store->complained_ms < COMPLAIN_MS)
        return;
    store->complained_ms = now_ms;
    store->told_away = true;
    ddpi_log(store->options.log, DDPI_LOG_WARN, "waiting for etcd: %s", why->msg);
}

static void on_away(void *ctx, const struct ddp_error *why)
{
    ddpi_etcd_complain(ctx, why);
}

static void on_back(void *ctx)
{
    struct ddpi_etcd_store *store = ctx;
    if (store->told_away) /* an etcd that comes and goes does not fill the log */
        ddpi_log(store->options.log, DDPI_LOG_INFO, "etcd answers again");
    store->told_away = false;
}

ddp_status ddpi_etcd_explain(const struct ddpi_etcd_store *store,
                             const struct ddpi_etcd_reply *reply, struct ddp_error *err)
{
    (void)store;
    switch (reply->code) {
    case DDPI_ETCD_EXHAUSTED:
        return ddpi_error_set(err, DDP_E_SYSTEM,
                              "etcd cannot keep the store's changes (%s): make room in it with "
                              "'etcdctl compact', 'etcdctl defrag' and 'etcdctl alarm disarm', let "
                              "it compact by itself (--auto-compaction-retention), and start again",
                              reply->message);
    case DDPI_ETCD_DENIED:
        return ddpi_error_set(err, DDP_E_DENIED,
                              "etcd denies access to the store's keys (%s): grant the user a role "
                              "that may read and write the prefix",
                              reply->message);
    default:
        return ddpi_error_set(err, DDP_E_PROTOCOL, "etcd refuses a request: %s (code %d)",
                              reply->message, (int)reply->code);
    }
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
        if (outcome->status == DDP_E_DENIED)
            ddpi_etcd_give_up(store, outcome->err);
        else
            ddpi_etcd_complain(store, outcome->err);
        if (!store->closed && store->sm.state == ETCD_CHECKING)
            uv_timer_start(&store->timer, on_timer, VERSION_RETRY_MS, 0);
        return;
    }
    const char *version = json_string_value(json_object_get(outcome->reply->root, "etcdserver"));
    if (version == NULL)
        ddpi_error_set(&why, DDP_E_PROTOCOL,
                       "what answers at %s:%u is no etcd: its /version names none",
                       store->options.address->at[0].host, store->options.address->at[0].port);
    else
        ddpi_error_set(&why, DDP_E_UNSUPPORTED,
                       "etcd has the version %.40s, and a state needs 3.4 or later", version);
    if (version != NULL && is_supported(version))
        ddpi_etcd_look(store);
    else
        ddpi_etcd_give_up(store, &why);
}

static void ask_version(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_call *call = &store->election.call;
    ddpi_etcd_fresh_call(call, "/version", on_version, store);
    call->total_ms = VERSION_TOTAL_MS;
    ddpi_etcd_call_begin(store->client, call);
}

static void on_timer(uv_timer_t *timer)
{
    ask_version(timer->data);
}

/* ---- opening ---- */

static void describe_self(struct ddpi_etcd_store *store)
{
    uint64_t number[2];
    struct ddpi_etcd_leader *self = &store->self;
    ddpi_token_random(number, sizeof number);
    snprintf(self->process, sizeof self->process, "%016" PRIx64 "%016" PRIx64, number[0],
             number[1]);
    snprintf(self->endpoint, sizeof self->endpoint, "%s", store->options.endpoint);
    snprintf(self->place, sizeof self->place, "%s", store->place.text);
}

static void init_store(struct ddpi_etcd_store *store, uv_loop_t *loop,
                       const struct ddpi_etcd_store_options *options)
{
    const char *prefix = options->address->prefix;
    store->options = *options;
    store->loop = loop;
    ddpi_sm_init(&store->sm, &ddpi_etcd_store_sm);
    snprintf(store->root, sizeof store->root, "%s/v1/", prefix);
    snprintf(store->leader_key, sizeof store->leader_key, "%s/v1/leader", prefix);
    snprintf(store->meta_key, sizeof store->meta_key, "%s/v1/meta", prefix);
    describe_self(store);
    ddpi_list_init(&store->contents.sending);
    ddpi_buf_init(&store->contents.meta, DDPI_ETCD_VALUE_MAX);
    ddpi_buf_init(&store->contents.next_meta, DDPI_ETCD_VALUE_MAX);
    ddpi_etcd_call_init(&store->election.call);
    ddpi_etcd_call_init(&store->lease.grant);
    ddpi_etcd_call_init(&store->lease.keep);
    ddpi_etcd_call_init(&store->lease.revoke);
    ddpi_etcd_call_init(&store->lease.look);
    ddpi_etcd_call_init(&store->contents.call);
}

ddp_status ddpi_etcd_store_open(uv_loop_t *loop, const struct ddpi_etcd_store_options *options,
                                struct ddpi_etcd_store **ret, struct ddp_error *err)
{
    struct ddpi_etcd_store *store = ddpi_calloc(1, sizeof(*store));
    if (store == NULL)
        return ddpi_error_nomem(err, sizeof(*store));
    ddp_status status =
        ddpi_etcd_place_take(&store->place, options->address->prefix, options->endpoint, err);
    if (status != DDP_OK) {
        ddpi_free(store);
        return status;
    }
    init_store(store, loop, options);
    const struct ddpi_etcd_client_options client = {
        .address = options->address,
        .files = {options->ca_file, options->cert_file, options->key_file},
        .user = options->user,
        .password = options->password,
        .away = on_away,
        .back = on_back,
        .ctx = store};
    status = ddpi_etcd_client_create(loop, &client, &store->client, err);
    if (status == DDP_OK) {
        const struct ddpi_etcd_pulse_hooks hooks = {ddpi_etcd_on_alive, ddpi_etcd_on_dead, store};
        status = ddpi_etcd_pulse_create(loop, &hooks, &store->pulse, err);
        if (status != DDP_OK)
            ddpi_etcd_client_destroy(store->client);
    }
    if (status != DDP_OK) {
        ddpi_etcd_place_leave(&store->place);
        ddpi_free(store);
        return status;
    }
    uv_timer_init(loop, &store->timer);
    uv_timer_init(loop, &store->lease.beat);
    uv_timer_init(loop, &store->lease.lapse);
    store->handles = 3;
    store->timer.data = store->lease.beat.data = store->lease.lapse.data = store;
    ask_version(store);
    *ret = store;
    return DDP_OK;
}

/* ---- closing ---- */

static void on_store_handle_closed(uv_handle_t *handle)
{
    struct ddpi_etcd_store *store = handle->data;
    if (--store->handles > 0)
        return;
    ddpi_etcd_call_finish(store->client, &store->lease.revoke);
    ddpi_etcd_client_destroy(store->client);
    ddpi_etcd_place_leave(&store->place);
    ddpi_free(store);
}

/* The calls have ended, or have had their time. */
static void free_store(struct ddpi_etcd_store *store)
{
    uv_close((uv_handle_t *)&store->lease.beat, on_store_handle_closed);
    uv_close((uv_handle_t *)&store->lease.lapse, on_store_handle_closed);
    uv_close((uv_handle_t *)&store->timer, on_store_handle_closed);
}

static void on_revoked_last(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    (void)outcome;
    free_store(call->ctx);
}

static void finish_call(struct ddpi_etcd_store *store, struct ddpi_etcd_call *call)
{
    ddpi_etcd_call_finish(store->client, call);
    ddpi_etcd_call_init(call);
}

void ddpi_etcd_store_close(struct ddpi_etcd_store *store)
{
    store->closed = true;
    uint64_t lease = store->lease.id;
    ddpi_etcd_lease_forget(store);
    uv_timer_stop(&store->timer);
    ddpi_etcd_pulse_destroy(store->pulse);
    finish_call(store, &store->election.call);
    finish_call(store, &store->lease.grant);
    finish_call(store, &store->lease.keep);
    finish_call(store, &store->lease.look);
    finish_call(store, &store->lease.revoke);
    finish_call(store, &store->contents.call);
    ddpi_etcd_contents_finish(store);
    ddpi_etcd_lease_revoke(store, lease);
    if (ddpi_etcd_call_is_busy(&store->lease.revoke))
        store->lease.revoke.done = on_revoked_last;
    else
        free_store(store);
}
