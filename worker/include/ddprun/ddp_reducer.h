/*
 * ddprun/ddp_reducer.h - gradients of a model, averaged over all ranks while the backward pass
 * still runs: what PyTorch's DistributedDataParallel does. Part of <ddprun/ddp.h>.
 *
 *     ddp_reducer_create(comm, &options, &reducer, &err);
 *     for (each step) {
 *         ddp_reducer_begin(reducer, &err);
 *         ... backward pass: when gradient i is complete, ddp_reducer_ready(reducer, i, NULL, &err)
 *         ddp_reducer_finish(reducer, &err);
 *         ... the optimizer's step: all ranks have the same gradients
 *     }
 *
 * Parameters are registered once, in the order in which the forward pass uses them. Their gradients
 * are reduced in buckets. In the first synchronised step there is a bucket for each element type,
 * which is reduced at the end. Then buckets are made once more, in the order in which rank 0's
 * gradients came: the first holds 1 MiB, the others 25 MiB. A bucket closes when it holds at least
 * that, so it may exceed it by one gradient. Buckets are reduced in the same order on all ranks,
 * in whatever order gradients come. No gradient is copied: buckets are lists of buffers
 * (ddp_all_reduce_many()).
 *
 * The communicator is the reducer's until it is destroyed: other calls on it are allowed between
 * ddp_reducer_finish() and ddp_reducer_begin(), in the same order on all ranks.
 *
 * Threads: ddp_reducer_ready() and ddp_reducer_skip() may be called from any thread, also from
 * several at once. All other calls are made by one thread at a time, on all ranks in the same
 * order.
 *
 * Errors: DDP_E_INVALID has no effect, and the reducer stays usable; so does DDP_E_NOMEM where the
 * function's comment says so. Other errors are those of the communicator (<ddprun/comm.h>), and
 * final: their sentences name the step and the bucket; gradients are undefined; only
 * ddp_reducer_destroy() is left to call. It may be called at any time, also in the middle of a
 * step.
 */
#ifndef DDPRUN_DDP_REDUCER_H
#define DDPRUN_DDP_REDUCER_H

#include <ddprun/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_reducer ddp_reducer;

/*
 * A parameter of a model, or a buffer that is not trained, such as a running mean. All memory is
 * the caller's, and stays where it is until the reducer is destroyed.
 */
struct ddp_parameter {
    const char *name; /* for sentences; NULL: "parameter 12" */
    void *data;       /* @count elements, which rank 0 broadcasts; NULL: they are not broadcast */
    void *gradient;   /* @count elements; NULL with as_views, and of a buffer */
    size_t count;     /* of elements, at least 1 */
    size_t rows;      /* of a matrix, for compression; 0: the parameter is not a matrix */
    ddp_dtype dtype;
};

/* How ranks are weighted. */
typedef enum ddp_reducer_average {
    DDP_REDUCER_AVERAGE_BEFORE, /* sum(g / N), as PyTorch computes it */
    DDP_REDUCER_AVERAGE_AFTER,  /* sum(g) / N, as Horovod and Apex do */
    DDP_REDUCER_SUM             /* sum(g) */
} ddp_reducer_average;

/*
 * What a communication hook sees of a bucket. Gradient i belongs to parameters[i], and is read and
 * written at gradients[i].recv, which has gradients[i].count elements. All is the same on all ranks
 * but the addresses.
 */
struct ddp_bucket {
    size_t size;
    uint32_t index;    /* from 0, in the order in which buckets are reduced */
    uint32_t nbuckets; /* the last one has index nbuckets - 1 */
    uint64_t step;     /* synchronised steps before this one */
    ddp_dtype dtype;
    size_t count; /* elements of all gradients */
    const uint32_t *parameters;
    const struct ddp_buffer *gradients;
    const size_t *rows; /* of the gradients, as in struct ddp_parameter */
    size_t ngradients;
    uint32_t divisor; /* N of an average: the ranks, or those that have data */
    void *state;      /* of the hook, NULL at first; it lasts until the buckets are made anew */
    void *stream; /* on device memory: for the work and the operation of this stage; else NULL */
    uint32_t on_device; /* 1: gradients are memory of a GPU, and recv an address of that */
    void *memory;       /* for the hooks of <ddprun/ddp_hooks.h> only */
};

