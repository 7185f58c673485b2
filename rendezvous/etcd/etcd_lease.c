/*
 * etcd_lease.c - see etcd_parts.h.
 */
#include "error.h"
#include "etcd_parts.h"
#include "token_file.h"

#include <inttypes.h>

enum { BEATS = 3, REVOKE_MS = 500, RETRY_MS = 50, CLOCK_MARGIN = 20 };

bool ddpi_etcd_lease_is_valid(const struct ddpi_etcd_lease *lease)
{
    return lease->id != 0 && ddpi_etcd_now_ms() < lease->valid_until_ms;
}

static void put_id(struct ddpi_etcd_call *call, uint64_t id)
{
    (void)(ddpi_etcd_put_text(&call->body, "{") && ddpi_etcd_put_number(&call->body, "ID", id) &&
           ddpi_etcd_put_text(&call->body, "}"));
}

/* ---- renewing ---- */

static void on_beat(uv_timer_t *timer);

static void report(struct ddpi_etcd_lease *lease, enum ddpi_etcd_event event)
{
    lease->common->event(lease->common, event);
}

static void on_lapse(uv_timer_t *timer)
{
    struct ddpi_etcd_lease *lease = timer->data;
    if (ddpi_etcd_lease_is_valid(lease))
        return;
    if (lease->failure.msg[0] == '\0')
        ddpi_error_set(&lease->failure, DDP_E_CLOSED, "etcd has not renewed it in time");
    report(lease, ETCD_LAPSED);
}

void ddpi_etcd_lease_renew_again(struct ddpi_etcd_lease *lease, const struct ddp_error *why)
{
    lease->failure = *why;
    ddpi_etcd_complain(lease->common, why);
    uv_timer_start(&lease->beat, on_beat, RETRY_MS, 0);
}

void ddpi_etcd_lease_extend(struct ddpi_etcd_lease *lease)
{
    uint64_t ttl_ms = lease->promised_s * 1000, now_ms = ddpi_etcd_now_ms();
    uint64_t until_ms = lease->promised_ms + ttl_ms - ttl_ms / CLOCK_MARGIN;
    lease->ttl_ms = ttl_ms;
    lease->failure.msg[0] = '\0';
    lease->valid_until_ms = until_ms;
    uv_update_time(lease->beat.loop);
    uv_timer_start(&lease->lapse, on_lapse, until_ms > now_ms ? until_ms - now_ms : 0, 100);
    uv_timer_start(&lease->beat, on_beat, ttl_ms / BEATS, 0);
}

static void on_kept(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_lease *lease = call->ctx;
    struct ddp_error why;
    uint64_t ttl_s = 0;
    ddp_status status = ddpi_etcd_judge(outcome, &why);
    if (status == DDP_OK &&
        ddpi_etcd_get_number(outcome->reply->root, "TTL", &ttl_s, NULL) != DDP_OK)
        status = ddpi_error_set(&why, DDP_E_PROTOCOL, "etcd's answer to a renewal is none");
    if (status != DDP_OK) {
        ddpi_etcd_lease_renew_again(lease, &why);
        return;
    }
    if (ttl_s == 0 || ttl_s > UINT32_MAX) {
        ddpi_error_set(&lease->failure, DDP_E_CLOSED, "etcd does not know it any more");
        report(lease, ETCD_LAPSED);
        return;
    }
    lease->promised_ms = outcome->begun_ms;
    lease->promised_s = ttl_s;
    report(lease, ETCD_RENEWED);
}

static void on_beat(uv_timer_t *timer)
{
    struct ddpi_etcd_lease *lease = timer->data;
    struct ddpi_etcd_call *call = &lease->keep;
    if (lease->id == 0 || ddpi_etcd_call_is_busy(call))
        return;
    ddpi_etcd_fresh_call(call, "/v3/lease/keepalive", on_kept, lease);
    call->total_ms = (uint32_t)lease->ttl_ms;
    put_id(call, lease->id);
    ddpi_etcd_call_begin(lease->common->client, call);
}

/* ---- taking ---- */

static uint64_t wanted_s(const struct ddpi_etcd_lease *lease)
{
    return (lease->common->options->lease_ms + 999) / 1000;
}

