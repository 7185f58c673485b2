/*
 * ddprun/comm_groups.h - grids of ranks, and communicators of some of the ranks of another one.
 * Part of <ddprun/comm.h>.
 *
 * A program that divides its work along several axes (data, tensor, pipeline) places its ranks in
 * a grid of as many dimensions, and talks along one axis, or several, in a communicator of the
 * ranks that differ only there. The ranks of a grid are numbered in row-major order: the last
 * coordinate changes first, so that ranks next to each other along the last axis are neighbours,
 * usually on one machine.
 *
 * A new communicator (a child) is independent of the one that it was made from (its parent): it has
 * its own edges, failures and aborts, may be used by another thread at the same time, and either
 * may be destroyed first. It takes over the parent's timeout, algorithm, device and transports.
 * Edges are made when the first operation needs them, so a child costs its listeners until then,
 * and a child of one rank not even those.
 *
 * Functions that make communicators block. They are operations of the parent: its timeout and its
 * failures are theirs, unless their comment says otherwise. Free what they return with
 * ddp_comm_destroy().
 */
#ifndef DDPRUN_COMM_GROUPS_H
#define DDPRUN_COMM_GROUPS_H

#include <ddprun/comm_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_GRID_AXES 8 /* at most */

/*
 * A grid of dims[0] x ... x dims[naxes - 1] ranks. Set both members, or let ddp_grid_init() do it.
 * The functions below do not block; any thread may call them.
 */
struct ddp_grid {
    uint32_t naxes;
    uint32_t dims[DDP_GRID_AXES];
};

/**
 * Make *@ret_grid the grid of the @naxes extents in @dims.
 *
 * DDP_E_INVALID: no axis or more than DDP_GRID_AXES, an extent of 0, or more than 65,536 ranks.
 */
DDP_API ddp_status ddp_grid_init(struct ddp_grid *ret_grid, const uint32_t *dims, uint32_t naxes,
                                 struct ddp_error *err);

/**
 * The number of ranks in the grid; 0 if it is none that ddp_grid_init() would make.
 */
DDP_API uint32_t ddp_grid_size(const struct ddp_grid *grid);

/**
 * Where a rank is: fills @ret_coords[0 .. naxes - 1]; and which rank is at @coords.
 *
 * DDP_E_INVALID: not a grid; @rank, or a coordinate, is outside of it.
 */
DDP_API ddp_status ddp_grid_coords(const struct ddp_grid *grid, uint32_t rank, uint32_t *ret_coords,
                                   struct ddp_error *err);
DDP_API ddp_status ddp_grid_rank(const struct ddp_grid *grid, const uint32_t *coords,
                                 uint32_t *ret_rank, struct ddp_error *err);

/*
 * The group of a rank along some axes: the ranks whose coordinates on all other axes are the same.
 * Along one axis it is a row, along two a plane, along all the whole grid, along none the rank
 * alone. Groups along the same axes are disjoint and of one size, and cover the grid.
 */
struct ddp_grid_group {
    uint32_t index;  /* of this group, from 0 */
    uint32_t groups; /* how many there are */
    uint32_t rank;   /* of the rank within its group; by number in the grid */
    uint32_t size;   /* ranks in each group */
};

/**
 * The group of @rank along the @naxes axes in @axes, in any order; without axes @axes may be NULL.
 *
 * DDP_E_INVALID: not a grid; @rank is outside of it; an axis does not exist, or comes twice.
 */
DDP_API ddp_status ddp_grid_find_group(const struct ddp_grid *grid, uint32_t rank,
                                       const uint32_t *axes, uint32_t naxes,
                                       struct ddp_grid_group *ret_group, struct ddp_error *err);

/**
 * The rank in the grid of the @member-th rank of group @index along @axes: with member = 0 ..
 * size - 1 all ranks of a group, ascending.
 *
 * DDP_E_INVALID: as above; there is no such group or member.
 */
DDP_API ddp_status ddp_grid_member(const struct ddp_grid *grid, const uint32_t *axes,
                                   uint32_t naxes, uint32_t index, uint32_t member,
                                   uint32_t *ret_rank, struct ddp_error *err);

