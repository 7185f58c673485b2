/*
 * ddprun/comm_requests.h - an operation as a struct, for calls that are more than a function's
 * arguments: requests that return at once, timeouts of one call, parts of different sizes. Part of
 * <ddprun/comm.h>.
 *
 * Order: the collectives of a communicator run one after the other, in the order of the calls, so
 * all ranks must make them in the same order; whether a call blocks makes no difference to other
 * ranks. Messages run beside them; those between two ranks, in one direction and with one tag, in
 * the order of the calls. Different communicators are independent: different threads may use them
 * at once, and ranks may use them in different orders.
 *
 * Progress: the bytes of a request move while a thread is in ddp_request_test(),
 * ddp_request_wait() or a blocking call of the same communicator; of all its requests, not only of
 * the one that is named. ddp_comm_start_progress() starts a thread that does it without such calls.
 * It helps if there are more processors than ranks.
 */
#ifndef DDPRUN_COMM_REQUESTS_H
#define DDPRUN_COMM_REQUESTS_H

#include <ddprun/comm_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_request ddp_request;

/* Operations; each is documented at its function. */
typedef enum ddp_kind {
    DDP_KIND_BARRIER,           /* ddp_barrier() */
    DDP_KIND_MONITORED_BARRIER, /* ddp_monitored_barrier() */
    DDP_KIND_BROADCAST,         /* ddp_broadcast(); the buffer is @recv, and @send is not used */
    DDP_KIND_ALL_REDUCE,        /* ddp_all_reduce() */
    DDP_KIND_REDUCE,            /* ddp_reduce() */
    DDP_KIND_ALL_GATHER,        /* ddp_all_gather() */
    DDP_KIND_REDUCE_SCATTER,    /* ddp_reduce_scatter() */
    DDP_KIND_GATHER,            /* ddp_gather() */
    DDP_KIND_SCATTER,           /* ddp_scatter() */
    DDP_KIND_ALL_TO_ALL,        /* ddp_all_to_all() */
    DDP_KIND_SEND,              /* ddp_send() */
    DDP_KIND_RECV               /* ddp_recv(), ddp_recv_any() */
} ddp_kind;

/*
 * A buffer of a list: @count elements that a rank contributes, and room for the result. In place,
 * @send and @recv are equal; of a broadcast @send is not used. With @count 0 both may be NULL.
 */
struct ddp_buffer {
    const void *send;
    void *recv;
    size_t count;
};

/*
 * An operation. Set @size to sizeof(struct ddp_operation). Members that its kind does not use are
 * ignored, such as @op of a broadcast.
 *
 * Uneven parts: with @uneven = 1 a buffer that has a part for each rank is divided by counts of
 * elements, one for each rank, and @count is the number of elements of a buffer that has one part
 * only. @send_counts and @send_offsets describe @send, @recv_counts and @recv_offsets @recv.
 * Offsets are in elements from the start of the buffer; NULL: parts lie one after the other. Parts
 * do not overlap. All ranks set @uneven alike. Counts must agree: of all_gather and reduce_scatter
 * all ranks pass the same counts; of the others, what a rank has for another one is what that one
 * expects. Else the operation fails with DDP_E_MISMATCH; a rank that has all its parts may
 * learn of it in a later call. The arrays belong to the operation until it has
 * ended. A rank that has no element of an operation on device memory shows by the stream, or by a
 * buffer, that it takes part in that.
 *
 * Many buffers: with @buffers all_reduce and broadcast take @nbuffers of them, as
 * ddp_all_reduce_many() does, and @send, @recv and @count are not used.
 *
 * Finite check: with @non_finite all_reduce and reduce_scatter of floats and complex numbers
 * tell whether their result has an inf or a NaN; overflow of a sum makes one of finite
 * elements. The result is the same with and without it. All ranks set it or none, else the
 * operation fails with DDP_E_MISMATCH. *@non_finite is set when the operation ends with DDP_OK, to
 * 1 or 0: of all_reduce to the same on all ranks, of reduce_scatter for this rank's part. It
 * belongs to the operation until that has ended. Sums and averages of float32, float64 and complex
 * numbers are checked in the registers that hold the result; other elements, and those that a rank
 * receives already reduced, right after they are written, while they are in a cache. Only a
 * communicator of one rank reads its result once more. On device memory the answer is there when
 * the stream has got beyond the operation.
 */
struct ddp_operation {
    size_t size;
    ddp_kind kind;
    const void *send;
    void *recv;
    size_t count;
    ddp_dtype dtype;
    ddp_reduce_op op;    /* of all_reduce, reduce and reduce_scatter */
    double factor;       /* of DDP_PREMUL_SUM: this rank's */
    uint32_t peer;       /* the root, or the other rank of a message; DDP_ANY_RANK to receive */
    uint32_t tag;        /* of a message */
    uint32_t timeout_ms; /* of this call; 0 = ddp_comm_set_timeout() */
    uint32_t uneven;
    const size_t *send_counts;
    const size_t *send_offsets;
    const size_t *recv_counts;
    const size_t *recv_offsets;
    void *stream;     /* for device memory */
    uint32_t *source; /* of a receive: set to the rank that has sent it; NULL: not wanted */

