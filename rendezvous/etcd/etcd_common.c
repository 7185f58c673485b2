/*
 * etcd_common.c - see etcd_common.h. Owns nothing.
 */
#include "etcd_common.h"
#include "error.h"

enum { COMPLAIN_MS = 10000 };

void ddpi_etcd_fresh_call(struct ddpi_etcd_call *call, const char *path,
                          void (*done)(struct ddpi_etcd_call *, const struct ddpi_etcd_outcome *),
                          void *ctx)
{
    ddpi_buf_consume(&call->body, ddpi_buf_len(&call->body));
    call->path = path;
    call->done = done;
    call->ctx = ctx;
}

void ddpi_etcd_end_call(struct ddpi_etcd_common *common, struct ddpi_etcd_call *call)
{
    ddpi_etcd_call_finish(common->client, call);
    ddpi_etcd_call_init(call);
}

ddp_status ddpi_etcd_judge(const struct ddpi_etcd_outcome *outcome, struct ddp_error *err)
{
    const struct ddpi_etcd_reply *reply = outcome->reply;
    if (outcome->status != DDP_OK) {
        *err = *outcome->err;
        return outcome->status;
    }
    switch (reply->code) {
    case DDPI_ETCD_OK:
        return DDP_OK;
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

void ddpi_etcd_complain(struct ddpi_etcd_common *common, const struct ddp_error *why)
{
    uint64_t now_ms = ddpi_etcd_now_ms();
    if (common->complained_ms != 0 && now_ms - common->complained_ms < COMPLAIN_MS)
        return;
    common->complained_ms = now_ms;
    common->told_away = true;
    ddpi_log(common->options->log, DDPI_LOG_WARN, "waiting for etcd: %s", why->msg);
}

void ddpi_etcd_is_back(struct ddpi_etcd_common *common)
{
    if (common->told_away) /* an etcd that comes and goes does not fill the log */
        ddpi_log(common->options->log, DDPI_LOG_INFO, "etcd answers again");
    common->told_away = false;
}
