/*
 * ddprun/comm.h - collectives between the ranks of a job.
 *
 * A communicator joins WORLD_SIZE processes into a ring. Ranks on one machine talk through shared
 * memory, others through TCP. Every rank must call the same operations in the same order with the
 * same count, type and operation; a rank that does not is told so (DDP_E_MISMATCH).
 *
 * Buffers: in the memory of the host or of a CUDA device; which of them is found out from the
 * address, and must be the same for all buffers of a call, on all ranks. @count counts elements,
 * not bytes, and may be 0; then no buffer is looked at. A buffer of the host may have any
 * alignment. Where two buffers are passed they do not overlap, or lie as the comment of the
 * function says for "in place".
 * Host memory: an operation returns when this rank's part is complete, and @stream is NULL. It
 * never hangs: when the communicator's timeout has passed it fails, soon after, as the ranks find
 * out first which of them is to blame. Who is stopped has half the timeout for an answer, from 0.2
 * to 5 seconds; where all are waiting it takes at most as long as the timeout more, from 0.9 to 20
 * seconds. A peer that dies is an error on every survivor that names the rank.
 * Device memory: an operation is enqueued on @stream (a CUstream or cudaStream_t; NULL is the
 * legacy default stream) and returns. It begins when the work that was enqueued there before it is
 * done, and what is enqueued after it waits for it. Buffers belong to the operation until then.
 * The first such call decides which device and context the communicator works in: those of the
 * buffers, or for virtual memory, which has none, the current context. It blocks until all ranks
 * make theirs, but for ddp_send() and ddp_recv(). Later ones block while 256 are enqueued, and, now
 * and then, until all that is enqueued is done: when memory of other ranks that was freed has to be
 * unmapped, and in calls on host memory or with @count 0. An operation goes through a few phases
 * that wait, of which each has the timeout, so one that fails may take a few of them. Operations
 * run in the order of the calls, also those on different streams, and ddp_send() waits for the
 * receiver. Buffers are aligned to their elements. An operation that fails later lets the stream
 * go on, with undefined contents in its output: after having synchronized the stream, ask
 * ddp_comm_check(). Until all survivors have called ddp_comm_destroy() output buffers of the failed
 * operation may still be written to. Managed memory, memory of another device, freed memory and a
 * stream that is being captured are DDP_E_INVALID. An operation between ranks cannot be part of a
 * CUDA graph. ddp_comm_destroy() aborts what is enqueued: synchronize the stream first, and call it
 * before cudaDeviceReset(). What waits for the whole device, as cudaFree() and the loading of
 * kernels may, waits for enqueued operations, and so for other ranks; have kernels loaded before
 * the first operation. The library's own streams have the greatest priority: with
 * CUDA_DEVICE_MAX_CONNECTIONS=1 a stream of the program that has it, too, may keep them from
 * running while it waits for an operation, and then both wait until the timeout.
 *
 * Threads: a communicator may be used by one thread at a time; ddp_comm_abort() is the exception
 * and may be called from any thread. Below ddprun the library has a thread of its own, with all
 * signals blocked, which only waits: by its end the agent sees that the process dies. The first
 * call with device memory starts another one for that communicator, which runs the operations.
 * Children: a communicator belongs to the process that made it. A child that was forked has no part
 * in it: every call there is DDP_E_INVALID, ddp_comm_abort() does nothing, and ddp_comm_destroy()
 * frees memory and tells nobody anything (what there was for a GPU stays). It gives the sockets
 * back before fork() returns in it, so that the others notice the death of its parent while it
 * lives. A child of a raw clone() keeps them until it ends or calls exec: on one machine the death
 * of its parent is seen all the same, from other machines only when that child has closed them, or
 * by the timeout. All descriptors close on exec; a rank that calls exec has gone without a word.
 * Errors: DDP_E_INVALID has no effect and leaves the communicator usable. Every other error is
 * final for the communicator: later calls return the same one, the contents of output buffers are
 * undefined, and only ddp_comm_destroy() is left to do. Besides what comments list, any operation
 * may return
 *   DDP_E_PEER_DEAD  a rank has died or left; the sentence names it, the operation and its number;
 *   DDP_E_CLOSED     the connection to a rank has ended or broken, although it lives;
 *   DDP_E_TIMEOUT    the timeout passed; the sentence names the rank that was waited for;
 *   DDP_E_ABORTED    ddp_comm_abort() was called here or on another rank;
 *   DDP_E_MISMATCH   another rank called something else; both calls are named;
 *   DDP_E_SYSTEM     the system refused something, as more descriptors;
 *   DDP_E_NOMEM, DDP_E_PROTOCOL; on device memory DDP_E_CUDA, DDP_E_UNSUPPORTED.
 */
