/*
 * etcd_election.c - see etcd_parts.h.
 */
#include "error.h"
#include "etcd_parts.h"
#include "token_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOK_MS = 300, RETRY_MS = 50, LOOK_TOTAL_MS = 5000 };

/* Its address is ours, in this kernel and network. */
static bool is_predecessor(const struct ddpi_etcd_leader *self,
                           const struct ddpi_etcd_leader *leader)
{
    return self->place[0] != '\0' && strcmp(leader->place, self->place) == 0 &&
           strcmp(leader->endpoint, self->endpoint) == 0;
}

/* ---- campaigning ---- */

static void report(struct ddpi_etcd_election *election, enum ddpi_etcd_event event)
{
    election->common->event(election->common, event);
}

static void on_look(uv_timer_t *timer)
{
    ddpi_etcd_election_look(timer->data);
}

void ddpi_etcd_election_look_again(struct ddpi_etcd_election *election)
{
    election->campaigns = false;
    uv_timer_start(&election->timer, on_look, RETRY_MS, 0);
}

static void campaign(struct ddpi_etcd_election *election)
{
    uv_timer_stop(&election->timer);
    election->campaigns = true;
    report(election, ETCD_VACANT);
}

static void won(struct ddpi_etcd_election *election, uint64_t mod_revision)
{
    election->self.mod_revision = mod_revision;
    ddpi_etcd_pulse_follow(election->pulse, "");
    report(election, ETCD_WON);
}

static void on_campaigned(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_election *election = call->ctx;
    const struct ddpi_etcd_leader *self = &election->self;
    const struct ddpi_etcd_reply *reply = outcome->reply;
    struct ddpi_etcd_leader leader;
    struct ddp_error why;
    if (outcome->status != DDP_OK) {
        ddpi_etcd_complain(election->common, outcome->err);
        report(election, ETCD_LOST);
        return;
    }
    if (reply->code == DDPI_ETCD_NOT_FOUND) { /* the lease is over already */
        report(election, ETCD_LOST);
        return;
    }
    if (ddpi_etcd_judge(outcome, &why) != DDP_OK ||
        ddpi_etcd_read_leader(ddpi_etcd_range_at(reply, 0), &leader, &why) != DDP_OK)
        election->common->give_up(election->common, &why);
    else if (ddpi_etcd_succeeded(reply))
        won(election, reply->revision);
    else if (leader.exists && strcmp(leader.process, self->process) == 0 &&
             leader.lease == self->lease)
        won(election, leader.mod_revision); /* by a try whose answer was lost */
    else
        report(election, ETCD_OUTRUN);
}

/* The first leader of all makes the record of the contents, too. */
static bool put_campaign(struct ddpi_etcd_election *election, struct ddpi_buf *body,
                         const char *value)
{
    struct ddpi_buf meta;
    bool first = !election->has_meta;
    uint64_t seen = election->leader.exists ? election->leader.mod_revision : 0;
    const struct ddpi_bytes leader_key = ddpi_etcd_text(election->common->leader_key);
    const struct ddpi_bytes meta_key = ddpi_etcd_text(election->common->meta_key);
    ddpi_buf_init(&meta, 256);
    bool good = ddpi_etcd_put_text(body, "{\"compare\":[") &&
                ddpi_etcd_put_compare_mod(body, leader_key, seen) &&
                (!first ||
                 (ddpi_etcd_put_text(body, ",") && ddpi_etcd_put_compare_mod(body, meta_key, 0))) &&
                ddpi_etcd_put_meta(&meta, &election->meta);
    const struct ddpi_etcd_op take = {DDPI_ETCD_PUT, leader_key, ddpi_etcd_text(value),
                                      election->self.lease};
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

void ddpi_etcd_election_campaign(struct ddpi_etcd_election *election, uint64_t lease)
{
    struct ddpi_etcd_call *call = &election->call;
    struct ddpi_etcd_meta *meta = &election->meta;
    election->self.lease = lease;
    if (!election->has_meta) {
        *meta = (struct ddpi_etcd_meta){0};
        ddpi_token_random(&meta->mark.incarnation, sizeof meta->mark.incarnation);
    }
    char *value = ddpi_etcd_write_leader(&election->self, meta->mark.incarnation);
    ddpi_etcd_fresh_call(call, "/v3/kv/txn", on_campaigned, election);
    call->total_ms = election->common->options->lease_ms;
    bool good = value != NULL && put_campaign(election, &call->body, value);
    free(value); /* jansson's */
    if (good)
        ddpi_etcd_call_begin(election->common->client, call);
    else
        report(election, ETCD_LOST);
}

/* ---- looking ---- */

static ddp_status take_meta(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    struct ddpi_etcd_election *election = ctx;
    election->has_meta = true;
    return ddpi_etcd_get_meta(kv->value, &election->meta, err);
}

static ddp_status refuse_foreign(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    const struct ddpi_etcd_election *election = ctx;
    if (election->has_meta)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_PROTOCOL,
                          "the prefix %s of etcd has keys of another program, such as '%.*s'; name "
                          "another prefix",
                          election->common->options->address->prefix,
                          (int)(kv->key.len < 100 ? kv->key.len : 100), (const char *)kv->key.data);
}

