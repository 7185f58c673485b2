/*
 * tensors.h - the object of <ddprun/ddp_tensors.h>: what its thread and its callers share.
 *
 * Everything below `lock` is used with it held; what is marked "thread" is the thread's alone, and
 * used by others only before it starts and after it has ended.
 */
#ifndef DDPI_TENSORS_H
#define DDPI_TENSORS_H

#include "negotiation.h"
#include "response_cache.h"
#include "timeline.h"

#include <ddprun/ddp_tensors.h>
#include <pthread.h>
#include <unistd.h>

enum { DDPI_TENSORS_IDLE_MS = 50 }; /* most time between two cycles */

/* A tensor of this rank. The thread reads what enqueue has set without the lock. */
struct ddp_tensor {
    struct ddpi_list link; /* in `pending`; in `handles` when it is done */
    struct ddp_tensors *owner;
    struct ddpi_tensor_request request;
    const void *send;
    void *recv;
    void *stream;   /* the program's, if the buffers are on a GPU */
    bool on_gpu;    /* as in the request, but also of an uneven all_gather */
    uint8_t *has;   /* of a process set: for each rank; owned */
    size_t count;   /* of an uneven all_gather: what this rank gives, and when it is done */
    void *gathered; /* what all ranks have given, */
    size_t *counts; /* and how many elements each; both owned */
    uint64_t enqueued_us;
    bool announced; /* thread: it is in a list that all ranks have */
    bool done;
    bool released;   /* nobody has the handle any more */
    uint32_t number; /* of a join the last rank, of a process set its number */
    ddp_status status;
    struct ddp_error reason;
};

struct ddp_tensors {
    struct ddp_tensors_options options; /* without zeros */
    uint32_t rank;
    uint32_t world_size;
    pid_t owner;    /* the process that has the thread */
    ddp_comm *comm; /* of all ranks: comms[0], where callers can read it */
    pthread_t thread;

    /* Set with the lock held before the first tensor on a GPU is enqueued, and constant then. */
    struct ddpi_gradient_memory *memory;
    void *stream;

    /* thread */
    ddp_comm **comms; /* for each set; NULL: this rank is not in it */
    struct ddpi_negotiation negotiation;
    struct ddpi_response_cache cache;
    struct ddpi_timeline timeline;
    struct ddpi_buf list; /* requests of this rank for this cycle */
    uint64_t *vector;     /* flags and bits of this cycle */
    uint32_t *slots;      /* of the cache: what is wanted by all */
    bool stop_sent;       /* all ranks will know that this one stops */
    uint64_t next_stall_check_ms;
    const struct ddpi_wanted_tensor *stalled; /* it has waited for too long */

    pthread_mutex_t lock;
    pthread_cond_t wake; /* something was enqueued, or the object is to end */
    pthread_cond_t done; /* a tensor is */
    struct ddpi_list pending;
    struct ddpi_list handles;     /* that are done and not released */
    struct ddpi_name_table names; /* of `pending` */
    uint32_t nsets;               /* as in `negotiation` */
    bool closing;
    bool joining;
    bool quiet; /* no rank wanted anything in the last cycle */
    bool woken; /* something was enqueued since the last cycle */
    bool failed;
    struct ddp_error failure;
    struct ddp_tensors_stats stats;
};

/* The loop of the thread; @arg is the object. */
void *ddpi_tensors_loop(void *arg);

/* Carry out what all ranks want: @count responses that share an operation. Errors are final. */
ddp_status ddpi_tensors_carry_out(struct ddp_tensors *tensors,
                                  const struct ddpi_tensor_response *const *batch, size_t count,
                                  struct ddp_error *err);

/* End a tensor of this rank, which its waiters learn. */
void ddpi_tensor_finish(struct ddp_tensor *tensor, ddp_status status,
                        const struct ddp_error *reason);

/* Free a tensor that is in no list. */
void ddpi_tensor_free(struct ddp_tensor *tensor);

#endif
