/*
 * communicator.h - the communicator inside the library: what comm.c, bootstrap.c, engine.c and
 * wait.c share.
 */
#ifndef DDPI_COMMUNICATOR_H
#define DDPI_COMMUNICATOR_H

#include "call_header.h"
#include "chunk_layout.h"
#include "config.h"
#include "driver.h"
#include "edges.h"
#include "life_lock.h"
#include "ring.h"

#include <ddprun/comm.h>
#include <stdatomic.h>

/* Of the next send to a rank, and of the next receive from it. */
struct ddpi_numbers {
    uint64_t send;
    uint64_t recv;
};

struct ddp_comm {
    const uint8_t *home; /* 1 in the process that made it, 0 in its children (private_fds.h) */
    int home_pid;
    uint32_t rank;
    uint32_t world_size;
    uint32_t timeout_ms;
    uint32_t spin_limit; /* looks at the edges before a rank goes to sleep */
    ddp_algorithm algorithm;
    uint64_t seq;        /* number of the last operation that was begun */
    uint64_t operations; /* that were completed */
    uint64_t bytes_sent; /* by them */
    uint64_t bytes_received;
    struct ddpi_edges edges;
    struct ddpi_life *life;       /* NULL: there is no agent that would want it */
    uint8_t *tokens;              /* what barriers pass round, one byte per rank */
    uint8_t *scratch;             /* for layouts; NULL in a world of one */
    struct ddpi_numbers *numbers; /* by rank */
    int device;                   /* the one of this rank; -1: whichever its first call finds */
    struct ddpi_device *gpu;      /* NULL while there is no driver in the process */
    struct ddpi_cuda_watch cuda_watch;

    /* The first cause; DDP_OK while all is well. */
    ddp_status failed;
    char cause[DDP_ERROR_TEXT];

    /* All that ddp_comm_abort() touches, besides the control sockets. */
    atomic_bool aborted;
    int bell;
    struct ddpi_memo abort_notice;
};

/* ---- wait.c ---- */

enum { DDPI_NEEDS_MAX = 4 };

/* What @edge must become before this rank can go on; all zero: nothing. */
struct ddpi_need {
    struct ddpi_edge *edge;
    size_t recv_bytes; /* this many bytes have arrived; 0 = do not care */
    bool send;         /* there is room to send */
    bool handover;     /* its peer has handed a descriptor over (control.h) */
};

/* The operation that waits, for deadlines and sentences. */
struct ddpi_wait {
    const struct ddpi_call *call;
    uint64_t started_ms;
    uint64_t deadline_ms;
    uint64_t bytes_done; /* of @bytes_wanted to be received, or to be sent */
    uint64_t bytes_wanted;
    bool sends;      /* they are to be sent */
    uint32_t nap_us; /* sleep no longer than this; 0: until something happens */
};

/* Sleep until one of @count <= DDPI_NEEDS_MAX @needs may be met, and hear what peers have to say,
 * on all edges. Anything but DDP_OK has made the communicator fail. */
ddp_status ddpi_wait(struct ddp_comm *comm, const struct ddpi_wait *wait,
                     const struct ddpi_need *needs, unsigned count);

/* Hear what peers have to say, and let in who has come, without sleeping. */
ddp_status ddpi_wait_hear(struct ddp_comm *comm, const struct ddpi_wait *wait);

/* How long one who is asked after the deadline of @wait may be silent before it counts as stuck. */
uint64_t ddpi_wait_answer_ms(const struct ddpi_wait *wait);

/* The time is up and more: fail, as the peer of @edge is too slow. */
ddp_status ddpi_wait_overdue(struct ddp_comm *comm, const struct ddpi_wait *wait,
                             const struct ddpi_edge *edge);

/* Fail, as the peer of @edge is gone: with that, or with the death of another one that may have
 * been the cause. Blocks for a second in all where connections between machines have ended and a
 * peer lives. */
ddp_status ddpi_wait_gone(struct ddp_comm *comm, const struct ddpi_wait *wait,
                          struct ddpi_edge *edge);

/* What is to be said of the peer of @edge, whose connection has ended: "has died", and more. Blocks
 * like ddpi_wait_gone(). */
struct ddpi_verdict {
    ddp_status status;
    const char *words;
};
struct ddpi_verdict ddpi_wait_verdict(struct ddpi_edge *edge);

/* What @status, as a peer sends it, makes this rank fail with. */
ddp_status ddpi_wait_status(int32_t status);

/* Tell the processor that this thread only looks again and again. */
static inline void ddpi_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Make the communicator fail, unless it has already, and tell all peers but @from (may be NULL).
 * Returns the status of the first cause. */
ddp_status ddpi_comm_fail(struct ddp_comm *comm, const struct ddpi_edge *from, ddp_status status,
                          const char *format, ...) DDP_PRINTF(4, 5);

/* Fail if ddp_comm_abort() was called. */
ddp_status ddpi_comm_check_abort(struct ddp_comm *comm);

/* ---- engine.c ---- */

/* One operation: a schedule over buffers. The caller fills call, but for its number and algorithm,
 * and the buffers; what follows from them is found out before it is run. */
struct ddpi_job {
    struct ddpi_call call;
    const uint8_t *send; /* this rank's contribution */
    uint8_t *recv;       /* the result */
    struct ddpi_ring ring;
    size_t count; /* elements of @send or @recv, whichever is longer */
    size_t element_size;
    bool gathered; /* see ddpi_layout */
    uint64_t timeout_ms;
    uint64_t bytes_sent;     /* counted while it runs */
    uint64_t bytes_received; /* counted while it runs */
};

/* Runs @job to its end. Anything but DDP_OK has made the communicator fail. */
ddp_status ddpi_job_run(struct ddp_comm *comm, struct ddpi_job *job);

/* ---- comm.c ---- */

/* A communicator without edges. */
ddp_status ddpi_comm_create(const struct ddpi_config *config, struct ddp_comm **ret_comm,
                            struct ddp_error *err);

/* DDP_E_INVALID in a child of the process that made @comm. */
ddp_status ddpi_comm_check_home(const struct ddp_comm *comm, struct ddp_error *err);

/* Whatever can be wrong with the numbers of @call, or with who calls. */
ddp_status ddpi_comm_check_call(const struct ddp_comm *comm, const struct ddpi_call *call,
                                struct ddp_error *err);

/* The round that ends ddp_comm_init(): returns when all ranks are in it, with everybody's card. */
ddp_status ddpi_comm_join(struct ddp_comm *comm, uint64_t timeout_ms, struct ddp_error *err);

#endif
