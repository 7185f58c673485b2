/*
 * wait.h - waiting for other ranks, and what a rank fails with when one does not come.
 */
#ifndef DDPI_WAIT_H
#define DDPI_WAIT_H

#include "communicator.h"

struct ddpi_arena_op;

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

/* Sleep until one of @needs may be met; meanwhile read messages of all peers. Anything but DDP_OK
 * has made the communicator fail. */
ddp_status ddpi_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_need *needs, unsigned count);

/* Read messages of peers, and accept ranks that connect, without sleeping. */
ddp_status ddpi_wait_poll(struct ddp_comm *comm, const struct ddpi_wait *wait);

/* Whether this rank may succeed in the operation of @wait: no rank has failed in it, as far as
 * others have said until now. */
bool ddpi_wait_may_succeed(struct ddp_comm *comm, const struct ddpi_wait *wait);

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

/* The same, but wait until there is an edge. */
ddp_status ddpi_wait_edge(struct ddp_comm *comm, const struct ddpi_wait *wait, uint32_t peer,
                          struct ddpi_edge **ret_edge);

/* Judge @need of the operation of @wait, which does not sleep: fail if the deadline has passed. If
 * bytes @move, more of a peer that is gone may be here; else fail for that, too. */
ddp_status ddpi_wait_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct ddpi_need *need, bool move, uint64_t now);

/* The operation needs the peer of @edge: ask that one in time whether it waits as well. Fail if it
 * is gone, or if the deadline has passed. */
ddp_status ddpi_wait_question(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              struct ddpi_edge *edge, uint64_t now);

/* Fail because the peer of @edge is gone, or because of the death of another one that may have been
 * the cause. Blocks like ddpi_verdict_culprit(). */
ddp_status ddpi_wait_gone(struct ddp_comm *comm, const struct ddpi_wait *wait,
                          struct ddpi_edge *edge);

/* Tell the processor that this thread is in a busy loop. */
static inline void ddpi_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
