/*
 * kv_impl.h - what the files of the core call of each other. Each file owns a part of the state
 * (kv_state.h), and has the requests for it. No other folder includes it.
 */
#ifndef DDPI_KV_IMPL_H
#define DDPI_KV_IMPL_H

#include "kv_state.h"

/* ---- apply.c: requests, replies to clients, and changes for the sink ---- */

/* Carries out @call, whose key is known, and answers it unless it is parked. */
void ddpi_kv_serve(struct ddpi_kv *kv, struct kv_call *call);
void ddpi_kv_answer(struct ddpi_kv *kv, struct ddpi_kv_client *client, struct ddpi_message *reply,
                    enum ddpi_op op, uint64_t id);
void ddpi_kv_answer_value(struct ddpi_message *reply, const struct kv_entry *entry);
void ddpi_kv_emit(struct ddpi_kv *kv, const struct ddpi_mutation *mutation);

/* ---- entries.c: the entries, in a table and in their order; how they go ---- */

/* All entries with @prefix (from @from on), with or without a value; NULL at the end. */
struct kv_entry *ddpi_kv_order_first(const struct ddpi_kv *kv, struct ddpi_bytes prefix);
struct kv_entry *ddpi_kv_order_from(const struct ddpi_kv *kv, struct ddpi_bytes from,
                                    struct ddpi_bytes prefix);
struct kv_entry *ddpi_kv_order_next(const struct ddpi_kv *kv, const struct kv_entry *entry,
                                    struct ddpi_bytes prefix);
/* The first after @cursor. */
struct kv_entry *ddpi_kv_cursor_next(const struct ddpi_kv *kv, const struct kv_cursor *cursor,
                                     struct ddpi_bytes prefix);
ddp_status ddpi_kv_cursor_set(struct kv_cursor *cursor, struct ddpi_bytes key,
                              struct ddp_error *err);
void ddpi_kv_cursor_finish(struct kv_cursor *cursor);
/* These do not find what is gone; ddpi_kv_find_value() needs a value, too. */
struct kv_entry *ddpi_kv_find(const struct ddpi_kv *kv, struct ddpi_bytes key);
struct kv_entry *ddpi_kv_find_value(const struct ddpi_kv *kv, struct ddpi_bytes key);
/* Whether it has a value, and no session that is over. */
bool ddpi_kv_has_value(const struct kv_entry *entry);
/* Whether it was deleted with its prefix, or its session is over, and it is not dropped yet. */
bool ddpi_kv_is_gone(const struct ddpi_kv *kv, const struct kv_entry *entry);
size_t ddpi_kv_entry_size(size_t key_len);
/* An entry without a value; NULL: no memory. The caller has checked for room. */
struct kv_entry *ddpi_kv_entry_make(struct ddpi_kv *kv, struct kv_account *account,
                                    struct ddpi_bytes key);
/* Frees @entry unless it is needed. */
void ddpi_kv_entry_release(struct ddpi_kv *kv, struct kv_entry *entry);
/* Ties @entry to the session of @tie, which is charged to the account of @entry. */
void ddpi_kv_tie(struct ddpi_kv *kv, struct kv_tie *tie, struct kv_entry *entry);
/* @entry has a new value, or has lost it. */
void ddpi_kv_untie(struct ddpi_kv *kv, struct kv_entry *entry);
/* @entry loses its value, and may be freed. */
void ddpi_kv_drop(struct ddpi_kv *kv, struct kv_entry *entry);
/* The same of an entry that is gone already. */
void ddpi_kv_drop_gone(struct ddpi_kv *kv, struct kv_entry *entry);
/* As ddpi_kv_find(), before a change or a wait: drops the entry if it is gone. */
struct kv_entry *ddpi_kv_seek(struct ddpi_kv *kv, struct ddpi_bytes key);
/* The first key of @session, which has some. */
struct kv_entry *ddpi_kv_session_first(const struct kv_session *session);
/* Drops one key that is gone, of @account, or of any but the reserve when that is NULL. False:
 * there is none. */
bool ddpi_kv_drop_one(struct ddpi_kv *kv, const struct kv_account *account);
/* Drops what was deleted with its prefix, as far as there is work left. */
void ddpi_kv_drop_detached(struct ddpi_kv *kv);
/* A DETACH that a sink has kept without its end. */
ddp_status ddpi_kv_restore_detached(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                                    struct ddp_error *err);
void ddpi_kv_gone_finish(struct ddpi_kv *kv);

/* ---- sliced.c: what a turn may spend; requests that take several turns ---- */

