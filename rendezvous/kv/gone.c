/*
 * gone.c - keys that go: one, or all with a prefix, at once or in slices. Owns the trees of keys
 * that were deleted together and are not dropped yet.
 *
 * A prefix that is deleted, or a session that ends, may have very many keys. All of them are gone
 * at once: from then on no request finds, lists or counts them. Dropping a key (which tells
 * watches, counts it as missing for requests that wait for it, and returns its room) is work like
 * that of a list: each turn of the loop drops some. A key is dropped earlier when a request names
 * it again, so that its deletion is told before what follows, and when its room is needed.
 *
 * The keys of a prefix leave the order of all entries together, as a tree of their own, but stay in
 * the table. While there are such trees, an entry found in the table is looked for in the order,
 * too.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

struct kv_detached {
    struct ddpi_list of_kv;
    struct kv_entry *root; /* NULL: all are dropped */
    uint64_t number;
};

static struct kv_detached *detached_in(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct kv_detached, of_kv);
}

/* ---- dropping ---- */

static void count_as_missing(struct kv_entry *entry)
{
    ddpi_list_for_each (node, &entry->links)
        ddpi_container_of(node, struct kv_link, of_entry)->wait->missing++;
}

static void lose_value(struct ddpi_kv *kv, struct kv_entry *entry)
{
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, entry->value_len);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_KEYS, 1);
    kv->version++;
    ddpi_kv_untie(kv, entry);
    ddpi_free(entry->value);
    entry->value = NULL;
    entry->value_len = 0;
    entry->version = 0;
    ddpi_kv_changed(kv, DDPI_CHANGE_DELETE, ddpi_kv_name(entry), ddpi_kv_value(entry));
    count_as_missing(entry);
}

/* Frees @entry or, if requests wait for it, makes it an entry without a value. */
static void drop_detached(struct ddpi_kv *kv, struct kv_detached *detached, struct kv_entry *entry)
{
    ddpi_kv_order_remove(&detached->root, entry);
    ddpi_kv_queue_clear(kv, entry);
    if (entry->version != 0)
        lose_value(kv, entry);
    if (ddpi_kv_entry_needed(entry))
        ddpi_kv_order_insert(&kv->root, entry);
    else
        ddpi_kv_entry_free(kv, entry);
}

static struct kv_detached *detached_with(const struct ddpi_kv *kv, const struct kv_entry *entry)
{
    ddpi_list_for_each (node, &kv->detached)
        if (ddpi_kv_order_has(detached_in(node)->root, entry))
            return detached_in(node);
    return NULL;
}

void ddpi_kv_drop_gone(struct ddpi_kv *kv, struct kv_entry *entry)
{
    struct kv_detached *detached = detached_with(kv, entry);
    if (detached != NULL) {
        drop_detached(kv, detached, entry);
        return;
    }
    lose_value(kv, entry);
    ddpi_kv_entry_release(kv, entry);
}

void ddpi_kv_drop(struct ddpi_kv *kv, struct kv_entry *entry)
{
    if (ddpi_kv_is_gone(kv, entry)) {
        ddpi_kv_drop_gone(kv, entry);
        return;
    }
    ddpi_kv_scope_count(kv, ddpi_kv_name(entry), -1);
    lose_value(kv, entry);
    ddpi_kv_entry_release(kv, entry);
}

struct kv_entry *ddpi_kv_seek(struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = ddpi_kv_entry_at(kv, key);
    if (entry == NULL || !ddpi_kv_is_gone(kv, entry))
        return entry;
    ddpi_kv_drop_gone(kv, entry);
    return ddpi_kv_entry_at(kv, key);
}

static struct kv_entry *detached_first(const struct kv_detached *detached)
{
    struct kv_entry *entry = detached->root;
    while (entry != NULL && entry->left != NULL)
        entry = entry->left;
    return entry;
}

struct kv_entry *ddpi_kv_session_first(const struct kv_session *session)
{
    return ddpi_container_of(session->keys.next, struct kv_tie, of_session)->entry;
}

/* A key of a session that is over, of @account, or of any but the reserve. */
static struct kv_entry *session_gone(const struct ddpi_kv *kv, const struct kv_account *account)
{
    ddpi_list_for_each (node, &kv->over) {
        const struct kv_session *session = ddpi_container_of(node, struct kv_session, of_over);
        if (ddpi_list_empty(&session->keys))
            continue;
        struct kv_entry *entry = ddpi_kv_session_first(session);
        if (account == NULL ? entry->account != kv->reserve : entry->account == account)
            return entry;
    }
    return NULL;
}

