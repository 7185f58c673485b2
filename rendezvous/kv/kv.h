/*
 * kv.h - the key-value core: keys with versions, queues, requests that wait, barriers, watches,
 * sessions, deadlines.
 *
 * Pure: (request, client, now) -> replies, through one callback; no file descriptor, clock or log
 * inside. A reply may come during the call that asked, during a later call, or never (the client
 * went). What an operation costs depends on the keys it names and on who waits for these, not on
 * how many others there are; what names a prefix costs what there is with it.
 *
 * A watch is answered again and again: once for each change of its key, or of keys with its prefix,
 * in the order of the changes.
 *
 * A client may have a scope: then it sees those keys only that begin with its prefix, and sees
 * them without it.
 */
#ifndef DDPI_KV_H
#define DDPI_KV_H

#include "list.h"
#include "message.h"
#include "sink.h"
#include "siphash.h"

/* What clients use up together. Bytes are those of keys, values, waiting requests and watches, with
 * what it takes to hold them. */
enum kv_room { KV_ROOM_KEYS, KV_ROOM_BYTES, KV_ROOM_SESSIONS, KV_ROOMS };

/* Reaching one of them is DDP_E_LIMIT for the request that would exceed it, and for no other. */
struct ddpi_kv_limits {
    size_t room[KV_ROOMS];
    size_t of_job[KV_ROOMS];  /* the share of each job; 0: as much as is free (room.c) */
    size_t reserve[KV_ROOMS]; /* beside these: for the keys of the rounds, and agents of no job */
    uint32_t key_len;
    uint32_t value_len;
    uint32_t keys_per_wait;
    uint32_t waits_per_client; /* waiting requests at the same time, barriers included */
    uint32_t watches_per_client;
    size_t history_changes;    /* remembered for watches that begin in the past; not in bytes ... */
    size_t history_bytes;      /* ... keys and values in all, which count here */
    uint32_t tcpstore_key_len; /* the same for clients of PyTorch; a scope does not count */
    uint32_t tcpstore_value_len;
    uint32_t tcpstore_many; /* keys, or pairs of key and value, in one request */
    size_t turn_work;       /* entries looked at in a turn for requests that cost much; 0: no end */
};

/* 1 M keys, 1 GiB, 64 K sessions, whosever they are; in reserve 64 MiB and 64 K sessions; lengths
 * as in <ddprun/store.h>, 1024 waits and watches; PyTorch's clients: 8 KiB, 8 MiB, 128 K keys. */
extern const struct ddpi_kv_limits ddpi_kv_limits_default;

/*
 * Somebody who asks: embedded in what the caller knows it by (a connection), so that finding one
 * costs nothing. It may go only through ddpi_kv_client_gone().
 */
struct ddpi_kv_client {
    struct ddpi_list waits; /* kv_wait::of_client */
    uint32_t nwaits;
    struct ddpi_list watches; /* kv_watch::of_client */
    uint32_t nwatches;
    struct ddpi_list held;       /* kv_session::of_holder */
    struct ddpi_list works;      /* kv_work::of_client */
    uint32_t nworks;             /* while there are some, nothing more should be asked */
    struct ddpi_kv_scope *scope; /* these three are the caller's; NULL: it sees all keys */
    bool tcpstore;               /* other limits count */
    bool agent;                  /* of no job: it may use what is reserved for the rounds */
    struct kv_entry *served;     /* the queue that has woken it, until it asks for something */
};

/* @reply and all it points to are valid during the call only, which must not call into the core. */
typedef void ddpi_kv_reply_fn(void *ctx, struct ddpi_kv_client *client,
                              const struct ddpi_message *reply);

struct ddpi_kv_stats {
    size_t keys;
    size_t bytes;
    size_t reserved;      /* of these bytes, those of the rounds */
    uint64_t shares_full; /* requests refused for what their job holds */
    size_t waits;
    size_t works; /* that stand in line */
    size_t watches;
    size_t sessions;
    uint64_t version;
};

struct ddpi_kv;

/* NULL when out of memory. @seed should be random: see table.h. */
struct ddpi_kv *ddpi_kv_create(const struct ddpi_kv_limits *limits,
                               const uint8_t seed[DDPI_SEED_SIZE], ddpi_kv_reply_fn *reply,
                               void *ctx);
/* All clients are gone. NULL is allowed. */
void ddpi_kv_destroy(struct ddpi_kv *kv);

void ddpi_kv_client_init(struct ddpi_kv_client *client);
/* Drops its waiting requests, its watches and its places in barriers, without replies to itself.
 * Sessions that it holds wait for another holder, or for their leases. */
void ddpi_kv_client_gone(struct ddpi_kv *kv, struct ddpi_kv_client *client);
/* Nobody is at the other end any more, which is certain: the sessions that it holds are over. */
void ddpi_kv_client_dead(struct ddpi_kv *kv, struct ddpi_kv_client *client);

void ddpi_kv_apply(struct ddpi_kv *kv, struct ddpi_kv_client *client,
                   const struct ddpi_message *request, uint64_t now_ms);

/* However short the keys and values of clients must be: those of the rounds' keys, for agents of no
 * job. */
enum { DDPI_KV_RESERVED_KEY_MAX = 512, DDPI_KV_RESERVED_VALUE_MAX = 128 * 1024 };

/* What @client asks next names these keys, at most DDPI_KV_AHEAD: let the processor fetch what
 * looking them up touches, all at the same time rather than one after the other. */
