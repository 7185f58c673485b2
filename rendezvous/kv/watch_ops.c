/*
 * watch_ops.c - the requests that begin and end watches. Owns nothing; the watches are watches.c's.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <inttypes.h>

static ddp_status watch_check(const struct ddpi_kv *kv, struct kv_call *call)
{
    if (call->request->count & ~(uint32_t)DDPI_WATCH_PREFIX)
        return ddpi_error_set(&call->err, DDP_E_INVALID, "a watch with unknown flags: 0x%x",
                              call->request->count);
    if (call->client->nwatches >= kv->limits.watches_per_client)
        return ddpi_error_set(&call->err, DDP_E_LIMIT,
                              "this connection has %u watches, which is the limit",
                              call->client->nwatches);
    uint64_t from = call->request->version;
    uint64_t floor = kv->history.on ? kv->history.floor : kv->version;
    if (from == 0 || (from > floor && from <= kv->version + 1))
        return DDP_OK;
    call->reply.version = kv->version;
    return ddpi_error_set(&call->err, DDP_E_GONE,
                          "the store does not have the changes from version %" PRIu64
                          " on, only those from %" PRIu64 " to %" PRIu64
                          "; watch '%.*s' from now on, and read the keys again",
                          from, floor + 1, kv->version, KV_QUOTE(call->request->key));
}

static ddp_status watch_create(struct ddpi_kv *kv, struct kv_call *call, struct kv_watch **ret)
{
    struct kv_watch_node *node;
    struct kv_account *account = ddpi_kv_account_for(kv, call->client, call->key);
    size_t most = (call->key.len + 1) * sizeof(struct kv_watch_node) + sizeof(struct kv_watch);
    ddp_status status = ddpi_kv_check_growth(kv, account, 0, most, &call->err);
    if (status == DDP_OK)
        status = ddpi_kv_watch_node_at(kv, account, call->key, &node, &call->err);
    if (status != DDP_OK)
        return status;
    struct kv_watch *watch = ddpi_calloc(1, sizeof(*watch));
    if (watch == NULL) {
        ddpi_kv_watch_nodes_release(kv, node);
        return ddpi_error_nomem(&call->err, sizeof(*watch));
    }
    watch->node = node;
    watch->client = call->client;
    watch->id = call->request->id;
    bool prefix = call->request->count & DDPI_WATCH_PREFIX;
    ddpi_list_append(prefix ? &node->prefixes : &node->keys, &watch->of_node);
    ddpi_list_append(&call->client->watches, &watch->of_client);
    call->client->nwatches++;
    kv->nwatches++;
    watch->account = account;
    ddpi_kv_charge(kv, account, KV_ROOM_BYTES, sizeof(*watch));
    *ret = watch;
    return DDP_OK;
}

ddp_status ddpi_kv_watch(struct ddpi_kv *kv, struct kv_call *call)
{
    const struct ddpi_message *request = call->request;
    struct kv_watch *watch = NULL;
    ddp_status status = watch_check(kv, call);
    if (status == DDP_OK && request->version != 0 &&
        ddpi_kv_put_off(kv, call, kv->version + 1 - request->version))
        return DDP_OK;
    if (status == DDP_OK)
        status = watch_create(kv, call, &watch);
    if (watch == NULL)
        return status;
    ddpi_kv_history_begin(kv);
    struct ddpi_bytes nothing = ddpi_bytes_of(NULL, 0);
    ddpi_kv_tell_watch(kv, watch, DDPI_CHANGE_NONE, kv->version, nothing, nothing);
    call->parked = true; /* answered here, before the past changes */
    if (request->version != 0)
        ddpi_kv_tell_past(kv, watch, call->key, request->count & DDPI_WATCH_PREFIX,
                          request->version);
    return DDP_OK;
}

static void watch_destroy(struct ddpi_kv *kv, struct kv_watch *watch)
{
    ddpi_list_remove(&watch->of_client);
    ddpi_list_remove(&watch->of_node);
    ddpi_kv_watch_nodes_release(kv, watch->node);
    watch->client->nwatches--;
    kv->nwatches--;
    ddpi_kv_refund(kv, watch->account, KV_ROOM_BYTES, sizeof(*watch));
    ddpi_free(watch);
}

ddp_status ddpi_kv_unwatch(struct ddpi_kv *kv, struct kv_call *call)
{
    uint64_t id = (uint64_t)call->request->number;
    ddpi_list_for_each (node, &call->client->watches) {
        struct kv_watch *watch = ddpi_container_of(node, struct kv_watch, of_client);
        if (watch->id == id) {
            watch_destroy(kv, watch);
            return DDP_OK;
        }
    }
    return ddpi_error_set(&call->err, DDP_E_NOT_FOUND, "this connection has no watch %" PRIu64, id);
}

void ddpi_kv_drop_watches(struct ddpi_kv *kv, struct ddpi_kv_client *client)
{
    while (!ddpi_list_empty(&client->watches))
        watch_destroy(kv, ddpi_container_of(client->watches.next, struct kv_watch, of_client));
}