static void on_granted(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_lease *lease = call->ctx;
    struct ddp_error why;
    uint64_t granted_s = 0;
    if (outcome->status != DDP_OK) {
        ddpi_etcd_complain(lease->common, outcome->err);
        report(lease, ETCD_NOT_GRANTED);
        return;
    }
    enum ddpi_etcd_code code = outcome->reply->code;
    if (code != DDPI_ETCD_EXISTS && ddpi_etcd_judge(outcome, &why) != DDP_OK) {
        lease->common->give_up(lease->common, &why);
        return;
    }
    lease->promised_s = wanted_s(lease);
    if (ddpi_etcd_get_number(outcome->reply->root, "TTL", &granted_s, NULL) == DDP_OK &&
        granted_s > lease->promised_s && granted_s < UINT32_MAX)
        lease->promised_s = granted_s;
    lease->promised_ms = code == DDPI_ETCD_OK && call->tries == 0 ? outcome->begun_ms : 0;
    if (lease->promised_ms == 0) /* an earlier try may have made it: from the first one */
        lease->promised_ms = call->until_ms - call->total_ms;
    ddpi_etcd_lease_extend(lease);
    report(lease, ETCD_GRANTED);
}

void ddpi_etcd_lease_take(struct ddpi_etcd_lease *lease)
{
    struct ddpi_etcd_call *call = &lease->grant;
    uint64_t id;
    ddpi_token_random(&id, sizeof id);
    lease->id = (id & INT64_MAX) | 1;
    ddpi_etcd_fresh_call(call, "/v3/lease/grant", on_granted, lease);
    call->total_ms = lease->common->options->lease_ms;
    (void)(ddpi_etcd_put_text(&call->body, "{") &&
           ddpi_etcd_put_number(&call->body, "TTL", wanted_s(lease)) &&
           ddpi_etcd_put_text(&call->body, ",") &&
           ddpi_etcd_put_number(&call->body, "ID", lease->id) &&
           ddpi_etcd_put_text(&call->body, "}"));
    ddpi_etcd_call_begin(lease->common->client, call);
}

/* ---- giving up ---- */

void ddpi_etcd_lease_forget(struct ddpi_etcd_lease *lease)
{
    lease->id = 0;
    uv_timer_stop(&lease->beat);
    uv_timer_stop(&lease->lapse);
    ddpi_etcd_end_call(lease->common, &lease->keep); /* its answer is not for the next lease */
}

static void on_revoked(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    (void)call;
    (void)outcome; /* else it ends by itself */
}

void ddpi_etcd_lease_revoke(struct ddpi_etcd_lease *lease, uint64_t id)
{
    struct ddpi_etcd_call *call = &lease->revoke;
    if (id == 0 || ddpi_etcd_call_is_busy(call))
        return;
    ddpi_etcd_fresh_call(call, "/v3/lease/revoke", on_revoked, lease);
    call->total_ms = REVOKE_MS;
    put_id(call, id);
    ddpi_etcd_call_begin(lease->common->client, call);
}

void ddpi_etcd_lease_init(struct ddpi_etcd_lease *lease, struct ddpi_etcd_common *common,
                          uv_loop_t *loop)
{
    *lease = (struct ddpi_etcd_lease){.common = common};
    ddpi_etcd_call_init(&lease->grant);
    ddpi_etcd_call_init(&lease->keep);
    ddpi_etcd_call_init(&lease->revoke);
    uv_timer_init(loop, &lease->beat);
    uv_timer_init(loop, &lease->lapse);
    lease->beat.data = lease->lapse.data = lease;
}

static void on_lapse_closed(uv_handle_t *timer)
{
    struct ddpi_etcd_lease *lease = timer->data;
    ddpi_etcd_call_finish(lease->common->client, &lease->revoke);
    report(lease, ETCD_CLOSED);
}

static void on_beat_closed(uv_handle_t *timer)
{
    struct ddpi_etcd_lease *lease = timer->data;
    uv_close((uv_handle_t *)&lease->lapse, on_lapse_closed);
}

/* The calls have ended, or have had their time. */
static void on_revoked_last(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_lease *lease = call->ctx;
    (void)outcome;
    uv_close((uv_handle_t *)&lease->beat, on_beat_closed);
}

void ddpi_etcd_lease_close(struct ddpi_etcd_lease *lease)
{
    uint64_t id = lease->id;
    ddpi_etcd_lease_forget(lease);
    ddpi_etcd_end_call(lease->common, &lease->grant);
    ddpi_etcd_end_call(lease->common, &lease->revoke);
    ddpi_etcd_lease_revoke(lease, id);
    if (ddpi_etcd_call_is_busy(&lease->revoke))
        lease->revoke.done = on_revoked_last;
    else
        uv_close((uv_handle_t *)&lease->beat, on_beat_closed);
}
