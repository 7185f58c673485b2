/*
 * need.h - what an operation waits for, and the times that count for it.
 */
#ifndef DDPI_NEED_H
#define DDPI_NEED_H

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

#endif
