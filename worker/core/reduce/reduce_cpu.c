/*
 * reduce_cpu.c - reductions on the host, of up to 16 inputs into up to 16 outputs. Pure. The
 * kernels in gpu/kernels/reduce_copy.cu give the same bits, except inside a NaN.
 *
 * A reduction goes through its buffers in blocks, so that intermediate results stay in the
 * processor's first-level cache. The loops over elements are in loops_impl.h.
 */
#include "floats_impl.h"
#include "loops.h"

/* The build fills variables with zeros, which would take longer than a short reduction. */
#if defined(__has_attribute)
#if __has_attribute(uninitialized)
#define UNINITIALIZED __attribute__((uninitialized))
#endif
#endif
#ifndef UNINITIALIZED
#define UNINITIALIZED
#endif

enum { BLOCK = 4096 }; /* bytes of a block in the type that it is folded in */

/* A block on its way from the inputs to the output, and an input multiplied by its factor. */
struct workspace {
    union {
        float wide[BLOCK / sizeof(float)];
        uint8_t plain[BLOCK];
    } partial;
    uint8_t scaled[BLOCK];
};

/* Elements @first to @first + @count of a reduction. */
struct block {
    const struct ddpi_loops *loops;
    const struct ddpi_reduction *work;
    size_t first, count, size; /* size: bytes of an element */
    struct workspace *space;
};

static bool has_factor(const struct ddpi_reduction *work, uint32_t k)
{
    return work->factor != NULL && work->factor[k] != 1;
}

/* Input @k; if it has a factor, multiplied by that in @scaled. */
static const void *block_input(const struct block *block, uint32_t k, void *scaled)
{
    const struct ddpi_reduction *work = block->work;
    const void *in = (const char *)work->in[k] + block->first * block->size;
    if (!has_factor(work, k))
        return in;
    block->loops->scale[work->dtype](scaled, in, block->count, work->factor[k]);
    return scaled;
}

static void *block_output(const struct block *block, uint32_t j)
{
    return (char *)block->work->out[j] + block->first * block->size;
}

/* The result is in the first-level cache, where to look at it takes little time. */
static void check_block(const struct block *block)
{
    const struct ddpi_reduction *work = block->work;
    if (work->non_finite != NULL && !*work->non_finite)
        *work->non_finite =
            block->loops->non_finite[work->dtype](block_output(block, 0), block->count);
}

/* The last pass of a block, from @a and @b or @src to the output. */
static void finish_pair(const struct block *block, const void *a, const void *b)
{
    const struct ddpi_reduction *work = block->work;
    ddpi_checked_pair_loop *checked = block->loops->checked_pair[work->op][work->dtype];
    if (work->non_finite != NULL && checked != NULL) {
        *work->non_finite |= checked(block_output(block, 0), a, b, block->count);
        return;
    }
    block->loops->pair[work->op][work->dtype](block_output(block, 0), a, b, block->count);
    check_block(block);
}

static void finish_divide(const struct block *block, const void *src)
{
    const struct ddpi_reduction *work = block->work;
    ddpi_checked_divide_loop *checked = block->loops->checked_divide[work->dtype];
    void *out = block_output(block, 0);
    if (work->non_finite != NULL && checked != NULL) {
        *work->non_finite |= checked(out, src, block->count, work->divisor);
        return;
    }
    block->loops->divide[work->dtype](out, src, block->count, work->divisor);
    check_block(block);
}

static void finish_copy(const struct block *block, const void *src)
{
    void *out = block_output(block, 0);
    if (src != out)
        memcpy(out, src, block->count * block->size);
    check_block(block);
}

/* In float32 between the inputs and the output. */
static void fold_wide(const struct block *block)
{
    const struct ddpi_reduction *work = block->work;
    const struct ddpi_wide_loops *wide = &block->loops->wide[work->dtype];
    ddpi_wide_loop *fold = work->op == DDP_PRODUCT ? wide->multiply : wide->add;
    float *partial = block->space->partial.wide;
    void *scaled = block->space->scaled;
    wide->widen(partial, block_input(block, 0, scaled), block->count);
    for (uint32_t k = 1; k < work->nin; k++)
        fold(partial, block_input(block, k, scaled), block->count);
    if (work->divisor == 1)
        wide->narrow(block_output(block, 0), partial, block->count);
    else
        wide->divide(block_output(block, 0), partial, block->count, work->divisor);
    check_block(block);
}

