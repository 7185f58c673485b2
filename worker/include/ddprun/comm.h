/*
 * ddprun/comm.h - collectives between the ranks of a job.
 *
 * A communicator connects WORLD_SIZE processes. Every rank calls the same operations in the same
 * order, with the same count, type and reduction; a rank that does not gets DDP_E_MISMATCH. This is
 * the contract of all operations. libddpcomm(3) has the whole of it, device memory above all. Types
 * and the algorithms ring, direct and so on are in comm_types.h; ddp_start(), ddp_run() and groups
 * of calls in comm_requests.h; communicators of some ranks in comm_groups.h.
 *
 * Buffers: host memory, or memory of a CUDA device, the same for all buffers of a call on all
 * ranks. The library tells which from the address. @count is a number of elements, not of bytes; if
 * it is 0, buffers are not looked at. Two buffers of a call do not overlap, unless they lie as the
 * function's comment says under "in place".
 *
 * Host memory: a call returns when this rank's part is complete; @stream is NULL. It never hangs:
 * it fails when the communicator's timeout has passed, or a rank has died.
 *
 * Device memory: a call enqueues the operation on @stream (a CUstream or cudaStream_t; NULL is the
 * legacy default stream) and returns. Until the stream has completed it, the buffers, which are
 * aligned to their elements, belong to the operation. To find a later failure, synchronize the
 * stream, then call ddp_comm_check(). DDP_E_INVALID: managed memory, memory of another device,
 * freed memory, a stream that is being captured.
 *
 * Threads: any thread may use a communicator until it is destroyed, also several at once; their
 * operations run in the order in which the calls came, which must be the same on all ranks.
 * Different communicators are independent. In a forked child every call on it returns
 * DDP_E_INVALID, but ddp_comm_abort(), which does nothing, and ddp_comm_destroy(), which only frees
 * host memory.
 *
 * Errors: DDP_E_INVALID has no effect, and the communicator stays usable. Every other error is
 * final: later calls return the same error, output buffers are undefined, and only
 * ddp_comm_destroy() is left to call. Besides the errors in its comment, any operation may return
 *   DDP_E_PEER_DEAD  a rank has died or left; the sentence names the rank and the operation;
 *   DDP_E_CLOSED     the connection to a rank has ended or broken, although the rank lives;
 *   DDP_E_TIMEOUT    the timeout has passed; the sentence names the rank that is to blame;
 *   DDP_E_ABORTED    ddp_comm_abort() was called here or on another rank;
 *   DDP_E_MISMATCH   another rank called something else; the sentence names both calls;
 *   DDP_E_SYSTEM     the system refused something, such as more descriptors;
 *   DDP_E_NOMEM, DDP_E_PROTOCOL; on device memory DDP_E_CUDA, DDP_E_UNSUPPORTED.
 */
#ifndef DDPRUN_COMM_H
#define DDPRUN_COMM_H

#include <ddprun/comm_groups.h>
#include <ddprun/comm_requests.h>
#include <ddprun/comm_types.h>
#include <ddprun/kv.h>
#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Where the ranks of one communicator meet, and a secret by which they know each other: 128 bytes
 * that rank 0 makes and the program gives to all ranks, by MPI, a file or whatever it has.
 */
struct ddp_unique_id {
    char bytes[128];
};

/*
 * How to join other ranks. Set @size to sizeof(struct ddp_comm_options) and leave the members that
 * you do not use zero: their values come from the environment that ddprun or torchrun sets. Without
 * DDPRUN_STORE ranks meet at MASTER_ADDR and MASTER_PORT: in the store of PyTorch there if
 * TORCHELASTIC_USE_AGENT_STORE is True; else rank 0 listens there while they join. A process
 * without a launcher (neither RANK nor WORLD_SIZE is set) is a world of one rank, which needs no
 * store.
 */
