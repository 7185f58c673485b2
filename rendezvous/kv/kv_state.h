/*
 * kv_impl.h - what the files of the core share: kv.c (keys and values), tcpstore_ops.c (the
 * operations beyond the native ones), gone.c (keys that are gone, but not dropped yet), ordered.c
 * (entries in order), owner.c (what the owner of the store may do), queue.c (queues), restore.c
 * (the way to and from a sink), room.c (who may have how much), scope.c (scopes), session.c
 * (sessions), transaction.c (transactions), waiters.c (requests that wait), watch.c (watches) and
 * sliced.c (requests that cost much). Nobody else includes it.
 */
#ifndef DDPI_KV_IMPL_H
#define DDPI_KV_IMPL_H

#include "heap.h"
#include "kv.h"
#include "table.h"

/* The latest changes, in order, of which each has the version that follows that of the one before.
 */
struct kv_history {
    bool on; /* since the first watch: a store that nobody watches remembers nothing */
    struct ddpi_list changes; /* kv_past::of_history */
    size_t count;
    size_t bytes;
    uint64_t floor; /* changes up to this version are not in it, all others are */
};

/* Who holds how much. */
struct kv_account {
    struct ddpi_table_node node; /* by the name of the job */
    struct ddpi_heap_node rank;
    size_t used[KV_ROOMS];
    unsigned pins; /* it stays meanwhile, even with nothing */
    char name[];
};

struct ddpi_kv {
    struct ddpi_kv_limits limits;
    size_t used[KV_ROOMS];      /* by all accounts */
    struct ddpi_table accounts; /* kv_account::node, of jobs that hold something */
    struct ddpi_heap richest;   /* kv_account::rank, without the reserve */
    struct kv_account *jobless; /* what belongs to no job */
    struct kv_account *reserve; /* the rounds' own keys and sessions */
    uint64_t shares_full;       /* requests that were refused for it */
    struct ddpi_table keys;     /* kv_entry::node */
    struct ddpi_table barriers; /* kv_barrier::node */
    struct ddpi_heap deadlines; /* kv_wait::deadline */
    struct ddpi_table sessions; /* kv_session::node */
    struct ddpi_heap leases;    /* kv_session::lease */
    uint64_t last_session;
    struct kv_entry *root; /* of all entries that are not detached, in the order of their keys */
    struct ddpi_list detached; /* kv_detached::of_kv */
    uint64_t last_detached;
    struct ddpi_list over; /* kv_session::of_over */
    struct ddpi_kv_scope **scopes;
    size_t nscopes;
    struct ddpi_list line; /* kv_work::of_line */
    size_t nworks;
    size_t work_left;
    const char *reserved; /* a prefix */
    char *full_key;       /* room for the longest prefix of a scope and the longest key */
    uint64_t version;
    struct ddpi_table watch_nodes;    /* kv_watch_node::node, all but the root */
    struct kv_watch_node *watch_root; /* NULL while nobody watches anything */
    size_t nwatches;
    struct kv_history history;
    ddpi_kv_reply_fn *reply;
    void *reply_ctx;
    void (*sink)(void *ctx, const struct ddpi_mutation *mutation); /* NULL: none */
    void *sink_ctx;
};

/* A key that has a value or a queue, or that somebody waits for. What most requests touch comes
 * first, in one cache line. */
struct kv_entry {
    struct ddpi_table_node node;
    uint64_t version; /* 0: no value */
    char *value;      /* a NUL behind it */
    size_t value_len;
    struct kv_queue *queue; /* NULL: empty, and nobody has been woken for it */
    struct kv_account *account;
    struct kv_entry *left, *right; /* ordered.c */
    struct ddpi_list links;        /* kv_link::of_entry, in order of arrival */
    struct ddpi_list watchers;     /* kv_link::of_entry of those who wait for the next write */
    struct kv_tie *tie;            /* to the session that it is to vanish with; NULL: it stays */
    char key[];
};

static inline struct ddpi_bytes ddpi_kv_name(const struct kv_entry *entry)
{
    return ddpi_bytes_of(entry->key, entry->node.key_len);
}

static inline struct ddpi_bytes ddpi_kv_value(const struct kv_entry *entry)
{
    return ddpi_bytes_of(entry->value, entry->value_len);
}

/* One request while it is served. A handler fills @reply, or sets @parked: the reply comes later.
 */
struct kv_call {
    struct ddpi_kv_client *client;
    const struct ddpi_message *request;
    struct ddpi_bytes key; /* the request's, with the scope */
    uint64_t now_ms;
    struct ddpi_message reply;
    struct ddp_error err;
    bool parked;
    bool again; /* it has stood in line */
};

/* A place in the order of keys, at which an iteration goes on. */
struct kv_cursor {
    char *key; /* behind this one; NULL: at the beginning */
    size_t len;
    size_t size;
};

