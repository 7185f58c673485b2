/*
 * etcd_common.c - see etcd_common.h. Owns nothing.
 */
#include "etcd_common.h"

#include "error.h"
#include "text.h"
#include "token_file.h"

#include <inttypes.h>
#include <stdio.h>

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
                              "etcd cannot keep the store's changes (%s): the keeper of --cluster "
                              "makes room in it; in another etcd do so with 'etcdctl compact', "
                              "'etcdctl defrag' and 'etcdctl alarm disarm', let it compact by "
                              "itself (--auto-compaction-retention), and start again",
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

char *ddpi_etcd_write_leader(const struct ddpi_etcd_leader *self, uint64_t number)
{
    char lease[32], text[DDPI_STORE_NUMBER];
    snprintf(lease, sizeof lease, "%" PRIu64, self->lease);
    ddpi_store_number_put(number, text);
    json_t *root = json_pack("{s:s,s:s,s:s,s:s,s:s}", "endpoint", self->endpoint, "store", text,
                             "process", self->process, "place", self->place, "lease", lease);
    char *value = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return value;
}
