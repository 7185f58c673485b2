/*
 * reduce_any.c - reductions of more inputs than one ddpi_reduce_many() takes. Pure.
 *
 * The result so far is the first input of the next call. To give the bits of one call over all
 * inputs it must not be rounded in between: for the floats of 8 and 16 bits, except for their
 * minimum and maximum, it is kept in float32, to which the elements are widened a tile at a time.
 */
#include "reduce_any.h"

#include "mem.h"
#include "reduce.h"

enum { TILE = 256 }; /* elements; of 16 inputs in float32 they are half a first-level cache */

/* Fold inputs in their own type. */
static void fold_same_type(const struct ddpi_fold *fold)
{
    DDPI_UNINITIALIZED struct ddpi_reduction work;
    work.out[0] = fold->out;
    work.nout = 1;
    work.count = fold->count;
    work.dtype = fold->dtype;
    work.op = fold->op;
    work.divisor = 1;
    work.factor = NULL;
    work.non_finite = NULL;
    for (uint32_t next = 0; next < fold->nin;) {
        work.nin = 0;
        if (next > 0)
            work.in[work.nin++] = fold->out;
        while (next < fold->nin && work.nin < DDPI_REDUCE_MOST)
            work.in[work.nin++] = fold->in + next++ * fold->stride;
        if (next == fold->nin) {
            work.divisor = fold->divisor;
            work.non_finite = fold->non_finite;
        }
        ddpi_reduce_many(&work);
    }
}

/* @count narrow elements from @first on, widened. */
static void fold_tile(const struct ddpi_fold *fold, size_t first, size_t count)
{
    float partial[TILE], wide[DDPI_REDUCE_MOST - 1][TILE];
    struct ddpi_reduction work = {.in = {partial},
                                  .out = {partial},
                                  .nout = 1,
                                  .count = count,
                                  .dtype = DDP_FLOAT32,
                                  .op = fold->op};
    size_t offset = first * ddp_dtype_size(fold->dtype);
    ddpi_widen(partial, fold->in + offset, count, fold->dtype);
    for (uint32_t next = 1; next < fold->nin;) {
        work.nin = 1;
        for (; next < fold->nin && work.nin < DDPI_REDUCE_MOST; next++) {
            float *row = wide[work.nin - 1];
            ddpi_widen(row, fold->in + next * fold->stride + offset, count, fold->dtype);
            work.in[work.nin++] = row;
        }
        work.divisor = next == fold->nin ? fold->divisor : 1;
        ddpi_reduce_many(&work);
    }
    ddpi_narrow((uint8_t *)fold->out + offset, partial, count, fold->dtype);
    if (fold->non_finite != NULL)
        *fold->non_finite |= ddpi_has_non_finite((uint8_t *)fold->out + offset, count, fold->dtype);
}

void ddpi_fold(const struct ddpi_fold *fold)
{
    if (fold->nin == 2 && fold->divisor == 1 && fold->non_finite == NULL) {
        ddpi_reduce_pair(fold->out, fold->in, fold->in + fold->stride, fold->count, fold->dtype,
                         fold->op);
        return;
    }
    bool is_extreme = fold->op == DDP_MIN || fold->op == DDP_MAX;
    if (fold->nin <= DDPI_REDUCE_MOST || !ddpi_dtype_is_narrow(fold->dtype) || is_extreme) {
        fold_same_type(fold);
        return;
    }
    for (size_t first = 0; first < fold->count; first += TILE) {
        size_t left = fold->count - first;
        fold_tile(fold, first, left < TILE ? left : TILE);
    }
}