    /* Of ddp_start(): called once when the operation has ended, by whichever thread moves its
     * bytes; other threads may hear of the end by ddp_request_test() before that. It must not
     * block: on the communicator it may call ddp_start() with host memory, ddp_request_free(),
     * ddp_comm_check() and ddp_comm_abort(). NULL: none. */
    void (*on_done)(void *ctx, ddp_status status);
    void *ctx;

    const struct ddp_buffer *buffers; /* NULL: there is no list */
    size_t nbuffers;

    uint32_t *non_finite; /* set to whether the result has an inf or a NaN; NULL: not wanted */
};

/**
 * Carry out @operation, as the function of its kind does: blocks until it is complete on host
 * memory, enqueues it on device memory. Errors are those of that function.
 *
 * DDP_E_INVALID: the kind or the size is unknown, counts are missing, there is a callback, which
 * only ddp_start() takes, or a finite check of something that has none.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_run(ddp_comm *comm, const struct ddp_operation *operation,
                                          struct ddp_error *err);

/**
 * Begin @operation and return at once, within microseconds. Not blocking, except on device memory,
 * as calls there may (libddpcomm(3)).
 *
 * @operation is not kept, but its buffers and arrays belong to it until it has ended. On DDP_OK,
 * *@ret_request is a handle: free it with ddp_request_free(); else it is NULL. DDP_E_INVALID as
 * ddp_run(); what goes wrong later is an error of the request.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_start(ddp_comm *comm, const struct ddp_operation *operation,
                                            ddp_request **ret_request, struct ddp_error *err);

/**
 * Whether @request has ended: sets *@ret_done to 1 or 0. Moves bytes of the communicator's
 * requests, but does not sleep. The result is that of the operation; DDP_OK while it goes on. May
 * be called again after the end, and after ddp_comm_destroy().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_request_test(ddp_request *request, int *ret_done,
                                                   struct ddp_error *err);

/**
 * Wait until @request has ended, at most @timeout_ms (0: until it has, which its own timeout
 * bounds). The result is that of the operation, again and again if it is called again. Several
 * threads may wait, for one request or different ones.
 *
 * DDP_E_TIMEOUT, if @request has not ended in @timeout_ms: it goes on, and the call may be
 * repeated.
 * *@ret_done tells the two timeouts apart: 1 if the request has ended. NULL is allowed.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_request_wait(ddp_request *request, uint32_t timeout_ms,
                                                   int *ret_done, struct ddp_error *err);

/**
 * Free @request; NULL is allowed. Does not block. If it has not ended, the operation goes on, its
 * buffers belong to it until ddp_comm_destroy() has returned, and its callback is not called.
 */
DDP_API void ddp_request_free(ddp_request *request);

/**
 * Start a thread of @comm that moves the bytes of its requests. It ends in ddp_comm_destroy(). May
 * be called again. Blocking calls keep their own thread while no request is under way.
 *
 * DDP_E_SYSTEM: there is no thread to be had.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_start_progress(ddp_comm *comm, struct ddp_error *err);

/**
 * A descriptor for event loops: it becomes readable when a request of @comm has ended. Starts the
 * thread of ddp_comm_start_progress(). *@ret_fd is an eventfd that belongs to @comm: read 8 bytes
 * from it, then ask ddp_request_test().
 *
 * DDP_E_SYSTEM: there is no thread or no descriptor to be had.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_get_event_fd(ddp_comm *comm, int *ret_fd,
                                                        struct ddp_error *err);

/**
 * Open a group of calls on @comm: until its ddp_group_end(), blocking operations that this thread
 * calls on @comm, and ddp_run(), are checked and noted, and return at once; DDP_OK says so. Groups
 * nest: only the last ddp_group_end() starts what is noted. Calls of other threads, requests
 * (ddp_start()) and other communicators are not part of the group: they begin at once. Does not
 * block.
 *
 * A call that is refused is not noted; the group goes on without it. Buffers, arrays and what a
 * receive sets belong to the noted calls until the last ddp_group_end() has returned.
 * ddp_comm_split(), ddp_comm_create_group(), ddp_comm_shrink() and ddp_comm_finalize() are refused
 * in a group. ddp_comm_destroy() forgets what is noted.
 *
 * DDP_E_INVALID: another thread has a group open on @comm.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_group_start(ddp_comm *comm, struct ddp_error *err);

/**
 * Close the group of ddp_group_start(), as ncclGroupEnd() does: start all noted calls together, and
 * wait until all have ended; those on device memory, until they are enqueued.
 *
 * Messages of a group never wait for each other's order: ranks may send to each other first and
 * receive then. They begin before the collectives of the group, which keep the order of the calls,
 * so all ranks must divide their collectives alike. Each call has its timeout, from the time at
 * which it waits. On device memory messages run one after the other, in an order that is the same
 * on all ranks (by pair, direction and tag), and none is received from any rank; both ends of a
 * message must call it in a group, or both alone, and all calls of a group should use one stream.
 *
 * The result is that of the first call that failed. DDP_E_INVALID: no group is open, or a
 * call of the group was refused when it was to begin, such as one with a stream for host
 * memory: that call had no effect, the others were carried out.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_group_end(ddp_comm *comm, struct ddp_error *err);

#ifdef __cplusplus
}
#endif

#endif