#ifndef DDPRUN_COMM_H
#define DDPRUN_COMM_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_comm ddp_comm;

/* X(symbol, bytes per element, name). The element types. */
#define DDP_DTYPE_MAP(X)                                                      \
    X(DDP_FLOAT32, 4, "float32")                                              \
    X(DDP_FLOAT64, 8, "float64")                                              \
    X(DDP_FLOAT16, 2, "float16")   /* IEEE 754 binary16, as uint16_t */       \
    X(DDP_BFLOAT16, 2, "bfloat16") /* upper half of a float32, as uint16_t */ \
    X(DDP_INT32, 4, "int32")                                                  \
    X(DDP_INT64, 8, "int64")

typedef enum ddp_dtype {
#define DDP_DTYPE_ENUM(symbol, size, name) symbol,
    DDP_DTYPE_MAP(DDP_DTYPE_ENUM)
#undef DDP_DTYPE_ENUM
} ddp_dtype;

/*
 * X(symbol, name). Integers wrap around. Average divides the sum by the world size, after the sum;
 * integers truncate toward zero. Min and max return NaN if an input is NaN, and order -0 before
 * +0. The 16-bit types are computed in float32, an average including its division; when they are
 * rounded, to nearest even, is up to the algorithm.
 */
#define DDP_REDUCE_OP_MAP(X)  \
    X(DDP_SUM, "sum")         \
    X(DDP_AVERAGE, "average") \
    X(DDP_MIN, "min")         \
    X(DDP_MAX, "max")         \
    X(DDP_PRODUCT, "product")

typedef enum ddp_reduce_op {
#define DDP_REDUCE_OP_ENUM(symbol, name) symbol,
    DDP_REDUCE_OP_MAP(DDP_REDUCE_OP_ENUM)
#undef DDP_REDUCE_OP_ENUM
} ddp_reduce_op;

/*
 * X(symbol, name). In which order elements are reduced, and so which bits come out; the same on
 * all ranks, and the same for host and device memory. All ranks get identical bits, and the same
 * bits in every run.
 *   ring    partial results go round the ring: rank by rank, from one that depends on where the
 *           element lies, each rank's own element before what came in. 16-bit types are rounded at
 *           each hop. The least traffic that a reduction can have.
 *   direct  everybody's elements, in the order of ranks from 0 on, with one rounding at the end.
 *           Bits depend neither on @count nor on where an element lies. N - 1 times the traffic.
 *   auto    ring; for device memory direct, where all ranks share one device.
 */
#define DDP_ALGORITHM_MAP(X)      \
    X(DDP_ALGORITHM_AUTO, "auto") \
    X(DDP_ALGORITHM_RING, "ring") \
    X(DDP_ALGORITHM_DIRECT, "direct")

typedef enum ddp_algorithm {
#define DDP_ALGORITHM_ENUM(symbol, name) symbol,
    DDP_ALGORITHM_MAP(DDP_ALGORITHM_ENUM)
#undef DDP_ALGORITHM_ENUM
} ddp_algorithm;

/*
 * Which ranks to join. Set @size to sizeof(struct ddp_comm_options) and leave what you do not
 * use zero: a NULL or 0 is taken from the environment that ddprun sets. A process that was started
 * without a launcher (neither RANK nor WORLD_SIZE set) becomes a world of one, which needs no
 * store.
 */
