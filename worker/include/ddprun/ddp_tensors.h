/*
 * ddprun/ddp_tensors.h - named tensors that ranks hand over in any order: what Horovod does. Part
 * of <ddprun/ddp.h>.
 *
 *     ddp_tensors_create(comm, &options, &tensors, &err);
 *     for (each step) {
 *         ... backward pass: as gradients come, ddp_tensors_enqueue(tensors, &op, &handle, &err)
 *         ... for each handle: ddp_tensors_wait(handle, 0, NULL, &err), ddp_tensors_release(handle)
 *     }
 *     ddp_tensors_destroy(tensors);
 *
 * A thread runs cycles. In each, ranks tell each other which tensors they want; those that all
 * ranks of a set want are carried out, on all ranks in the same order. All-reduces of one type,
 * reduction and scale that are ready in one cycle become one operation, of at most @fusion_bytes,
 * by ddp_all_reduce_many(): nothing is copied into a fusion buffer. What ranks have agreed on is
 * remembered: a step that repeats an earlier one exchanges one bit for each tensor, by one small
 * all-reduce in each cycle. (Horovod decides at rank 0. Here ranks exchange their lists by an
 * all-gather, and all come to the same decisions.)
 *
 * Cycles begin every @cycle_ms while a tensor waits on some rank. While none does, the time between
 * them doubles up to 50 ms, so an idle object takes part in 20 small all-reduces a second, and the
 * first tensor after a pause waits up to 50 ms for ranks that have not enqueued theirs.
 *
 * Buffers are host memory or memory of a GPU, the same for both buffers of a tensor and on all
 * ranks; the address tells. They belong to the object from the call until the tensor is done, and
 * buffers of tensors that are under way at the same time do not overlap.
 *
 * Memory of a GPU: all such tensors of an object are on one GPU, that of the first one. A tensor is
 * carried out when what the program had put on @stream is done. The object has a stream of its own,
 * and nothing on a stream of the program waits for it: a tensor is done when ddp_tensors_wait() or
 * ddp_tensors_test() says so, and all streams can use it then. Put nothing on @stream that waits
 * for other ranks before that, such as operations of another communicator. To let a tensor begin
 * before later work of a stream, pass another stream that waits for an event. Factors of integers
 * and of float8 are applied in host memory, and uneven all-gathers go through it.
 *
 * Threads: all functions may be called from any thread, also from several at once, but for
 * ddp_tensors_create() and ddp_tensors_destroy(). The object has a communicator of its own, made of
 * the caller's: the caller's may be used at the same time, and be destroyed first. A child of
 * fork() can only destroy.
 *
 * Errors: DDP_E_INVALID has no effect. An error of one tensor, DDP_E_MISMATCH, is that of its
 * handle on all ranks; the object stays usable. Other errors are those of the communicator
 * (<ddprun/comm.h>), or DDP_E_CLOSED, DDP_E_NOMEM and DDP_E_PROTOCOL; they are final: every handle
 * that is not done, and every later call, gets the same sentence, and buffers of tensors that were
 * under way are undefined.
 */
#ifndef DDPRUN_DDP_TENSORS_H
#define DDPRUN_DDP_TENSORS_H

#include <ddprun/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_tensors ddp_tensors;
typedef struct ddp_tensor ddp_tensor; /* a tensor that was enqueued: a handle */

/* A tensor that some ranks have not enqueued for long. */
struct ddp_stalled_tensor {
    size_t size;
    const char *name;
    uint32_t set;
    uint64_t waited_ms;
    const char *missing; /* ranks, such as "1, 3"; six at most, then how many more */
};

/* Set @size to sizeof(struct ddp_tensors_options); members that are zero have the values in
 * brackets. All ranks pass the same @fusion_bytes, @cache_capacity, @no_fusion and @no_cache. */
struct ddp_tensors_options {
    size_t size;
    uint32_t cycle_ms;       /* [1] */
    uint32_t cache_capacity; /* names that are remembered, at most 65,536 [1024] */
    size_t fusion_bytes;     /* of tensors that are reduced together, never above [128 MiB] */
    uint32_t no_fusion;      /* 1: only tensors of a group are reduced together */
    uint32_t no_cache;       /* 1: every tensor is negotiated */
    /* A tensor that waits so long for other ranks is reported once, to @on_stall, and with
     * DDP_DEBUG=INFO on standard error [60,000]. */
    uint32_t stall_warning_ms;
    /* So long, and the object fails on all ranks with DDP_E_TIMEOUT; at least @stall_warning_ms
     * [never]. */
    uint32_t stall_shutdown_ms;
    /* Called by the object's thread, on each rank that sets it; it must not block, so it calls
     * neither ddp_tensors_wait() nor ddp_tensors_destroy(). The struct lasts as long as the
     * call. */
    void (*on_stall)(void *ctx, const struct ddp_stalled_tensor *stalled);
    void *ctx;
    /* A Chrome trace of this rank's tensors is written to this file, a row for each name: the time
     * from ddp_tensors_enqueue() until all ranks wanted it, and that of the operation. NULL: on
     * rank 0 the file that DDP_TIMELINE names, which ddprun sets with --timeline-filename, if any.
     * It is complete when ddp_tensors_destroy() has returned. */
    const char *timeline;
};

