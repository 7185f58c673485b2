/*
 * entries.c - the entries: how keys are found, in a table and in their order; how they are made and
 * freed; and how they go, one, or all with a prefix, at once or in slices. Owns the entries, and
 * the trees of those that were deleted together and are not dropped yet.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <string.h>

/* ---- the order of keys ---- */

/* An operation on all keys with a prefix costs as much as there are such keys, plus the logarithm
 * of all.
 *
 * A treap (Seidel and Aragon, 1996): a search tree by key that is a heap by priority, and so has
 * the shape of a tree into which the keys came in random order. The priorities are the keyed hashes
 * that the entries have anyway: a peer that does not know the seed cannot choose keys that make the
 * tree deep. All entries with a prefix can be cut out for the cost of one. Nothing here allocates,
 * or can fail, except cursors. */

static bool is_before(const struct kv_entry *entry, struct ddpi_bytes key)
{
    return ddpi_bytes_compare(ddpi_kv_name(entry), key) < 0;
}

/* Also true for keys that begin with @key. */
static bool is_within(const struct kv_entry *entry, struct ddpi_bytes key)
{
    return is_before(entry, key) || ddpi_bytes_has_prefix(ddpi_kv_name(entry), key);
}

/* Splits @tree into the entries that are @on_this_side of @key, and the others. */
static void tree_split(struct kv_entry *tree, struct ddpi_bytes key,
                       bool (*on_this_side)(const struct kv_entry *entry, struct ddpi_bytes key),
                       struct kv_entry **before, struct kv_entry **after)
{
    while (tree != NULL) {
        if (on_this_side(tree, key)) {
            *before = tree;
            before = &tree->right;
            tree = tree->right;
        } else {
            *after = tree;
            after = &tree->left;
            tree = tree->left;
        }
    }
    *before = *after = NULL;
}

/* Joins two trees, of which one has the lower keys, into one at @link. */
static void tree_join(struct kv_entry **link, struct kv_entry *before, struct kv_entry *after)
{
    while (before != NULL && after != NULL) {
        if (before->node.hash >= after->node.hash) {
            *link = before;
            link = &before->right;
            before = before->right;
        } else {
            *link = after;
            link = &after->left;
            after = after->left;
        }
    }
    *link = before != NULL ? before : after;
}

static void order_insert(struct kv_entry **root, struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    struct kv_entry **link = root;
    while (*link != NULL && (*link)->node.hash >= entry->node.hash)
        link = is_before(*link, key) ? &(*link)->right : &(*link)->left;
    struct kv_entry *below = *link;
    *link = entry;
    tree_split(below, key, is_before, &entry->left, &entry->right);
}

static void order_remove(struct kv_entry **root, const struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    struct kv_entry **link = root;
    while (*link != entry)
        link = is_before(*link, key) ? &(*link)->right : &(*link)->left;
    tree_join(link, entry->left, entry->right);
}

/* The entries with @prefix leave *@root, and are a tree of their own; NULL: there are none. */
static struct kv_entry *order_cut(struct kv_entry **root, struct ddpi_bytes prefix)
{
    struct kv_entry *before, *from, *within, *after;
    tree_split(*root, prefix, is_before, &before, &from);
    tree_split(from, prefix, is_within, &within, &after);
    tree_join(root, before, after);
    return within;
}

static bool order_has(const struct kv_entry *root, const struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    while (root != NULL && root != entry && root->node.hash >= entry->node.hash)
        root = is_before(root, key) ? root->right : root->left;
    return root == entry;
}

