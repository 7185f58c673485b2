/*
 * queue.c - the queue of an entry: values that are taken in the order in which they came; and the
 * requests for them. Owns the queues and their values.
 *
 * A client that waits for a queue is woken and then asks for the value, in two requests. So each
 * value that comes wakes one client only. If that client goes away, or asks for something else,
 * while there still are more values than clients on their way, the next client is woken.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <string.h>

/* ---- a queue ---- */

struct kv_item {
    struct ddpi_list of_queue;
    size_t len;
    char bytes[];
};

static size_t item_size(size_t len)
{
    return sizeof(struct kv_item) + len;
}

/* The bytes that a further value takes. @entry may be NULL. */
static size_t queue_growth(const struct kv_entry *entry, size_t value_len)
{
    bool fresh = entry == NULL || entry->queue == NULL;
    return item_size(value_len) + (fresh ? sizeof(struct kv_queue) : 0);
}

static struct kv_item *first_item(const struct kv_queue *queue)
{
    return ddpi_container_of(queue->items.next, struct kv_item, of_queue);
}

static bool queue_make(struct ddpi_kv *kv, struct kv_entry *entry)
{
    entry->queue = ddpi_calloc(1, sizeof(*entry->queue));
    if (entry->queue == NULL)
        return false;
    ddpi_list_init(&entry->queue->items);
    ddpi_kv_charge(kv, entry->account, KV_ROOM_BYTES, sizeof(*entry->queue));
    return true;
}

/* Frees the queue, which @entry has, if it is empty and no client has been woken for it. */
static void queue_release(struct ddpi_kv *kv, struct kv_entry *entry)
{
    if (entry->queue->len > 0 || entry->queue->nserved > 0)
        return;
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, sizeof(*entry->queue));
    ddpi_free(entry->queue);
    entry->queue = NULL;
}

/* A copy of @value at the end of the queue, within the limits or not. */
static ddp_status queue_append(struct ddpi_kv *kv, struct kv_entry *entry, struct ddpi_bytes value,
                               struct ddp_error *err)
{
    struct kv_item *item = ddpi_calloc(1, item_size(value.len));
    if (item == NULL)
        return ddpi_error_nomem(err, item_size(value.len));
    if (entry->queue == NULL && !queue_make(kv, entry)) {
        ddpi_free(item);
        return ddpi_error_nomem(err, sizeof(struct kv_queue));
    }
    item->len = value.len;
    if (value.len > 0)
        memcpy(item->bytes, value.data, value.len);
    ddpi_list_append(&entry->queue->items, &item->of_queue);
    entry->queue->len++;
    ddpi_kv_charge(kv, entry->account, KV_ROOM_BYTES, item_size(value.len));
    ddpi_kv_emit(kv, &(struct ddpi_mutation){
                         .kind = DDPI_MUTATION_PUSH, .key = ddpi_kv_name(entry), .value = value});
    return DDP_OK;
}

bool ddpi_kv_queue_drop(struct ddpi_kv *kv, const struct kv_entry *entry)
{
    if (entry->queue == NULL || entry->queue->len == 0)
        return false;
    struct kv_item *item = first_item(entry->queue);
    ddpi_list_remove(&item->of_queue);
    entry->queue->len--;
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, item_size(item->len));
    ddpi_free(item);
    ddpi_kv_emit(kv,
                 &(struct ddpi_mutation){.kind = DDPI_MUTATION_POP, .key = ddpi_kv_name(entry)});
    return true;
}

void ddpi_kv_queue_clear(struct ddpi_kv *kv, struct kv_entry *entry)
{
    if (entry->queue == NULL)
        return;
    while (ddpi_kv_queue_drop(kv, entry))
        ;
    queue_release(kv, entry);
}

bool ddpi_kv_present(const struct kv_entry *entry)
{
    return entry != NULL &&
           (entry->version != 0 || (entry->queue != NULL && entry->queue->len > 0));
}

/* ---- requests ---- */

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
    queue_release(kv, entry);
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
    ddp_status status = queue_append(kv, entry, value, err);
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
    size_t needed =
        queue_growth(old, value.len) + (old == NULL ? ddpi_kv_entry_size(call->key.len) : 0);
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
        const struct kv_item *item = first_item(entry->queue);
        call->reply.value = ddpi_bytes_of(item->bytes, item->len);
        ddpi_kv_answer(kv, call->client, &call->reply, DDPI_OP_POP, call->request->id);
        call->parked = true; /* answered here, while the value exists */
        (void)ddpi_kv_queue_drop(kv, entry);
    }
    queue_release(kv, entry);
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