/*
 * What to do with a tensor. Set @size to sizeof(struct ddp_tensor_op); all ranks of the set pass
 * the same values, but for the buffers, and @count with @uneven.
 */
struct ddp_tensor_op {
    size_t size;
    const char *name; /* 1 to 255 bytes without control characters; copied */
    ddp_kind kind;    /* DDP_KIND_ALL_REDUCE, ALL_GATHER, BROADCAST or ALL_TO_ALL */
    const void *send; /* in place as the function of that kind allows it; not of a broadcast */
    void *recv;
    size_t count; /* elements, as of the function of that kind */
    ddp_dtype dtype;
    ddp_reduce_op op; /* of all_reduce: DDP_SUM, AVERAGE, MIN, MAX or PRODUCT */
    /* Of all_reduce: elements are multiplied by the first before, by the second after the
     * reduction; 0 is 1. An average is a sum that is multiplied by postscale / ranks of the set.
     * Floats are multiplied in their own type, those of 16 bits and less in float32, integers in
     * float64, then truncated. */
    double prescale;
    double postscale;
    uint32_t root; /* of broadcast: a rank of the caller's communicator */
    uint32_t set;  /* of ddp_tensors_add_set(); 0: all ranks */
    /* Of all_gather: 1: @count, which may be 0, is this rank's own, and @recv is NULL: the result
     * is memory of the object, see ddp_tensors_gathered(). */
    uint32_t uneven;
    /* Of memory of a GPU: a CUstream or cudaStream_t behind whose work the buffers are ready; NULL
     * is the legacy default stream. It lasts until the tensor is done. */
    void *stream;
};

struct ddp_tensors_stats {
    size_t size;           /* set to sizeof(struct ddp_tensors_stats) before the call */
    uint64_t cycles;       /* small all-reduces */
    uint64_t negotiations; /* cycles in which a rank had a tensor that was not remembered */
    uint64_t tensors;      /* that were carried out */
    uint64_t remembered;   /* of these, by one bit of each rank */
    uint64_t operations;   /* that carried them out; fewer with fusion */
};

