/*
 * ordered.c - the entries in the order of their keys, for what is asked of all keys with a prefix:
 * it costs as much as there are such keys, and the logarithm of all.
 *
 * A treap (Seidel and Aragon, 1996): a search tree by key that is a heap by priority, and so has
 * the shape of a tree into which the keys came in random order. The priorities are the keyed
 * hashes that the entries have anyway: who does not know the seed cannot choose keys that make it
 * deep. All with a prefix can be cut out of it for what one of them costs. Nothing here allocates,
 * or can fail, but for cursors.
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

/* Keys that begin with @key are before the cut, too. */
static bool is_within(const struct kv_entry *entry, struct ddpi_bytes key)
{
    return is_before(entry, key) || ddpi_kv_has_prefix(ddpi_kv_name(entry), key);
}

/* Those of @tree that are @on_this_side of @key, and the others. */
static void split(struct kv_entry *tree, struct ddpi_bytes key,
                  bool (*on_this_side)(const struct kv_entry *entry, struct ddpi_bytes key),
                  struct kv_entry **before, struct kv_entry **behind)
{
    while (tree != NULL) {
        if (on_this_side(tree, key)) {
            *before = tree;
            before = &tree->right;
            tree = tree->right;
        } else {
            *behind = tree;
            behind = &tree->left;
            tree = tree->left;
        }
    }
    *before = *behind = NULL;
}

/* One tree, at @link, of two whose keys do not overlap. */
static void join(struct kv_entry **link, struct kv_entry *before, struct kv_entry *behind)
{
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

void ddpi_kv_order_insert(struct kv_entry **root, struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    struct kv_entry **link = root;
    while (*link != NULL && (*link)->node.hash >= entry->node.hash)
        link = is_before(*link, key) ? &(*link)->right : &(*link)->left;
    struct kv_entry *below = *link;
    *link = entry;
    split(below, key, is_before, &entry->left, &entry->right);
}

void ddpi_kv_order_remove(struct kv_entry **root, const struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    struct kv_entry **link = root;
    while (*link != entry)
        link = is_before(*link, key) ? &(*link)->right : &(*link)->left;
    join(link, entry->left, entry->right);
}

struct kv_entry *ddpi_kv_order_cut(struct kv_entry **root, struct ddpi_bytes prefix)
{
    struct kv_entry *before, *from, *within, *behind;
    split(*root, prefix, is_before, &before, &from);
    split(from, prefix, is_within, &within, &behind);
    join(root, before, behind);
    return within;
}

bool ddpi_kv_order_has(const struct kv_entry *root, const struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    while (root != NULL && root != entry && root->node.hash >= entry->node.hash)
        root = is_before(root, key) ? root->right : root->left;
    return root == entry;
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