/* Pays for one entry that is looked at; false: not in this turn. */
bool ddpi_kv_take_work(struct ddpi_kv *kv);
/* The same for a loop that may look at KV_SMALL entries; *@taken counts them. */
bool ddpi_kv_take_small(struct ddpi_kv *kv, size_t *taken);
/* LIST and COUNT_KEYS. */
ddp_status ddpi_kv_list_or_count(struct ddpi_kv *kv, struct kv_call *call);
/* The call looks at so many past changes: true if it is put off, and parked; else they are paid
 * for. */
bool ddpi_kv_put_off(struct ddpi_kv *kv, struct kv_call *call, uint64_t changes);
void ddpi_kv_drop_works(struct ddpi_kv *kv, struct ddpi_kv_client *client);

/* ---- account.c: what each job uses, and may use ---- */

bool ddpi_kv_accounts_init(struct ddpi_kv *kv, const uint8_t seed[DDPI_SEED_SIZE]);
void ddpi_kv_accounts_finish(struct ddpi_kv *kv);
/* Whether @key is one of the rounds. */
bool ddpi_kv_is_reserved(struct ddpi_bytes key);
/* The account that pays for what hangs on @key, made if there is none; NULL: no memory. It goes
 * with the last byte that is charged to it, or with a check that fails. */
struct kv_account *ddpi_kv_account_get(struct ddpi_kv *kv, struct ddpi_bytes key);
/* The same for a request of @client: only an agent of no job draws on the reserve. */
struct kv_account *ddpi_kv_account_for(struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                                       struct ddpi_bytes key);
void ddpi_kv_account_release(struct ddpi_kv *kv, struct kv_account *account);
void ddpi_kv_charge(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                    size_t amount);
void ddpi_kv_refund(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                    size_t amount);
/* Whether @account may have @amount more. NULL: there was no memory for it. */
ddp_status ddpi_kv_check_room(struct ddpi_kv *kv, struct kv_account *account, enum kv_room room,
                              size_t amount, struct ddp_error *err);
ddp_status ddpi_kv_check_growth(struct ddpi_kv *kv, struct kv_account *account, size_t keys,
                                size_t bytes, struct ddp_error *err);

/* ---- queue.c: queues of values ---- */

