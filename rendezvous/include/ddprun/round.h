/*
 * ddprun/round.h - membership of a job whose nodes come and go.
 *
 * The nodes of a job are its members. The server of the store assigns seats to them in rounds: each
 * round has a numbered generation of workers, in which every node with a seat has its ranks. When a
 * member fails, leaves, joins or is lost, the server orders the generation to stop, waits until
 * none of its workers runs on any node, and assigns seats anew. This header is a member's side:
 * publish who you are and the state of your workers (ddp_round_publish()), and do what your seat
 * says (the hook seat).
 *
 * Both are states, not events: a member publishes its whole state with each change, and always gets
 * its whole seat. So nothing is missed or done twice if a connection is lost.
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
#define DDP_ROUND_COMMAND_SIZE 160 /* that a node's workers run, with its NUL */

/* When a member that joins while a generation runs gets a seat, if there is one. */
enum ddp_round_join {
    DDP_ROUND_JOIN_NOW = 0,        /* at once: the generation is stopped */
    DDP_ROUND_JOIN_CHECKPOINT = 1, /* when a worker reports that it has saved its state */
    DDP_ROUND_JOIN_NEVER = 2       /* when the generation ends for another reason */
};

/* What all members of a job must agree on. */
struct ddp_round_terms {
    uint32_t min_nodes; /* 1 <= min_nodes <= max_nodes */
    uint32_t max_nodes;
    uint32_t max_restarts; /* of the whole job, after failures of workers */
    uint32_t settle_ms;    /* how long to wait for more nodes once min_nodes have joined */
    uint32_t lease_ms;     /* as passed to ddp_round_join(); 0: members are never lost by silence */
    /* End the job after this many failures of one pattern, if that has lasted; before, restarts
     * come after pauses that grow; 0: neither. */
    uint32_t crash_loop;
    enum ddp_round_join join;
    /* Leave a node out that was the first cause of this many failures in a row; 0: never. */
    uint32_t quarantine;
    bool worker_ports; /* each node keeps a free port for each of its workers */
};

/* The first worker of a node that failed in a generation. */
struct ddp_round_failure {
    uint64_t generation; /* 0: none yet */
    uint32_t rank;
    int32_t exit_code; /* of the worker, 128+N for signal N; -1: not known yet, it is dying */
    uint64_t ran_ms;   /* how long it ran */
    bool final;        /* a restart cannot help */
    char text[DDP_ROUND_TEXT_SIZE]; /* a sentence: which worker, where, how */
    bool broken_program; /* its text cannot run, or not without a module that is not there */
};

/* The state of a member's workers. */
enum ddp_round_phase {
    DDP_ROUND_IDLE = 0,     /* no worker of @generation or an earlier one runs here */
    DDP_ROUND_STARTING = 1, /* it was told to run @generation; some workers may run */
    DDP_ROUND_RUNNING = 2,  /* all workers of @generation have been started */
    DDP_ROUND_DONE = 3      /* all have ended successfully, and no process of theirs is left */
};

/* All that a member publishes. Texts must not have control characters. */
struct ddp_round_member {
    char name[DDP_ROUND_NAME_SIZE];       /* of the node; two members may have the same */
    char address[DDP_ROUND_ADDRESS_SIZE]; /* where other nodes reach it */
    uint32_t nproc;                       /* number of its workers */
    int32_t node_rank;                    /* the one that it wants; -1: any */
    uint16_t master_port; /* for its first worker to listen on; 0: the store is the master */
    struct ddp_round_terms terms;
    enum ddp_round_phase phase;
    uint64_t generation; /* 0: none yet */
    struct ddp_round_failure failure;
    bool leaving; /* it ends its workers, then its session */
    bool fenced;  /* it lost contact with the store for too long, and has killed its workers */
    char role[DDP_ROUND_ROLE_SIZE]; /* of its workers; other nodes may have the same */
    /* Why the node is not fit to run workers: it gets no seat. "": it is fit. */
    char sick[DDP_ROUND_TEXT_SIZE];
    bool checking;   /* it finds out whether it is fit: nothing begins before it knows */
    uint32_t checks; /* how often it has found out, since its agent started */
    /* The program of its workers, and the arguments. Nodes of one role that run different ones are
     * told so by the text of RUN. "": it is not compared. */
    char command[DDP_ROUND_COMMAND_SIZE];
    /* A free port of the node, on which its first worker may listen; 0: none. With
     * terms.worker_ports those that follow it are free, too: one for each worker. */
    uint16_t first_port;
};

enum ddp_round_order {
    DDP_ROUND_WAIT = 0, /* it has no seat yet; @text says what it waits for */
    DDP_ROUND_RUN = 1,  /* run @generation; @text names a node with another command, or is "" */
    DDP_ROUND_STOP = 2, /* end the workers of @generation, then publish IDLE; @text says why */
    DDP_ROUND_END = 3   /* the job is over, or goes on without this member: @exit_code, @text */
};

/* What a member must do. Fields whose comment names an order belong to that order; the others to
 * RUN, and keep their values during WAIT and STOP. A member that gets STOP for a generation that it
 * has not started publishes IDLE of it all the same. */