/* As much of a key as a sentence has room for: use with "%.*s". */
#define KV_QUOTE(bytes) (int)((bytes).len < 160 ? (bytes).len : 160), (const char *)(bytes).data
/* The same for a key as it is in the core, for a client that may see it otherwise. */
#define KV_QUOTE_SEEN(client, full) KV_QUOTE(ddpi_kv_seen_key(client, full))

/* A request may look at so many entries, or drop so many, before it has to stand in line. */
enum { KV_SMALL = 512 };

/* kv.c: what is gone is not found */
struct kv_entry *ddpi_kv_find(const struct ddpi_kv *kv, struct ddpi_bytes key);
struct kv_entry *ddpi_kv_find_value(const struct ddpi_kv *kv, struct ddpi_bytes key);
size_t ddpi_kv_entry_size(size_t key_len);
struct kv_entry *ddpi_kv_entry_make(struct ddpi_kv *kv, struct kv_account *account,
                                    struct ddpi_bytes key);
void ddpi_kv_entry_release(struct ddpi_kv *kv, struct kv_entry *entry);
/* Whether it has to stay, though it may have no value. */
bool ddpi_kv_entry_needed(const struct kv_entry *entry);
/* It is in no order any more. */
void ddpi_kv_entry_free(struct ddpi_kv *kv, struct kv_entry *entry);
void ddpi_kv_answer(struct ddpi_kv *kv, struct ddpi_kv_client *client, struct ddpi_message *reply,
                    enum ddpi_op op, uint64_t id);
void ddpi_kv_answer_value(struct ddpi_message *reply, const struct kv_entry *entry);

/* The next of @keys as ddpi_kv_full_key() makes it; *@ret_more is false at their end. */
ddp_status ddpi_kv_next_key(const struct ddpi_kv *kv, struct kv_call *call, struct ddpi_keys *keys,
                            struct ddpi_bytes *ret_full, bool *ret_more);

/* A new value with all the memory it takes: either committed, which cannot fail and wakes who waits
 * for the key to exist, or abandoned. Of one entry there is one at a time. */
struct kv_change {
    struct kv_entry *entry;
    char *value;             /* NULL: as long as the old one, whose place it takes */
    struct ddpi_bytes bytes; /* of the request */
};
/* Whether a client may change it. */
ddp_status ddpi_kv_check_owner(const struct ddpi_kv *kv, struct ddpi_bytes key,
                               struct ddp_error *err);
ddp_status ddpi_kv_prepare(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                           struct kv_change *ret, struct ddp_error *err);
void ddpi_kv_commit(struct ddpi_kv *kv, const struct kv_change *change);
void ddpi_kv_abandon(struct ddpi_kv *kv, const struct kv_change *change);

/* @entry loses its value, and may be freed. */
void ddpi_kv_drop(struct ddpi_kv *kv, struct kv_entry *entry);
/* The same, but it stays, and is not in the numbers of scopes. */
void ddpi_kv_lose_value(struct ddpi_kv *kv, struct kv_entry *entry);

/* Give @key a value, and wake who waits for it to exist; ddpi_kv_put() wakes its watchers too. */
ddp_status ddpi_kv_store(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                         struct kv_entry **ret_entry, struct ddp_error *err);
ddp_status ddpi_kv_put(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                       uint64_t *ret_version, struct ddp_error *err);

/* The handler of its operation; its key has been checked. */
void ddpi_kv_serve(struct ddpi_kv *kv, struct kv_call *call);

/* gone.c */
static inline bool ddpi_kv_has_gone(const struct ddpi_kv *kv)
{
    return !ddpi_list_empty(&kv->detached) || !ddpi_list_empty(&kv->over);
}
/* Whether it is out of the order of those that are there, or its session is over. */
bool ddpi_kv_is_detached(const struct ddpi_kv *kv, const struct kv_entry *entry);
bool ddpi_kv_is_gone(const struct ddpi_kv *kv, const struct kv_entry *entry);
/* As ddpi_kv_find(), for who is going to change it or to wait for it: what was gone is dropped. */
struct kv_entry *ddpi_kv_seek(struct ddpi_kv *kv, struct ddpi_bytes key);
/* What is gone loses its value, and may be freed. */
void ddpi_kv_drop_gone(struct ddpi_kv *kv, struct kv_entry *entry);
/* One key that is gone is dropped, of @account, or of any but the reserve when that is NULL. False:
 * there is none. */
bool ddpi_kv_drop_one(struct ddpi_kv *kv, const struct kv_account *account);
/* As much as the turn has work for, or half of that while requests stand in line. */
void ddpi_kv_drop_some(struct ddpi_kv *kv);
/* What a sink has kept of one that was not done. */
ddp_status ddpi_kv_restore_detached(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                                    struct ddp_error *err);
void ddpi_kv_gone_finish(struct ddpi_kv *kv);