struct ddp_comm_options {
    size_t size;
    const char *store_endpoint; /* "host:port"; NULL = DDPRUN_STORE, with DDPRUN_TOKEN_FD */
    const char *store_prefix;   /* of all keys of this generation; NULL = DDPRUN_STORE_PREFIX */
    const char *name;           /* different for each communicator of a job; NULL = "world" */
    uint32_t world_size;        /* 0 = rank and world size from RANK and WORLD_SIZE */
    uint32_t rank;              /* used when world_size is not 0 */
    uint32_t init_timeout_ms; /* until all ranks have joined; 0 = DDP_INIT_TIMEOUT, else 600,000 */
    uint32_t timeout_ms;      /* of each operation; 0 = DDP_TIMEOUT (a duration), else 600,000 */
    uint32_t force_tcp;       /* 1 = TCP within a machine, too; 0 = DDP_FORCE_TCP */
    ddp_algorithm algorithm;  /* of reductions; AUTO = DDP_ALGORITHM (a name), else auto */
    /* At most one of store_endpoint, kv and unique_id; NULL = none. They come before DDP_UNIQUE_ID
     * (the bytes of one as hexadecimal digits), and that before DDPRUN_STORE. */
    const struct ddp_kv *kv;               /* meet through this store of the caller */
    const struct ddp_unique_id *unique_id; /* meet where the process of rank 0 made it */
};

/*
 * What a communicator has done so far; and on which phases this rank spent the time of operations
 * on device memory, in microseconds.
 */
struct ddp_comm_stats {
    size_t size;             /* set to sizeof(struct ddp_comm_stats) before the call */
    uint64_t operations;     /* completed: collectives, sends and receives */
    uint64_t bytes_sent;     /* payload that this rank has sent to others */
    uint64_t bytes_received; /* payload that this rank has received */
    uint64_t stream_us;      /* from the call until the stream reached the operation */
    uint64_t exchange_us;    /* then, of barriers and messages, until the ranks had agreed */
    uint64_t work_us;        /* then until this rank had moved and reduced its part */
    uint64_t completion_us;  /* then until the result of a staged request was copied to the GPU */
    uint64_t seq; /* of the latest collective that was called, from 1; messages are not counted. The
                     same on all ranks after the same calls; error sentences have this number */
    uint64_t nodes; /* groups of consecutive ranks that share memory; 1: all ranks do */
};

/**
 * The version of the library that the program runs with: as text, such as "0.2.0", and as a number,
 * 10000 * major + 100 * minor + patch. The text is constant. They do not block; any thread may call
 * them.
 */
DDP_API const char *ddp_version(void);
DDP_API uint32_t ddp_version_number(void);

/**
 * Make a unique id, in the process that will be rank 0; every rank passes it to ddp_comm_init().
 *
 * It is for one communicator and one call of ddp_comm_init() on each rank; to try again, make
 * another. The process listens from now on, at the address of an interface that DDP_SOCKET_IFNAME
 * chooses, or of the default route: ranks may connect before rank 0 calls ddp_comm_init(), which
 * takes the listening socket over and closes it. Whoever knows the id can join: do not publish it.
 * A child made by fork() cannot be rank 0. Does not block; any thread may call it.
 *
 * DDP_E_INVALID: DDP_SOCKET_IFNAME means no interface. DDP_E_SYSTEM: no socket.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_get_unique_id(struct ddp_unique_id *ret_id,
                                                    struct ddp_error *err);

/**
 * Close the listening socket of an id that will not be used, in the process that has made it. Does
 * nothing in others, and nothing once ddp_comm_init() has taken it over. Does not block.
 */
DDP_API void ddp_drop_unique_id(const struct ddp_unique_id *id);