/* Whether there is a value, or a queue that is not empty. @entry may be NULL. */
bool ddpi_kv_present(const struct kv_entry *entry);
/* Drops the first value of @entry's queue; false: there is none. */
bool ddpi_kv_queue_drop(struct ddpi_kv *kv, const struct kv_entry *entry);
void ddpi_kv_queue_clear(struct ddpi_kv *kv, struct kv_entry *entry);
ddp_status ddpi_kv_push(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_pop(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_queue_len(struct ddpi_kv *kv, struct kv_call *call);
/* @client was woken for a value and will not take it: the next client may. */
void ddpi_kv_unserve(struct ddpi_kv *kv, struct ddpi_kv_client *client);
/* A copy of @value at the end of the queue of @key, within the limits or not. */
ddp_status ddpi_kv_enqueue(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                           struct kv_entry **ret_entry, struct ddp_error *err);

/* ---- scope.c: prefixes that clients do not see ---- */

/* The full key of @key in a request, valid until the next call. */
ddp_status ddpi_kv_full_key(const struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                            struct ddpi_bytes key, struct ddpi_bytes *ret_full,
                            struct ddp_error *err);
/* The reverse. */
struct ddpi_bytes ddpi_kv_seen_key(const struct ddpi_kv_client *client, struct ddpi_bytes full);
/* The full key of the next of @keys; *@ret_more is false at their end. */
ddp_status ddpi_kv_next_key(const struct ddpi_kv *kv, struct kv_call *call, struct ddpi_keys *keys,
                            struct ddpi_bytes *ret_full, bool *ret_more);
/* @key has got a value (@change is 1), or lost it (-1). */
void ddpi_kv_scope_count(struct ddpi_kv *kv, struct ddpi_bytes key, int change);
/* Many keys with @prefix are gone at once: scopes that may have some of them count again. */
void ddpi_kv_scope_recount(struct ddpi_kv *kv, struct ddpi_bytes prefix);
/* The number of keys in @scope; *@ret_done is false when there was too little work left to count
 * them all: ask again. */
ddp_status ddpi_kv_scope_nkeys(struct ddpi_kv *kv, struct ddpi_kv_scope *scope, size_t *ret,
                               bool *ret_done, struct ddp_error *err);
void ddpi_kv_scope_finish(struct ddpi_kv *kv);

/* ---- watches.c: the tree of watches, and the history ---- */

/* Adds a change to the end of the history that was made before this core was. */
void ddpi_kv_remember_past(struct ddpi_kv *kv, enum ddpi_change_kind kind, uint64_t version,
                           struct ddpi_bytes key, struct ddpi_bytes value);
/* @entry has just changed, at kv->version: tells the sink and the watches, and remembers it. */
void ddpi_kv_changed(struct ddpi_kv *kv, enum ddpi_change_kind kind, const struct kv_entry *entry);
/* All clients are gone. */
void ddpi_kv_watch_finish(struct ddpi_kv *kv);
ddp_status ddpi_kv_watch(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_unwatch(struct ddpi_kv *kv, struct kv_call *call);
void ddpi_kv_drop_watches(struct ddpi_kv *kv, struct ddpi_kv_client *client);

/* ---- waits.c: requests that wait ---- */

/* Drops all waiting requests of @client, without a reply. */
void ddpi_kv_drop_waits(struct ddpi_kv *kv, struct ddpi_kv_client *client);
/* @entry has just got a value, or was written to: answers the requests that have waited for it. */
void ddpi_kv_appeared(struct ddpi_kv *kv, struct kv_entry *entry);
void ddpi_kv_written(struct ddpi_kv *kv, struct kv_entry *entry);
/* Tells the requests that wait for @entry's queue, one after the other, that it has a value, until
 * one of them misses nothing more; returns the client of that one, which is answered. NULL: there
 * is none. */
struct ddpi_kv_client *ddpi_kv_wake_one(struct ddpi_kv *kv, struct kv_entry *entry);
ddp_status ddpi_kv_get(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_wait(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_barrier(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_wait_each(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_arrive(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_cancel(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_cancel_request(struct ddpi_kv *kv, struct kv_call *call);
/* When the first waiting request times out; UINT64_MAX: never. */
uint64_t ddpi_kv_next_timeout(const struct ddpi_kv *kv);
void ddpi_kv_expire_waits(struct ddpi_kv *kv, uint64_t now_ms);

/* ---- values.c: how keys get their values ---- */

/* Whether a client may change @key. */
ddp_status ddpi_kv_check_owner(const struct ddpi_kv *kv, struct ddpi_bytes key,
                               struct ddp_error *err);
/* Gives @key a value, and answers the requests that wait for it. */
ddp_status ddpi_kv_put(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                       uint64_t *ret_version, struct ddp_error *err);
/* The same of the call's key, which goes with the session of @tie. Takes @tie over. */
ddp_status ddpi_kv_put_tied(struct ddpi_kv *kv, struct kv_call *call, struct kv_tie *tie);
/* Appends @more to the value that @entry has. */
ddp_status ddpi_kv_extend(struct ddpi_kv *kv, struct kv_entry *entry, struct ddpi_bytes more,
                          struct ddp_error *err);
/* Adds @delta to the number at @call->key. Requests that wait for a write are not answered. */
ddp_status ddpi_kv_count_up(struct ddpi_kv *kv, struct kv_call *call, int64_t delta,
                            int64_t *ret_sum, struct kv_entry **ret_entry);
ddp_status ddpi_kv_transact(struct ddpi_kv *kv, struct kv_call *call);

/* ---- session.c: sessions ---- */

ddp_status ddpi_kv_session_open(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_session_keep(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_session_hold(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_session_close(struct ddpi_kv *kv, struct kv_call *call);
ddp_status ddpi_kv_set_ephemeral(struct ddpi_kv *kv, struct kv_call *call);
/* @client holds no session any more. */
void ddpi_kv_session_release(struct ddpi_kv_client *client);
/* When the first lease ends; UINT64_MAX: never. */
uint64_t ddpi_kv_next_lease(const struct ddpi_kv *kv);
void ddpi_kv_expire_leases(struct ddpi_kv *kv, uint64_t now_ms);
/* Drops keys of sessions that are over, as far as there is work left. */
void ddpi_kv_session_drop(struct ddpi_kv *kv);
/* The session @number with @token. */
ddp_status ddpi_kv_session_restore(struct ddpi_kv *kv, uint64_t number, struct ddpi_bytes token,
                                   uint32_t lease_ms, uint64_t now_ms, struct ddp_error *err);
/* @entry vanishes with the session @number. If there is no such session, it has ended, and @entry
 * is one of its keys that had not been dropped. */
ddp_status ddpi_kv_session_tie(struct ddpi_kv *kv, uint64_t number, struct kv_entry *entry,
                               struct ddp_error *err);
/* All leases begin anew. */
void ddpi_kv_renew_leases(struct ddpi_kv *kv, uint64_t now_ms);
/* All entries are freed. */
void ddpi_kv_session_finish(struct ddpi_kv *kv);

#endif
