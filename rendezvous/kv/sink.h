/*
 * sink.h - where the core's contents are kept beside it. The core tells a sink of each change, and
 * does not know what becomes of it; what a sink has kept goes back into an empty core in the same
 * form, through ddpi_kv_restore().
 */
#ifndef DDPI_SINK_H
#define DDPI_SINK_H

#include "message.h"

/* What a mutation is, and the fields that it has; the others are zero. */
enum ddpi_mutation_kind {
    DDPI_MUTATION_SET,          /* key, value, version */
    DDPI_MUTATION_DELETE,       /* key, version */
    DDPI_MUTATION_TIE,          /* key, session: it is to vanish with that */
    DDPI_MUTATION_PUSH,         /* key, value: to the end of the queue of that name */
    DDPI_MUTATION_POP,          /* key: the first value of its queue */
    DDPI_MUTATION_SESSION_OPEN, /* session, value: its token, lease_ms */
    DDPI_MUTATION_SESSION_END,  /* session; its keys are deleted one by one from then on */
    DDPI_MUTATION_DETACH,       /* key: a prefix, version, number: all keys that have it, as far as
                                   their version is no later, and queues, are gone; deletes and pops
                                   of each follow. For restoring: behind the keys, before queues */
    DDPI_MUTATION_DETACHED_END, /* number: they have followed */
    DDPI_MUTATION_REMEMBER,     /* the history of watches begins: see the mark */
    DDPI_MUTATION_PAST_SET,     /* as SET and DELETE: only what the history of watches holds; ... */
    DDPI_MUTATION_PAST_DELETE,  /* ... for restoring, in the order of versions, behind the keys */
};

struct ddpi_mutation {
    enum ddpi_mutation_kind kind;
    bool remembered; /* SET, DELETE: the history of watches holds it, too */
    struct ddpi_bytes key;
    struct ddpi_bytes value;
    uint64_t version;
    uint64_t session;
    uint64_t number;
    uint32_t lease_ms;
};

/* What is true of the contents as a whole after some mutations. */
struct ddpi_mark {
    uint64_t version;     /* of the latest change */
    bool remembers;       /* there is a history of watches, and it ... */
    uint64_t floor;       /* ... holds all that is above this version */
    uint64_t incarnation; /* for restoring: which store it is; the sink's to draw and to keep */
};

struct ddpi_sink {
    void *ctx;
    /* @mutation is valid during the call only, which must not call into the core. A failure is told
     * by the next commit. */
    void (*change)(void *ctx, const struct ddpi_mutation *mutation);
    /* All changes so far are to be durable: when it returns DDP_OK, they are. May block. After a
     * failure nothing more is asked of the sink. */
    ddp_status (*commit)(void *ctx, const struct ddpi_mark *mark, struct ddp_error *err);
};

#endif
