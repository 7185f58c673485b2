/*
 * ddprun/round.h - membership of a job whose nodes come and go.
 *
 * The nodes of a job are members. The store's server seats them in rounds: each round is a
 * generation of workers, numbered, in which every seated node has its ranks. When a member fails,
 * leaves, is lost or comes, the server orders the generation to stop, waits until nothing of it
 * runs any more on any node, and seats the members anew. This header is a member's side of it: say
 * who you are and how your workers fare (ddp_round_publish), and follow the seat that you are given
 * (the hook of that name).
 *
 * Both are states, not events: a member publishes its whole state again with each change, and is
 * always given its whole seat. So nothing is missed or done twice when a connection is lost.
 *
 * Threads, callbacks, lost connections: as in ddprun/store_uv.h, on which this is built.
 */
#ifndef DDPRUN_ROUND_H
#define DDPRUN_ROUND_H

#include <ddprun/store_uv.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_ROUND_NAME_SIZE    64  /* a node's name, with its NUL */
#define DDP_ROUND_ADDRESS_SIZE 256 /* of a host, with its NUL */
#define DDP_ROUND_TEXT_SIZE    256 /* a sentence, with its NUL */
#define DDP_ROUND_ROLE_SIZE    64  /* of a node's workers, with its NUL */

/* When a member that comes while a generation runs, and for which there is a seat, is seated. */
enum ddp_round_join {
    DDP_ROUND_JOIN_NOW = 0,        /* at once: the generation is stopped */
    DDP_ROUND_JOIN_CHECKPOINT = 1, /* when a worker says that it has saved its state */
    DDP_ROUND_JOIN_NEVER = 2       /* when the generation ends for another reason */
};

/* What all members of a job must agree on. */
struct ddp_round_terms {
    uint32_t min_nodes; /* 1 <= min_nodes <= max_nodes */
    uint32_t max_nodes;
    uint32_t max_restarts;    /* after failures of workers, of the whole job */
    uint32_t settle_ms;       /* with min_nodes there, how long to wait for more */
    uint32_t lease_ms;        /* as given to ddp_round_join(); 0: nobody can be lost silently */
    uint32_t crash_loop;      /* this many failures of one pattern end the job; 0: never */
    enum ddp_round_join join; /* */
};

/* A worker that has failed: the first of its node in that generation. */
struct ddp_round_failure {
    uint64_t generation; /* 0: none yet */
    uint32_t rank;
    int32_t exit_code; /* of the worker, 128+N for signal N; -1: it is dying, not known yet */
    uint64_t ran_ms;   /* for how long it had run */
    bool final;        /* to start again cannot mend it */
    char text[DDP_ROUND_TEXT_SIZE]; /* a sentence: who, where, how */
};

/* How a member fares. */
enum ddp_round_phase {
    DDP_ROUND_IDLE = 0,     /* nothing of @generation or one before runs here */
    DDP_ROUND_STARTING = 1, /* it has been told to run @generation, and may have started to */
    DDP_ROUND_RUNNING = 2,  /* all workers of @generation have been started */
    DDP_ROUND_DONE = 3      /* they have all ended well, and nothing of them is left */
};

/* All that a member says of itself. Texts have no control characters. */
struct ddp_round_member {
    char name[DDP_ROUND_NAME_SIZE];       /* of the node; two members may have the same */
    char address[DDP_ROUND_ADDRESS_SIZE]; /* where other nodes reach it */
    uint32_t nproc;                       /* workers that it runs */
    int32_t node_rank;                    /* that it would like to have; -1: any */
    uint16_t master_port; /* on which its first worker would listen; 0: the store is the master */
    struct ddp_round_terms terms;
    enum ddp_round_phase phase;
    uint64_t generation; /* 0: none yet */
    struct ddp_round_failure failure;
    bool leaving; /* it ends its workers, and then its session */
    bool fenced;  /* it was out of touch for so long that it has killed those of @generation */
    char role[DDP_ROUND_ROLE_SIZE]; /* that its workers share with those of other nodes */
};

enum ddp_round_order {
    DDP_ROUND_WAIT = 0, /* no seat; @text says for what */
    DDP_ROUND_RUN = 1,  /* run @generation */
    DDP_ROUND_STOP = 2, /* end what runs of @generation and be IDLE; @text says why */
    DDP_ROUND_END = 3   /* the job is over, or goes on without this member: @exit_code, @text */
};

