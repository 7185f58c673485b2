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
    struct ddpi_buf list;                     /* requests of this rank for this cycle */
    uint64_t *vector;                         /* flags and bits of this cycle */
    uint32_t *slots;                          /* of the cache: what is wanted by all */
    bool stop_sent;                           /* all ranks will know that this one stops */
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

/* ---- what may be enqueued (tensor_check.c) ---- */

/* Write what @op asks for to @request. With the lock held. DDP_E_INVALID: it asks for what there is
 * not; the error names the tensor. */
ddp_status ddpi_tensor_check(const struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                             struct ddpi_tensor_request *request, struct ddp_error *err);

/* ---- where the buffers of a tensor lie: in host memory, or on a GPU (tensor_place.c) ---- */

/* All tensors of an object that are on a GPU are on the same one, in one context. Their operations
 * and factors are enqueued on a stream of the object, so the program's streams hold up none of
 * them. */

/* Look at the buffers of @op; the first ones on a GPU decide which it is. With the lock held, in
 * the thread of the program. DDP_E_INVALID: not all are in one place. */
ddp_status ddpi_tensor_place(struct ddp_tensors *tensors, const struct ddp_tensor_op *op,
                             bool *ret_on_gpu, struct ddp_error *err);

/* The handle of the memory, and the stream for steps on it; both NULL for host memory. */
struct ddpi_gradient_memory *ddpi_tensor_memory(const struct ddp_tensors *tensors, bool on_gpu);
void *ddpi_tensor_stream(const struct ddp_tensors *tensors, bool on_gpu);

/* Wait for what the program has put on its streams before tensors @own on a GPU, so that they can
 * be read. */
ddp_status ddpi_tensors_await(const struct ddp_tensors *tensors, struct ddp_tensor *const *own,
                              size_t count, struct ddp_error *err);

/* Wait for the stream of the object, and look whether an operation of @comm there has failed. */
ddp_status ddpi_tensors_settle(const struct ddp_tensors *tensors, ddp_comm *comm, bool on_gpu,
                               struct ddp_error *err);

/* Nothing is left on the stream of the object. */
void ddpi_tensors_leave_gpu(struct ddp_tensors *tensors);

/* ---- all-gathers to which each rank gives a number of its own (uneven_gather.c) ---- */

/* Carry out @count all-gathers of one set, whose communicator is @comm, and set the results of
 * @own, this rank's tensors; NULL: it has joined, and gives nothing. *@ret_operations is how many
 * operations moved elements. Runs in the object's thread; errors are final. */
ddp_status ddpi_uneven_gather(const struct ddp_tensors *tensors, ddp_comm *comm,
                              const struct ddpi_tensor_response *const *batch,
                              struct ddp_tensor *const *own, size_t count, uint64_t *ret_operations,
                              struct ddp_error *err);

#endif