/**
 * Make an object on the ranks of @comm, and start its thread. All ranks call it, as a collective.
 *
 * Blocks until all have. @options may be NULL, and is not kept. On DDP_OK, *@ret_tensors is freed
 * with ddp_tensors_destroy().
 *
 * DDP_E_INVALID: a member has a value that it cannot have, or the timeline cannot be opened (with
 * errno's text); this rank has sent nothing. DDP_E_MISMATCH: ranks have different options; the
 * sentence has both values, and @comm stays usable. DDP_E_SYSTEM: there is no thread to be had; the
 * other ranks learn of it as of a death. Others as ddp_comm_split().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_create(ddp_comm *comm,
                                                     const struct ddp_tensors_options *options,
                                                     ddp_tensors **ret_tensors,
                                                     struct ddp_error *err);

/**
 * Hand over a tensor; returns at once. *@ret_tensor is a handle, for ddp_tensors_release().
 *
 * DDP_E_INVALID: @op has a value that it cannot have, a tensor of this name and set is still under
 * way, or this rank has joined, or is not in the set; of memory of a GPU also as for operations
 * (<ddprun/comm.h>), or it is another GPU than before. DDP_E_NOMEM: nothing was enqueued. The first
 * tensor on a GPU loads kernels, for which the driver may wait for all its work; DDP_E_CUDA: it
 * refused that; DDP_E_UNSUPPORTED: the library was built without kernels.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_enqueue(ddp_tensors *tensors,
                                                      const struct ddp_tensor_op *op,
                                                      ddp_tensor **ret_tensor,
                                                      struct ddp_error *err);

/**
 * Hand over @count tensors of one set that are carried out together, or fail together: none before
 * all ranks want all of them. All ranks pass them in the same order. All-reduces of one type,
 * reduction and scale are one operation, even above @fusion_bytes. Errors as above; then none is
 * enqueued. @ret_tensors has room for @count handles.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_enqueue_group(ddp_tensors *tensors,
                                                            const struct ddp_tensor_op *ops,
                                                            uint32_t count,
                                                            ddp_tensor **ret_tensors,
                                                            struct ddp_error *err);

/**
 * Whether the tensor is done: sets *@ret_done to 1 or 0, and returns its result then, else DDP_OK.
 * Does not block.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_test(ddp_tensor *tensor, int *ret_done,
                                                   struct ddp_error *err);

/**
 * Wait until the tensor is done, at most @timeout_ms (0: until it is). Returns its result; with
 * @ret_done, which may be NULL, set to 1. DDP_E_TIMEOUT with *@ret_done 0: it is not done yet, and
 * the call may be repeated. A tensor that other ranks never enqueue is waited for until
 * stall_shutdown_ms, or until a rank destroys its object or dies.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_wait(ddp_tensor *tensor, uint32_t timeout_ms,
                                                   int *ret_done, struct ddp_error *err);

/**
 * The result of an all_gather with @uneven that is done. *@ret_counts has the number of elements of
 * each rank of the set, in the order of the ranks, and *@ret_elements these elements in a row; it
 * is not NULL, even if there are none. Elements are in the kind of memory that @send is in, of this
 * rank; host memory if it was NULL. Both belong to the handle, and last until
 * ddp_tensors_release(): copy what is needed for longer. Does not block.
 *
 * Counts may differ from step to step: they are exchanged when the tensor is carried out, once for
 * all that are in one operation, so such a tensor is remembered as others are. A rank that has
 * joined gives nothing, and its count is 0. Results of several tensors that are ready together are
 * gathered packed, as long as all ranks' bytes of them stay at or below fusion_bytes.
 *
 * DDP_E_INVALID: the tensor is not done, or it is none with @uneven. Otherwise its result, as of
 * ddp_tensors_wait(). On failure both are left untouched.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_gathered(ddp_tensor *tensor,
                                                       const void **ret_elements,
                                                       const size_t **ret_counts,
                                                       struct ddp_error *err);

/**
 * Free a handle; NULL is allowed. No other thread uses it. If the tensor is not done, it goes on,
 * and keeps its buffers until then. Handles that are left are freed by ddp_tensors_destroy().
 */
DDP_API void ddp_tensors_release(ddp_tensor *tensor);

/**
 * This rank has no more data: wait until all ranks have joined; *@ret_last_rank is the one that
 * joined last (of those that joined in one cycle, the highest).
 *
 * Meanwhile this rank contributes zeros to the all-reduces of the others, also to products, minima
 * and maxima; averages still divide by all ranks of the set. Those on a GPU fail with
 * DDP_E_MISMATCH if this rank has enqueued nothing on a GPU before it joined. To an all_gather with
 * @uneven it gives nothing. Other kinds fail with DDP_E_MISMATCH while a rank of the set has joined
 * that has not enqueued them before. The zeros take as many bytes as the tensors. Afterwards all is
 * as before.
 *
 * DDP_E_INVALID: another thread of this rank is in this call.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_join(ddp_tensors *tensors, uint32_t *ret_last_rank,
                                                   struct ddp_error *err);

/**
 * Make a set of the @count ranks at @ranks, of the caller's communicator, in any order; within the
 * set they are ordered by number. All ranks call it, those that are not in the set, too, with the
 * same list, and with several sets in the same order. Blocks until all have. *@ret_set is its
 * number, the same on all ranks.
 *
 * DDP_E_INVALID: the list is empty, has a rank twice or one that does not exist; or another thread
 * is in this call. DDP_E_MISMATCH: another rank passed another list; the object stays usable.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_add_set(ddp_tensors *tensors, const uint32_t *ranks,
                                                      uint32_t count, uint32_t *ret_set,
                                                      struct ddp_error *err);

/**
 * Fill @ret_stats up to its size, which must be set. Does not block. DDP_E_INVALID: the size is not
 * set.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_tensors_get_stats(ddp_tensors *tensors,
                                                        struct ddp_tensors_stats *ret_stats);

/**
 * End the object on all ranks, and free it here. NULL is allowed. No other thread uses it.
 *
 * Blocks until all ranks know, at most as long as the communicator's timeout. Tensors that all
 * ranks have enqueued before are carried out; others fail on the ranks that have enqueued them, as
 * do later calls there, with DDP_E_CLOSED and a sentence that names this rank.
 */
DDP_API void ddp_tensors_destroy(ddp_tensors *tensors);

#ifdef __cplusplus
}
#endif

#endif