/* The first entry whose key is @key or after it (@strictly after it), and has @prefix. */
static struct kv_entry *first_from(const struct ddpi_kv *kv, struct ddpi_bytes key, bool strictly,
                                   struct ddpi_bytes prefix)
{
    struct kv_entry *found = NULL, *at = kv->root;
    while (at != NULL) {
        int order = ddpi_bytes_compare(ddpi_kv_name(at), key);
        if (order > 0 || (order == 0 && !strictly)) {
            found = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return found != NULL && ddpi_bytes_has_prefix(ddpi_kv_name(found), prefix) ? found : NULL;
}

struct kv_entry *ddpi_kv_order_first(const struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    return first_from(kv, prefix, false, prefix);
}

struct kv_entry *ddpi_kv_order_from(const struct ddpi_kv *kv, struct ddpi_bytes from,
                                    struct ddpi_bytes prefix)
{
    return first_from(kv, from, false, prefix);
}

struct kv_entry *ddpi_kv_order_next(const struct ddpi_kv *kv, const struct kv_entry *entry,
                                    struct ddpi_bytes prefix)
{
    return first_from(kv, ddpi_kv_name(entry), true, prefix);
}

struct kv_entry *ddpi_kv_cursor_next(const struct ddpi_kv *kv, const struct kv_cursor *cursor,
                                     struct ddpi_bytes prefix)
{
    bool begun = cursor->key != NULL;
    return first_from(kv, begun ? ddpi_bytes_of(cursor->key, cursor->len) : prefix, begun, prefix);
}

ddp_status ddpi_kv_cursor_set(struct kv_cursor *cursor, struct ddpi_bytes key,
                              struct ddp_error *err)
{
    if (cursor->size < key.len + 1) {
        char *larger = ddpi_realloc(cursor->key, key.len + 1, 1);
        if (larger == NULL)
            return ddpi_error_nomem(err, key.len + 1);
        cursor->key = larger;
        cursor->size = key.len + 1;
    }
    if (key.len > 0)
        memcpy(cursor->key, key.data, key.len);
    cursor->len = key.len;
    return DDP_OK;
}

void ddpi_kv_cursor_finish(struct kv_cursor *cursor)
{
    ddpi_free(cursor->key);
    *cursor = (struct kv_cursor){0};
}

/* ---- the table ---- */

/* The entry of @key, gone or not. */
static struct kv_entry *entry_at(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    return ddpi_kv_entry_of(ddpi_table_find(&kv->keys, key.data, key.len));
}

bool ddpi_kv_has_value(const struct kv_entry *entry)
{
    return entry->version != 0 &&
           (entry->tie == NULL || !ddpi_kv_session_is_over(entry->tie->session));
}

/* Whether it was deleted with its prefix, and is not dropped yet. */
static bool is_detached(const struct ddpi_kv *kv, const struct kv_entry *entry)
{
    return !ddpi_list_empty(&kv->detached) && !order_has(kv->root, entry);
}

bool ddpi_kv_is_gone(const struct ddpi_kv *kv, const struct kv_entry *entry)
{
    if (!ddpi_kv_has_gone(kv))
        return false;
    return (entry->version != 0 && !ddpi_kv_has_value(entry)) || is_detached(kv, entry);
}

struct kv_entry *ddpi_kv_find(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = entry_at(kv, key);
    return entry != NULL && ddpi_kv_is_gone(kv, entry) ? NULL : entry;
}

struct kv_entry *ddpi_kv_find_value(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = ddpi_kv_find(kv, key);
    return entry != NULL && entry->version != 0 ? entry : NULL;
}

size_t ddpi_kv_entry_size(size_t key_len)
{
    return sizeof(struct kv_entry) + key_len;
}

struct kv_entry *ddpi_kv_entry_make(struct ddpi_kv *kv, struct kv_account *account,
                                    struct ddpi_bytes key)
{
    if (account == NULL)
        return NULL;
    struct kv_entry *entry = ddpi_calloc(1, ddpi_kv_entry_size(key.len));
    if (entry == NULL)
        return NULL;
    if (key.len > 0)
        memcpy(entry->key, key.data, key.len);
    entry->node.key = entry->key;
    entry->node.key_len = key.len;
    ddpi_list_init(&entry->links);
    ddpi_list_init(&entry->watchers);
    if (!ddpi_table_insert(&kv->keys, &entry->node)) {
        ddpi_free(entry);
        return NULL;
    }
    order_insert(&kv->root, entry);
    entry->account = account;
    ddpi_kv_charge(kv, account, KV_ROOM_BYTES, ddpi_kv_entry_size(key.len));
    return entry;
}

/* Whether it has to stay: it has a value or a queue, or a request waits for it. */
static bool entry_needed(const struct kv_entry *entry)
{
    return entry->version != 0 || entry->queue != NULL || !ddpi_list_empty(&entry->links) ||
           !ddpi_list_empty(&entry->watchers);
}

/* It has left the order already. */
static void entry_free(struct ddpi_kv *kv, struct kv_entry *entry)
{
    ddpi_table_remove(&kv->keys, &entry->node);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, ddpi_kv_entry_size(entry->node.key_len));
    ddpi_free(entry);
}

/* An entry that is detached is dropped later. */
void ddpi_kv_entry_release(struct ddpi_kv *kv, struct kv_entry *entry)
{
    if (entry_needed(entry) || is_detached(kv, entry))
        return;
    order_remove(&kv->root, entry);
    entry_free(kv, entry);
}

void ddpi_kv_tie(struct ddpi_kv *kv, struct kv_tie *tie, struct kv_entry *entry)
{
    ddpi_list_append(&tie->session->keys, &tie->of_session);
    tie->entry = entry;
    entry->tie = tie;
    ddpi_kv_charge(kv, entry->account, KV_ROOM_BYTES, sizeof(*tie));
}

void ddpi_kv_untie(struct ddpi_kv *kv, struct kv_entry *entry)
{
    struct kv_tie *tie = entry->tie;
    if (tie == NULL)
        return;
    entry->tie = NULL;
    ddpi_list_remove(&tie->of_session);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, sizeof(*tie));
    ddpi_free(tie);
}

