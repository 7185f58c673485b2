/*
 * sink.h - where the core's contents are kept outside it. The core tells a sink of each change, and
 * does not know what the sink does with it; what a sink has kept goes back into an empty core in
 * the same form, through ddpi_kv_restore().
 */
#ifndef DDPI_SINK_H
#define DDPI_SINK_H

#include "buf.h"
#include "message.h"

/* The kinds of mutations, and the fields that each has; the others are zero. */
enum ddpi_mutation_kind {
    DDPI_MUTATION_SET,    /* key, value, version, session: the key vanishes with it; 0: with none */
    DDPI_MUTATION_DELETE, /* key, version */
    DDPI_MUTATION_PUSH,   /* key, value: to the end of the queue of that name */
    DDPI_MUTATION_POP,    /* key: the first value of its queue */
    DDPI_MUTATION_SESSION_OPEN, /* session, value: its token, lease_ms */
    DDPI_MUTATION_SESSION_END,  /* session; its keys are deleted one by one from then on */
    DDPI_MUTATION_DETACH, /* key: a prefix, version, number: all keys with the prefix that have
                             this version or an earlier one, and queues, are gone; a DELETE or
                             POP of each follows. Restored after the keys, before queues */
    DDPI_MUTATION_DETACHED_END, /* number: all of them have followed */
    DDPI_MUTATION_REMEMBER,     /* the history of watches begins: see the mark */
    /* As SET and DELETE, in the history of watches only; restored after the keys, in the order of
     * versions. States of SQLite have these numbers. */
    DDPI_MUTATION_PAST_SET = 10,
    DDPI_MUTATION_PAST_DELETE = 11,
};

struct ddpi_mutation {
    enum ddpi_mutation_kind kind;
    bool remembered; /* SET, DELETE: also in the history of watches */
    struct ddpi_bytes key;
    struct ddpi_bytes value;
    uint64_t version;
    uint64_t session;
    uint64_t number;
    uint32_t lease_ms;
};

/* The state of the contents as a whole after some mutations. */
struct ddpi_mark {
    uint64_t version;     /* of the latest change */
    bool remembers;       /* there is a history of watches, and it ... */
    uint64_t floor;       /* ... has all changes after this version */
    uint64_t incarnation; /* when restoring: which store it is; drawn and kept by the sink */
};

/* What a sink calls when a commit has ended; @why is NULL if the changes are durable. */
struct ddpi_committed {
    void (*call)(void *ctx, const struct ddp_error *why);
    void *ctx;
};

struct ddpi_sink {
    void *ctx;
    /* @mutation is valid during the call only. Must not call into the core. The next commit reports
     * a failure. */
    void (*change)(void *ctx, const struct ddpi_mutation *mutation);
    /* Make all changes so far durable, and call @done, once: at once, after blocking, or later from
     * the loop. Until then only change() is called; those changes belong to the next commit. After
     * a failure the sink is not called again. */
    void (*commit)(void *ctx, const struct ddpi_mark *mark, struct ddpi_committed done);
    /* Whether replies may leave: no other process may have changed the contents. NULL: always. */
    bool (*may_answer)(void *ctx);
    /* How many bytes the changes take that are not durable yet, those of a commit that is under way
     * included. The server slows down its clients when it is much, so it must fall when a commit
     * ends. NULL: never much, as commits block. */
    size_t (*backlog)(void *ctx);
    /* Append counters of the sink, lines "NAME NUMBER", to the server's. NULL: it has none. */
    void (*put_counters)(void *ctx, struct ddpi_buf *text);
};

#endif
