/*
 * permutation.h - the permutation that PyTorch makes on a CPU: torch.randperm() with a generator
 * that was seeded with manual_seed(). Pure.
 */
#ifndef DDPI_PERMUTATION_H
#define DDPI_PERMUTATION_H

#include <stdint.h>

/* From this count on, PyTorch draws 64 bits for each position: 2^32 / 20. */
#define DDPI_PERMUTATION_LARGE (UINT32_MAX / 20)

/* Write a permutation of 0 ... @count - 1, which @seed determines, to the @count elements at
 * @order. As in PyTorch only the lower 32 bits of the seed count. */
void ddpi_permutation_fill(uint64_t *order, uint64_t count, uint64_t seed);

#endif
