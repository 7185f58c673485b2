/*
 * ddprun/comm.h - collectives between the ranks of a job.
 *
 * A communicator joins WORLD_SIZE processes into a ring. Ranks on one machine talk through shared
 * memory, others through TCP. Every rank must call the same operations in the same order with the
 * same count, type and operation; a rank that does not is told so (DDP_E_MISMATCH).
 *
 * Threads: a communicator may be used by one thread at a time; ddp_comm_abort() is the exception
 * and may be called from any thread.
 * Blocking: an operation returns when this rank's part is complete. It never hangs: when the
 * communicator's timeout has passed it fails, after at most 1.1 seconds more, in which the ranks
 * find out which of them is to blame. A peer that dies is an error on every survivor that names
 * the rank.
 * Errors: DDP_E_INVALID has no effect and leaves the communicator usable. Every other error is
 * final for the communicator: later calls return the same one, the contents of output buffers are
 * undefined, and only ddp_comm_destroy() is left to do. Besides what comments list, any operation
 * may return
 *   DDP_E_PEER_DEAD  a rank has died or left; the sentence names it, the operation and its number;
 *   DDP_E_TIMEOUT    the timeout passed; the sentence names the rank that was waited for;
 *   DDP_E_ABORTED    ddp_comm_abort() was called here or on another rank;
 *   DDP_E_MISMATCH   another rank called something else; both calls are named;
 *   DDP_E_NOMEM, DDP_E_SYSTEM, DDP_E_PROTOCOL.
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
 * X(symbol, name). Integers wrap around. Average divides the sum by the world size: floats once,
 * after the sum; integers truncate toward zero. Min and max return NaN if an input is NaN, and
 * order -0 before +0. The 16-bit types are added in float32 and rounded to nearest even at each
 * hop of the ring.
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
};

/*
 * What a communicator has done so far, in bytes of payload.
 */
struct ddp_comm_stats {
    size_t size;             /* set to sizeof(struct ddp_comm_stats) before the call */
    uint64_t operations;     /* collectives completed */
    uint64_t bytes_sent;     /* by this rank, all links; headers are not counted */
    uint64_t bytes_received; /* by this rank, all links */
};

/**
 * Join the communicator that @options describe (NULL = everything from the environment).
 *
 * Blocks until all ranks have called it, at most init_timeout_ms. @options is not kept.
 *
 * On DDP_OK *@ret_comm is a handle that the caller gives back with ddp_comm_destroy().
 * DDP_E_INVALID: a variable or option is malformed or missing; the sentence names it.
 * DDP_E_UNREACHABLE: the store does not answer. DDP_E_TIMEOUT: names the ranks that did not come.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_init(const struct ddp_comm_options *options,
                                                ddp_comm **ret_comm, struct ddp_error *err);

/**
 * Leave the communicator and free it. NULL is allowed. Does not wait for other ranks: those that
 * still are in an operation with this rank get DDP_E_PEER_DEAD.
 */
DDP_API void ddp_comm_destroy(ddp_comm *comm);

/**
 * Rank of this process in @comm, 0 to world size - 1; and the number of ranks. Do not block.
 */
DDP_API uint32_t ddp_comm_rank(const ddp_comm *comm);
DDP_API uint32_t ddp_comm_world_size(const ddp_comm *comm);

/**
 * Reduce @count elements of @dtype over all ranks; every rank gets the result in @recv.
 *
 * @send and @recv hold @count elements each and are either equal (in place) or do not overlap.
 * @count may be 0. Ring: a scatter-reduce, then an all-gather; each rank sends 2K(N-1)/N bytes of
 * the K bytes, rounded to whole elements (Patarasuk and Yuan, "Bandwidth optimal all-reduce
 * algorithms for clusters of workstations", 2009). All ranks get identical bits, and the same bits
 * in every run.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_all_reduce(ddp_comm *comm, const void *send, void *recv,
                                                 size_t count, ddp_dtype dtype, ddp_reduce_op op,
                                                 struct ddp_error *err);

/**
 * Copy @count elements of @dtype at @buffer from rank @root to all ranks.
 *
 * @root must be the same on all ranks. The data goes round the ring in a pipeline of chunks.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_broadcast(ddp_comm *comm, void *buffer, size_t count,
                                                ddp_dtype dtype, uint32_t root,
                                                struct ddp_error *err);

/**
 * Return when all ranks have called it.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_barrier(ddp_comm *comm, struct ddp_error *err);

/**
 * Make the operation that is in progress, and all later ones, return DDP_E_ABORTED, here and on
 * all other ranks. An operation for which a rank has received everything already may still succeed
 * there. May be called from any thread, also from a signal handler; does not block.
 */
DDP_API void ddp_comm_abort(ddp_comm *comm);

/**
 * Fill @ret_stats, of which size must be set. Does not block. DDP_E_INVALID: size is not set.
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
