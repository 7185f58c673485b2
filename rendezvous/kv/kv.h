/*
 * kv.h - the key-value core: keys with versions, queues, requests that wait, barriers, watches,
 * sessions, deadlines.
 *
 * Pure: (request, client, now) -> replies, through one callback; no file descriptor, clock or log
 * inside. A reply may come during the call that makes the request, during a later call, or never
 * (if the client is gone). The cost of an operation depends on the keys that it names and on the
 * requests that wait for them, not on the number of other keys; an operation on a prefix costs as
 * much as there are keys with it.
 *
 * A watch has many replies: one for each change of its key, or of keys with its prefix, in the
 * order of the changes.
 *
 * A client with a scope sees only keys that begin with the scope's prefix, and sees them without
 * it.
 */
#ifndef DDPI_KV_H
#define DDPI_KV_H

#include "list.h"
#include "message.h"
#include "sink.h"
#include "table.h"

/* What clients share. Bytes are those of keys, values, waiting requests and watches, with the
 * structures that hold them. */
enum kv_room { KV_ROOM_KEYS, KV_ROOM_BYTES, KV_ROOM_SESSIONS, KV_ROOMS };

/* A request that would exceed a limit fails with DDP_E_LIMIT; other requests do not. */
struct ddpi_kv_limits {
    size_t room[KV_ROOMS];
    size_t of_job[KV_ROOMS];  /* the share of each job; 0: as much as is free (account.c) */
    size_t reserve[KV_ROOMS]; /* in addition: for the keys of the rounds, and agents of no job */
    uint32_t key_len;
    uint32_t value_len;
    uint32_t keys_per_wait;
    uint32_t waits_per_client; /* waiting requests at the same time, barriers included */
    uint32_t watches_per_client;
    size_t history_changes;    /* remembered for watches that begin in the past, ... */
    size_t history_bytes;      /* ... and their keys and values, which count here only */
    size_t replay_bytes;       /* replies with past changes that a watch gets at once */
    uint32_t tcpstore_key_len; /* for clients of PyTorch; a scope does not count */
    uint32_t tcpstore_value_len;
    uint32_t tcpstore_many; /* keys, or pairs of key and value, in one request */
    size_t turn_work;       /* entries that expensive requests may look at in a turn; 0: any */
};

/* 1 M keys, 1 GiB and 64 K sessions in all, and a reserve of 64 MiB and 64 K sessions; lengths as
 * in <ddprun/store.h>, 1024 waits and watches; PyTorch's clients: 8 KiB, 8 MiB, 128 K keys. */
extern const struct ddpi_kv_limits ddpi_kv_limits_default;

/*
 * A client: embedded in a structure of the caller (a connection), so that finding it costs nothing.
 * It ends only through ddpi_kv_client_gone().
 */
struct ddpi_kv_client {
    struct ddpi_list waits; /* kv_wait::of_client */
    uint32_t nwaits;
    struct ddpi_list watches; /* kv_watch::of_client */
    uint32_t nwatches;
    struct ddpi_list held;       /* kv_session::of_holder */
    struct ddpi_list works;      /* kv_work::of_client */
    uint32_t nworks;             /* while it is not 0, make no further request */
    struct ddpi_kv_scope *scope; /* these three are the caller's; NULL: it sees all keys */
    bool tcpstore;               /* a client of PyTorch, with limits of its own */
    bool agent;                  /* of no job: it may use the rounds' reserve */
    struct kv_entry *served;     /* the queue that has woken it, until its next request */
};

/* @reply and all that it points to are valid during the call only. Must not call into the core. */
typedef void ddpi_kv_reply_fn(void *ctx, struct ddpi_kv_client *client,
                              const struct ddpi_message *reply);

struct ddpi_kv_stats {
    size_t keys;
    size_t bytes;
    size_t reserved;      /* of these bytes, those of the rounds */
    uint64_t shares_full; /* requests refused because their job's share was full */
    size_t waits;
    size_t works; /* requests in the line */
    size_t watches;
    size_t sessions;
    uint64_t version;
};

struct ddpi_kv;

/* NULL when out of memory. @seed should be random: see table.h. */
struct ddpi_kv *ddpi_kv_create(const struct ddpi_kv_limits *limits,
                               const uint8_t seed[DDPI_SEED_SIZE], ddpi_kv_reply_fn *reply,
                               void *ctx);
/* After all clients are gone. NULL is allowed. */
void ddpi_kv_destroy(struct ddpi_kv *kv);

void ddpi_kv_client_init(struct ddpi_kv_client *client);
/* Drops the client's waiting requests, watches and places in barriers, without a reply to it. The
 * sessions that it holds wait for another holder, or for the ends of their leases. */
void ddpi_kv_client_gone(struct ddpi_kv *kv, struct ddpi_kv_client *client);
/* The client's process has certainly ended: ends the sessions that it holds. */
void ddpi_kv_client_dead(struct ddpi_kv *kv, struct ddpi_kv_client *client);

void ddpi_kv_apply(struct ddpi_kv *kv, struct ddpi_kv_client *client,
                   const struct ddpi_message *request, uint64_t now_ms);

/* The rounds' keys and values may have these lengths, written by agents of no job, even where the
 * limits are lower. */
enum { DDPI_KV_RESERVED_KEY_MAX = 512, DDPI_KV_RESERVED_VALUE_MAX = 128 * 1024 };

/* The next requests of @client name these keys, at most DDPI_KV_AHEAD: lets the processor fetch the
 * memory that finding them will touch, for all keys at the same time. */