struct ddp_comm_options {
    size_t size;
    const char *store_endpoint; /* "host:port"; NULL = DDPRUN_STORE, with DDPRUN_TOKEN_FD */
    const char *store_prefix;   /* keyspace of this generation; NULL = DDPRUN_STORE_PREFIX */
    const char *name;           /* tells several communicators of one job apart; NULL = "world" */
    uint32_t world_size;        /* 0 = rank and world size from RANK and WORLD_SIZE */
    uint32_t rank;              /* used when world_size is not 0 */
    uint32_t init_timeout_ms;   /* until all ranks are there; 0 = DDP_INIT_TIMEOUT, else 600,000 */
    uint32_t timeout_ms;        /* of each operation; 0 = DDP_TIMEOUT (a duration), else 600,000 */
    uint32_t force_tcp;         /* 1 = no shared memory, as between machines; 0 = DDP_FORCE_TCP */
    ddp_algorithm algorithm;    /* of reductions; AUTO = DDP_ALGORITHM (a name), else auto */
};

/*
 * What a communicator has done so far, in bytes of payload; and where the time of what was enqueued
 * on streams went on this rank, in microseconds.
 */
struct ddp_comm_stats {
    size_t size;             /* set to sizeof(struct ddp_comm_stats) before the call */
    uint64_t operations;     /* completed: collectives, sends and receives */
    uint64_t bytes_sent;     /* by this rank, all links; headers are not counted */
    uint64_t bytes_received; /* by this rank, all links */
    uint64_t stream_us;      /* since it was enqueued, until the stream had come to it */
    uint64_t exchange_us;    /* then, until all ranks were there and knew the others' buffers */
    uint64_t work_us;        /* then, until this rank had moved and reduced what is its to do */
    uint64_t completion_us;  /* then, until it had heard that others are done, if it has to */
};

/**
 * Join the communicator that @options describe (NULL = everything from the environment).
 *
 * Blocks until all ranks have called it, at most init_timeout_ms and some seconds, in which the
 * ranks find out who is to blame. @options is not kept. Rank 0 gathers the others: it puts its card
 * into the store, as comm/NAME/host below the prefix, until all have come; nothing stays there. It
 * holds a connection to each of them until all are connected to their neighbours.
 *
 * On DDP_OK *@ret_comm is a handle that the caller gives back with ddp_comm_destroy().
 * On any failure of a rank that rank 0 has let in, all others fail at once, with the same cause;
 * they may call again, and meet the ranks that call then. A rank that rank 0 has not let in yet
 * goes on waiting.
 * DDP_E_INVALID: a variable or option is malformed or missing; the sentence names it.
 * DDP_E_UNREACHABLE: the store does not answer.
 * DDP_E_PEER_DEAD: a rank has died after it had come, or its connection through TCP has ended
 * without a word.
 * DDP_E_CLOSED: the connection of a rank on this machine has ended, and the rank lives.
 * DDP_E_TIMEOUT: names the ranks that did not come, or do not answer.
 * DDP_E_MISMATCH: worlds of different size, or one rank twice.
 * DDP_E_PROTOCOL: another version of this library. DDP_E_DENIED: rank 0 has another key.
 * DDP_E_SYSTEM, DDP_E_NOMEM: this rank, or another one that the sentence names, lacks something,
 * such as descriptors.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_init(const struct ddp_comm_options *options,
                                                ddp_comm **ret_comm, struct ddp_error *err);

/**
 * Make the @ndev communicators of a world within this process: *@comms becomes rank 0, and so on.
 *
 * For one process with a thread for each device: needs neither store nor launcher, and waits for
 * nobody. Rank r is for device @devices[r], or for device r if @devices is NULL, which is only
 * looked at with device memory; several ranks may name one device. @devices is not kept.
 * Threads: as with any communicator, each one is used by one thread at a time, whichever that is;
 * the thread that made them need not be among those. As operations wait for the other ranks, each
 * rank needs a thread of its own while it is in one. All is as between processes: a rank whose
 * communicator is destroyed has left, and any of them can abort. Timeouts are those of the
 * environment. Ranks that share a device share its context: begin with a collective, not with a
 * message, and free no device memory while another rank's operation waits for this thread.
 *
 * On DDP_OK the caller gives each of them back with ddp_comm_destroy(), in any order. On failure
 * @comms is untouched. DDP_E_INVALID: @ndev is 0 or beyond 256, a device is negative, or a variable
 * of the environment is malformed; DDP_E_SYSTEM: there is no shared memory for them, at about 1 MiB
 * a rank.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_init_local(uint32_t ndev, const int *devices,
                                                      ddp_comm **comms, struct ddp_error *err);

/**
 * Leave the communicator and free it. NULL is allowed. Does not wait for other ranks: those that
 * still are in an operation with this rank get DDP_E_PEER_DEAD. With device memory it frees memory
 * of the device, for which the driver may wait for all streams of the context, also for one that an
 * operation of another communicator holds.
 */