/*
 * A communication hook replaces the reduction of buckets. It works in stages: @stage is called with
 * 0 when all gradients of @bucket are ready, in the order of buckets. It fills in @operation, which
 * is all zeros but for its size, and sets *@ret_more to 1; the reducer carries the operation out.
 * Then @stage is called with 1, and so on, until it leaves *@ret_more at 0: then the gradients must
 * be the averages, as the reducer divides nothing. All ranks must have the same stages.
 *
 * Stage 0 runs in the thread that has marked a gradient of the bucket, while gradients of others
 * are still computed. All other stages run in ddp_reducer_finish(): stage 1 of all buckets, in the
 * order of buckets, then stage 2 of all buckets. So operations begin in the same order on all
 * ranks. @stage must not wait for other ranks. An error that it returns fails the reducer.
 *
 * On device memory (on_device) @stage enqueues its work on @bucket->stream, and neither it nor the
 * program synchronises. Work that is enqueued there in stage 0 comes after that which computes the
 * gradients, and before the operation, whose stream is that one already: @stage leaves
 * @operation->stream as it is. Its buffers are memory of the same GPU. When a later stage is
 * called, the operation before it has ended. The hook says that it is done by leaving *@ret_more at
 * 0: ddp_reducer_finish() then waits for the streams, so the gradients must be the averages when
 * the stream has got beyond what was enqueued. The current context is that of the caller of
 * ddp_reducer_ready() or ddp_reducer_finish(). The same hook may serve both kinds of memory.
 * @forget is called when nothing is left on the stream, or the reducer has failed and the stream is
 * empty.
 */
struct ddp_comm_hook {
    ddp_status (*stage)(void *ctx, struct ddp_bucket *bucket, uint32_t stage,
                        struct ddp_operation *operation, int *ret_more, struct ddp_error *err);
    void (*forget)(void *ctx, struct ddp_bucket *bucket); /* free @bucket->state; NULL: nothing */
    void *ctx;
};

/* How to reduce. Set @size to sizeof(struct ddp_reducer_options); other members may be zero. */
struct ddp_reducer_options {
    size_t size;
    const struct ddp_parameter *parameters; /* copied, names too */
    size_t nparameters;
    const struct ddp_parameter *buffers; /* @data is broadcast at the begin of every step */
    size_t nbuffers;

    /* The limits of the first bucket of each type, of the second, ...; the last one repeats.
     * NULL: 1 MiB, then 25 MiB. With @message_size limits are in elements (Apex): all buckets have
     * that one, and bucket_bytes is NULL. */
    const size_t *bucket_bytes;
    size_t nbucket_bytes;
    size_t message_size;

    ddp_reducer_average average;
    /* With AVERAGE_AFTER or SUM: gradients are divided by this before they are summed, and with
     * AVERAGE_AFTER multiplied by it afterwards (gradient_predivide_factor of Apex and Horovod). 0
     * is 1. */
    double predivide;
    const struct ddp_comm_hook *hook; /* copied; @average and @predivide are not used then */

