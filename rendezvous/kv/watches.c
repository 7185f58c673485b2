/*
 * watches.c - which client is told of which change, the history of changes, from which a watch may
 * begin, and the requests that begin and end watches. Owns the tree of watches and the history.
 *
 * Watches hang in a trie with one node for each byte; it has only the nodes that lead to a watch. A
 * change walks down its key as far as there are nodes: watches of other keys cost it nothing, no
 * matter how many there are or how long. (Looking up each watched length of prefix would let one
 * client make every change expensive.) All children are in one hash table, by parent and byte, so
 * that finding a child costs the same however many a node has.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <inttypes.h>
#include <string.h>

enum {
    NODE_ID_SIZE = sizeof(void *) + 1,
    PAST_REPLY_OVERHEAD = 128, /* at least what a reply has besides the key and the value */
};

struct kv_watch_node {
    struct ddpi_table_node node;
    struct kv_watch_node *parent; /* NULL: the root */
    struct ddpi_list keys;        /* kv_watch::of_node: of the key that ends here */
    struct ddpi_list prefixes;    /* the same, of all keys that pass here */
    struct kv_account *account;   /* of the first watch below it */
    uint32_t nchildren;
    uint8_t id[NODE_ID_SIZE]; /* the parent, and the byte that leads here */
};

struct kv_watch {
    struct ddpi_list of_client;
    struct ddpi_list of_node;
    struct kv_watch_node *node;
    struct kv_account *account;
    struct ddpi_kv_client *client;
    uint64_t id; /* of the request */
};

struct kv_past {
    struct ddpi_list of_history;
    enum ddpi_change_kind kind;
    uint64_t version;
    size_t key_len;
    size_t value_len;
    char bytes[]; /* key, value */
};

static const struct kv_past *past_of(const struct ddpi_list *of_history)
{
    return ddpi_container_of(of_history, struct kv_past, of_history);
}

/* ---- the trie ---- */

static void node_id(uint8_t id[NODE_ID_SIZE], const struct kv_watch_node *parent, uint8_t byte)
{
    memcpy(id, &parent, sizeof(void *));
    id[sizeof(void *)] = byte;
}

static struct kv_watch_node *node_child(const struct ddpi_kv *kv,
                                        const struct kv_watch_node *parent, uint8_t byte)
{
    if (parent->nchildren == 0)
        return NULL;
    uint8_t id[NODE_ID_SIZE];
    node_id(id, parent, byte);
    struct ddpi_table_node *node = ddpi_table_find(&kv->watch_nodes, id, sizeof id);
    return node != NULL ? ddpi_container_of(node, struct kv_watch_node, node) : NULL;
}

/* @parent is NULL for the root. Returns NULL when out of memory. */
static struct kv_watch_node *node_make(struct ddpi_kv *kv, struct kv_account *account,
                                       struct kv_watch_node *parent, uint8_t byte)
{
    struct kv_watch_node *made = ddpi_calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    ddpi_list_init(&made->keys);
    ddpi_list_init(&made->prefixes);
    made->parent = parent;
    if (parent != NULL) {
        node_id(made->id, parent, byte);
        made->node.key = made->id;
        made->node.key_len = sizeof made->id;
        if (!ddpi_table_insert(&kv->watch_nodes, &made->node)) {
            ddpi_free(made);
            return NULL;
        }
        parent->nchildren++;
    }
    made->account = account;
    ddpi_kv_charge(kv, account, KV_ROOM_BYTES, sizeof(*made));
    return made;
}

/* Frees @node, and the nodes above it, as far as they lead to no watch. */
static void watch_nodes_release(struct ddpi_kv *kv, struct kv_watch_node *node)
{
    while (node != NULL && node->nchildren == 0 && ddpi_list_empty(&node->keys) &&
           ddpi_list_empty(&node->prefixes)) {
        struct kv_watch_node *parent = node->parent;
        if (parent != NULL) {
            ddpi_table_remove(&kv->watch_nodes, &node->node);
            parent->nchildren--;
        } else {
            kv->watch_root = NULL;
        }
        ddpi_kv_refund(kv, node->account, KV_ROOM_BYTES, sizeof(*node));
        ddpi_free(node);
        node = parent;
    }
}

