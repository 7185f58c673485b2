/*
 * communicator.h - the state of a communicator, its life and its first failure.
 */
#ifndef DDPI_COMMUNICATOR_H
#define DDPI_COMMUNICATOR_H

#include "arena.h"
#include "config.h"
#include "edges.h"
#include "life_lock.h"
#include "lives.h"
#include "memory.h"
#include "open_group.h"
#include "recorder.h"
#include "run_queue.h"
#include "windows.h"

#include <ddprun/comm.h>
#include <stdatomic.h>

/* Numbers of the next send to a rank, and of the next receive from it. */
struct ddpi_numbers {
    uint64_t send;
    uint64_t recv;
};

enum ddpi_first { DDPI_FIRST_NONE, DDPI_FIRST_FAILURE, DDPI_FIRST_ABORT };

struct ddpi_mailbox;
struct ddpi_repeat;

enum { DDPI_DOUBT_TEXT = DDPI_PEER_NAME + 128 };

/* Which rank does not answer another one (wait.h); the last that was heard. */
struct ddpi_doubt {
    uint64_t noted_ms;
    uint32_t origin; /* the rank that has asked it */
    char text[DDPI_DOUBT_TEXT];
};

struct ddp_comm {
    const uint8_t *home; /* 1 in the process that made it, 0 in its children (private_fds.h) */
    int home_pid;
    uint32_t rank;
    uint32_t world_size;
    _Atomic uint32_t timeout_ms;        /* of each operation; any thread may set it */
    uint32_t spin_limit;                /* looks at the peers before a rank goes to sleep, */
    uint32_t yield_limit;               /* and times that it lets other processes run before that */
    bool crowded;                       /* this machine has more ranks than processors */
    _Atomic(struct ddpi_arena *) arena; /* in which they do; NULL: it is not made yet */
    struct ddpi_windows windows;        /* what ddp_alloc() has returned */
    ddp_algorithm algorithm;
    struct ddpi_selection_table table;      /* which algorithms auto chooses */
    _Atomic uint64_t told[DDPI_OPERATIONS]; /* of each operation the classes of sizes (debug.h) */
    _Atomic uint64_t seq;                   /* number of the next operation of all ranks */
    _Atomic uint64_t unfinished;            /* of the first one that has not succeeded here */
    uint64_t allocs;                        /* and of the next meeting for ddp_alloc() */
    uint64_t operations;                    /* completed */
    uint64_t bytes_sent;                    /* by them */
    uint64_t bytes_received;
    atomic_bool finalized; /* no more operations are to begin */
    atomic_bool leaves;    /* requests that receive are given up, unless their message has begun */
    struct ddpi_edges edges;
    struct ddpi_life *life;       /* NULL: no agent watches this process */
    struct ddpi_lives *lives;     /* of the ranks in the arena; NULL: not known */
    uint8_t *tokens;              /* what barriers pass round, one byte per rank */
    uint8_t *scratch;             /* for layouts; NULL until the first of them */
    struct ddpi_numbers *numbers; /* by rank; the last one is of receives from any rank */
    struct ddpi_mailbox *mailbox; /* messages (mailbox.h); NULL: there were none. The driver's */
    int device;                   /* the GPU of this rank; -1: the one that its first call uses */
    struct ddpi_memories memories;
    struct ddpi_recorder *recorder; /* NULL: operations are not noted */
    struct ddpi_run_queue runs;
    struct ddpi_open_group group; /* calls that have not begun */
    struct pollfd *polled;        /* room for what wait.c sleeps on */
    unsigned polled_room;

    /* Of each operation the last brief run (repeat.c); NULL: there was none. */
    _Atomic(struct ddpi_repeat *) repeats[DDPI_OPERATIONS];

    struct ddpi_doubt doubt;
    uint32_t *doubts; /* by the rank that had it: the number of the last one */

    /* The first cause of failure; DDP_OK: none. The thread that runs operations writes it, once,
     * and the status last: any thread that sees the status may read the cause. */
    _Atomic ddp_status failed;
    char cause[DDP_ERROR_TEXT];
    uint64_t failed_in;            /* the first operation of all ranks in which one has failed */
    _Atomic enum ddpi_first first; /* what came first: a failure that is found, or an abort */

