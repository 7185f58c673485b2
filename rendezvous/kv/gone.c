/*
 * gone.c - keys that are gone, but not dropped yet: those of a prefix that was deleted, and of a
 * session that is over, when they are many. Owns the trees of the former; the sessions are
 * session.c's.
 *
 * From the moment when they are gone nobody finds, lists or counts them. To drop one, which tells
 * watches, counts it as missing for whoever waits for it, and gives its room back, is work as that
 * of a list is: a turn of the loop drops so many. What is dropped before its turn: a key that is
 * named again, so that its deletion comes before what follows; and what holds room that somebody
 * needs.
 *
 * The keys of a prefix leave the order of all entries as a whole, in a tree of their own, but stay
 * in the table. So while there are such trees, who finds an entry in the table looks whether it
 * still is in the order.
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

bool ddpi_kv_is_detached(const struct ddpi_kv *kv, const struct kv_entry *entry)
{
    return !ddpi_list_empty(&kv->detached) && !ddpi_kv_order_has(kv->root, entry);
}

bool ddpi_kv_is_gone(const struct ddpi_kv *kv, const struct kv_entry *entry)
{
    if (!ddpi_kv_has_gone(kv))
        return false;
    return (entry->version != 0 && !ddpi_kv_has_value(entry)) || ddpi_kv_is_detached(kv, entry);
}

/* --- dropping --- */

static void detached_destroy(struct ddpi_kv *kv, struct kv_detached *detached)
{
    ddpi_list_remove(&detached->of_kv);
    ddpi_kv_emit(kv, &(struct ddpi_mutation){.kind = DDPI_MUTATION_DETACHED_END,
                                             .number = detached->number});
    ddpi_free(detached);
}

/* It goes, or is there again, without a value, for who waits for it. */
static void drop_detached(struct ddpi_kv *kv, struct kv_detached *detached, struct kv_entry *entry)
{
    ddpi_kv_order_remove(&detached->root, entry);
    ddpi_kv_queue_clear(kv, entry);
    if (entry->version != 0)
        ddpi_kv_lose_value(kv, entry);
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
    ddpi_kv_lose_value(kv, entry);
    ddpi_kv_entry_release(kv, entry);
}

static struct kv_entry *first_of(const struct kv_detached *detached)
{
    struct kv_entry *entry = detached->root;
    while (entry != NULL && entry->left != NULL)
        entry = entry->left;
    return entry;
}

bool ddpi_kv_drop_one(struct ddpi_kv *kv, const struct kv_account *account)
{
    struct kv_entry *entry = ddpi_kv_session_gone(kv, account);
    if (entry != NULL) {
        ddpi_kv_drop_gone(kv, entry);
        return true;
    }
    ddpi_list_for_each (node, &kv->detached) {
        entry = first_of(detached_in(node));
        if (entry == NULL ||
            (account == NULL ? entry->account == kv->reserve : entry->account != account))
            continue;
        drop_detached(kv, detached_in(node), entry);
        return true;
    }
    return false;
}

void ddpi_kv_drop_some(struct ddpi_kv *kv)
{
    size_t kept = ddpi_list_empty(&kv->line) ? 0 : kv->work_left / 2;
    kv->work_left -= kept;
    ddpi_kv_session_drop(kv);
    while (!ddpi_list_empty(&kv->detached) && ddpi_kv_take_work(kv)) {
        struct kv_detached *detached = detached_in(kv->detached.next);
        struct kv_entry *entry = first_of(detached);
        if (entry == NULL)
            detached_destroy(kv, detached);
        else if (!ddpi_kv_queue_drop(kv, entry)) /* of which there may be as many as of keys */
            drop_detached(kv, detached, entry);
    }
    kv->work_left += kept;
}

/* --- detaching --- */

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

/* As far as what is small goes; true: that was all. */
static bool delete_small(struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    struct kv_entry *entry = ddpi_kv_order_first(kv, prefix);
    for (size_t taken = 0; entry != NULL && ddpi_kv_take_small(kv, &taken);) {
        if (ddpi_kv_queue_drop(kv, entry))
            continue;
        struct kv_entry *next = ddpi_kv_order_next(kv, entry, prefix);
        ddpi_kv_queue_clear(kv, entry); /* which is empty */
        if (entry->version != 0)
            ddpi_kv_drop(kv, entry);
        else
            ddpi_kv_entry_release(kv, entry);
        entry = next;
    }
    return entry == NULL;
}

void ddpi_kv_detach(struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    if (delete_small(kv, prefix))
        return;
    struct kv_detached *detached = detached_create(kv, kv->last_detached + 1);
    if (detached == NULL) { /* no memory for that: it takes what it takes */
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