enum { DDPI_KV_AHEAD = 16 };
void ddpi_kv_prefetch(const struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                      const struct ddpi_bytes *keys, size_t count);

/*
 * What a list, or the like, costs is not bounded by its length. Where limits.turn_work says so,
 * those that find no work left stand in line (sliced.c), and many keys that go at once are dropped
 * in slices (gone.c): each turn the caller grants work, has requests applied, grants more, and
 * lets those go on who stand in line, and drops.
 */
void ddpi_kv_grant_work(struct ddpi_kv *kv);
void ddpi_kv_work(struct ddpi_kv *kv, uint64_t now_ms);
bool ddpi_kv_has_work(const struct ddpi_kv *kv);
/* Something has cost as much as looking at so many entries. */
void ddpi_kv_spend_work(struct ddpi_kv *kv, size_t entries);

/* When ddpi_kv_expire() has something to do; UINT64_MAX: never. */
uint64_t ddpi_kv_next_deadline(const struct ddpi_kv *kv);
void ddpi_kv_expire(struct ddpi_kv *kv, uint64_t now_ms);

/* For the owner of the store: keys with @prefix, which lives as long as the core, are his alone to
 * change: DDP_E_DENIED for clients. */
void ddpi_kv_reserve(struct ddpi_kv *kv, const char *prefix);

/* For the owner of the store: the value of @key, with a NUL behind it, valid until the next call
 * (NULL: there is none);
 * and another value, within the limits or not: clients cannot keep him from it. */
struct ddpi_bytes ddpi_kv_peek(const struct ddpi_kv *kv, struct ddpi_bytes key);
ddp_status ddpi_kv_poke(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                        struct ddp_error *err);

/* The number of the session with @token, by which a sink knows it; 0 if there is none. */
uint64_t ddpi_kv_session_number(const struct ddpi_kv *kv, struct ddpi_bytes token);

/* For the owner of the store: removes @key, if it is there. */
void ddpi_kv_remove(struct ddpi_kv *kv, struct ddpi_bytes key);

/* For the owner of the store: all keys with @prefix, in their order, until @visit returns false. It
 * must not change anything. */
void ddpi_kv_each(const struct ddpi_kv *kv, struct ddpi_bytes prefix,
                  bool (*visit)(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value),
                  void *ctx);

/* For the owner of the store: removes all keys and queues that begin with @prefix; returns how many
 * keys. */
size_t ddpi_kv_delete_prefix(struct ddpi_kv *kv, struct ddpi_bytes prefix);

/*
 * The same for what clients can make large: all of them are gone at once, for everybody. What is
 * more than small is dropped in slices, by ddpi_kv_work(): watches are told then, in order, and
 * what it takes counts until then, though nobody is refused for it. A key that is set again is told
 * after its deletion.
 */
void ddpi_kv_detach(struct ddpi_kv *kv, struct ddpi_bytes prefix);

/* The same as ddpi_kv_delete_prefix() for at most @most of them. */
size_t ddpi_kv_delete_some(struct ddpi_kv *kv, struct ddpi_bytes prefix, size_t most);

/* For the owner of the store: whether so much is in use that what nobody needs had better go. */
bool ddpi_kv_is_tight(const struct ddpi_kv *kv);

/*
 * The scope with @prefix ("" is one, too), for clients to have: a client that has it stands for one
 * call of get, and so does each other use; put when it is over. Fails for lack of memory, or
 * DDP_E_LIMIT when @prefix is longer than DDPI_KV_SCOPE_MAX.
 */
enum { DDPI_KV_SCOPE_MAX = 1024 };
ddp_status ddpi_kv_scope_get(struct ddpi_kv *kv, struct ddpi_bytes prefix,
                             struct ddpi_kv_scope **ret, struct ddp_error *err);
void ddpi_kv_scope_put(struct ddpi_kv *kv, struct ddpi_kv_scope *scope); /* NULL is allowed */
struct ddpi_bytes ddpi_kv_scope_prefix(const struct ddpi_kv_scope *scope);

/* Tell @change of all changes from now on; NULL: nobody. */
void ddpi_kv_set_sink(struct ddpi_kv *kv, void (*change)(void *, const struct ddpi_mutation *),
                      void *ctx);
struct ddpi_mark ddpi_kv_mark(const struct ddpi_kv *kv);

/*
 * Put back what a sink has kept: sessions, keys, what ties them, queues, past changes, and at last
 * the mark. The core is fresh and has no sink. The limits do not count, as what was promised is to
 * be held; leases begin anew. DDP_E_PROTOCOL: it cannot have come from a core.
 */
ddp_status ddpi_kv_restore(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                           uint64_t now_ms, struct ddp_error *err);
void ddpi_kv_restore_mark(struct ddpi_kv *kv, const struct ddpi_mark *mark, uint64_t now_ms);

struct ddpi_kv_stats ddpi_kv_stats(const struct ddpi_kv *kv);

/* What the keys, waits, watches and sessions of a job take. */
struct ddpi_kv_use {
    struct ddpi_bytes job;
    size_t keys;
    size_t bytes;
    size_t sessions;
};
/* Of each job that holds something, in no order, until @visit returns false; it must not change
 * anything. */
void ddpi_kv_each_job(const struct ddpi_kv *kv,
                      bool (*visit)(void *ctx, const struct ddpi_kv_use *use), void *ctx);

#endif
