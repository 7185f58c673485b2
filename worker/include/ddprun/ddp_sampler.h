/*
 * ddprun/ddp_sampler.h - which items of a dataset a rank processes in an epoch. Part of
 * <ddprun/ddp.h>.
 *
 * The arithmetic is that of torch.utils.data.distributed.DistributedSampler. All ranks put the
 * items into the same order: 0, 1, 2, ..., or with @shuffle the permutation that torch.randperm()
 * makes on a CPU with a generator seeded with @seed + epoch. They make its length a multiple of the
 * world size: items from its begin are appended, again and again if need be, or with @drop_last the
 * tail is left out. Rank r takes the positions r, r + N, r + 2N, ... of N ranks. So no call here
 * needs a communicator, and a program that moves from PyTorch gets the same items in the same
 * order.
 *
 * A sampler belongs to one thread at a time; several threads may read one that none changes. No
 * call blocks; with @shuffle, a change of the epoch takes about 10 ms for a million items.
 */
#ifndef DDPRUN_DDP_SAMPLER_H
#define DDPRUN_DDP_SAMPLER_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_sampler ddp_sampler;

/* Set @size to sizeof(struct ddp_sampler_options). PyTorch's defaults are @shuffle 1, others 0. */
struct ddp_sampler_options {
    size_t size;
    uint64_t count;      /* items of the dataset */
    uint32_t world_size; /* at least 1; the same on all ranks, as all members but @rank are */
    uint32_t rank;       /* below world_size */
    uint64_t seed;       /* PyTorch uses the lower 32 bits of seed + epoch only */
    uint32_t shuffle;    /* 1: a new order for each epoch, in 8 bytes of memory for each item */
    uint32_t drop_last;  /* 1: leave out the last count % world_size items of the order, rather than
                            process some items twice */
};

/**
 * Create a sampler, at epoch 0. @options is not kept. Free it with ddp_sampler_destroy().
 *
 * DDP_E_INVALID: a member is out of range; the sentence names it. DDP_E_NOMEM.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_sampler_create(const struct ddp_sampler_options *options,
                                                     ddp_sampler **ret_sampler,
                                                     struct ddp_error *err);

/** NULL is allowed. */
DDP_API void ddp_sampler_destroy(ddp_sampler *sampler);

/**
 * Begin epoch @epoch: a new order if the sampler shuffles, else nothing changes. Every rank must
 * pass the same number, or items are missed and others processed twice. Cannot fail.
 */
DDP_API void ddp_sampler_set_epoch(ddp_sampler *sampler, uint64_t epoch);

/** How many items this rank has in an epoch; as many as each other rank. */
DDP_API uint64_t ddp_sampler_count(const ddp_sampler *sampler);

/** Item number @k of this rank; UINT64_MAX if @k is not below ddp_sampler_count(). */
DDP_API uint64_t ddp_sampler_index(const ddp_sampler *sampler, uint64_t k);

/**
 * Write up to @count items of this rank, from number @first on, to @items: a batch, for example.
 * Returns how many there are: less than @count at the end of the epoch.
 */
DDP_API uint64_t ddp_sampler_fill(const ddp_sampler *sampler, uint64_t first, uint64_t count,
                                  uint64_t *items);

#ifdef __cplusplus
}
#endif

#endif
