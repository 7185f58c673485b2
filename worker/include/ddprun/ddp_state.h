/*
 * ddprun/ddp_state.h - the state of a training in memory, for going on when ranks die or come: what
 * Horovod's hvd.elastic.State does. Part of <ddprun/ddp.h>.
 *
 * A program names the memory that makes up its state once: weights, the optimizer's memory, step
 * and epoch. ddp_state_commit() copies it. ddp_state_sync() gives all ranks of a communicator the
 * newest commit that any of them has. A training loop:
 *
 *     status = ddp_state_sync(state, comm, &err);          // rank 0's state, or what others have
 *     while (status == DDP_OK && step < steps) {
 *         status = train_step(comm, &err);                 // advances step, which is a blob
 *         if (status == DDP_OK && step % 10 == 0)
 *             status = ddp_state_commit(state, &err);
 *         if (status == DDP_E_PEER_DEAD || status == DDP_E_CLOSED)
 *             status = ddp_state_recover(state, &comm, 0, &err);  // step is that of the commit
 *     }
 *
 * New ranks: all, old and new, join a new communicator (ddp_comm_init() with another name or unique
 * id) and call ddp_state_sync(). Commit before, as the old ranks go back to their last commit, too.
 *
 * Which commit is the newest: commits are counted, and one after a later sync is newer than any
 * after an earlier one. So survivors may be any number of commits apart, as after a death in the
 * middle of a commit: those behind receive the newest from a rank that has it. A rank that was left
 * out and comes back receives the commits that were made without it, whatever it has counted
 * meanwhile.
 *
 * The state must be the same on all ranks when they commit, as in data-parallel training: after a
 * sync all have the same bytes. A checksum finds ranks whose newest commit has others; they receive
 * that of the rank that sends. What differs between ranks by intention, such as a rank's own share
 * of the data, is computed from rank, world size and the state after each sync. Numbers are in the
 * byte order of the machine.
 *
 * Memory: ddp_state_create() allocates twice the bytes of all blobs, in host memory: for the last
 * commit, and for the one that is being made or received. Commit and restore allocate nothing;
 * sync allocates 40 bytes for each rank while it runs. Blobs stay the caller's, and in place. Those
 * in device memory need a function that copies them: @copy of the options.
 *
 * One thread at a time may use a state.
 */
#ifndef DDPRUN_DDP_STATE_H
#define DDPRUN_DDP_STATE_H

#include <ddprun/comm.h>
#include <ddprun/ddp_checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_state ddp_state;

/*
 * What the state consists of. Set @size to sizeof(struct ddp_state_options). The list and the names
 * are copied. It may be the list of a struct ddp_checkpoint, with its limits.
 */
struct ddp_state_options {
    size_t size;
    const struct ddp_checkpoint_blob *blobs; /* the same names and sizes on all ranks, in order */
    size_t count;                            /* of blobs; at least 1 */

    /* Copies @bytes between a blob and host memory, in either direction, and returns when that is
     * done: 0, or the number of an error. NULL: memcpy(), for blobs in host memory. For memory of
     * a GPU: cudaMemcpy(to, from, bytes, cudaMemcpyDefault). */
    int (*copy)(void *to, const void *from, size_t bytes, void *arg);
    void *copy_arg;
};

/**
 * Create a state without a commit. Does not block, and does not look at the content of the blobs.
 *
 * On DDP_OK, free *@ret_state with ddp_state_destroy(). DDP_E_INVALID: the sentence names the
 * member or the blob. DDP_E_NOMEM.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_state_create(const struct ddp_state_options *options,
                                                   ddp_state **ret_state, struct ddp_error *err);

/** Free the copies. NULL is allowed. Blobs are not looked at. */
DDP_API void ddp_state_destroy(ddp_state *state);

/**
 * Copy the blobs: they are the newest commit from now on, and the one before is forgotten.
 *
 * Asks no other rank and so waits for none: all ranks must commit after the same steps. Not during
 * a step: the blobs must be those of one moment. Cannot fail with blobs in host memory.
 * DDP_E_SYSTEM: @copy of the options failed, with the number in the sentence; the commit before
 * stays the newest.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_state_commit(ddp_state *state, struct ddp_error *err);

/**
 * Set the blobs to the last commit of this rank. Asks no other rank: if one does it without a sync,
 * all must. After a failed collective call ddp_state_recover() or ddp_state_sync() instead, as
 * ranks may be commits apart.
 *
 * DDP_E_INVALID: there is no commit yet. DDP_E_SYSTEM: @copy failed; the blobs are undefined, the
 * commit is as before.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_state_restore(ddp_state *state, struct ddp_error *err);

/**
 * Give all ranks of @comm the newest commit that any of them has, and set the blobs to it. If none
 * has one, the blobs of rank 0 become the first commit of all.
 *
 * All ranks of @comm call it, as a collective on host memory, and it blocks as one. If all have the
 * newest commit already, only 40 bytes of each rank are sent to the others; else the lowest rank
 * that has it broadcasts it to all, as one operation: @comm's timeout must be long enough for that.
 * What was changed since that commit is lost, on all ranks.
 *
 * On failure the blobs are as before, and so is the commit; call it again with the communicator
 * that comes after. Then it does not matter which ranks had come to the end of this call.
 * DDP_E_MISMATCH: ranks have other blobs; the sentence, which is the same on all, names the blob
 * and the rank, and @comm stays usable. DDP_E_NOMEM and DDP_E_SYSTEM concern this rank alone;
 * others hear of it when it destroys @comm. DDP_E_SYSTEM: @copy failed, and the blobs are
 * undefined. All errors of ddp_all_gather() and ddp_broadcast().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_state_sync(ddp_state *state, ddp_comm *comm,
                                                 struct ddp_error *err);

/**
 * Go on without the ranks that have died: ddp_comm_shrink() of *@comm, whose place the new
 * communicator takes, then ddp_state_sync(). If ranks die meanwhile, both again. The old
 * communicator is destroyed: destroy before what stands on it, such as a reducer.
 *
 * All ranks of *@comm that live call it, after an error that told of a death. Each round takes at
 * most @timeout_ms (0: the timeout of *@comm) until all have come, as ddp_comm_shrink(), and the
 * time of a sync. On success the ranks of *@comm are numbered anew, and there may be fewer.
 *
 * On failure *@comm is the last communicator that there was, to be destroyed by the caller; the
 * call may be repeated. Errors are those of the two calls.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_state_recover(ddp_state *state, ddp_comm **comm,
                                                    uint32_t timeout_ms, struct ddp_error *err);

/** The number of this rank's last commit; 0: there is none. Equal on all ranks after a sync. */
DDP_API uint64_t ddp_state_commit_number(const ddp_state *state);

#ifdef __cplusplus
}
#endif

#endif
