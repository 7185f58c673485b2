/*
 * waits.c - requests that wait: for a key, for many keys, in a barrier. Owns the waiting requests
 * and the barriers. The operations are in wait_ops.c.
 *
 * A waiting request counts the keys that it still misses. It hangs on the entry of each of its
 * keys, so that a key that comes or goes reaches the requests that wait for it and no others. It
 * ends when nothing is missing, at its deadline, or with its client. WAIT wants all keys at the
 * same time and stays linked to each; WAIT_EACH hangs only on keys that it has not seen yet. ARRIVE
 * waits for a write to a key that exists, so it hangs in another list of the entry.
 */
#include "clock.h"
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <string.h>

static size_t wait_size(uint32_t nlinks)
{
    return sizeof(struct kv_wait) + nlinks * sizeof(struct kv_link);
}

static size_t barrier_size(size_t name_len)
{
    return sizeof(struct kv_barrier) + name_len;
}

void ddpi_kv_barrier_release(struct ddpi_kv *kv, struct kv_barrier *barrier)
{
    if (barrier->arrived > 0)
        return;
    ddpi_table_remove(&kv->barriers, &barrier->node);
    ddpi_kv_refund(kv, barrier->account, KV_ROOM_BYTES, barrier_size(barrier->node.key_len));
    ddpi_free(barrier);
}

void ddpi_kv_wait_destroy(struct ddpi_kv *kv, struct kv_wait *wait)
{
    for (uint32_t i = 0; i < wait->nlinks; i++) {
        if (wait->links[i].entry == NULL)
            continue;
        ddpi_list_remove(&wait->links[i].of_entry);
        ddpi_kv_entry_release(kv, wait->links[i].entry);
    }
    ddpi_list_remove(&wait->of_group);
    if (wait->barrier != NULL) {
        wait->barrier->arrived--;
        ddpi_kv_barrier_release(kv, wait->barrier);
    }
    ddpi_list_remove(&wait->of_client);
    wait->client->nwaits--;
    ddpi_heap_remove(&kv->deadlines, &wait->deadline);
    ddpi_kv_refund(kv, wait->account, KV_ROOM_BYTES, wait_size(wait->nlinks));
    ddpi_free(wait);
}

static uint64_t wait_deadline(const struct kv_call *call)
{
    return call->request->op < DDPI_OP_NATIVE_COUNT
               ? ddpi_deadline(call->now_ms, call->request->timeout_ms)
               : UINT64_MAX;
}

ddp_status ddpi_kv_wait_create(struct ddpi_kv *kv, struct kv_call *call, uint32_t nlinks,
                               struct kv_wait **ret)
{
    if (call->client->nwaits >= kv->limits.waits_per_client)
        return ddpi_error_set(&call->err, DDP_E_LIMIT,
                              "this connection has %u waiting requests, which is the limit",
                              call->client->nwaits);
    struct kv_account *account = ddpi_kv_account_for(kv, call->client, call->key);
    ddp_status status = ddpi_kv_check_growth(kv, account, 0, wait_size(nlinks), &call->err);
    if (status != DDP_OK)
        return status;
    struct kv_wait *wait = ddpi_calloc(1, wait_size(nlinks));
    if (wait == NULL)
        return ddpi_error_nomem(&call->err, wait_size(nlinks));
    const struct ddpi_message *request = call->request;
    if (!ddpi_heap_insert(&kv->deadlines, &wait->deadline, wait_deadline(call))) {
        ddpi_free(wait);
        return ddpi_error_nomem(&call->err, sizeof(void *));
    }
    wait->client = call->client;
    wait->id = request->id;
    wait->op = request->op;
    wait->timeout_ms = request->timeout_ms;
    wait->nlinks = nlinks;
    ddpi_list_init(&wait->of_group);
    ddpi_list_append(&call->client->waits, &wait->of_client);
    call->client->nwaits++;
    wait->account = account;
    ddpi_kv_charge(kv, account, KV_ROOM_BYTES, wait_size(nlinks));
    *ret = wait;
    return DDP_OK;
}

ddp_status ddpi_kv_wait_link(struct ddpi_kv *kv, struct kv_call *call, struct kv_wait *wait,
                             struct kv_link *link, struct ddpi_bytes key)
{
    struct kv_entry *entry = ddpi_kv_seek(kv, key);
    if (entry == NULL) {
        struct kv_account *account = ddpi_kv_account_for(kv, call->client, key);
        ddp_status status =
            ddpi_kv_check_growth(kv, account, 0, ddpi_kv_entry_size(key.len), &call->err);
        if (status != DDP_OK)
            return status;
        entry = ddpi_kv_entry_make(kv, account, key);
    }
    if (entry == NULL)
        return ddpi_error_nomem(&call->err, sizeof(*entry) + key.len);
    *link = (struct kv_link){.entry = entry, .wait = wait};
    ddpi_list_append(&entry->links, &link->of_entry);
    wait->missing += entry->version == 0;
    return DDP_OK;
}

/* ---- waking ---- */

static void wait_release(struct ddpi_kv *kv, struct kv_wait *wait)
{
    struct ddpi_message reply = {.status = DDP_OK};
    if (wait->op == DDPI_OP_GET)
        ddpi_kv_answer_value(&reply, wait->links[0].entry);
    ddpi_kv_answer(kv, wait->client, &reply, wait->op, wait->id);
    ddpi_kv_wait_destroy(kv, wait);
}