DDP_API void ddp_comm_destroy(ddp_comm *comm);

/**
 * Rank of this process in @comm, 0 to world size - 1; and the number of ranks. Do not block.
 */
DDP_API uint32_t ddp_comm_rank(const ddp_comm *comm);
DDP_API uint32_t ddp_comm_world_size(const ddp_comm *comm);

/**
 * Whether @comm still works: DDP_OK, or the first cause of its failure, with the sentence in @err.
 *
 * Does not block, and asks nobody: it tells what this rank has seen so far. With device memory it
 * is how errors are found out: synchronize the stream, then ask.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_check(ddp_comm *comm, struct ddp_error *err);

/**
 * Reduce @count elements of @dtype over all ranks; every rank gets the result in @recv.
 *
 * @send and @recv hold @count elements each, and are equal in place. Ring: a scatter-reduce, then
 * an all-gather; each rank sends 2K(N-1)/N bytes of the K bytes, rounded to whole elements
 * (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 * 2009). Direct: K(N-1) bytes. Host memory blocks until complete, device memory is enqueued. Both
 * buffers stay the caller's.
 *
 * DDP_E_INVALID: @dtype or @op is none, a buffer is NULL or overlaps the other one, @count is
 * beyond all memory, or @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_all_reduce(ddp_comm *comm, const void *send, void *recv,
                                                 size_t count, ddp_dtype dtype, ddp_reduce_op op,
                                                 void *stream, struct ddp_error *err);

/**
 * Reduce @count elements of @dtype over all ranks; rank @root gets the result in @recv.
 *
 * @send and, on @root, @recv hold @count elements each, and are equal in place; elsewhere @recv is
 * not looked at and may be NULL. @send is not changed, unless it is @recv on @root. @root must be
 * the same on all ranks. Ring: a chain from the rank behind the root round to it, as a pipeline;
 * each rank but the root sends the K bytes once. Direct: K(N-1) bytes each. Host memory blocks
 * until complete, device memory is enqueued. Both buffers stay the caller's.
 *
 * DDP_E_INVALID: as ddp_all_reduce(), or @root does not exist.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reduce(ddp_comm *comm, const void *send, void *recv,
                                             size_t count, ddp_dtype dtype, ddp_reduce_op op,
                                             uint32_t root, void *stream, struct ddp_error *err);

/**
 * Copy @count elements of @dtype at @buffer from rank @root to all ranks.
 *
 * @root must be the same on all ranks. The data goes round the ring in a pipeline of chunks; each
 * rank but the one before the root sends it once. Host memory blocks until complete, device memory
 * is enqueued. @buffer stays the caller's.
 *
 * DDP_E_INVALID: @dtype is none, @buffer is NULL, @count is beyond all memory, @root does not
 * exist, or @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_broadcast(ddp_comm *comm, void *buffer, size_t count,
                                                ddp_dtype dtype, uint32_t root, void *stream,
                                                struct ddp_error *err);

/**
 * Collect @count elements of @dtype from each rank; every rank gets all of them in @recv.
 *
 * @send holds @count elements, @recv the world size times as many: those of rank r begin at
 * element r * @count. In place, @send is this rank's part of @recv. Each rank passes N - 1 parts on
 * round the ring: @count * (N - 1) elements. Host memory blocks until complete, device memory is
 * enqueued. Both buffers stay the caller's.
 *
 * DDP_E_INVALID: @dtype is none, a buffer is NULL or overlaps the other one, the elements of all
 * ranks are beyond all memory, or @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_all_gather(ddp_comm *comm, const void *send, void *recv,
                                                 size_t count, ddp_dtype dtype, void *stream,
                                                 struct ddp_error *err);

/**
 * Reduce over all ranks; rank r gets elements [r * @count, (r + 1) * @count) of the result.
 *
 * @send holds world size times @count elements of @dtype, @recv @count. In place, @recv is this
 * rank's part of @send; nothing else of @send is changed. Ring: a scatter-reduce, which is the
 * first half of an all-reduce; each rank sends @count * (N - 1) elements. Direct: N times as many.
 * Host memory blocks until complete, device memory is enqueued. Both buffers stay the caller's.
 *
 * DDP_E_INVALID: as ddp_all_reduce(), or the elements of all ranks are beyond all memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reduce_scatter(ddp_comm *comm, const void *send, void *recv,
                                                     size_t count, ddp_dtype dtype,
                                                     ddp_reduce_op op, void *stream,
                                                     struct ddp_error *err);

/**
 * Send @count elements of @dtype at @buffer to rank @peer, which receives them; and the reverse.
 *
 * Only these two ranks take part. Messages from one rank to another have numbers of their own: the
 * first ddp_recv() from a rank meets its first ddp_send() to this one, and both must name the same
 * count and type. Host memory: ddp_recv() returns when all is here, ddp_send() when @buffer may be
 * changed again; what was sent may then still be under way, and that the peer is dead or calls
 * something else is an error of a later operation. The first message between two ranks waits until
 * the other one is in an operation, whichever, as that is when it lets others in. As with MPI_Send,
 * nobody may count on room for what is under way: of two ranks that both send to each other before
 * they receive, each may wait for the other until the timeout. In a ring of shifts let even ranks
 * send first and odd ones receive first. Device memory is enqueued. @buffer stays the caller's.
 *
 * DDP_E_INVALID: @dtype is none, @buffer is NULL, @count is beyond all memory, @peer does not exist
 * or is this rank, or @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_send(ddp_comm *comm, const void *buffer, size_t count,
                                           ddp_dtype dtype, uint32_t peer, void *stream,
                                           struct ddp_error *err);
DDP_API DDP_MUST_CHECK ddp_status ddp_recv(ddp_comm *comm, void *buffer, size_t count,
                                           ddp_dtype dtype, uint32_t peer, void *stream,
                                           struct ddp_error *err);

/**
 * Return when all ranks have called it.
 *
 * @stream NULL: the host waits. Otherwise the barrier is enqueued on that stream of the device:
 * what follows there waits until all ranks' streams have come so far.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_barrier(ddp_comm *comm, void *stream, struct ddp_error *err);

/**
 * Make the operation that is in progress, and all later ones, return DDP_E_ABORTED, here and on
 * all other ranks. An operation for which a rank has received everything already may still succeed
 * there. May be called from any thread, also from a signal handler; does not block.
 */
DDP_API void ddp_comm_abort(ddp_comm *comm);

/**
 * Fill @ret_stats up to its size, which must be set. Does not block. DDP_E_INVALID: size is not
 * set, or leaves no room for the counts of bytes.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_get_stats(const ddp_comm *comm,
                                                     struct ddp_comm_stats *ret_stats);

/**
 * Bytes of one element of @dtype (0 if it is none), and the names of types and operations
 * ("unknown" if it is none). Any thread, do not block; strings are static.
 */
DDP_API size_t ddp_dtype_size(ddp_dtype dtype);
DDP_API const char *ddp_dtype_name(ddp_dtype dtype);
DDP_API const char *ddp_reduce_op_name(ddp_reduce_op op);

#ifdef __cplusplus
}
#endif

#endif