/**
 * Join the communicator that @options describe (NULL: take everything from the environment).
 *
 * Blocks until all ranks have called it: at most init_timeout_ms and some seconds more, in which
 * the ranks find out which of them is to blame. @options is not kept. Rank 0 gathers the others: it
 * publishes its address in the store, as comm/NAME/host (below store_prefix, except in @kv), until
 * all have joined, and leaves nothing there. It holds a connection to each rank until all are
 * connected to their neighbours.
 *
 * On DDP_OK, *@ret_comm is a handle; free it with ddp_comm_destroy().
 *
 * If a rank fails that rank 0 has accepted, all accepted ranks fail at once, with the same cause.
 * They may call again, and join the ranks that call then. A rank that rank 0 has not accepted yet
 * goes on waiting; with a unique id it fails, if rank 0 does not listen any more. Errors:
 *   DDP_E_INVALID      a variable or option is malformed or missing; the sentence names it;
 *   DDP_E_UNREACHABLE  the store does not answer;
 *   DDP_E_PEER_DEAD    a rank died after it had joined, or its TCP connection ended without a
 *                      message;
 *   DDP_E_CLOSED       the connection of a rank on this machine ended, and the rank lives;
 *   DDP_E_TIMEOUT      the sentence names the ranks that did not join, or do not answer;
 *   DDP_E_MISMATCH     ranks with different world sizes, or two processes with one rank;
 *   DDP_E_PROTOCOL     a rank uses another version of this library;
 *   DDP_E_DENIED       rank 0 has another key, or another unique id;
 *   DDP_E_SYSTEM, DDP_E_NOMEM  this rank, or another one that the sentence names, lacks a resource,
 *                      such as descriptors, or memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_init(const struct ddp_comm_options *options,
                                                ddp_comm **ret_comm, struct ddp_error *err);

/**
 * Create a world of @ndev ranks within this process: @comms[r] is the communicator of rank r.
 *
 * For a process with one thread per device: needs neither store nor launcher, and does not block.
 * Rank r works on device @devices[r], or on device r if @devices is NULL; this matters for device
 * memory only. Several ranks may work on one device. @devices is not kept.
 *
 * Any thread may use each communicator. Operations wait for the other ranks, so each rank needs a
 * thread of its own while it is in one, or starts them without waiting (ddp_start()). Otherwise all
 * is as between processes: a rank whose communicator is destroyed has left, and each rank can
 * abort. Timeouts come from the environment. Ranks that share a device share its context: begin
 * with a collective, not with a message, and free no device memory while an operation of another
 * rank waits for this thread.
 *
 * On DDP_OK, free each communicator with ddp_comm_destroy(), in any order. On failure @comms is
 * unchanged. DDP_E_INVALID: @ndev is 0 or above 256, a device is negative, or a variable of the
 * environment is malformed. DDP_E_SYSTEM: there is no shared memory, of which a rank takes about 1
 * MiB.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_init_local(uint32_t ndev, const int *devices,
                                                      ddp_comm **comms, struct ddp_error *err);

/**
 * Let this rank leave in peace: no operation can begin any more, and what was sent arrives.
 *
 * Blocks until all collectives of this rank have ended, each within its own timeout, and then until
 * its messages have ended and the other ranks have taken all that it has sent to them: at most
 * @timeout_ms (0: the communicator's timeout). A request that receives, and whose message has not
 * begun to come until then, ends with DDP_E_CANCELED: wait before for what you need. Afterwards
 * ddp_comm_destroy() is the only call that is left, and aborts nothing. Not a collective: ranks
 * that need nothing more of this one go on without it. Received messages for which there was no
 * ddp_recv() are dropped. A second call does nothing.
 *
 * Between machines a message is taken when the kernel of the other rank has it, else when that rank
 * has read it.
 *
 * Errors are those of an operation. DDP_E_TIMEOUT: the sentence names a rank that has not taken its
 * bytes. DDP_E_PEER_DEAD: a rank died, or left, before it had.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_finalize(ddp_comm *comm, uint32_t timeout_ms,
                                                    struct ddp_error *err);

/**
 * Leave the communicator and free it. NULL is allowed. Does not wait for other ranks: ranks that
 * are in an operation with this one get DDP_E_PEER_DEAD. After operations on device memory it frees
 * memory of the device: for that the driver may wait for all streams of the context, even for one
 * that an operation of another communicator holds.
 */
DDP_API void ddp_comm_destroy(ddp_comm *comm);

/**
 * The rank of this process in @comm, from 0 to world size - 1; the number of ranks. They do not
 * block.
 */
DDP_API uint32_t ddp_comm_rank(const ddp_comm *comm);
DDP_API uint32_t ddp_comm_world_size(const ddp_comm *comm);