bool ddpi_kv_drop_one(struct ddpi_kv *kv, const struct kv_account *account)
{
    struct kv_entry *entry = session_gone(kv, account);
    if (entry != NULL) {
        ddpi_kv_drop_gone(kv, entry);
        return true;
    }
    ddpi_list_for_each (node, &kv->detached) {
        entry = detached_first(detached_in(node));
        if (entry == NULL ||
            (account == NULL ? entry->account == kv->reserve : entry->account != account))
            continue;
        drop_detached(kv, detached_in(node), entry);
        return true;
    }
    return false;
}

static void detached_destroy(struct ddpi_kv *kv, struct kv_detached *detached)
{
    ddpi_list_remove(&detached->of_kv);
    ddpi_kv_emit(kv, &(struct ddpi_mutation){.kind = DDPI_MUTATION_DETACHED_END,
                                             .number = detached->number});
    ddpi_free(detached);
}

void ddpi_kv_drop_detached(struct ddpi_kv *kv)
{
    while (!ddpi_list_empty(&kv->detached) && ddpi_kv_take_work(kv)) {
        struct kv_detached *detached = detached_in(kv->detached.next);
        struct kv_entry *entry = detached_first(detached);
        if (entry == NULL)
            detached_destroy(kv, detached);
        else if (!ddpi_kv_queue_drop(kv, entry)) /* there may be as many values as keys */
            drop_detached(kv, detached, entry);
    }
}

/* ---- deleting what has a prefix ---- */

/* Deletes the value of @entry, and its queue. */
static void delete_entry(struct ddpi_kv *kv, struct kv_entry *entry)
{
    ddpi_kv_queue_clear(kv, entry);
    if (entry->version != 0)
        ddpi_kv_drop(kv, entry);
    else
        ddpi_kv_entry_release(kv, entry);
}

size_t ddpi_kv_delete_some(struct ddpi_kv *kv, struct ddpi_bytes prefix, size_t most)
{
    size_t deleted = 0;
    struct kv_entry *next;
    for (struct kv_entry *entry = ddpi_kv_order_first(kv, prefix); entry != NULL && deleted < most;
         entry = next) {
        next = ddpi_kv_order_next(kv, entry, prefix);
        deleted += ddpi_kv_has_value(entry);
        delete_entry(kv, entry);
    }
    return deleted;
}

size_t ddpi_kv_delete_prefix(struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    return ddpi_kv_delete_some(kv, prefix, SIZE_MAX);
}

static struct kv_detached *detached_create(struct ddpi_kv *kv, uint64_t number)
{
    struct kv_detached *detached = ddpi_calloc(1, sizeof(*detached));
    if (detached == NULL)
        return NULL;
    detached->number = number;
    ddpi_list_append(&kv->detached, &detached->of_kv);
    kv->last_detached = number > kv->last_detached ? number : kv->last_detached;
    return detached;
}

/* Deletes what is small; true: that was all. */
static bool delete_small(struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    struct kv_entry *entry = ddpi_kv_order_first(kv, prefix);
    for (size_t taken = 0; entry != NULL && ddpi_kv_take_small(kv, &taken);) {
        if (ddpi_kv_queue_drop(kv, entry))
            continue;
        struct kv_entry *next = ddpi_kv_order_next(kv, entry, prefix);
        delete_entry(kv, entry);
        entry = next;
    }
    return entry == NULL;
}

void ddpi_kv_detach(struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    if (delete_small(kv, prefix))
        return;
    struct kv_detached *detached = detached_create(kv, kv->last_detached + 1);
    if (detached == NULL) { /* no memory: deletes all in this turn */
        (void)ddpi_kv_delete_prefix(kv, prefix);
        return;
    }
    detached->root = ddpi_kv_order_cut(&kv->root, prefix);
    ddpi_kv_scope_recount(kv, prefix);
    ddpi_kv_emit(kv, &(struct ddpi_mutation){.kind = DDPI_MUTATION_DETACH,
                                             .key = prefix,
                                             .version = kv->version,
                                             .number = detached->number});
}

ddp_status ddpi_kv_restore_detached(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                                    struct ddp_error *err)
{
    struct ddpi_bytes prefix = mutation->key;
    struct kv_detached *detached = detached_create(kv, mutation->number);
    if (detached == NULL)
        return ddpi_error_nomem(err, sizeof(*detached));
    struct kv_entry *next;
    for (struct kv_entry *entry = ddpi_kv_order_first(kv, prefix); entry != NULL; entry = next) {
        next = ddpi_kv_order_next(kv, entry, prefix);
        if (entry->version > mutation->version)
            continue;
        ddpi_kv_order_remove(&kv->root, entry);
        ddpi_kv_order_insert(&detached->root, entry);
    }
    return DDP_OK;
}

void ddpi_kv_gone_finish(struct ddpi_kv *kv)
{
    ddpi_list_for_each_safe (node, &kv->detached)
        ddpi_free(detached_in(node));
}