/* The node where @name ends, made if there is none. The caller has checked for room. */
static ddp_status watch_node_at(struct ddpi_kv *kv, struct kv_account *account,
                                struct ddpi_bytes name, struct kv_watch_node **ret,
                                struct ddp_error *err)
{
    if (kv->watch_root == NULL)
        kv->watch_root = node_make(kv, account, NULL, 0);
    struct kv_watch_node *node = kv->watch_root;
    const uint8_t *bytes = name.data;
    for (size_t i = 0; i < name.len && node != NULL; i++) {
        struct kv_watch_node *child = node_child(kv, node, bytes[i]);
        if (child == NULL)
            child = node_make(kv, account, node, bytes[i]);
        if (child == NULL)
            watch_nodes_release(kv, node);
        node = child;
    }
    if (node == NULL)
        return ddpi_error_nomem(err, sizeof(struct kv_watch_node));
    *ret = node;
    return DDP_OK;
}

/* ---- the history ---- */

static void history_drop_first(struct kv_history *history)
{
    struct kv_past *past = ddpi_container_of(history->changes.next, struct kv_past, of_history);
    history->floor = past->version;
    history->count--;
    history->bytes -= past->key_len + past->value_len;
    ddpi_list_remove(&past->of_history);
    ddpi_free(past);
}

static void history_clear(struct kv_history *history)
{
    while (history->count > 0)
        history_drop_first(history);
}

/* NULL: it is larger than the whole history may be, or there is no memory. */
static struct kv_past *past_make(const struct ddpi_kv *kv, enum ddpi_change_kind kind,
                                 uint64_t version, struct ddpi_bytes key, struct ddpi_bytes value)
{
    size_t len = key.len + value.len;
    struct kv_past *past =
        len <= kv->limits.history_bytes ? ddpi_calloc(1, sizeof(*past) + len) : NULL;
    if (past == NULL)
        return NULL;
    past->kind = kind;
    past->version = version;
    past->key_len = key.len;
    past->value_len = value.len;
    if (key.len > 0)
        memcpy(past->bytes, key.data, key.len);
    if (value.len > 0)
        memcpy(past->bytes + key.len, value.data, value.len);
    return past;
}

/* A change that cannot be remembered succeeds, and the history begins after it. */
static void history_add(struct ddpi_kv *kv, enum ddpi_change_kind kind, uint64_t version,
                        struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct kv_history *history = &kv->history;
    struct kv_past *past = past_make(kv, kind, version, key, value);
    if (past == NULL) {
        history_clear(history);
        history->floor = version;
        return;
    }
    ddpi_list_append(&history->changes, &past->of_history);
    history->count++;
    history->bytes += key.len + value.len;
    while (history->count > kv->limits.history_changes || history->bytes > kv->limits.history_bytes)
        history_drop_first(history);
}

void ddpi_kv_remember_past(struct ddpi_kv *kv, enum ddpi_change_kind kind, uint64_t version,
                           struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct kv_history *history = &kv->history;
    if (!history->on)
        history->floor = version - 1;
    history->on = true;
    history_add(kv, kind, version, key, value);
}

/* Starts the history, if it is not on. */
static void history_begin(struct ddpi_kv *kv)
{
    if (kv->history.on)
        return;
    kv->history.on = true;
    kv->history.floor = kv->version;
    ddpi_kv_emit(kv, &(struct ddpi_mutation){.kind = DDPI_MUTATION_REMEMBER});
}

/* ---- telling ---- */

static void tell_watch(struct ddpi_kv *kv, const struct kv_watch *watch, enum ddpi_change_kind kind,
                       uint64_t version, struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct ddpi_message reply = {.key = key.len > 0 ? ddpi_kv_seen_key(watch->client, key) : key,
                                 .value = value,
                                 .version = version,
                                 .number = kind};
    ddpi_kv_answer(kv, watch->client, &reply, DDPI_OP_WATCH, watch->id);
}

static void tell_watches(struct ddpi_kv *kv, const struct ddpi_list *watches,
                         enum ddpi_change_kind kind, struct ddpi_bytes key, struct ddpi_bytes value)
{
    ddpi_list_for_each (node, watches) {
        tell_watch(kv, ddpi_container_of(node, struct kv_watch, of_node), kind, kv->version, key,
                   value);
        ddpi_kv_spend_work(kv, 1);
    }
}

void ddpi_kv_changed(struct ddpi_kv *kv, enum ddpi_change_kind kind, const struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry), value = ddpi_kv_value(entry);
    const struct ddpi_mutation mutation = {
        .kind = kind == DDPI_CHANGE_SET ? DDPI_MUTATION_SET : DDPI_MUTATION_DELETE,
        .remembered = kv->history.on,
        .key = key,
        .value = value,
        .version = kv->version,
        .session = entry->tie != NULL ? entry->tie->session->number : 0};
    ddpi_kv_emit(kv, &mutation);
    if (!kv->history.on)
        return;
    history_add(kv, kind, kv->version, key, value);
    const uint8_t *bytes = key.data;
    const struct kv_watch_node *node = kv->watch_root;
    for (size_t i = 0; node != NULL; i++) {
        tell_watches(kv, &node->prefixes, kind, key, value);
        if (i == key.len) {
            tell_watches(kv, &node->keys, kind, key, value);
            return;
        }
        node = node_child(kv, node, bytes[i]);
    }
}