struct ddp_round_seat {
    enum ddp_round_order order;
    uint64_t generation;
    bool failed;        /* STOP: workers failed or are lost, so the others have nothing to save */
    bool spare;         /* WAIT: a generation runs without this member; END: the job goes on */
    int32_t exit_code;  /* END */
    uint32_t node_rank; /* 0 .. nodes - 1 */
    uint32_t nodes;
    uint32_t first_rank; /* of its workers, which have consecutive ranks */
    uint32_t world_size;
    uint32_t restarts; /* of the job, after failures, so far */
    /* Where the workers of this generation connect to each other. Address "": the host of the
     * store's endpoint. */
    char master_address[DDP_ROUND_ADDRESS_SIZE];
    uint16_t master_port;
    char text[DDP_ROUND_TEXT_SIZE];
    /* Among the workers of the same role: the rank of this member's first worker, and the number of
     * workers; 0 from a server that does not know roles. */
    uint32_t role_first_rank;
    uint32_t role_world_size;
    uint32_t most_workers; /* of one member; 0 from a server that does not tell */
    bool left_out;         /* WAIT: it gets no seat until a user admits it; @text says why */
    bool pausing; /* WAIT: the next generation begins after a pause, which @text tells of */
    /* WAIT: a user has admitted the node: if its own number of checks is lower, it must find out
     * again whether it is fit. */
    uint32_t check;
    char notice[DDP_ROUND_TEXT_SIZE]; /* WAIT: what may keep others away; "": nothing known */
    /* Where the first worker may listen for the others: a free port of its node, if that has said
     * one. Port 0: it has not, or the server does not tell. */
    char coordinator_address[DDP_ROUND_ADDRESS_SIZE];
    uint16_t coordinator_port;
};

typedef struct ddp_round ddp_round;

/* Callbacks of a member; none may be NULL. Set @size to sizeof(struct ddp_round_hooks). */
struct ddp_round_hooks {
    size_t size;
    void *data;
    /* The seat has changed. An empty master_address has been filled with the host of the store's
     * endpoint. */
    void (*seat)(void *data, const struct ddp_round_seat *seat);
    /* The server has renewed this member's lease: it lasts at least until one lease after @sent_ms
     * (milliseconds of CLOCK_MONOTONIC). */
    void (*contact)(void *data, uint64_t sent_ms);
    /* The server has declared this member lost, does not know it, or does not accept it: its seat
     * is void, and another member may have it. The next ddp_round_publish() joins anew, as a new
     * member; if the server did not accept it, for lack of room for example, after 0.05 to 5 s. */
    void (*lost)(void *data, const char *why);
    /* The state of the connection, as in ddprun/store_uv.h. */
    void (*state)(void *data, enum ddp_store_uv_state state, const char *why);
};

/**
 * Join @job at the store of @options, on @loop. The server declares this member lost @lease_ms
 * milliseconds after it last heard from it, or at once when the last process that holds the
 * connection has ended. Where the connection speaks TLS (DDP_STORE_TLS), only the lease counts, as
 * others on the network can forge the end of a connection.
 *
 * Returns at once; connects and reconnects by itself. Neither @options nor @hooks is kept.
 * On DDP_OK *@ret_round is a member; close it with ddp_round_close().
 * DDP_E_INVALID: the name of the job, an option or a hook breaks a rule, or the lease is not 1 to
 * DDP_STORE_LEASE_MAX_MS. DDP_E_DENIED: the token file cannot be used. DDP_E_NOMEM: out of memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_round_join(struct uv_loop_s *loop,
                                                 const struct ddp_store_options *options,
                                                 const char *job, uint32_t lease_ms,
                                                 const struct ddp_round_hooks *hooks,
                                                 ddp_round **ret_round, struct ddp_error *err);

/**
 * Publish the state of this member. The first call makes it a member; its name and terms cannot
 * change afterwards. @member is copied. An empty address means the local address of the connection
 * to the store.
 *
 * Does not block. The state is sent as soon as there is a connection; if several wait, the last one
 * is. DDP_E_INVALID: a field breaks the rule in its comment. DDP_E_CLOSED: the member has left.
 * DDP_E_NOMEM: out of memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_round_publish(ddp_round *round,
                                                    const struct ddp_round_member *member,
                                                    struct ddp_error *err);

/**
 * Publish a description of this node's workers for users who inspect the job, one line for each: at
 * most 64 KiB of text, which lasts as long as the membership. It is sent and replaced like the
 * state of the member. Errors are those of ddp_round_publish().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_round_describe(ddp_round *round, const char *text,
                                                     struct ddp_error *err);

/**
 * The socket of the connection, or -1 while there is none. It belongs to @round. If other processes
 * have duplicates of it, the membership ends when the last of them has ended; see ddp_round_join()
 * about TLS.
 */
DDP_API int ddp_round_socket(const ddp_round *round);

/**
 * Leave the job: end the membership after the last published state has been sent. @left (may be
 * NULL) is called once, from the loop, with @data: when the server has replied, or after
 * @timeout_ms.
 */
DDP_API void ddp_round_leave(ddp_round *round, uint32_t timeout_ms, void (*left)(void *data),
                             void *data);

/**
 * Close the connection and free @round, then call @closed (may be NULL) with @data from the loop.
 * May be called from a hook. No hook is called afterwards. A member that has not left is lost.
 */
DDP_API void ddp_round_close(ddp_round *round, void (*closed)(void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
