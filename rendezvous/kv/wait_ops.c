/*
 * wait_ops.c - the operations that may wait, and their deadlines. Owns nothing; the waiting
 * requests are waits.c's.
 */
#include "error.h"
#include "kv_impl.h"

#include <inttypes.h>
#include <string.h>

static struct ddpi_bytes node_name(const struct ddpi_table_node *node)
{
    return ddpi_bytes_of(node->key, node->key_len);
}

/* The first key that @wait still misses. */
static struct ddpi_bytes missing_key(const struct kv_wait *wait)
{
    uint32_t i = 0;
    while (wait->links[i].entry->version != 0)
        i++;
    return node_name(&wait->links[i].entry->node);
}

static void wait_time_out(struct ddpi_kv *kv, struct kv_wait *wait)
{
    struct ddp_error err;
    ddpi_kv_miss_gone(kv, wait);
    if (wait->barrier != NULL)
        ddpi_error_set(&err, DDP_E_TIMEOUT, "%u of %u had arrived at barrier '%.*s' after %u ms",
                       wait->barrier->arrived, wait->barrier->count,
                       KV_QUOTE_SEEN(wait->client, node_name(&wait->barrier->node)),
                       wait->timeout_ms);
    else
        ddpi_error_set(&err, DDP_E_TIMEOUT,
                       "%u of %u keys did not exist after %u ms, among them '%.*s'", wait->missing,
                       wait->nlinks, wait->timeout_ms,
                       KV_QUOTE_SEEN(wait->client, missing_key(wait)));
    struct ddpi_message reply = {.status = DDP_E_TIMEOUT,
                                 .text = ddpi_bytes_of(err.msg, strlen(err.msg))};
    ddpi_kv_answer(kv, wait->client, &reply, wait->op, wait->id);
    ddpi_kv_wait_destroy(kv, wait);
}

/* Parks @call until its timeout, unless linking @wait to its keys has failed with @status. */
static ddp_status wait_park(struct ddpi_kv *kv, struct kv_call *call, struct kv_wait *wait,
                            ddp_status status)
{
    call->parked = status == DDP_OK;
    if (status != DDP_OK)
        ddpi_kv_wait_destroy(kv, wait);
    else if (wait->timeout_ms == 0)
        wait_time_out(kv, wait);
    return status;
}

/* Waits for all of @keys, of which at least one is missing. */
static ddp_status wait_for_keys(struct ddpi_kv *kv, struct kv_call *call, struct ddpi_keys keys)
{
    struct kv_wait *wait;
    ddp_status status = ddpi_kv_wait_create(kv, call, keys.count, &wait);
    if (status != DDP_OK)
        return status;
    struct ddpi_bytes key;
    bool more = true;
    for (uint32_t i = 0; status == DDP_OK && more; i++) {
        status = ddpi_kv_next_key(kv, call, &keys, &key, &more);
        if (status == DDP_OK && more)
            status = ddpi_kv_wait_link(kv, call, wait, &wait->links[i], key);
    }
    return wait_park(kv, call, wait, status);
}

ddp_status ddpi_kv_get(struct ddpi_kv *kv, struct kv_call *call)
{
    const struct kv_entry *entry = ddpi_kv_find(kv, call->key);
    if (entry != NULL && entry->version != 0) {
        ddpi_kv_answer_value(&call->reply, entry);
        return DDP_OK;
    }
    struct kv_wait *wait;
    ddp_status status = ddpi_kv_wait_create(kv, call, 1, &wait);
    if (status != DDP_OK)
        return status;
    return wait_park(kv, call, wait, ddpi_kv_wait_link(kv, call, wait, &wait->links[0], call->key));
}

ddp_status ddpi_kv_wait(struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_keys keys = call->request->keys;
    if (keys.count == 0)
        return ddpi_error_set(&call->err, DDP_E_INVALID, "a wait needs at least one key");
    if (keys.count > kv->limits.keys_per_wait)
        return ddpi_error_set(&call->err, DDP_E_LIMIT, "a wait for %u keys; at most %u are allowed",
                              keys.count, kv->limits.keys_per_wait);
    for (;;) {
        struct ddpi_bytes key;
        bool more;
        ddp_status status = ddpi_kv_next_key(kv, call, &keys, &key, &more);
        if (status != DDP_OK || !more)
            return status;
        if (ddpi_kv_find_value(kv, key) == NULL)
            return wait_for_keys(kv, call, call->request->keys);
    }
}

ddp_status ddpi_kv_cancel(struct ddpi_kv *kv, struct kv_call *call)
{
    ddpi_kv_drop_waits(kv, call->client);
    return DDP_OK;
}

