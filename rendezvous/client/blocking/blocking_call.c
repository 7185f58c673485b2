/*
 * blocking_call.c - sends requests of the calling thread and waits for their replies. Owns nothing:
 * a call lives on its thread's stack.
 */
#include "blocking_call.h"

#include "blocking_state.h"
#include "clock.h"
#include "error.h"
#include "mem.h"

void ddpi_store_call_done(void *ctx, struct ddpi_client_request *request,
                          const struct ddpi_message *reply)
{
    ddp_store *store = ctx;
    struct call *call = ddpi_container_of(request, struct call, request);
    call->status = reply->status;
    call->version = reply->version;
    call->number = reply->number;
    if (reply->status == DDP_OK && call->take != NULL)
        call->status = call->take(store, call, reply, call->err);
    else if (reply->status != DDP_OK)
        ddpi_error_set(call->err, reply->status, "%.*s", (int)reply->text.len,
                       (const char *)reply->text.data);
    ddpi_waiter_make_ready(&call->waiter);
}

void ddpi_store_run_all(ddp_store *store, struct call *first, uint32_t timeout_ms)
{
    pthread_mutex_lock(&store->lock);
    uint64_t now_ms = ddpi_monotonic_ms();
    ddpi_store_read_if_idle(store, now_ms);
    for (struct call *call = first; call != NULL; call = call->next) {
        pthread_cond_init(&call->waiter.cond, NULL);
        ddpi_list_init(&call->waiter.of_store);
        call->status =
            ddpi_client_submit(&store->core, &call->request, timeout_ms, now_ms, call->err);
    }
    ddpi_store_send_beside_leader(store, now_ms);
    for (struct call *call = first; call != NULL; call = call->next) {
        if (call->status == DDP_OK) /* submitted; perhaps answered already */
            ddpi_store_await(store, &call->waiter, UINT64_MAX);
        pthread_cond_destroy(&call->waiter.cond);
    }
    pthread_mutex_unlock(&store->lock);
}

ddp_status ddpi_store_take_value(const ddp_store *store, struct call *call,
                                 const struct ddpi_message *reply, struct ddp_error *err)
{
    (void)store;
    call->ret = ddpi_strndup(reply->value.data, reply->value.len);
    call->ret_len = reply->value.len;
    return call->ret != NULL ? DDP_OK : ddpi_error_nomem(err, reply->value.len);
}

ddp_status ddpi_store_call_error(const ddp_store *store, const struct call *call,
                                 const struct ddp_error *why, struct ddp_error *err)
{
    return ddpi_target_failure(&store->target, call->request.message.op, call->status, why->msg,
                               err);
}

ddp_status ddpi_store_run(ddp_store *store, struct call *call, uint32_t timeout_ms,
                          struct ddp_error *err)
{
    struct ddp_error why;
    call->err = &why;
    ddpi_store_run_all(store, call, timeout_ms);
    return call->status == DDP_OK ? DDP_OK : ddpi_store_call_error(store, call, &why, err);
}

ddp_status ddpi_store_run_key(ddp_store *store, const char *key, struct call *call,
                              uint32_t timeout_ms, struct ddp_error *err)
{
    char *full;
    ddp_status status = ddpi_target_key(&store->target, &store->limits, key, &full,
                                        &call->request.message.key, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_store_run(store, call, timeout_ms, err);
    ddpi_free(full);
    return status;
}
