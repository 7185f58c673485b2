/*
 * entries.c - the table of entries: how they are found, made and freed, and the session that an
 * entry is tied to. Owns the entries. Also the two ways out of the core: replies to clients, and
 * mutations to the sink.
 */
#include "kv_impl.h"
#include "mem.h"

#include <string.h>

void ddpi_kv_answer(struct ddpi_kv *kv, struct ddpi_kv_client *client, struct ddpi_message *reply,
                    enum ddpi_op op, uint64_t id)
{
    reply->op = op;
    reply->id = id;
    kv->reply(kv->reply_ctx, client, reply);
}

void ddpi_kv_answer_value(struct ddpi_message *reply, const struct kv_entry *entry)
{
    reply->value = ddpi_kv_value(entry);
    reply->version = entry->version;
}

void ddpi_kv_set_sink(struct ddpi_kv *kv, void (*change)(void *, const struct ddpi_mutation *),
                      void *ctx)
{
    kv->sink = change;
    kv->sink_ctx = ctx;
}

void ddpi_kv_emit(struct ddpi_kv *kv, const struct ddpi_mutation *mutation)
{
    if (kv->sink != NULL)
        kv->sink(kv->sink_ctx, mutation);
}

struct ddpi_mark ddpi_kv_mark(const struct ddpi_kv *kv)
{
    return (struct ddpi_mark){.version = kv->version,
                              .remembers = kv->history.on,
                              .floor = kv->history.on ? kv->history.floor : kv->version};
}

struct kv_entry *ddpi_kv_entry_at(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    return ddpi_kv_entry_of(ddpi_table_find(&kv->keys, key.data, key.len));
}

bool ddpi_kv_has_value(const struct kv_entry *entry)
{
    return entry->version != 0 &&
           (entry->tie == NULL || !ddpi_kv_session_is_over(entry->tie->session));
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

struct kv_entry *ddpi_kv_find(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = ddpi_kv_entry_at(kv, key);
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
    ddpi_kv_order_insert(&kv->root, entry);
    entry->account = account;
    ddpi_kv_charge(kv, account, KV_ROOM_BYTES, ddpi_kv_entry_size(key.len));
    return entry;
}

bool ddpi_kv_entry_needed(const struct kv_entry *entry)
{
    return entry->version != 0 || entry->queue != NULL || !ddpi_list_empty(&entry->links) ||
           !ddpi_list_empty(&entry->watchers);
}

/* An entry that is detached is dropped later (gone.c). */
void ddpi_kv_entry_release(struct ddpi_kv *kv, struct kv_entry *entry)
{
    if (ddpi_kv_entry_needed(entry) || ddpi_kv_is_detached(kv, entry))
        return;
    ddpi_kv_order_remove(&kv->root, entry);
    ddpi_kv_entry_free(kv, entry);
}

void ddpi_kv_entry_free(struct ddpi_kv *kv, struct kv_entry *entry)
{
    ddpi_table_remove(&kv->keys, &entry->node);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, ddpi_kv_entry_size(entry->node.key_len));
    ddpi_free(entry);
}

void ddpi_kv_tie(struct ddpi_kv *kv, struct kv_tie *tie, struct kv_session *session,
                 struct kv_entry *entry)
{
    *tie = (struct kv_tie){.session = session, .entry = entry};
    ddpi_list_append(&session->keys, &tie->of_session);
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