/* ordered.c */
bool ddpi_kv_has_prefix(struct ddpi_bytes key, struct ddpi_bytes prefix);
void ddpi_kv_order_insert(struct kv_entry **root, struct kv_entry *entry);
void ddpi_kv_order_remove(struct kv_entry **root, const struct kv_entry *entry);
/* The entries with @prefix leave *@root, and are a tree of their own; NULL: there are none. */
struct kv_entry *ddpi_kv_order_cut(struct kv_entry **root, struct ddpi_bytes prefix);
bool ddpi_kv_order_has(const struct kv_entry *root, const struct kv_entry *entry);
/* All entries with @prefix, whether they have a value or not; NULL at the end. */
struct kv_entry *ddpi_kv_order_first(const struct ddpi_kv *kv, struct ddpi_bytes prefix);
struct kv_entry *ddpi_kv_order_next(const struct ddpi_kv *kv, const struct kv_entry *entry,
                                    struct ddpi_bytes prefix);
/* The first behind @cursor. */
struct kv_entry *ddpi_kv_cursor_next(const struct ddpi_kv *kv, const struct kv_cursor *cursor,
                                     struct ddpi_bytes prefix);
ddp_status ddpi_kv_cursor_set(struct kv_cursor *cursor, struct ddpi_bytes key,
                              struct ddp_error *err);
void ddpi_kv_cursor_finish(struct kv_cursor *cursor);

/* room.c */
/* Whether @key is one of the rounds. */
bool ddpi_kv_is_reserved(struct ddpi_bytes key);
/* Whose account pays for what hangs on @key, made if there is none; NULL: no memory. It goes with
 * the last byte that is charged to it, or with a check that fails. */
struct kv_account *ddpi_kv_account_get(struct ddpi_kv *kv, struct ddpi_bytes key);
/* The same for what @client asks: only an agent of no job draws on the reserve. */
struct kv_account *ddpi_kv_account_for(struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                                       struct ddpi_bytes key);
void ddpi_kv_account_release(struct ddpi_kv *kv, struct kv_account *account);
/* Whether @account may have so much more. NULL: no memory for it. */
ddp_status ddpi_kv_check_room(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                              size_t amount, struct ddp_error *err);
ddp_status ddpi_kv_check_growth(struct ddpi_kv *kv, struct kv_account *account, size_t keys,
                                size_t bytes, struct ddp_error *err);
void ddpi_kv_charge(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                    size_t amount);
void ddpi_kv_refund(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                    size_t amount);
bool ddpi_kv_room_init(struct ddpi_kv *kv, const uint8_t seed[DDPI_SEED_SIZE]);
void ddpi_kv_room_finish(struct ddpi_kv *kv);

/* scope.c */
/* What @key of a request is in the core, valid until the next call. */
ddp_status ddpi_kv_full_key(const struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                            struct ddpi_bytes key, struct ddpi_bytes *ret_full,
                            struct ddp_error *err);
/* The way back. */
struct ddpi_bytes ddpi_kv_seen_key(const struct ddpi_kv_client *client, struct ddpi_bytes full);
/* @key has got a value, 1, or lost it, -1. */
void ddpi_kv_scope_count(struct ddpi_kv *kv, struct ddpi_bytes key, int change);
/* Many keys are gone at once, all of which have @prefix: who has some of them counts again. */
void ddpi_kv_scope_recount(struct ddpi_kv *kv, struct ddpi_bytes prefix);
/* How many keys there are in it; *@ret_done is false when there was no work left to count them all:
 * ask again. */
ddp_status ddpi_kv_scope_nkeys(struct ddpi_kv *kv, struct ddpi_kv_scope *scope, size_t *ret,
                               bool *ret_done, struct ddp_error *err);
void ddpi_kv_scope_finish(struct ddpi_kv *kv);

