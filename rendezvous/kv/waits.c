/*
 * waits.c - requests that wait: for a key, for many keys, in a barrier; and their deadlines. Owns
 * the waiting requests and the barriers.
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

#include <inttypes.h>
#include <string.h>

struct kv_barrier {
    struct ddpi_table_node node;
    struct ddpi_list waits; /* kv_wait::of_group */
    struct kv_account *account;
    uint32_t count; /* how many open it */
    uint32_t arrived;
    char name[];
};

static size_t wait_size(uint32_t nlinks)
{
    return sizeof(struct kv_wait) + nlinks * sizeof(struct kv_link);
}

static size_t barrier_size(size_t name_len)
{
    return sizeof(struct kv_barrier) + name_len;
}

/* Frees @barrier if no request waits in it. */
static void barrier_release(struct ddpi_kv *kv, struct kv_barrier *barrier)
{
    if (barrier->arrived > 0)
        return;
    ddpi_table_remove(&kv->barriers, &barrier->node);
    ddpi_kv_refund(kv, barrier->account, KV_ROOM_BYTES, barrier_size(barrier->node.key_len));
    ddpi_free(barrier);
}

static void wait_destroy(struct ddpi_kv *kv, struct kv_wait *wait)
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
        barrier_release(kv, wait->barrier);
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

/* The request of @call as one that waits, with room for @nlinks keys. */
static ddp_status wait_create(struct ddpi_kv *kv, struct kv_call *call, uint32_t nlinks,
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

/* Lets @wait wait for @key, too. */
static ddp_status wait_link(struct ddpi_kv *kv, struct kv_call *call, struct kv_wait *wait,
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
    wait_destroy(kv, wait);
}

/* The key has existed, which is enough: it may go again. */
static void link_cut(struct kv_link *link)
{
    ddpi_list_remove(&link->of_entry);
    link->entry = NULL;
}

/* Drops those keys of @wait that are gone, so that it misses them. */
static void miss_gone(struct ddpi_kv *kv, const struct kv_wait *wait)
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
            miss_gone(kv, link->wait);
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
        wait_destroy(kv, ddpi_container_of(client->waits.next, struct kv_wait, of_client));
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

/* The barrier of @call, made if there is none. */
static ddp_status barrier_find(struct ddpi_kv *kv, struct kv_call *call, struct kv_barrier **ret)
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
static void barrier_open(struct ddpi_kv *kv, struct kv_barrier *barrier)
{
    for (uint32_t left = barrier->arrived; left > 0; left--)
        wait_release(kv, ddpi_container_of(barrier->waits.next, struct kv_wait, of_group));
}

/* ---- requests ---- */

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
    miss_gone(kv, wait);
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
    wait_destroy(kv, wait);
}

/* Parks @call until its timeout, unless linking @wait to its keys has failed with @status. */
static ddp_status wait_park(struct ddpi_kv *kv, struct kv_call *call, struct kv_wait *wait,
                            ddp_status status)
{
    call->parked = status == DDP_OK;
    if (status != DDP_OK)
        wait_destroy(kv, wait);
    else if (wait->timeout_ms == 0)
        wait_time_out(kv, wait);
    return status;
}

/* Waits for all of @keys, of which at least one is missing. */
static ddp_status wait_for_keys(struct ddpi_kv *kv, struct kv_call *call, struct ddpi_keys keys)
{
    struct kv_wait *wait;
    ddp_status status = wait_create(kv, call, keys.count, &wait);
    if (status != DDP_OK)
        return status;
    struct ddpi_bytes key;
    bool more = true;
    for (uint32_t i = 0; status == DDP_OK && more; i++) {
        status = ddpi_kv_next_key(kv, call, &keys, &key, &more);
        if (status == DDP_OK && more)
            status = wait_link(kv, call, wait, &wait->links[i], key);
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
    ddp_status status = wait_create(kv, call, 1, &wait);
    if (status != DDP_OK)
        return status;
    return wait_park(kv, call, wait, wait_link(kv, call, wait, &wait->links[0], call->key));
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
        wait_destroy(kv, wait);
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
                status = wait_link(kv, call, wait, &wait->links[count], key);
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
    status = wait_create(kv, call, count, &wait);
    if (status != DDP_OK)
        return status;
    status = each_missing(kv, call, wait, &count);
    if (status != DDP_OK)
        wait_destroy(kv, wait);
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
    status = wait_create(kv, call, 1, &wait);
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
    ddp_status status = barrier_find(kv, call, &barrier);
    if (barrier == NULL)
        return status;
    if (barrier->arrived == barrier->count - 1) {
        if (barrier->arrived > 0)
            barrier_open(kv, barrier);
        else
            barrier_release(kv, barrier);
        return DDP_OK;
    }
    struct kv_wait *wait;
    status = wait_create(kv, call, 0, &wait);
    if (status != DDP_OK) {
        barrier_release(kv, barrier);
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
