/*
 * queue_ops.c - the operations on queues. Owns nothing; the queues are queue.c's.
 *
 * A client that waits for a queue is woken and then asks for the value, in two requests. So each
 * value that comes wakes one client only. If that client goes away, or asks for something else,
 * while there still are more values than clients on their way, the next client is woken.
 */
#include "error.h"
#include "kv_impl.h"

static void queue_wake(struct ddpi_kv *kv, struct kv_entry *entry)
{
    struct ddpi_kv_client *client = ddpi_kv_wake_one(kv, entry);
    if (client == NULL)
        return;
    client->served = entry;
    entry->queue->nserved++;
}

static void queue_unmark(struct ddpi_kv_client *client)
{
    client->served->queue->nserved--;
    client->served = NULL;
}

void ddpi_kv_unserve(struct ddpi_kv *kv, struct ddpi_kv_client *client)
{
    struct kv_entry *entry = client->served;
    if (entry == NULL)
        return;
    if (ddpi_kv_is_gone(kv, entry))
        ddpi_kv_drop_gone(kv, entry); /* it stays while it has served a client */
    queue_unmark(client);
    if (entry->queue->len > entry->queue->nserved)
        queue_wake(kv, entry);
    ddpi_kv_queue_release(kv, entry);
    ddpi_kv_entry_release(kv, entry);
}

ddp_status ddpi_kv_enqueue(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                           struct kv_entry **ret_entry, struct ddp_error *err)
{
    struct kv_entry *entry = ddpi_kv_seek(kv, key);
    if (entry == NULL)
        entry = ddpi_kv_entry_make(kv, ddpi_kv_account_get(kv, key), key);
    if (entry == NULL)
        return ddpi_error_nomem(err, ddpi_kv_entry_size(key.len));
    ddp_status status = ddpi_kv_queue_append(kv, entry, value, err);
    if (status == DDP_OK)
        *ret_entry = entry;
    else
        ddpi_kv_entry_release(kv, entry);
    return status;
}

ddp_status ddpi_kv_push(struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_bytes value = call->request->value;
    const struct kv_entry *old = ddpi_kv_seek(kv, call->key);
    size_t needed = ddpi_kv_queue_growth(old, value.len) +
                    (old == NULL ? ddpi_kv_entry_size(call->key.len) : 0);
    struct kv_entry *entry;
    ddp_status status =
        ddpi_kv_check_growth(kv, ddpi_kv_account_get(kv, call->key), 0, needed, &call->err);
    if (status == DDP_OK)
        status = ddpi_kv_enqueue(kv, call->key, value, &entry, &call->err);
    if (status == DDP_OK)
        queue_wake(kv, entry);
    return status;
}

ddp_status ddpi_kv_pop(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_entry *entry = ddpi_kv_seek(kv, call->key);
    if (entry == NULL || entry->queue == NULL)
        return DDP_OK; /* the queue has 0 values */
    if (call->client->served == entry)
        queue_unmark(call->client);
    call->reply.number = (int64_t)entry->queue->len;
    if (entry->queue->len > 0) {
        call->reply.value = ddpi_kv_queue_first(entry->queue);
        ddpi_kv_answer(kv, call->client, &call->reply, DDPI_OP_POP, call->request->id);
        call->parked = true; /* answered here, while the value exists */
        (void)ddpi_kv_queue_drop(kv, entry);
    }
    ddpi_kv_queue_release(kv, entry);
    ddpi_kv_entry_release(kv, entry);
    return DDP_OK;
}

ddp_status ddpi_kv_queue_len(struct ddpi_kv *kv, struct kv_call *call)
{
    const struct kv_entry *entry = ddpi_kv_seek(kv, call->key);
    if (entry != NULL && entry->queue != NULL)
        call->reply.number = (int64_t)entry->queue->len;
    return DDP_OK;
}