/* The colour of a rank that wants no communicator. */
#define DDP_NO_COLOR (-1)

/**
 * Divide the ranks of @parent: those that pass the same @color become a communicator.
 *
 * All ranks of @parent call it, as a collective on host memory (MPI_Comm_split, ncclCommSplit). The
 * new ranks are in the order of @key, and of the old ranks where keys are equal. With DDP_NO_COLOR,
 * *@ret_comm becomes NULL. Each rank sends 944 bytes to each other one, along the ring. A rank that
 * does not come is named on all others after the timeout of @parent, which has failed then.
 *
 * DDP_E_INVALID: @color is negative and not DDP_NO_COLOR; nothing was sent. DDP_E_SYSTEM,
 * DDP_E_NOMEM: a rank of the same colour, which the sentence names, lacks a resource: none of that
 * colour has a communicator, and @parent stays usable. If a rank dies in the call, some may have
 * one, whose first operation fails.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_split(ddp_comm *parent, int32_t color, int32_t key,
                                                 ddp_comm **ret_comm, struct ddp_error *err);

/**
 * Make a communicator of the @count ranks at @ranks of @parent, in this order. Only they call it,
 * all with the same list (MPI_Comm_create_group).
 *
 * It uses messages of @parent between the lowest rank of the list and each other one: receive what
 * was sent between them before. @ranks is not kept. A member that does not come is named after the
 * timeout of @parent, which has failed then.
 *
 * DDP_E_INVALID: the list lacks this rank, or has a rank twice, or one that does not exist; nothing
 * was sent. DDP_E_MISMATCH: a member passed another list; the sentence has both, and @parent stays
 * usable. DDP_E_SYSTEM, DDP_E_NOMEM: as ddp_comm_split().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_create_group(ddp_comm *parent, const uint32_t *ranks,
                                                        uint32_t count, ddp_comm **ret_comm,
                                                        struct ddp_error *err);

/**
 * ddp_comm_split() into the groups along the @naxes axes in @axes of a grid whose ranks are those
 * of @parent: one axis gives rows or columns, two give planes.
 *
 * DDP_E_INVALID: @grid has not as many ranks as @parent, or as ddp_grid_find_group(); nothing was
 * sent. Otherwise as ddp_comm_split().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_split_grid(ddp_comm *parent, const struct ddp_grid *grid,
                                                      const uint32_t *axes, uint32_t naxes,
                                                      ddp_comm **ret_comm, struct ddp_error *err);

/* A flag of ddp_comm_shrink(). */
#define DDP_SHRINK_ABORT 1u /* abort the operations of the old communicator that are under way */

/**
 * Make a communicator of the ranks of @comm that are left, in the same processes, without a restart
 * (ncclCommShrink). @comm may have failed.
 *
 * All ranks of @comm call it that live and are not among the @count ranks at @excluded, with the
 * same list, which may be empty: those that have died, or have destroyed @comm, are found out.
 * Their ranks are numbered anew, in the old order. Nothing that was sent in @comm arrives in the
 * new communicator. @comm stays to be destroyed; if it has not failed, it stays usable, too.
 * Operations under way are waited for, unless @flags is DDP_SHRINK_ABORT: then @comm fails (0: no
 * flags).
 *
 * Takes at most @timeout_ms (0: the timeout of @comm) until all have come, and about as long again
 * to find out what has become of a rank that stops meanwhile. If ranks die during the call, the
 * others go on without them. The call may be repeated after a failure.
 *
 * DDP_E_TIMEOUT: names the ranks that live but did not call. DDP_E_MISMATCH: the lists differ.
 * DDP_E_INVALID: @excluded has this rank, or one that does not exist; the flags are unknown.
 * DDP_E_SYSTEM, DDP_E_NOMEM: this rank, or another one that the sentence names, lacks a resource:
 * no rank has a new communicator, and all may try again.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_comm_shrink(ddp_comm *comm, const uint32_t *excluded,
                                                  uint32_t count, uint32_t flags,
                                                  uint32_t timeout_ms, ddp_comm **ret_comm,
                                                  struct ddp_error *err);

#ifdef __cplusplus
}
#endif

#endif