/**
 * Whether @comm still works: DDP_OK, or the first cause of its failure, with the sentence in @err.
 *
 * May be called from any thread, also while another one is in an operation. Returns what this rank
 * knows; once it has returned a cause, it returns the same one until @comm is destroyed. To find
 * errors of operations on device memory, synchronize the stream, then call it: it asks the driver,
 * too, whether the GPU has failed, unless it is called in a function of the program that an
 * operation calls (on_done). Sends nothing and does not block, but for a tenth of a second when it
 * finds such a failure, in which the other ranks are told.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_check(ddp_comm *comm, struct ddp_error *err);

/**
 * The time limit of each operation in milliseconds; set it for all later operations. May be called
 * from any thread; an operation that has begun keeps its limit. DDP_E_INVALID: 0.
 */
DDP_API uint32_t ddp_comm_get_timeout(const ddp_comm *comm);
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_set_timeout(ddp_comm *comm, uint32_t timeout_ms,
                                                       struct ddp_error *err);

/**
 * Reduce @count elements of @dtype over all ranks; every rank gets the result in @recv.
 *
 * @send and @recv hold @count elements each. In place, they are equal. Blocks until complete on
 * host memory; enqueues on device memory. Both buffers stay the caller's.
 * Ring is the algorithm of Patarasuk and Yuan (J. Parallel Distrib. Comput. 69, 2009).
 *
 * DDP_E_INVALID: @dtype or @op is unknown, a buffer is NULL or overlaps the other one, @count is
 * larger than any memory, or @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_all_reduce(ddp_comm *comm, const void *send, void *recv,
                                                 size_t count, ddp_dtype dtype, ddp_reduce_op op,
                                                 void *stream, struct ddp_error *err);

/**
 * ddp_all_reduce() of many buffers at once, as if the elements of all @nbuffers lay one after the
 * other in one array: the result has the bits that this array would get, and there is one header,
 * one number, one timeout and one pass, which costs less than a call for each buffer.
 *
 * Buffers may have any sizes, also 0; the list may be empty, and is NULL then at will. Of each
 * buffer @send and @recv are equal (in place), or do not overlap; different buffers never do. All
 * ranks pass lists with the same counts in the same order. A list of one buffer is the same call as
 * ddp_all_reduce() of that buffer. Where ranks share memory, elements go from the buffers to it and
 * back; by other algorithms they are packed into memory that is allocated for the time of the
 * operation, as much as all buffers have. Blocks until complete.
 *
 * All buffers are host memory, or all are memory of one device: then the operation is enqueued on
 * @stream as others are.
 *
 * @buffers stays the caller's, who does not change it before the call has returned; in a group of
 * calls, before ddp_group_end() has. As a request, and for broadcast: ddp_start() and ddp_run()
 * with a list in struct ddp_operation.
 *
 * DDP_E_INVALID: @dtype or @op is unknown, @stream is not NULL with host memory, buffers are memory
 * of several kinds or devices; a buffer with elements is NULL, or overlaps another one; all
 * together are larger than any memory; @nbuffers is above 4,294,967,295. DDP_E_MISMATCH: another
 * rank has a list of other lengths; the sentence names both.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_all_reduce_many(ddp_comm *comm,
                                                      const struct ddp_buffer *buffers,
                                                      size_t nbuffers, ddp_dtype dtype,
                                                      ddp_reduce_op op, void *stream,
                                                      struct ddp_error *err);

/**
 * Reduce @count elements of @dtype over all ranks; rank @root gets the result in @recv.
 *
 * @send and, on @root, @recv hold @count elements each. In place, they are equal. On other ranks
 * @recv is not used and may be NULL. @send is not changed, unless it is @recv on @root. @root must
 * be the same on all ranks. Ring: a pipeline from the rank after the root round to the root; each
 * rank but the root sends the elements once. Direct: each rank sends them N - 1 times. Blocks until
 * complete on host memory; enqueues on device memory. Both buffers stay the caller's.
 *
 * DDP_E_INVALID: as ddp_all_reduce(), or @root does not exist.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reduce(ddp_comm *comm, const void *send, void *recv,
                                             size_t count, ddp_dtype dtype, ddp_reduce_op op,
                                             uint32_t root, void *stream, struct ddp_error *err);

/**
 * Copy @count elements of @dtype at @buffer from rank @root to all ranks.
 *
 * @root must be the same on all ranks. The data goes round the ring in a pipeline; each rank but
 * the one before the root sends it once. Blocks until complete on host memory; enqueues on device
 * memory. @buffer stays the caller's.
 *
 * DDP_E_INVALID: @dtype is unknown, @buffer is NULL, @count is larger than any memory, @root does
 * not exist, or @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_broadcast(ddp_comm *comm, void *buffer, size_t count,
                                                ddp_dtype dtype, uint32_t root, void *stream,
                                                struct ddp_error *err);

/**
 * Collect @count elements of @dtype from each rank; every rank gets all of them in @recv.
 *
 * @send holds @count elements, @recv @count for each rank: those of rank r begin at element r *
 * @count. In place, @send is this rank's part of @recv. Each rank sends @count * (N - 1) elements.
 * Blocks until complete on host memory; enqueues on device memory. Both buffers stay the caller's.
 *
 * DDP_E_INVALID: @dtype is unknown, a buffer is NULL or overlaps the other one, the elements of all
 * ranks are larger than any memory, or @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_all_gather(ddp_comm *comm, const void *send, void *recv,
                                                 size_t count, ddp_dtype dtype, void *stream,
                                                 struct ddp_error *err);

/**
 * Reduce over all ranks; rank r gets elements [r * @count, (r + 1) * @count) of the result.
 *
 * @send holds @count elements of @dtype for each rank, @recv @count. In place, @recv is this rank's
 * part of @send; the rest of @send is not changed. Ring: a scatter-reduce, the first half of an
 * all-reduce, in which each rank sends @count * (N - 1) elements. Direct: N times as many. Blocks
 * until complete on host memory; enqueues on device memory. Both buffers stay the caller's.
 *
 * DDP_E_INVALID: as ddp_all_reduce(), or the elements of all ranks are larger than any memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_reduce_scatter(ddp_comm *comm, const void *send, void *recv,
                                                     size_t count, ddp_dtype dtype,
                                                     ddp_reduce_op op, void *stream,
                                                     struct ddp_error *err);

/**
 * Collect @count elements of @dtype from each rank; rank @root gets all of them in @recv.
 *
 * @send holds @count elements; on @root, @recv holds @count for each rank, those of rank r from
 * element r * @count on. On other ranks @recv is not used and may be NULL. In place, @send is the
 * root's part of @recv. Each rank but the root sends its elements to it. Blocks until complete on
 * host memory; enqueues on device memory. Both buffers stay the caller's. Parts of different sizes:
 * ddp_run().
 *
 * DDP_E_INVALID: as ddp_all_gather(), or @root does not exist.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_gather(ddp_comm *comm, const void *send, void *recv,
                                             size_t count, ddp_dtype dtype, uint32_t root,
                                             void *stream, struct ddp_error *err);

/**
 * Distribute @count elements of @dtype to each rank from rank @root, which has all of them in
 * @send.
 *
 * On @root, @send holds @count elements for each rank, those of rank r from element r * @count on;
 * on other ranks it is not used and may be NULL. @recv holds @count elements. In place, @recv is
 * the root's part of @send. Blocks until complete on host memory; enqueues on device memory. Both
 * buffers stay the caller's. Parts of different sizes: ddp_run().
 *
 * DDP_E_INVALID: as ddp_gather().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_scatter(ddp_comm *comm, const void *send, void *recv,
                                              size_t count, ddp_dtype dtype, uint32_t root,
                                              void *stream, struct ddp_error *err);

/**
 * Send @count elements of @dtype to each rank, and receive as many from each.
 *
 * @send and @recv hold @count elements for each rank, this one included: those for, or from, rank r
 * begin at element r * @count. They do not overlap: there is no form in place. Each rank sends
 * @count * (N - 1) elements. Blocks until complete on host memory; enqueues on device memory. Both
 * buffers stay the caller's. Parts of different sizes: ddp_run().
 *
 * DDP_E_INVALID: as ddp_all_gather().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_all_to_all(ddp_comm *comm, const void *send, void *recv,
                                                 size_t count, ddp_dtype dtype, void *stream,
                                                 struct ddp_error *err);

/**
 * Send @count elements of @dtype at @buffer to rank @peer; receive them from rank @peer.
 *
 * Only these two ranks take part. Messages are matched in order: the first ddp_recv() from a rank
 * receives its first ddp_send() to this one. Both must name the same count and type. ddp_run()
 * takes a tag: only messages with the same tag match, and may overtake others; here the tag is 0.
 * On host memory ddp_recv() returns when the message is complete, and ddp_send() when @buffer may
 * be changed again; on device memory the stream goes on then. What was sent may not have arrived
 * yet, and if the peer is dead or calls something else, a later operation fails. The first message
 * between two ranks waits until the peer is in any operation, as a rank accepts connections only
 * then. As with MPI_Send, do not rely on buffering: if two ranks send to each other before they
 * receive, each may wait for the other until the timeout. To shift data round a ring, use
 * ddp_send_recv() or a group (ddp_group_start()). A message to this rank itself is kept in memory
 * until it is received; so is one that comes before the message that this rank waits for. Calls on
 * device memory are enqueued and run one after the other: there, call ddp_send() to this rank
 * itself before its ddp_recv(). They go in slices of 4 MiB, and a call blocks while 256 slices are
 * enqueued. @buffer stays the caller's.
 *
 * DDP_E_INVALID: @dtype is unknown, @buffer is NULL, @count is larger than any memory, @peer does
 * not exist, or @stream is not NULL with host memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_send(ddp_comm *comm, const void *buffer, size_t count,
                                           ddp_dtype dtype, uint32_t peer, void *stream,
                                           struct ddp_error *err);
DDP_API DDP_MUST_CHECK ddp_status ddp_recv(ddp_comm *comm, void *buffer, size_t count,
                                           ddp_dtype dtype, uint32_t peer, void *stream,
                                           struct ddp_error *err);

/**
 * Send @send_count elements of @dtype at @send to rank @to, and receive @recv_count elements at
 * @recv from rank @from, both at once: as MPI_Sendrecv(), it needs no order of the ranks. Either
 * end may match a ddp_send() or ddp_recv() on host memory; on device memory, where the two messages
 * run one after the other, both ends must call this or a group of calls. @to and @from may be the
 * same rank, also this one. Blocks until both are complete on host memory; enqueues
 * on device memory. Both buffers stay the caller's, and do not overlap.
 *
 * DDP_E_INVALID: as ddp_send(); neither message has begun.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_send_recv(ddp_comm *comm, const void *send, size_t send_count,
                                                uint32_t to, void *recv, size_t recv_count,
                                                uint32_t from, ddp_dtype dtype, void *stream,
                                                struct ddp_error *err);

/**
 * Receive @count elements of @dtype with @tag into @buffer, from whichever rank sends them first,
 * this one included; sets *@ret_source to that rank. NULL is allowed.
 *
 * As ddp_recv(). Messages of one rank are taken in order, among those of different ranks the one
 * that is seen first. The sender makes the connection. The death of a rank ends the wait only if no
 * other rank is left. Blocks until the message is complete on host memory. On device memory it is
 * enqueued on the default stream (ddp_run() takes another one), and *@ret_source is set before the
 * stream goes on; it must stay valid until then.
 *
 * DDP_E_INVALID: as ddp_recv(). DDP_E_MISMATCH: the message has another count or type.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_recv_any(ddp_comm *comm, void *buffer, size_t count,
                                               ddp_dtype dtype, uint32_t tag, uint32_t *ret_source,
                                               struct ddp_error *err);

/**
 * Wait until all ranks have called it.
 *
 * If @stream is NULL, the call waits. Otherwise the barrier is enqueued: later work of that stream
 * waits until the streams of all ranks have reached the barrier.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_barrier(ddp_comm *comm, void *stream, struct ddp_error *err);

/**
 * Wait until all ranks have called it, at most @timeout_ms (0: the communicator's timeout). If some
 * do not come, the sentence names all of them, while that of ddp_barrier() may name one only.
 *
 * Each rank reports to rank 0 and waits for its answer. So none succeeds unless rank 0 has, but for
 * one case: rank 0 dies while it answers. It takes two messages of headers for each rank, a
 * connection of rank 0 to every rank, and the time of two messages. At the end of its time rank 0
 * says who is missing; the other ranks wait for that a quarter longer, at most a second, and then
 * name rank 0. If ranks call another collective instead, all fail at once with a sentence that
 * names both.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_monitored_barrier(ddp_comm *comm, uint32_t timeout_ms,
                                                        struct ddp_error *err);

/**
 * Allocate @bytes of host memory, zeroed, that collectives of @comm work in without copying.
 *
 * A rank calls it when it likes, without the others, and in any thread. It waits only if the ranks
 * share memory and no collective of @comm has gone through that memory yet. Then it waits for what
 * this rank has started before, and until all lower ranks have called this or begun such a
 * collective. Collectives on device memory do not count, nor those for which DDP_ALGORITHM or a
 * table names another way.
 *
 * Ranks that share memory (one machine, at most 256 ranks, not DDP_ALGORITHM_RING) can see what
 * each of them allocates here. An operation on more than 16 KiB in which every buffer of every rank
 * lies in such memory reads and writes these buffers directly; the first one that uses a block
 * takes a moment longer, as ranks map it. If a single buffer lies elsewhere, the operation takes
 * the usual way through shared memory; so do all, once a rank had no addresses left to map a block
 * (RLIMIT_AS). Results are the same, to the bit. Where ranks do not share memory this is ordinary
 * memory. A communicator that is made of @comm has memory of its own: buffers of its parent are
 * like any others to it.
 *
 * The program may use the memory as it likes, except that children of fork() do not have it. Free
 * it with ddp_free(); ddp_comm_destroy() frees what is left. On DDP_OK, *@ret is aligned to pages.
 * The memory of a rank that has died stays until the others have destroyed @comm. After an
 * operation has failed, ranks that do not know it yet may still write to its output buffers.
 *
 * DDP_E_SYSTEM, DDP_E_NOMEM: this rank has no such memory, or a limit (RLIMIT_FSIZE) forbids it,
 * and @comm stays usable. DDP_E_INVALID: this is a child of fork(), or a group of calls is open
 * (ddp_group_start()). Where the call waits for other ranks it can fail as a collective does.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_alloc(ddp_comm *comm, size_t bytes, void **ret,
                                            struct ddp_error *err);

/**
 * Free what ddp_alloc() has returned as @ptr, which no operation that is under way may use. The
 * system has the memory back at once. It waits for no other rank; if @comm has failed, it waits for
 * what this rank has started.
 *
 * DDP_E_INVALID: @ptr is something else, or this is a child of fork().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_free(ddp_comm *comm, void *ptr, struct ddp_error *err);

/**
 * Take what ddp_alloc() has returned as @ptr out of @comm, whose collectives copy it from now on.
 * It stays where it is when @comm is destroyed: the program frees it by munmap(@ptr, *@ret_bytes).
 * For memory that outlives its communicator. No operation that is under way may use it. Does not
 * block.
 *
 * DDP_E_INVALID: @ptr is something else, or this is a child of fork().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_alloc_detach(ddp_comm *comm, void *ptr, size_t *ret_bytes,
                                                   struct ddp_error *err);

/**
 * Make the current operation, and all later ones, return DDP_E_ABORTED, on this rank and all
 * others. On a rank that has already received everything the current operation may still succeed.
 * May be called from any thread and from a signal handler; does not block.
 */
DDP_API void ddp_comm_abort(ddp_comm *comm);

/**
 * Fill @ret_stats up to its size, which must be set. Does not block. DDP_E_INVALID: the size is not
 * set, or too small for the counts of bytes.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_get_stats(const ddp_comm *comm,
                                                     struct ddp_comm_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