    /* 1: gradients lie in memory of the reducer, which collectives read and write in place where
     * ranks share memory (ddp_alloc()): ddp_reducer_gradient() says where. */
    uint32_t as_views;
    /* With as_views: this memory of the caller instead, of ddp_reducer_view_bytes(). Gradients of a
     * type lie in the reverse order of registration, without gaps. */
    void *view_memory;
    /* 1: data, buffers and gradients are memory of a GPU (view_memory too, which as_views needs
     * then), all of one context, and calls mean what they mean on host memory
     * (libddpcomm(3)). Zeros for unused gradients, and products, are enqueued on the stream of a
     * bucket (ddp_reducer_ready()). */
    uint32_t on_device;
    /* 1: gradients that are not ready at the end of a step count as zeros, and a parameter that no
     * rank has used keeps the gradient that it had. Buckets have their limits from the first step
     * on and are not made anew, unless @static_graph is set. 0: a missing gradient is an error. */
    uint32_t find_unused;
    /* 1: every step uses the same parameters, each as often as in the first one: a gradient may be
     * marked several times in a step, and is ready when it has been as often as in the first. */
    uint32_t static_graph;
    uint32_t check_finite;       /* 1: ddp_reducer_non_finite() tells of inf and NaN */
    uint32_t delay_all_reduce;   /* 1: reduce everything at the end, a bucket for each type */
    uint32_t uneven_inputs;      /* 1: ranks may run out of data: ddp_reducer_join() */
    uint32_t divide_by_active;   /* 1: with uneven_inputs, N is the number of ranks with data */
    uint32_t no_broadcast;       /* 1: do not broadcast parameters at the start, nor buffers */
    uint32_t no_progress_thread; /* 1: bytes move only in calls (ddp_comm_start_progress()) */
    const char *trace;           /* a file of this rank: every step as a Chrome trace; NULL: none */
};

/**
 * Create a reducer on @comm, which must outlive it. All ranks call it with equal options.
 *
 * Blocks until all ranks have compared their parameters; then rank 0 broadcasts data and buffers,
 * 250 MiB at a time. On DDP_OK, *@ret_reducer is a handle; free it with ddp_reducer_destroy().
 *
 * DDP_E_INVALID: an option or a parameter is not valid; the sentence names it. No rank has been
 * asked then: others wait until their timeout, unless this one leaves. DDP_E_MISMATCH: a rank has
 * other parameters or options; the sentence, the same on all ranks, names rank and parameter; the
 * communicator stays usable. DDP_E_SYSTEM: the trace cannot be written, or there is no thread.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_create(ddp_comm *comm,
                                                     const struct ddp_reducer_options *options,
                                                     ddp_reducer **ret_reducer,
                                                     struct ddp_error *err);

/**
 * Free @reducer; NULL is allowed. Memory of views goes with it: with as_views all ranks call it.
 * In the middle of a step it aborts the communicator, as reductions are under way.
 */
DDP_API void ddp_reducer_destroy(ddp_reducer *reducer);

/**
 * The bytes of view_memory that @options need. Does not block. 0: the parameters are not valid.
 */
DDP_API size_t ddp_reducer_view_bytes(const struct ddp_reducer_options *options);

/**
 * Where the gradient of @parameter lies; with as_views memory of the reducer, zeroed at first,
 * which stays at its place. NULL: there is no such parameter. Does not block; any thread may call
 * it.
 */
DDP_API void *ddp_reducer_gradient(const ddp_reducer *reducer, size_t parameter);