    /* Besides the control sockets, @first and @unfinished, ddp_comm_abort() touches only these. */
    atomic_bool aborted;
    int bell;
    struct ddpi_memo abort_notice;
    ddp_status abort_status;
};

/* A communicator without edges, for memory of @types (memory.h). If the world size in @config is 0,
 * it is not known yet, and ddpi_comm_place() has to follow. ddpi_comm_destroy() leaves it and frees
 * it; no run may be left, and no thread. */
ddp_status ddpi_comm_create(const struct ddpi_config *config,
                            const struct ddpi_memory_type *const *types, struct ddp_comm **ret_comm,
                            struct ddp_error *err);
ddp_status ddpi_comm_place(struct ddp_comm *comm, uint32_t rank, uint32_t world_size,
                           struct ddp_error *err);
void ddpi_comm_destroy(struct ddp_comm *comm);

/* Whether this process has made @comm, and is not a child of that process. */
bool ddpi_comm_is_home(const struct ddp_comm *comm);

/* DDP_E_INVALID in a child of the process that made @comm. */
ddp_status ddpi_comm_check_home(const struct ddp_comm *comm, struct ddp_error *err);

/* Let @comm spin if every rank of this machine has a processor of its own, and otherwise let others
 * run before it sleeps. For shared memory only, where looking costs no system call. */
void ddpi_comm_allow_spins(struct ddp_comm *comm, int64_t local_ranks);

/* Make the communicator fail, unless it has failed before, and tell all peers but @from (may be
 * NULL). Returns the status of the first cause. */
ddp_status ddpi_comm_fail(struct ddp_comm *comm, const struct ddpi_edge *from, ddp_status status,
                          const char *format, ...) DDP_PRINTF(4, 5);

/* The same with what the peer of @from has said. It may have failed in a later operation than the
 * one that is under way here. */
ddp_status ddpi_comm_take_failure(struct ddp_comm *comm, const struct ddpi_edge *from,
                                  const struct ddpi_memo *memo);

/* Whether @call may succeed: no rank is known to have failed in it. */
bool ddpi_comm_may_succeed(const struct ddp_comm *comm, const struct ddpi_call *call);

/* This rank fails in @call. Tell the peers so, if they think that it may still succeed. */
void ddpi_comm_fail_call(struct ddp_comm *comm, const struct ddpi_call *call);

/* Fail if ddp_comm_abort() was called. */
ddp_status ddpi_comm_check_abort(struct ddp_comm *comm);

/* As ddp_comm_abort(), for a rank that destroys the communicator while it has requests: all that
 * waits for it gets DDP_E_PEER_DEAD. */
void ddpi_comm_leave(struct ddp_comm *comm);

/* Fail unless the peer of @edge, which sent @header, called what is @expected when this rank called
 * @ours. */
ddp_status ddpi_comm_check_peer_call(struct ddp_comm *comm, const struct ddpi_edge *edge,
                                     const uint8_t header[DDPI_CALL_WIRE_SIZE],
                                     const struct ddpi_call *expected,
                                     const struct ddpi_call *ours);

/* DDP_OK, or the first cause of failure in @err. For any thread: an abort counts before the thread
 * that runs operations has seen it. */
ddp_status ddpi_comm_report(const struct ddp_comm *comm, struct ddp_error *err);

/* A task has ended with @status: count it, and its bytes; and what was counted so far. Under the
 * lock of the queue. */
void ddpi_comm_count(struct ddp_comm *comm, const struct ddpi_task *task, ddp_status status);
void ddpi_comm_read_counts(const struct ddp_comm *comm, struct ddp_comm_stats *stats);

/* The number of @call, which is the next one of its kind: operations of all ranks are counted
 * together, messages by peer and direction. Under the lock of the queue. And the number that the
 * next operation of all ranks will have. */
uint64_t ddpi_comm_take_number(struct ddp_comm *comm, const struct ddpi_call *call);
uint64_t ddpi_comm_next_number(const struct ddp_comm *comm);

#endif