/* What a member is to do. Beyond the texts, each order has what its comment names; RUN the rest,
 * which WAIT and STOP keep as it was. A member that has not acted on a RUN and is told STOP for
 * that generation says IDLE of it all the same. */
struct ddp_round_seat {
    enum ddp_round_order order;
    uint64_t generation;
    bool failed;        /* STOP: workers have failed or are lost, the others have nothing to save */
    bool spare;         /* WAIT: a generation runs without this member */
    int32_t exit_code;  /* END */
    uint32_t node_rank; /* 0 .. nodes - 1 */
    uint32_t nodes;
    uint32_t first_rank; /* of its workers, which have consecutive ranks */
    uint32_t world_size;
    uint32_t restarts; /* after failures, so far */
    /* Where the workers of this generation meet. Address "": at the host by which this member
     * reaches the store. */
    char master_address[DDP_ROUND_ADDRESS_SIZE];
    uint16_t master_port;
    char text[DDP_ROUND_TEXT_SIZE];
    /* Among the workers of the same role: the rank of this member's first, and how many there are;
     * 0 from a server that knows no roles. */
    uint32_t role_first_rank;
    uint32_t role_world_size;
};

typedef struct ddp_round ddp_round;

/* Who is told what; none may be NULL. Set @size to sizeof(struct ddp_round_hooks). */
struct ddp_round_hooks {
    size_t size;
    void *data;
    /* The seat has changed. An empty master_address has been filled with the host of the store's
     * endpoint. */
    void (*seat)(void *data, const struct ddp_round_seat *seat);
    /* The server has just answered what was sent at @sent_ms (milliseconds of CLOCK_MONOTONIC):
     * it keeps this member for its lease from a moment that is not before that. */
    void (*contact)(void *data, uint64_t sent_ms);
    /* The server had given this member up, does not know it, or does not take it: its seat is void,
     * and may be somebody else's. It joins anew, as a newcomer, with what is published next; where
     * it was not taken, for want of room for example, after a pause of 0.05 to 5 s. */
    void (*lost)(void *data, const char *why);
    /* The connection, as in ddprun/store_uv.h. */
    void (*state)(void *data, enum ddp_store_uv_state state, const char *why);
};

/**
 * Join @job at the store that @options name, on @loop, as a member that is lost @lease_ms
 * milliseconds after the server last heard of it, or at once when the last process that holds the
 * connection has ended.
 *
 * Returns at once; connects, and connects again, by itself. Nothing of @options or @hooks is kept.
 * On DDP_OK *@ret_round is given back with ddp_round_close(). DDP_E_INVALID: a job cannot have
 * this name, or the lease is not 1 to DDP_STORE_LEASE_MAX_MS. DDP_E_LIMIT, DDP_E_NOMEM.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_round_join(struct uv_loop_s *loop,
                                                 const struct ddp_store_options *options,
                                                 const char *job, uint32_t lease_ms,
                                                 const struct ddp_round_hooks *hooks,
                                                 ddp_round **ret_round, struct ddp_error *err);

/**
 * Say how this member fares now; the first call is what makes it a member. @member is copied; an
 * empty address in it stands for the one from which the store is reached. Its name and terms stay
 * as they were when it came.
 *
 * It is sent as soon as there is a connection; of several that wait, the last. DDP_E_INVALID: a
 * field breaks a rule of its comment. DDP_E_NOMEM.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_round_publish(ddp_round *round,
                                                    const struct ddp_round_member *member,
                                                    struct ddp_error *err);

/**
 * Say of each worker of this node what people who look at the job may want to know, a line each:
 * free text of at most 64 KiB, which lives as long as the membership. Sent and replaced like what
 * is published.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_round_describe(ddp_round *round, const char *text,
                                                     struct ddp_error *err);

/**
 * The socket of the connection, or -1 while there is none. It stays the round's; whoever gives a
 * duplicate to another process has the membership end with that one, if it ends later.
 */
DDP_API int ddp_round_socket(const ddp_round *round);

/**
 * Leave: end the membership, after what was published before. @left (NULL is allowed) is called
 * with @data from the loop, once, when the server has answered, or after @timeout_ms.
 */
DDP_API void ddp_round_leave(ddp_round *round, uint32_t timeout_ms, void (*left)(void *data),
                             void *data);

/**
 * Close the connection and free @round, also from a hook; then call @closed (may be NULL) with
 * @data from the loop. No hook is called any more. A member that has not left is lost.
 */
DDP_API void ddp_round_close(ddp_round *round, void (*closed)(void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
