/*
 * kv_state.h - the data of the key-value core: the core itself, its entries, and what hangs on
 * them. The comment on each structure names the file that owns it.
 */
#ifndef DDPI_KV_STATE_H
#define DDPI_KV_STATE_H

#include "heap.h"
#include "kv.h"
#include "table.h"

/* The latest changes, in order and without a gap between their versions (watches.c). */
struct kv_history {
    bool on;                  /* since the first watch: a store without watches remembers nothing */
    struct ddpi_list changes; /* kv_past::of_history */
    size_t count;
    size_t bytes;
    uint64_t floor; /* it has all changes after this version, and none before */
};

/* What a job uses (account.c). */
struct kv_account {
    struct ddpi_table_node node; /* by the name of the job */
    struct ddpi_heap_node rank;
    size_t used[KV_ROOMS];
    unsigned pins; /* while not 0 it stays, even when it is empty */
    char name[];
};

struct ddpi_kv {
    struct ddpi_kv_limits limits;
    uint64_t version;

    /* account.c */
    size_t used[KV_ROOMS];      /* by all accounts */
    struct ddpi_table accounts; /* kv_account::node, of jobs that hold something */
    struct ddpi_heap richest;   /* kv_account::rank, without the reserve */
    struct kv_account *jobless; /* for what belongs to no job */
    struct kv_account *reserve; /* for the rounds' own keys and sessions */
    uint64_t shares_full;       /* requests that were refused because of it */

    /* entries.c; values.c has the prefix */
    struct ddpi_table keys; /* kv_entry::node */
    struct kv_entry *root;  /* of all entries that are not detached, in the order of their keys */
    struct ddpi_list detached; /* kv_detached::of_kv */
    uint64_t last_detached;
    const char *reserved; /* the prefix of keys that only the owner of the store may change */

    /* scope.c */
    struct ddpi_kv_scope **scopes;
    size_t nscopes;
    char *full_key; /* room for the longest prefix of a scope and the longest key */

    /* waits.c */
    struct ddpi_table barriers; /* kv_barrier::node */
    struct ddpi_heap deadlines; /* kv_wait::deadline */

    /* session.c */
    struct ddpi_table sessions; /* kv_session::node */
    struct ddpi_heap leases;    /* kv_session::lease */
    uint64_t last_session;
    struct ddpi_list over; /* kv_session::of_over */

    /* sliced.c */
    struct ddpi_list line; /* kv_work::of_line */
    size_t nworks;
    size_t work_left;

    /* watches.c */
    struct ddpi_table watch_nodes;    /* kv_watch_node::node, all but the root */
    struct kv_watch_node *watch_root; /* NULL while there are no watches */
    size_t nwatches;
    struct kv_history history;

    /* apply.c */
    ddpi_kv_reply_fn *reply;
    void *reply_ctx;
    void (*sink)(void *ctx, const struct ddpi_mutation *mutation); /* NULL: none */
    void *sink_ctx;
};

/* A key that has a value or a queue, or that a request waits for (entries.c). What most requests
 * touch comes first, in one cache line. */
struct kv_entry {
    struct ddpi_table_node node;
    uint64_t version; /* 0: no value */
    char *value;      /* followed by a NUL */
    size_t value_len;
    struct kv_queue *queue; /* NULL: empty, and no client has been woken for it */
    struct kv_account *account;
    struct kv_entry *left, *right; /* in the order */
    struct ddpi_list links;        /* kv_link::of_entry, in order of arrival */
    struct ddpi_list watchers;     /* kv_link::of_entry of those that wait for the next write */
    struct kv_tie *tie;            /* to the session that it vanishes with; NULL: it stays */
    char key[];
};

/* A session, and its tie to one of its keys (session.c). */
struct kv_session {
    struct ddpi_table_node node; /* by number */
    struct ddpi_heap_node lease; /* when it ends */
    struct ddpi_list keys;       /* kv_tie::of_session */
    struct ddpi_list of_holder;  /* in the client's list while a client holds it */
    struct ddpi_list of_over;    /* after its end, until its keys are dropped */
    struct kv_account *account;
    uint32_t lease_ms;
    uint64_t number;
    uint8_t token[DDPI_SESSION_SIZE]; /* the number, then the secret */
};

struct kv_tie {
    struct ddpi_list of_session;
    struct kv_session *session;
    struct kv_entry *entry;
};

/* The values of an entry's queue (queue.c). */
struct kv_queue {
    struct ddpi_list items; /* kv_item::of_queue */
    size_t len;
    size_t nserved; /* clients whose `served` it is */
};

/* Hangs a waiting request onto one of its keys (waits.c). */
struct kv_link {
    struct ddpi_list of_entry;
    struct kv_entry *entry; /* NULL: not linked, or no longer */
    struct kv_wait *wait;
};

struct kv_wait {
    struct ddpi_list of_client;
    struct ddpi_list of_group; /* its barrier; or, for a moment, the list of those released */
    struct ddpi_heap_node deadline;
    struct ddpi_kv_client *client;
    struct kv_barrier *barrier; /* NULL: waits for keys */
    struct kv_account *account;
    uint64_t id;
    enum ddpi_op op;
    uint32_t timeout_ms;
    uint32_t missing;
    uint32_t nlinks;
    struct kv_link links[];
};

/* A place in the order of keys, from which an iteration continues (entries.c). */
struct kv_cursor {
    char *key; /* the last key visited; NULL: at the beginning */
    size_t len;
    size_t size;
};

/* One request while it is served. A handler fills @reply, or sets @parked to do so later. */
struct kv_call {
    struct ddpi_kv_client *client;
    const struct ddpi_message *request;
    struct ddpi_bytes key; /* the request's, with the scope */
    uint64_t now_ms;
    struct ddpi_message reply;
    struct ddp_error err;
    bool parked;
    bool again; /* it has waited in the line */
};

static inline struct ddpi_bytes ddpi_kv_name(const struct kv_entry *entry)
{
    return ddpi_bytes_of(entry->key, entry->node.key_len);
}

static inline struct ddpi_bytes ddpi_kv_value(const struct kv_entry *entry)
{
    return ddpi_bytes_of(entry->value, entry->value_len);
}

/* NULL if @node is. */
static inline struct kv_entry *ddpi_kv_entry_of(struct ddpi_table_node *node)
{
    return node != NULL ? ddpi_container_of(node, struct kv_entry, node) : NULL;
}

/* Whether @session has ended, though not all of its keys are dropped. */
static inline bool ddpi_kv_session_is_over(const struct kv_session *session)
{
    return !ddpi_list_empty(&session->of_over);
}

/* Whether any keys are gone, but not dropped yet. */
static inline bool ddpi_kv_has_gone(const struct ddpi_kv *kv)
{
    return !ddpi_list_empty(&kv->detached) || !ddpi_list_empty(&kv->over);
}

/* As much of a key as a sentence has room for: use with "%.*s". */
#define KV_QUOTE(bytes) (int)((bytes).len < 160 ? (bytes).len : 160), (const char *)(bytes).data
/* The same of a full key, as its client knows it. */
#define KV_QUOTE_SEEN(client, full) KV_QUOTE(ddpi_kv_seen_key(client, full))

/* Entries that a request may look at, or changes that it may make, before it has to wait for its
 * turn. */
enum { KV_SMALL = 512 };

#endif