/* The key has existed, which is enough: it may go again. */
static void link_cut(struct kv_link *link)
{
    ddpi_list_remove(&link->of_entry);
    link->entry = NULL;
}

void ddpi_kv_miss_gone(struct ddpi_kv *kv, const struct kv_wait *wait)
{
    if (!ddpi_kv_has_gone(kv))
        return;
    for (uint32_t i = 0; i < wait->nlinks; i++) {
        struct kv_entry *entry = wait->links[i].entry;
        if (entry != NULL && ddpi_kv_is_gone(kv, entry))
            ddpi_kv_drop_gone(kv, entry); /* the entry stays, as @wait waits for it */
    }
}

/* Ending a wait takes all its links out of their lists. So the waits that are complete are gathered
 * first, and end after the walk over the entry's list. */
void ddpi_kv_appeared(struct ddpi_kv *kv, struct kv_entry *entry)
{
    struct ddpi_list ready;
    ddpi_list_init(&ready);
    ddpi_list_for_each_safe (node, &entry->links) {
        struct kv_link *link = ddpi_container_of(node, struct kv_link, of_entry);
        if (link->wait->op == DDPI_OP_WAIT_EACH)
            link_cut(link);
        if (--link->wait->missing == 0)
            ddpi_kv_miss_gone(kv, link->wait);
        if (link->wait->missing == 0)
            ddpi_list_append(&ready, &link->wait->of_group);
    }
    while (!ddpi_list_empty(&ready))
        wait_release(kv, ddpi_container_of(ready.next, struct kv_wait, of_group));
}

void ddpi_kv_written(struct ddpi_kv *kv, struct kv_entry *entry)
{
    while (!ddpi_list_empty(&entry->watchers))
        wait_release(kv, ddpi_container_of(entry->watchers.next, struct kv_link, of_entry)->wait);
}

struct ddpi_kv_client *ddpi_kv_wake_one(struct ddpi_kv *kv, struct kv_entry *entry)
{
    ddpi_list_for_each_safe (node, &entry->links) {
        struct kv_link *link = ddpi_container_of(node, struct kv_link, of_entry);
        struct kv_wait *wait = link->wait;
        if (wait->op != DDPI_OP_WAIT_EACH)
            continue;
        link_cut(link);
        if (--wait->missing > 0)
            continue;
        struct ddpi_kv_client *client = wait->client;
        wait_release(kv, wait);
        return client;
    }
    return NULL;
}

void ddpi_kv_drop_waits(struct ddpi_kv *kv, struct ddpi_kv_client *client)
{
    while (!ddpi_list_empty(&client->waits))
        ddpi_kv_wait_destroy(kv, ddpi_container_of(client->waits.next, struct kv_wait, of_client));
}

/* ---- barriers ---- */

static struct kv_barrier *barrier_create(struct ddpi_kv *kv, struct kv_call *call,
                                         struct kv_account *account)
{
    struct ddpi_bytes name = call->key;
    struct kv_barrier *barrier = ddpi_calloc(1, barrier_size(name.len));
    if (barrier == NULL)
        return NULL;
    if (name.len > 0)
        memcpy(barrier->name, name.data, name.len);
    barrier->node.key = barrier->name;
    barrier->node.key_len = name.len;
    barrier->count = call->request->count;
    ddpi_list_init(&barrier->waits);
    if (!ddpi_table_insert(&kv->barriers, &barrier->node)) {
        ddpi_free(barrier);
        return NULL;
    }
    barrier->account = account;
    ddpi_kv_charge(kv, account, KV_ROOM_BYTES, barrier_size(name.len));
    return barrier;
}

ddp_status ddpi_kv_barrier_find(struct ddpi_kv *kv, struct kv_call *call, struct kv_barrier **ret)
{
    struct ddpi_bytes name = call->key;
    struct ddpi_table_node *node = ddpi_table_find(&kv->barriers, name.data, name.len);
    struct kv_barrier *barrier =
        node != NULL ? ddpi_container_of(node, struct kv_barrier, node) : NULL;
    if (barrier == NULL) {
        struct kv_account *account = ddpi_kv_account_for(kv, call->client, name);
        ddp_status status =
            ddpi_kv_check_growth(kv, account, 0, barrier_size(name.len), &call->err);
        if (status != DDP_OK)
            return status;
        barrier = barrier_create(kv, call, account);
    }
    if (barrier == NULL)
        return ddpi_error_nomem(&call->err, barrier_size(name.len));
    if (barrier->count != call->request->count)
        return ddpi_error_set(
            &call->err, DDP_E_MISMATCH,
            "%u wait in barrier '%.*s' for a count of %u; this request has a count of %u",
            barrier->arrived, KV_QUOTE_SEEN(call->client, name), barrier->count,
            call->request->count);
    *ret = barrier;
    return DDP_OK;
}

/* The last to arrive does not wait: it opens the barrier and is answered by its own call. */
void ddpi_kv_barrier_open(struct ddpi_kv *kv, struct kv_barrier *barrier)
{
    for (uint32_t left = barrier->arrived; left > 0; left--)
        wait_release(kv, ddpi_container_of(barrier->waits.next, struct kv_wait, of_group));
}