/* In the type itself. The output may be any of the inputs: nothing is written to it before the last
 * one is read. */
static void fold_plain(const struct block *block)
{
    const struct ddpi_reduction *work = block->work;
    void *partial = block->space->partial.plain, *scaled = block->space->scaled;
    const void *folded = block_input(block, 0, partial);
    uint32_t last = work->divisor == 1 ? work->nin - 1 : work->nin; /* which makes the result */
    for (uint32_t k = 1; k < work->nin && k < last; k++) {
        const void *in = block_input(block, k, scaled);
        block->loops->pair[work->op][work->dtype](partial, folded, in, block->count);
        folded = partial;
    }
    if (work->divisor != 1)
        finish_divide(block, folded);
    else if (work->nin > 1)
        finish_pair(block, folded, block_input(block, last, scaled));
    else
        finish_copy(block, folded);
}

/* A minimum or maximum is one of the inputs, and the sum or product of two is rounded as it is
 * made: these are folded in the type itself. */
static bool folds_wide(const struct ddpi_reduction *work)
{
    bool extreme = work->op == DDP_MIN || work->op == DDP_MAX;
    bool rounded_once = work->nin == 1 || (work->nin == 2 && work->divisor == 1);
    return ddpi_dtype_is_narrow(work->dtype) && !extreme && !rounded_once;
}

static void reduce_blocks(const struct ddpi_loops *loops, const struct ddpi_reduction *work)
{
    struct workspace space UNINITIALIZED;
    struct block block = {
        .loops = loops, .work = work, .size = ddp_dtype_size(work->dtype), .space = &space};
    bool wide = folds_wide(work);
    const size_t most = BLOCK / (wide ? sizeof(float) : block.size);
    for (; block.first < work->count; block.first += most) {
        size_t left = work->count - block.first;
        block.count = left < most ? left : most;
        if (wide)
            fold_wide(&block);
        else
            fold_plain(&block);
        for (uint32_t j = 1; j < work->nout; j++)
            memcpy(block_output(&block, j), block_output(&block, 0), block.count * block.size);
    }
}

void ddpi_reduce_with(const struct ddpi_loops *loops, const struct ddpi_reduction *work)
{
    /* A hop of the ring: a single loop does it all. */
    bool single_loop = work->nin == 2 && work->nout == 1 && work->divisor == 1;
    bool checks_alone = work->non_finite == NULL || loops->checked_pair[work->op][work->dtype];
    const struct block all = {
        .loops = loops, .work = work, .count = work->count, .size = ddp_dtype_size(work->dtype)};
    if (single_loop && checks_alone && !has_factor(work, 0) && !has_factor(work, 1))
        finish_pair(&all, work->in[0], work->in[1]);
    else
        reduce_blocks(loops, work);
}

void ddpi_reduce_many(const struct ddpi_reduction *work)
{
    ddpi_reduce_with(ddpi_loops_best(), work);
}

void ddpi_reduce_pair(void *out, const void *a, const void *b, size_t count, ddp_dtype dtype,
                      ddp_reduce_op op)
{
    ddpi_loops_best()->pair[op][dtype](out, a, b, count);
}

void ddpi_scale(void *dst, const void *src, size_t count, ddp_dtype dtype, double factor)
{
    ddpi_loops_best()->scale[dtype](dst, src, count, factor);
}

/* ---- inf and NaN ---- */

bool ddpi_dtype_has_non_finite(ddp_dtype dtype)
{
    return ddpi_loops_plain.non_finite[dtype] != NULL;
}

bool ddpi_has_non_finite(const void *elements, size_t count, ddp_dtype dtype)
{
    return ddpi_dtype_has_non_finite(dtype) &&
           ddpi_loops_best()->non_finite[dtype](elements, count);
}

/* ---- narrow floats ---- */

bool ddpi_dtype_is_narrow(ddp_dtype dtype)
{
    return ddpi_loops_plain.wide[dtype].widen != NULL;
}

void ddpi_widen(float *wide, const void *in, size_t count, ddp_dtype dtype)
{
    ddpi_loops_best()->wide[dtype].widen(wide, in, count);
}

void ddpi_narrow(void *out, const float *wide, size_t count, ddp_dtype dtype)
{
    ddpi_loops_best()->wide[dtype].narrow(out, wide, count);
}