static ddp_status read_look(struct ddpi_etcd_election *election,
                            const struct ddpi_etcd_outcome *outcome, struct ddp_error *err)
{
    const struct ddpi_etcd_reply *reply = outcome->reply;
    election->has_meta = false;
    ddp_status status = ddpi_etcd_judge(outcome, err);
    if (status == DDP_OK)
        status = ddpi_etcd_read_leader(ddpi_etcd_range_at(reply, 0), &election->leader, err);
    if (status == DDP_OK)
        status = ddpi_etcd_each_kv(ddpi_etcd_range_at(reply, 1), take_meta, election, err);
    if (status == DDP_OK)
        status = ddpi_etcd_each_kv(ddpi_etcd_range_at(reply, 2), refuse_foreign, election, err);
    return status;
}

/* Follow what the last look has seen. */
static void follow(struct ddpi_etcd_election *election)
{
    const struct ddpi_etcd_store_options *options = election->common->options;
    const struct ddpi_etcd_leader *leader = &election->leader;
    bool same = strcmp(election->told.process, leader->process) == 0;
    if (leader->exists && !same) {
        election->dead = false;
        ddpi_etcd_pulse_follow(election->pulse, leader->endpoint);
    }
    if (!same || election->told.exists != leader->exists) {
        election->told = *leader;
        options->stands_by(options->ctx, leader->endpoint,
                           election->has_meta ? election->meta.mark.incarnation : 0);
    }
    if (!leader->exists || election->dead || is_predecessor(&election->self, leader))
        campaign(election);
    else
        uv_timer_start(&election->timer, on_look, LOOK_MS, 0);
}

static void on_looked(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_election *election = call->ctx;
    struct ddp_error why;
    if (outcome->status != DDP_OK && outcome->status != DDP_E_DENIED) {
        ddpi_etcd_complain(election->common, outcome->err);
        uv_timer_start(&election->timer, on_look, LOOK_MS, 0);
        return;
    }
    if (read_look(election, outcome, &why) == DDP_OK)
        follow(election);
    else
        election->common->give_up(election->common, &why);
}

/* The leader, the record of the contents, and whether anything is there at all. */
static bool put_look(const struct ddpi_etcd_common *common, struct ddpi_buf *body)
{
    char all[sizeof common->root], end[sizeof common->root];
    snprintf(all, sizeof all, "%s/", common->options->address->prefix);
    snprintf(end, sizeof end, "%s0", common->options->address->prefix); /* '0' comes after '/' */
    const struct ddpi_etcd_range ranges[] = {
        {.key = ddpi_etcd_text(common->leader_key)},
        {.key = ddpi_etcd_text(common->meta_key)},
        {.key = ddpi_etcd_text(all), .end = ddpi_etcd_text(end), .limit = 1, .keys_only = true},
    };
    bool good = ddpi_etcd_put_text(body, "{\"success\":[");
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        good = good &&
               ddpi_etcd_put_text(body, i > 0 ? "},{\"request_range\":" : "{\"request_range\":") &&
               ddpi_etcd_put_range(body, &ranges[i]);
    return good && ddpi_etcd_put_text(body, "}]}");
}