/* ---- keys that go ---- */

/* A prefix that is deleted, or a session that ends, may have very many keys. All of them are gone
 * at once: from then on no request finds, lists or counts them. Dropping a key (which tells
 * watches, counts it as missing for requests that wait for it, and returns its room) is work like
 * that of a list: each turn of the loop drops some. A key is dropped earlier when a request names
 * it again, so that its deletion is told before what follows, and when its room is needed.
 *
 * The keys of a prefix leave the order of all entries together, as a tree of their own, but stay in
 * the table. While there are such trees, an entry found in the table is looked for in the order,
 * too. */

struct kv_detached {
    struct ddpi_list of_kv;
    struct kv_entry *root; /* NULL: all are dropped */
    uint64_t number;
};

static struct kv_detached *detached_in(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct kv_detached, of_kv);
}

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
    ddpi_kv_changed(kv, DDPI_CHANGE_DELETE, entry);
    count_as_missing(entry);
}

/* Frees @entry or, if requests wait for it, makes it an entry without a value. */
static void drop_detached(struct ddpi_kv *kv, struct kv_detached *detached, struct kv_entry *entry)
{
    order_remove(&detached->root, entry);
    ddpi_kv_queue_clear(kv, entry);
    if (entry->version != 0)
        lose_value(kv, entry);
    if (entry_needed(entry))
        order_insert(&kv->root, entry);
    else
        entry_free(kv, entry);
}

static struct kv_detached *detached_with(const struct ddpi_kv *kv, const struct kv_entry *entry)
{
    ddpi_list_for_each (node, &kv->detached)
        if (order_has(detached_in(node)->root, entry))
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
    struct kv_entry *entry = entry_at(kv, key);
    if (entry == NULL || !ddpi_kv_is_gone(kv, entry))
        return entry;
    ddpi_kv_drop_gone(kv, entry);
    return entry_at(kv, key);
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
    detached->root = order_cut(&kv->root, prefix);
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
        order_remove(&kv->root, entry);
        order_insert(&detached->root, entry);
    }
    return DDP_OK;
}

void ddpi_kv_gone_finish(struct ddpi_kv *kv)
{
    ddpi_list_for_each_safe (node, &kv->detached)
        ddpi_free(detached_in(node));
}