/**
 * Whether later steps are synchronised; they are at first. With @sync 0, ddp_reducer_finish()
 * reduces nothing: gradients add up in the caller's buffers until a step with @sync 1 reduces the
 * sums, divided by N only (no_sync() of PyTorch). Does not block.
 *
 * DDP_E_INVALID: a step has begun.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_set_sync(ddp_reducer *reducer, int sync,
                                                       struct ddp_error *err);

/**
 * Begin a step. Makes buckets anew after the first synchronised one, broadcasts buffers, and with
 * uneven_inputs counts the ranks that have data: blocks until rank 0, or all ranks, have begun; in
 * other cases not.
 *
 * DDP_E_INVALID: the step before has not been finished.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_begin(ddp_reducer *reducer, struct ddp_error *err);

/**
 * The gradient of @parameter is complete; until ddp_reducer_finish() has returned nobody may touch
 * it. Starts the reduction of each bucket that is full now and whose turn it is. Does not block,
 * except on device memory, as calls there may.
 *
 * @stream: of device memory, the stream whose work so far computes this gradient, and those of its
 * bucket that are marked already; else NULL. The bucket is reduced on the stream of its last mark,
 * whichever call starts that, and later work of that stream waits for it: to go on with the
 * backward pass meanwhile, pass another stream, which waits for an event of that one. A bucket
 * without a mark of this rank is reduced on the stream of the step's last mark, and if there is
 * none, on the default stream: what still works with its gradients must be done then. Streams
 * last until ddp_reducer_finish() has returned DDP_OK, or the reducer is destroyed.
 *
 * DDP_E_INVALID: there is no such parameter, no step has begun, the gradient is marked already, or
 * @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t parameter,
                                                    void *stream, struct ddp_error *err);

/**
 * This step does not use @parameter: its gradient counts as zeros, and buckets need not wait for
 * it. Only with find_unused. Otherwise as ddp_reducer_ready().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_skip(ddp_reducer *reducer, size_t parameter,
                                                   struct ddp_error *err);

/**
 * End the step: blocks until all buckets are reduced. Afterwards all ranks have the same gradients.
 * On device memory it also waits for the streams on which it has copied or multiplied gradients.
 *
 * DDP_E_INVALID: without find_unused, some gradients are not ready; the sentence names them. The
 * step goes on: mark them, and call it again. Or no step has begun. DDP_E_NOMEM: there is no memory
 * for zeros in place of unused gradients; the step goes on, and the call may be repeated. On device
 * memory: the GPU has none.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_finish(ddp_reducer *reducer, struct ddp_error *err);

/**
 * This rank has no more data (uneven_inputs): take part in the steps of the other ranks with
 * gradients of zeros, until all ranks have called it. Then the rank that joined last, or the
 * highest of these, broadcasts its parameters and buffers. *@ret_last is that rank; NULL is
 * allowed. The next call of ddp_reducer_begin() starts over with all ranks.
 *
 * DDP_E_INVALID: the reducer was created without uneven_inputs, or a step has begun.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_join(ddp_reducer *reducer, uint32_t *ret_last,
                                                   struct ddp_error *err);

/**
 * Whether a reduced gradient of the last synchronised step has an inf or a NaN: 1 or 0, the same on
 * all ranks. The reductions find it out while they write their results (ddprun/comm_requests.h),
 * before predivide is multiplied again; of a hook, the all-reduces of floats that it asks for. For
 * ddp_loss_scaler_update(). Does not block; not during a step. 0 without check_finite.
 */
DDP_API int ddp_reducer_non_finite(const ddp_reducer *reducer);

/* The last synchronised step, in microseconds. Set @size before the call. */
struct ddp_reducer_stats {
    size_t size;
    uint64_t steps;     /* synchronised steps so far */
    uint64_t rebuilds;  /* 1 once buckets have been made anew */
    uint64_t buckets;   /* of the last step */
    uint64_t bytes;     /* of its gradients */
    uint64_t step_us;   /* from ddp_reducer_begin() to the end of ddp_reducer_finish() */
    uint64_t reduce_us; /* in which at least one bucket was being reduced */
    /* Of that, in ddp_reducer_finish(): the rest overlapped the backward pass. */
    uint64_t exposed_us;
};

/* A bucket in the last synchronised step; times in microseconds after ddp_reducer_begin(). */
struct ddp_bucket_stats {
    size_t size;
    uint64_t bytes;
    uint64_t gradients;
    uint64_t first_ready_us; /* the first gradient came */
    uint64_t full_us;        /* the last one came */
    uint64_t begin_us;       /* its turn came */
    uint64_t end_us;         /* it was reduced */
};

/**
 * Fill @ret_stats up to its size; of bucket @bucket, and where @parameters is not NULL its
 * parameters, at most @nparameters of them. Do not block; not during a step. DDP_E_INVALID: the
 * size is not set, there is no such bucket, or a step is under way.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_get_stats(const ddp_reducer *reducer,
                                                        struct ddp_reducer_stats *ret_stats);
DDP_API DDP_MUST_CHECK ddp_status ddp_reducer_get_bucket(const ddp_reducer *reducer, size_t bucket,
                                                         struct ddp_bucket_stats *ret_stats,
                                                         uint32_t *parameters, size_t nparameters);

#ifdef __cplusplus
}
#endif

#endif