void ddpi_etcd_election_look(struct ddpi_etcd_election *election)
{
    struct ddpi_etcd_call *call = &election->call;
    if (ddpi_etcd_call_is_busy(call))
        return;
    ddpi_etcd_fresh_call(call, "/v3/kv/txn", on_looked, election);
    call->total_ms = LOOK_TOTAL_MS;
    if (put_look(election->common, &call->body))
        ddpi_etcd_call_begin(election->common->client, call);
    else
        uv_timer_start(&election->timer, on_look, LOOK_MS, 0);
}

static void on_alive(void *ctx)
{
    const struct ddpi_etcd_election *election = ctx;
    ddpi_log(election->common->options->log, DDPI_LOG_INFO,
             "connected to the leader, %s: the end of its process will be seen at once",
             election->told.endpoint);
}

/* The transaction compares with the key as it was seen last, which named this process. */
static void on_dead(void *ctx)
{
    struct ddpi_etcd_election *election = ctx;
    if (election->campaigns)
        return;
    ddpi_log(election->common->options->log, DDPI_LOG_WARN,
             "the process of the leader, %s, is dead", election->leader.endpoint);
    election->dead = true;
    if (!ddpi_etcd_call_is_busy(&election->call))
        campaign(election);
}

/* ---- leading ---- */

static void on_checked(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_election *election = call->ctx;
    struct ddp_error *why = &election->failure;
    struct ddpi_etcd_leader leader;
    if (ddpi_etcd_judge(outcome, why) != DDP_OK ||
        ddpi_etcd_read_leader(outcome->reply->root, &leader, why) != DDP_OK) {
        report(election, ETCD_NOT_CHECKED);
        return;
    }
    if (leader.exists && leader.mod_revision == election->self.mod_revision) {
        report(election, ETCD_STILL_OURS);
        return;
    }
    ddpi_error_set(why, DDP_E_CLOSED, "%s%s; this ddprund stops serving",
                   leader.exists ? "the store is led by " : "",
                   leader.exists ? leader.endpoint : "the leader's key was deleted from etcd");
    election->common->give_up(election->common, why);
}

void ddpi_etcd_election_check(struct ddpi_etcd_election *election, uint32_t total_ms)
{
    struct ddpi_etcd_call *call = &election->check;
    const struct ddpi_etcd_range range = {.key = ddpi_etcd_text(election->common->leader_key)};
    if (ddpi_etcd_call_is_busy(call))
        return;
    ddpi_etcd_fresh_call(call, "/v3/kv/range", on_checked, election);
    call->total_ms = total_ms;
    if (ddpi_etcd_put_range(&call->body, &range)) {
        ddpi_etcd_call_begin(election->common->client, call);
        return;
    }
    ddpi_error_nomem(&election->failure, DDPI_ETCD_ROOT_MAX);
    report(election, ETCD_NOT_CHECKED);
}

/* ---- opening and closing ---- */

ddp_status ddpi_etcd_election_init(struct ddpi_etcd_election *election,
                                   struct ddpi_etcd_common *common, uv_loop_t *loop,
                                   const char *place, struct ddp_error *err)
{
    const struct ddpi_etcd_pulse_hooks pulse = {on_alive, on_dead, election};
    struct ddpi_etcd_leader *self = &election->self;
    uint64_t number[2];
    *election = (struct ddpi_etcd_election){.common = common};
    ddpi_token_random(number, sizeof number);
    snprintf(self->process, sizeof self->process, "%016" PRIx64 "%016" PRIx64, number[0],
             number[1]);
    snprintf(self->endpoint, sizeof self->endpoint, "%s", common->options->endpoint);
    snprintf(self->place, sizeof self->place, "%s", place);
    ddpi_etcd_call_init(&election->call);
    ddpi_etcd_call_init(&election->check);
    ddp_status status = ddpi_etcd_pulse_create(loop, &pulse, &election->pulse, err);
    if (status != DDP_OK)
        return status;
    uv_timer_init(loop, &election->timer);
    election->timer.data = election;
    return DDP_OK;
}

static void on_timer_closed(uv_handle_t *timer)
{
    report(timer->data, ETCD_CLOSED);
}

void ddpi_etcd_election_close(struct ddpi_etcd_election *election)
{
    ddpi_etcd_pulse_destroy(election->pulse);
    ddpi_etcd_end_call(election->common, &election->call);
    ddpi_etcd_end_call(election->common, &election->check);
    uv_close((uv_handle_t *)&election->timer, on_timer_closed);
}