ddp_status ddpi_kv_cancel_request(struct ddpi_kv *kv, struct kv_call *call)
{
    static const char text[] = "canceled by the client";
    uint64_t id = (uint64_t)call->request->number;
    ddpi_list_for_each (node, &call->client->waits) {
        struct kv_wait *wait = ddpi_container_of(node, struct kv_wait, of_client);
        if (wait->id != id)
            continue;
        struct ddpi_message reply = {.status = DDP_E_CANCELED,
                                     .text = ddpi_bytes_of(text, sizeof text - 1)};
        ddpi_kv_answer(kv, wait->client, &reply, wait->op, id);
        ddpi_kv_wait_destroy(kv, wait);
        return DDP_OK;
    }
    return ddpi_error_set(&call->err, DDP_E_NOT_FOUND,
                          "no request %" PRIu64 " of this connection waits", id);
}

/* Counts the keys that do not exist, and links them to @wait unless it is NULL. */
static ddp_status each_missing(struct ddpi_kv *kv, struct kv_call *call, struct kv_wait *wait,
                               uint32_t *ret_count)
{
    struct ddpi_keys keys = call->request->keys;
    uint32_t count = 0;
    for (;;) {
        struct ddpi_bytes key;
        bool more;
        ddp_status status = ddpi_kv_next_key(kv, call, &keys, &key, &more);
        if (status == DDP_OK && more && !ddpi_kv_present(ddpi_kv_seek(kv, key))) {
            if (wait != NULL)
                status = ddpi_kv_wait_link(kv, call, wait, &wait->links[count], key);
            count++;
        }
        if (status != DDP_OK)
            return status;
        if (!more)
            break;
    }
    *ret_count = count;
    return DDP_OK;
}

ddp_status ddpi_kv_wait_each(struct ddpi_kv *kv, struct kv_call *call)
{
    ddpi_kv_drop_waits(kv, call->client);
    uint32_t count;
    ddp_status status = each_missing(kv, call, NULL, &count);
    if (status != DDP_OK || count == 0)
        return status;
    struct kv_wait *wait;
    status = ddpi_kv_wait_create(kv, call, count, &wait);
    if (status != DDP_OK)
        return status;
    status = each_missing(kv, call, wait, &count);
    if (status != DDP_OK)
        ddpi_kv_wait_destroy(kv, wait);
    else
        call->parked = true;
    return status;
}

/* The key counts the arrivals, where others can read it, and keeps its count. */
ddp_status ddpi_kv_arrive(struct ddpi_kv *kv, struct kv_call *call)
{
    ddpi_kv_drop_waits(kv, call->client);
    int64_t sum;
    struct kv_entry *entry;
    ddp_status status = ddpi_kv_count_up(kv, call, 1, &sum, &entry);
    if (status != DDP_OK)
        return status;
    if (sum >= call->request->number) {
        ddpi_kv_written(kv, entry);
        return DDP_OK;
    }
    struct kv_wait *wait;
    status = ddpi_kv_wait_create(kv, call, 1, &wait);
    if (status != DDP_OK)
        return status;
    wait->links[0] = (struct kv_link){.entry = entry, .wait = wait};
    ddpi_list_append(&entry->watchers, &wait->links[0].of_entry);
    call->parked = true;
    return DDP_OK;
}

ddp_status ddpi_kv_barrier(struct ddpi_kv *kv, struct kv_call *call)
{
    if (call->request->count == 0)
        return ddpi_error_set(&call->err, DDP_E_INVALID,
                              "the count of a barrier must be at least 1");
    struct kv_barrier *barrier = NULL;
    ddp_status status = ddpi_kv_barrier_find(kv, call, &barrier);
    if (barrier == NULL)
        return status;
    if (barrier->arrived == barrier->count - 1) {
        if (barrier->arrived > 0)
            ddpi_kv_barrier_open(kv, barrier);
        else
            ddpi_kv_barrier_release(kv, barrier);
        return DDP_OK;
    }
    struct kv_wait *wait;
    status = ddpi_kv_wait_create(kv, call, 0, &wait);
    if (status != DDP_OK) {
        ddpi_kv_barrier_release(kv, barrier);
        return status;
    }
    wait->barrier = barrier;
    barrier->arrived++;
    ddpi_list_append(&barrier->waits, &wait->of_group);
    return wait_park(kv, call, wait, DDP_OK);
}

static struct kv_wait *wait_earliest(const struct ddpi_kv *kv)
{
    struct ddpi_heap_node *node = ddpi_heap_top(&kv->deadlines);
    return node != NULL ? ddpi_container_of(node, struct kv_wait, deadline) : NULL;
}

uint64_t ddpi_kv_next_timeout(const struct ddpi_kv *kv)
{
    const struct kv_wait *wait = wait_earliest(kv);
    return wait != NULL ? wait->deadline.at : UINT64_MAX;
}

void ddpi_kv_expire_waits(struct ddpi_kv *kv, uint64_t now_ms)
{
    for (struct kv_wait *wait; (wait = wait_earliest(kv)) != NULL && wait->deadline.at <= now_ms &&
                               ddpi_kv_take_work(kv);)
        wait_time_out(kv, wait);
}
