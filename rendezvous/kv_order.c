/*
 * kv_order.c - the entries in the order of their keys, for what is asked of all keys with a prefix:
 * it costs as much as there are such keys, and the logarithm of all.
 *
 * A treap (Seidel and Aragon, 1996): a search tree by key that is a heap by priority, and so has
 * the shape of a tree into which the keys came in random order. The priorities are the keyed
 * hashes that the entries have anyway: who does not know the seed cannot choose keys that make it
 * deep. Nothing here allocates, or can fail, but for cursors.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

static bool is_before(const struct kv_entry *entry, struct ddpi_bytes key)
{
    return ddpi_bytes_compare(ddpi_kv_name(entry), key) < 0;
}

bool ddpi_kv_has_prefix(struct ddpi_bytes key, struct ddpi_bytes prefix)
{
    return key.len >= prefix.len &&
           (prefix.len == 0 || memcmp(key.data, prefix.data, prefix.len) == 0);
}

void ddpi_kv_order_insert(struct ddpi_kv *kv, struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    struct kv_entry **link = &kv->root;
    while (*link != NULL && (*link)->node.hash >= entry->node.hash)
        link = is_before(*link, key) ? &(*link)->right : &(*link)->left;
    struct kv_entry *below = *link, **before = &entry->left, **behind = &entry->right;
    *link = entry;
    while (below != NULL) {
        if (is_before(below, key)) {
            *before = below;
            before = &below->right;
            below = below->right;
        } else {
            *behind = below;
            behind = &below->left;
            below = below->left;
        }
    }
    *before = *behind = NULL;
}

void ddpi_kv_order_remove(struct ddpi_kv *kv, struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    struct kv_entry **link = &kv->root, *before = entry->left, *behind = entry->right;
    while (*link != entry)
        link = is_before(*link, key) ? &(*link)->right : &(*link)->left;
    while (before != NULL && behind != NULL) {
        if (before->node.hash >= behind->node.hash) {
            *link = before;
            link = &before->right;
            before = before->right;
        } else {
            *link = behind;
            link = &behind->left;
            behind = behind->left;
        }
    }
    *link = before != NULL ? before : behind;
}

/* The first entry whose key is @key, or @strictly behind it, and has @prefix. */
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
    return found != NULL && ddpi_kv_has_prefix(ddpi_kv_name(found), prefix) ? found : NULL;
}

struct kv_entry *ddpi_kv_order_first(const struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    return first_from(kv, prefix, false, prefix);
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
