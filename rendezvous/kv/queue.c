/*
 * queue.c - the queue of an entry: values that are taken in the order in which they came. Owns the
 * queues and their values. The operations on queues are in queue_ops.c.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <string.h>

struct kv_item {
    struct ddpi_list of_queue;
    size_t len;
    char bytes[];
};

static size_t item_size(size_t len)
{
    return sizeof(struct kv_item) + len;
}

size_t ddpi_kv_queue_growth(const struct kv_entry *entry, size_t value_len)
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

void ddpi_kv_queue_release(struct ddpi_kv *kv, struct kv_entry *entry)
{
    if (entry->queue->len > 0 || entry->queue->nserved > 0)
        return;
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, sizeof(*entry->queue));
    ddpi_free(entry->queue);
    entry->queue = NULL;
}

struct ddpi_bytes ddpi_kv_queue_first(const struct kv_queue *queue)
{
    const struct kv_item *item = first_item(queue);
    return ddpi_bytes_of(item->bytes, item->len);
}

ddp_status ddpi_kv_queue_append(struct ddpi_kv *kv, struct kv_entry *entry, struct ddpi_bytes value,
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
    ddpi_kv_queue_release(kv, entry);
}

bool ddpi_kv_present(const struct kv_entry *entry)
{
    return entry != NULL &&
           (entry->version != 0 || (entry->queue != NULL && entry->queue->len > 0));
}