enum { DDPI_KV_AHEAD = 16 };
void ddpi_kv_prefetch(const struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                      const struct ddpi_bytes *keys, size_t count);

/*
 * The cost of a list, or of a similar request, is not bounded by its length. With limits.turn_work
 * such a request waits in a line when there is no work left (sliced.c), and many keys that go at
 * once are dropped in slices (entries.c). In each turn of its loop the caller grants work, applies
 * requests, grants work again, and calls ddpi_kv_work() for the line and for what is dropped.
 */
void ddpi_kv_grant_work(struct ddpi_kv *kv);
void ddpi_kv_work(struct ddpi_kv *kv, uint64_t now_ms);
bool ddpi_kv_has_work(const struct ddpi_kv *kv);
/* Takes off what something else cost, counted in entries that are looked at. */
void ddpi_kv_spend_work(struct ddpi_kv *kv, size_t entries);

/* When ddpi_kv_expire() has something to do; UINT64_MAX: never. */
uint64_t ddpi_kv_next_deadline(const struct ddpi_kv *kv);
void ddpi_kv_expire(struct ddpi_kv *kv, uint64_t now_ms);

/* The functions from here to ddpi_kv_is_tight() are for the owner of the store. */

/* Clients may not change keys with @prefix: DDP_E_DENIED. @prefix must live as long as the core. */
void ddpi_kv_reserve(struct ddpi_kv *kv, const char *prefix);

/* The value of @key, followed by a NUL, valid until the next call; NULL: there is none. */
struct ddpi_bytes ddpi_kv_peek(const struct ddpi_kv *kv, struct ddpi_bytes key);
/* Sets @key, within the limits or not, so that clients cannot prevent it. */
ddp_status ddpi_kv_poke(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                        struct ddp_error *err);

/* The number of the session with @token, under which a sink keeps it; 0: there is none. */
uint64_t ddpi_kv_session_number(const struct ddpi_kv *kv, struct ddpi_bytes token);

/* Removes @key, if it exists. */
void ddpi_kv_remove(struct ddpi_kv *kv, struct ddpi_bytes key);

/* Visits all keys with @prefix, in their order, until @visit returns false. @visit must not change
 * anything. */
void ddpi_kv_each(const struct ddpi_kv *kv, struct ddpi_bytes prefix,
                  bool (*visit)(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value),
                  void *ctx);

/* The same for those from @from on, which has @prefix. */
void ddpi_kv_each_from(const struct ddpi_kv *kv, struct ddpi_bytes from, struct ddpi_bytes prefix,
                       bool (*visit)(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value),
                       void *ctx);

/* Removes all keys and queues that begin with @prefix; returns the number of keys. */
size_t ddpi_kv_delete_prefix(struct ddpi_kv *kv, struct ddpi_bytes prefix);

/*
 * The same where clients decide how many keys there are: all of them are gone at once, for all
 * clients, but when they are many they are dropped in slices, by ddpi_kv_work(). Watches are told
 * then, in order. What the keys use counts until then, but no request is refused because of it. A
 * watch is told of the deletion of a key before the key is set again.
 */
void ddpi_kv_detach(struct ddpi_kv *kv, struct ddpi_bytes prefix);

/* ddpi_kv_delete_prefix() for at most @most of them. */
size_t ddpi_kv_delete_some(struct ddpi_kv *kv, struct ddpi_bytes prefix, size_t most);

/* Whether so much is in use that keys that no client needs should be deleted. */
bool ddpi_kv_is_tight(const struct ddpi_kv *kv);

/*
 * The scope with @prefix (which may be ""). Call get once for each client that has the scope, and
 * for each other use, and put when that ends. DDP_E_NOMEM; DDP_E_LIMIT: @prefix is longer than
 * DDPI_KV_SCOPE_MAX.
 */
enum { DDPI_KV_SCOPE_MAX = 1024 };
ddp_status ddpi_kv_scope_get(struct ddpi_kv *kv, struct ddpi_bytes prefix,
                             struct ddpi_kv_scope **ret, struct ddp_error *err);
void ddpi_kv_scope_put(struct ddpi_kv *kv, struct ddpi_kv_scope *scope); /* NULL is allowed */
struct ddpi_bytes ddpi_kv_scope_prefix(const struct ddpi_kv_scope *scope);

/* Calls @change for all changes from now on; NULL: for none. */
void ddpi_kv_set_sink(struct ddpi_kv *kv, void (*change)(void *, const struct ddpi_mutation *),
                      void *ctx);
struct ddpi_mark ddpi_kv_mark(const struct ddpi_kv *kv);

/*
 * Puts back what a sink has kept: sessions, keys, their ties to sessions, queues, past changes, and
 * at last the mark. The core is fresh and has no sink. The limits do not count, as the store keeps
 * what it has accepted; leases begin anew. DDP_E_PROTOCOL: no core has written this.
 */
ddp_status ddpi_kv_restore(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                           uint64_t now_ms, struct ddp_error *err);
void ddpi_kv_restore_mark(struct ddpi_kv *kv, const struct ddpi_mark *mark, uint64_t now_ms);

struct ddpi_kv_stats ddpi_kv_stats(const struct ddpi_kv *kv);

/* What the keys, waits, watches and sessions of a job use. */
struct ddpi_kv_use {
    struct ddpi_bytes job;
    size_t keys;
    size_t bytes;
    size_t sessions;
};
/* Visits each job that holds something, in no order, until @visit returns false. @visit must not
 * change anything. */
void ddpi_kv_each_job(const struct ddpi_kv *kv,
                      bool (*visit)(void *ctx, const struct ddpi_kv_use *use), void *ctx);

#endif
