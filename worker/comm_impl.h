/*
 * comm_impl.h - the communicator inside the library: what comm.c, bootstrap.c, job.c and wait.c
 * share.
 */
#ifndef DDPI_COMM_IMPL_H
#define DDPI_COMM_IMPL_H

#include "call.h"
#include "config.h"
#include "life.h"
#include "ring.h"
#include "transport.h"

#include <ddprun/comm.h>
#include <stdatomic.h>

enum { DDPI_NEXT, DDPI_PREV, DDPI_RING_EDGES };

struct ddp_comm {
    uint32_t rank;
    uint32_t world_size;
    uint32_t timeout_ms;
    uint32_t spin_limit; /* looks at the edges before a rank goes to sleep */
    uint64_t seq;        /* number of the last operation that was begun */
    uint64_t operations; /* that were completed */
    uint64_t bytes_sent; /* by them */
    uint64_t bytes_received;
    struct ddpi_edge *edges[DDPI_RING_EDGES]; /* NULL in a world of one */
    struct ddpi_life *life;                   /* NULL: there is no agent that would want it */
    uint8_t *tokens;                          /* what barriers pass round, one byte per rank */

    /* The first cause; DDP_OK while all is well. */
    ddp_status failed;
    char cause[DDP_ERROR_TEXT];

    /* All that ddp_comm_abort() touches, besides the control sockets. */
    atomic_bool aborted;
    int bell;
    struct ddpi_memo abort_notice;
};

/* ---- wait.c ---- */

/* What an edge must become before this rank can go on. */
struct ddpi_need {
    size_t recv_bytes; /* this many bytes have arrived; 0 = do not care */
    bool send;         /* there is room to send */
};

/* The operation that waits, for deadlines and sentences. */
struct ddpi_wait {
    const struct ddpi_call *call;
    uint64_t started_ms;
    uint64_t deadline_ms;
    uint64_t bytes_done; /* of @bytes_wanted to be received */
    uint64_t bytes_wanted;
};

/* Sleep until one of @needs (indexed like comm->edges) may be met, and hear what peers have to
 * say. Anything but DDP_OK has made the communicator fail. */
ddp_status ddpi_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_need needs[DDPI_RING_EDGES]);

/* The time is up and more: fail, whoever is to blame. */
ddp_status ddpi_wait_overdue(struct ddp_comm *comm, const struct ddpi_wait *wait);

/* Make the communicator fail, unless it has already, and tell all peers but @from (may be NULL).
 * Returns the status of the first cause. */
ddp_status ddpi_comm_fail(struct ddp_comm *comm, const struct ddpi_edge *from, ddp_status status,
                          const char *format, ...) DDP_PRINTF(4, 5);

/* Fail if ddp_comm_abort() was called. */
ddp_status ddpi_comm_check_abort(struct ddp_comm *comm);

/* ---- job.c ---- */

/* One operation: a schedule over buffers. */
struct ddpi_job {
    struct ddpi_call call;
    struct ddpi_ring ring;
    const uint8_t *send; /* this rank's contribution */
    uint8_t *recv;       /* the result; may be @send */
    size_t count;        /* elements */
    size_t element_size;
    uint64_t timeout_ms;
    uint64_t bytes_sent;     /* counted while it runs */
    uint64_t bytes_received; /* counted while it runs */
};

/* Runs @job to its end. Anything but DDP_OK has made the communicator fail. */
ddp_status ddpi_job_run(struct ddp_comm *comm, struct ddpi_job *job);

/* ---- comm.c ---- */

/* The round of tokens that ends ddp_comm_init(): returns when all ranks are in it. */
ddp_status ddpi_comm_join(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err);

#endif