/* Where the changes from version @from on begin in the history. */
static const struct ddpi_list *past_since(const struct ddpi_kv *kv, uint64_t from)
{
    const struct ddpi_list *changes = &kv->history.changes;
    const struct ddpi_list *at = changes;
    while (at->prev != changes && past_of(at->prev)->version >= from)
        at = at->prev;
    return at;
}

/* Whether @call asks for the changes of this key. */
static bool past_concerns(const struct kv_past *past, const struct kv_call *call)
{
    struct ddpi_bytes name = call->key;
    bool prefix = call->request->count & DDPI_WATCH_PREFIX;
    size_t compared = prefix && past->key_len > name.len ? name.len : past->key_len;
    return ddpi_bytes_equal(ddpi_bytes_of(past->bytes, compared), name);
}

/* Whether a client's unread replies have room for all past changes that @call asks for. They are
 * queued at once; more would cut the client off, which would ask for them again, for ever. */
static ddp_status check_past(const struct ddpi_kv *kv, struct kv_call *call)
{
    size_t bytes = 0;
    for (const struct ddpi_list *at = past_since(kv, call->request->version);
         at != &kv->history.changes; at = at->next) {
        const struct kv_past *past = past_of(at);
        if (past_concerns(past, call))
            bytes += past->key_len + past->value_len + PAST_REPLY_OVERHEAD;
    }
    if (bytes <= kv->limits.replay_bytes)
        return DDP_OK;
    call->reply.version = kv->version;
    return ddpi_error_set(
        &call->err, DDP_E_GONE,
        "the changes from version %" PRIu64
        " on take %zu bytes, and the store repeats at most %zu; watch '%.*s' from "
        "now on, and read the keys again",
        call->request->version, bytes, kv->limits.replay_bytes, KV_QUOTE(call->request->key));
}

/* Tells @watch the past changes that @call asks for. */
static void tell_past(struct ddpi_kv *kv, const struct kv_watch *watch, const struct kv_call *call)
{
    for (const struct ddpi_list *at = past_since(kv, call->request->version);
         at != &kv->history.changes; at = at->next) {
        const struct kv_past *past = past_of(at);
        if (past_concerns(past, call))
            tell_watch(kv, watch, past->kind, past->version,
                       ddpi_bytes_of(past->bytes, past->key_len),
                       ddpi_bytes_of(past->bytes + past->key_len, past->value_len));
    }
}

void ddpi_kv_watch_finish(struct ddpi_kv *kv)
{
    history_clear(&kv->history);
    ddpi_table_finish(&kv->watch_nodes);
}

/* ---- requests ---- */

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
    struct kv_watch_node *node = NULL;
    struct kv_account *account = ddpi_kv_account_for(kv, call->client, call->key);
    size_t most = (call->key.len + 1) * sizeof(struct kv_watch_node) + sizeof(struct kv_watch);
    ddp_status status = ddpi_kv_check_growth(kv, account, 0, most, &call->err);
    if (status == DDP_OK)
        status = watch_node_at(kv, account, call->key, &node, &call->err);
    if (status != DDP_OK)
        return status;
    struct kv_watch *watch = ddpi_calloc(1, sizeof(*watch));
    if (watch == NULL) {
        watch_nodes_release(kv, node);
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
    if (status == DDP_OK && request->version != 0)
        status = check_past(kv, call);
    if (status == DDP_OK)
        status = watch_create(kv, call, &watch);
    if (watch == NULL)
        return status;
    history_begin(kv);
    struct ddpi_bytes nothing = ddpi_bytes_of(NULL, 0);
    tell_watch(kv, watch, DDPI_CHANGE_NONE, kv->version, nothing, nothing);
    call->parked = true; /* answered here, before the past changes */
    if (request->version != 0)
        tell_past(kv, watch, call);
    return DDP_OK;
}

static void watch_destroy(struct ddpi_kv *kv, struct kv_watch *watch)
{
    ddpi_list_remove(&watch->of_client);
    ddpi_list_remove(&watch->of_node);
    watch_nodes_release(kv, watch->node);
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