/* tcpstore_ops.c: what DDPI_OPS_BEYOND_NATIVE says */
ddp_status ddpi_kv_compare_set(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_add_wrap(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_check(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_append(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_get_many(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_set_many(struct ddpi_kv *kv, struct kv_call *call);

/* Add @delta to the number at @call->key without waking its watchers. */
ddp_status ddpi_kv_count_up(struct ddpi_kv *kv, struct kv_call *call, int64_t delta,
                            int64_t *ret_sum, struct kv_entry **ret_entry);

/* queue.c */
ddp_status ddpi_kv_push(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_pop(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_queue_len(struct ddpi_kv *kv, struct kv_call *call);
/* A value, or a queue that is not empty. */
bool ddpi_kv_present(const struct kv_entry *entry);
/* @entry's queue loses its first value, if it has one. */
bool ddpi_kv_queue_drop(struct ddpi_kv *kv, const struct kv_entry *entry);
/* @client was woken for a value, and will not take it: the next one may. */
void ddpi_kv_unserve(struct ddpi_kv *kv, struct ddpi_kv_client *client);
void ddpi_kv_queue_clear(struct ddpi_kv *kv, struct kv_entry *entry);
/* A copy of @value at the end of the queue of @key, within the limits or not. */
ddp_status ddpi_kv_enqueue(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                           struct kv_entry **ret_entry, struct ddp_error *err);

/* restore.c */
void ddpi_kv_emit(struct ddpi_kv *kv, const struct ddpi_mutation *mutation);

/* session.c */
ddp_status ddpi_kv_session_open(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_session_keep(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_session_hold(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_session_close(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_set_ephemeral(struct ddpi_kv *kv, struct kv_call *call);
/* @client holds none any more. */
void ddpi_kv_session_release(struct ddpi_kv_client *client);
/* UINT64_MAX: never. */
uint64_t ddpi_kv_next_lease(const struct ddpi_kv *kv);
void ddpi_kv_expire_leases(struct ddpi_kv *kv, uint64_t now_ms);
void ddpi_kv_session_finish(struct ddpi_kv *kv);
/* The session @number with @token. */
ddp_status ddpi_kv_session_restore(struct ddpi_kv *kv, uint64_t number, struct ddpi_bytes token,
                                   uint32_t lease_ms, uint64_t now_ms, struct ddp_error *err);
/* All of them begin anew. */
void ddpi_kv_renew_leases(struct ddpi_kv *kv, uint64_t now_ms);
/* @entry is to vanish with the session @number. One that is not there has ended, and @entry is what
 * had not been dropped then. */
ddp_status ddpi_kv_session_tie(struct ddpi_kv *kv, uint64_t number, struct kv_entry *entry,
                               struct ddp_error *err);
/* @entry has got another value, or lost it. */
void ddpi_kv_untie(struct ddpi_kv *kv, struct kv_entry *entry);
/* It has a value, and no session that is over. */
bool ddpi_kv_has_value(const struct kv_entry *entry);
/* A key of a session that is over, of @account, or of any but the reserve; NULL: there is none. */
struct kv_entry *ddpi_kv_session_gone(const struct ddpi_kv *kv, const struct kv_account *account);
/* Drop keys of sessions that are over, as far as the turn has work for that. */
void ddpi_kv_session_drop(struct ddpi_kv *kv);

/* transaction.c */
ddp_status ddpi_kv_transact(struct ddpi_kv *kv, struct kv_call *call);

/* watch.c */
ddp_status ddpi_kv_watch(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_unwatch(struct ddpi_kv *kv, struct kv_call *call);
/* Tell those who watch @key that it has just changed, at kv->version. */
void ddpi_kv_changed(struct ddpi_kv *kv, enum ddpi_change_kind kind, struct ddpi_bytes key,
                     struct ddpi_bytes value);
/* Behind all that is remembered, a change that happened before this core was. */
void ddpi_kv_remember_past(struct ddpi_kv *kv, enum ddpi_change_kind kind, uint64_t version,
                           struct ddpi_bytes key, struct ddpi_bytes value);
void ddpi_kv_drop_watches(struct ddpi_kv *kv, struct ddpi_kv_client *client);
/* All clients are gone. */
void ddpi_kv_watch_finish(struct ddpi_kv *kv);

/* sliced.c */
ddp_status ddpi_kv_list(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_count_keys(struct ddpi_kv *kv, struct kv_call *call);
/* One entry is looked at; false: not in this turn. */
bool ddpi_kv_take_work(struct ddpi_kv *kv);
/* The same, for what looks at no more than is small: so many were looked at before. */
bool ddpi_kv_take_small(struct ddpi_kv *kv, size_t *taken);
/* The call looks at so many past changes: true if it is put off, and parked; else that is paid. */
bool ddpi_kv_put_off(struct ddpi_kv *kv, struct kv_call *call, uint64_t changes);
void ddpi_kv_drop_works(struct ddpi_kv *kv, struct ddpi_kv_client *client);

/* waiters.c: the operations that may wait */
ddp_status ddpi_kv_get(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_wait(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_barrier(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_wait_each(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_arrive(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_cancel(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_cancel_request(struct ddpi_kv *kv, struct kv_call *call);

/* @entry has just got a value, or has just lost it, or was written to. */
void ddpi_kv_appeared(struct ddpi_kv *kv, struct kv_entry *entry);
void ddpi_kv_vanished(struct kv_entry *entry);
void ddpi_kv_written(struct ddpi_kv *kv, struct kv_entry *entry);
/* Tell those who wait for @entry's queue, one after the other, that it has a value, until one of
 * them has all it waited for; that one is answered. NULL: nobody waits for nothing else. */
struct ddpi_kv_client *ddpi_kv_wake_one(struct ddpi_kv *kv, struct kv_entry *entry);

#endif
