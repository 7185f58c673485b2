/*
 * wait.h - how a rank waits for others: what it waits for, the sleep, and what it fails with when
 * they do not come. Anything but DDP_OK has made the communicator fail.
 */
#ifndef DDPI_WAIT_H
#define DDPI_WAIT_H

#include "communicator.h"

struct ddpi_arena_op;

/* ---- what an operation waits for, and the times that count for it ---- */

/* A rank cannot go on before @edge fulfils this; all zero: it can. */
struct ddpi_need {
    struct ddpi_edge *edge; /* NULL: an operation in an arena */
    const struct ddpi_arena_op *arena_op;
    const struct ddpi_wait *wait; /* the operation that needs it; NULL: the one of ddpi_wait() */
    size_t recv_bytes;            /* this many bytes have arrived; 0: does not matter */
    bool send;                    /* there is room to send */
    bool handover;                /* the peer has passed a descriptor (control.h) with @tag */
    uint32_t tag;
    bool taken;    /* the peer has taken what was sent: ends no sleep */
    bool optional; /* it ends the sleep, but only the deadline counts; @edge may be NULL */
};

/* The operation that waits, for deadlines and error sentences. */
struct ddpi_wait {
    const struct ddpi_call *call;
    uint64_t started_ms;
    uint64_t deadline_ms;
    uint64_t bytes_done; /* of @bytes_wanted to receive, or to send */
    uint64_t bytes_wanted;
    bool sends;         /* the bytes are to be sent */
    bool names_missing; /* the run itself fails at the deadline, and names all who are missing */
    uint32_t nap_us;    /* sleep no longer than this; 0: until something happens */
    uint64_t until_ms;  /* and not beyond this time; 0: no limit */
};

/* Whether the operation cannot go on without it. */
static inline bool ddpi_need_counts(const struct ddpi_need *need)
{
    return !need->optional && (need->recv_bytes > 0 || need->send || need->handover || need->taken);
}

/* Those that a rank sleeps for. */
struct ddpi_needs {
    const struct ddpi_need *list;
    unsigned count;
};

/* An earlier time to look again. */
static inline void ddpi_wake_by(uint64_t *wake_ms, uint64_t candidate)
{
    if (candidate < *wake_ms)
        *wake_ms = candidate;
}

/* ---- the sleep (wait.c) ---- */

/* Sleep until one of @needs may be met; meanwhile read messages of all peers. Anything but DDP_OK
 * has made the communicator fail. */
ddp_status ddpi_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_need *needs, unsigned count);

/* Tell the processor that this thread is in a busy loop. */
static inline void ddpi_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- in an arena (arena_wait.c) ---- */

/* Sleep until the operation of @need, in an arena, can go on; read messages of peers meanwhile.
 * Anything but DDP_OK has made the communicator fail. May return early. */
ddp_status ddpi_arena_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct ddpi_need *need);

/* The same, but do not sleep; *@ret_ready is whether it can go on. */
ddp_status ddpi_arena_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                            const struct ddpi_need *need, bool *ret_ready);

/* Fail if the previous rank carries its call, which should be @call, out over the ring. */
ddp_status ddpi_arena_check_ring(struct ddp_comm *comm, const struct ddpi_call *call);

/* ---- edges that do not stand yet (seek.c) ---- */

/* This rank connects, or accepts, as part of the operation. Nothing here sleeps. */

/* Accept ranks that connect, and go on with the attempt in progress. Anything but DDP_OK has made
 * the communicator fail. */
ddp_status ddpi_seek_let_in(struct ddp_comm *comm, const struct ddpi_wait *wait);

/* The edge to @peer, which is another rank; NULL: it is being made, as part of the operation that
 * @wait describes, or will be when the attempt in progress has ended. The peer accepts in every
 * operation. Does not block. */
ddp_status ddpi_seek_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                          struct ddpi_edge **ret_edge);

/* The same for both edges of the ring, and the memory that its algorithms use. */
ddp_status ddpi_seek_ring(struct ddp_comm *comm, const struct ddpi_wait *wait, bool *ret_stands);

/* What to wait for after ddpi_seek_edge() or ddpi_seek_ring() has found that one is missing: bytes
 * of this edge never come, but whatever becomes of the attempt wakes the rank. */
struct ddpi_edge *ddpi_sought_edge(const struct ddp_comm *comm);

/* ---- what peers say on their control sockets (notices.c) ---- */

