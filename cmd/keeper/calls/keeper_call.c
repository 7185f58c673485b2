/*
 * keeper_call.c - see keeper_call.h.
 */
#include "keeper_call.h"

void keeper_call_begin(struct ddpi_etcd_client *client, struct ddpi_etcd_call *call,
                       const struct keeper_request *request)
{
    ddpi_etcd_call_finish(client, call);
    ddpi_etcd_call_init(call);
    call->path = request->path;
    call->try_ms = request->try_ms;
    call->total_ms = request->total_ms;
    call->done = request->done;
    call->ctx = request->ctx;
    (void)ddpi_etcd_put_text(&call->body, request->body); /* without memory etcd refuses it */
    ddpi_etcd_call_begin(client, call);
}

const char *keeper_call_failure(const struct ddpi_etcd_outcome *outcome)
{
    if (outcome->status != DDP_OK)
        return outcome->err->msg;
    return outcome->reply->code == DDPI_ETCD_OK ? NULL : outcome->reply->message;
}
