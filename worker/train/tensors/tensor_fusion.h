/*
 * tensor_fusion.h - which tensors that are ready are reduced together. Pure: Horovod's rules.
 */
#ifndef DDPI_TENSOR_FUSION_H
#define DDPI_TENSOR_FUSION_H

#include "negotiation.h"

/*
 * Divide the @count responses at @ready into batches, each carried out by one call. @order becomes
 * a permutation of them; ends[b] is where batch b ends in it. All arrays have room for @count;
 * @taken is scratch. Returns the number of batches.
 *
 * The first response opens a batch. Later all-reduces, or uneven all-gathers, join it that have its
 * type, reduction, scales and set, while its bytes stay at or below @threshold. One that does not
 * join is skipped, and those behind it are looked at, as long as the bytes of the batch and of all
 * that was skipped stay at or below @threshold. A group whose tensors could all share a batch is
 * not divided, even if it is larger than @threshold. With @threshold 0 only groups are fused.
 */
size_t ddpi_tensor_fuse(const struct ddpi_tensor_response *const *ready, size_t count,
                        size_t threshold, size_t *order, size_t *ends, bool *taken);

#endif