/* They say that they have failed, or left, or wait as well. If a peer reports a failure, the
 * communicator fails; nothing else follows from reading. */

/* Read all notices of the peer of @edge. A peer that asks whether this rank waits is answered, and
 * the peers of @needs (NULL: none) are asked in turn. Anything but DDP_OK has made the communicator
 * fail. */
ddp_status ddpi_notices_read(struct ddp_comm *comm, struct ddpi_edge *edge,
                             const struct ddpi_needs *needs);

/* Those of all peers: after a failure, too, more notices of it may come. */
ddp_status ddpi_notices_read_all(struct ddp_comm *comm);

/* Read those that are here, and accept ranks that connect, without sleeping. */
ddp_status ddpi_notices_read_ready(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                   const struct ddpi_needs *needs);

/* Whether this rank may succeed in the operation of @wait: no rank has failed in it, as far as
 * others have said until now. */
bool ddpi_notices_may_succeed(struct ddp_comm *comm, const struct ddpi_wait *wait);

/* ---- whether an operation has to fail because of a rank that it waits for (judge.c) ---- */

/* That one is gone or dead, or has not come before the deadline. Nothing here sleeps. */

/* Fail because the peer of @edge is gone, or because of the death of another one that may have been
 * the cause. Blocks like ddpi_verdict_culprit(). */
ddp_status ddpi_judge_gone(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           struct ddpi_edge *edge);

/* Fail if an edge that @need needs has ended, or the time of @wait is up. *@wake_ms is when to look
 * again. */
ddp_status ddpi_judge_need(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct ddpi_need *need, uint64_t now, uint64_t *wake_ms);

/* Judge @need of the operation of @wait, which does not sleep: fail if the deadline has passed. If
 * bytes @move, more of a peer that is gone may be here; else fail for that, too. */
ddp_status ddpi_judge_awake(struct ddp_comm *comm, const struct ddpi_wait *wait,
                            const struct ddpi_need *need, bool move, uint64_t now);

/* The operation needs the peer of @edge: ask that one in time whether it waits as well. Fail if it
 * is gone, or if the deadline has passed. */
ddp_status ddpi_judge_peer(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           struct ddpi_edge *edge, uint64_t now);

/* A rank of this node that seems to have died, long before its sockets end (lives.h); false: there
 * is none. Costs one load. */
bool ddpi_judge_finds_death(const struct ddp_comm *comm, uint32_t *ret_rank);

/* Whether such a rank is being taken apart by the kernel: it has not called exec. */
bool ddpi_judge_is_dead(const struct ddp_comm *comm, uint32_t rank);

/* A rank of this node has died, and the kernel frees its memory before it ends its sockets, at 60
 * ms for each GiB: its edge is gone from now on. What it has sent before comes first, so call it
 * before looking for bytes. *@wake_ms is when to look again. */
ddp_status ddpi_judge_death(struct ddp_comm *comm, const struct ddpi_needs *needs, uint64_t now,
                            uint64_t *wake_ms);

/* ---- which rank to name when the deadline of an operation passes (question.c) ---- */

/* When a rank that waits begins to ask the ranks that it needs whether they wait as well. */
uint64_t ddpi_question_begins_ms(const struct ddpi_wait *wait);

/* Another rank has asked this one, which needs the peer of @edge: ask that one, unless it was asked
 * lately. */
void ddpi_question_pass_on(struct ddp_comm *comm, struct ddpi_edge *edge, uint64_t now);

/* The peer of @edge has answered. */
void ddpi_question_take_answer(struct ddp_comm *comm, struct ddpi_edge *edge);

/* The peer of @edge is needed: ask it in time, and fail if the deadline has passed. *@wake_ms is
 * when to look again. */
ddp_status ddpi_question_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms);

/* The peer of @from says, or passes on, which rank does not answer. */
void ddpi_question_take_doubt(struct ddp_comm *comm, const struct ddpi_edge *from,
                              const struct ddpi_memo *memo);

/* What was said last since the operation of @wait began: the name of a rank that does not answer,
 * and the rest of the sentence; NULL: nothing. And whether that is about @rank. */
const char *ddpi_question_doubted(const struct ddp_comm *comm, const struct ddpi_wait *wait);
bool ddpi_question_is_about(const char *doubted, uint32_t rank);

/* Bytes of @edge still move: fail if the deadline has passed for some time. */
ddp_status ddpi_question_pace(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              const struct ddpi_edge *edge);

#endif
