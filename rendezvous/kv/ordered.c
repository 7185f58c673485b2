/*
 * ordered.c - the entries in the order of their keys, for operations on all keys with a prefix.
 * Such an operation costs as much as there are keys with the prefix, plus the logarithm of all.
 *
 * A treap (Seidel and Aragon, 1996): a search tree by key that is a heap by priority, and so has
 * the shape of a tree into which the keys came in random order. The priorities are the keyed
 * hashes that the entries have anyway: a peer that does not know the seed cannot choose keys that
 * make the tree deep. All entries with a prefix can be cut out for the cost of one. Nothing here
 * allocates, or can fail, except cursors. Owns nothing.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

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

void ddpi_kv_order_insert(struct kv_entry **root, struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    struct kv_entry **link = root;
    while (*link != NULL && (*link)->node.hash >= entry->node.hash)
        link = is_before(*link, key) ? &(*link)->right : &(*link)->left;
    struct kv_entry *below = *link;
    *link = entry;
    tree_split(below, key, is_before, &entry->left, &entry->right);
}

void ddpi_kv_order_remove(struct kv_entry **root, const struct kv_entry *entry)
{
    struct ddpi_bytes key = ddpi_kv_name(entry);
    struct kv_entry **link = root;
    while (*link != entry)
        link = is_before(*link, key) ? &(*link)->right : &(*link)->left;
    tree_join(link, entry->left, entry->right);
}

struct kv_entry *ddpi_kv_order_cut(struct kv_entry **root, struct ddpi_bytes prefix)
{
    struct kv_entry *before, *from, *within, *after;
    tree_split(*root, prefix, is_before, &before, &from);
    tree_split(from, prefix, is_within, &within, &after);
    tree_join(root, before, after);
    return within;
}

bool ddpi_kv_order_has(const struct kv_entry *root, const struct kv_entry *entry)
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
