/*
 * reduce.h - arithmetic on elements: the interface between algorithms and the device that computes.
 *
 * Pointers may have any alignment. The numeric rules are those of ddprun/comm_types.h. Which type
 * goes with which reduction is in reduce_check.h; the functions here take only those.
 */
#ifndef DDPI_REDUCE_H
#define DDPI_REDUCE_H

#include <ddprun/comm.h>
#include <stdbool.h>

#define DDPI_ONE_OF_MAP(...) +1
enum {
    DDPI_DTYPES = 0 DDP_DTYPE_MAP(DDPI_ONE_OF_MAP),
    DDPI_REDUCE_OPS = 0 DDP_REDUCE_OP_MAP(DDPI_ONE_OF_MAP),
    DDPI_DTYPE_SIZE_MOST = 16, /* bytes of the largest element */
    DDPI_REDUCE_MOST = 16,     /* inputs, and outputs, of one reduction */
};

/*
 * out[0][i] = out[1][i] = ... = round((in[0][i] op in[1][i] op ...) / divisor), in this order.
 *
 * Inputs with a factor are first multiplied by it and rounded to their type. The floats of 8 and 16
 * bits are then folded and divided in float32 and rounded once, to nearest even; with one input and
 * no divisor they are copied as they are. Integers wrap around and are divided toward zero. An
 * output may be one of the inputs; otherwise nothing overlaps.
 */
struct ddpi_reduction {
    const void *in[DDPI_REDUCE_MOST];
    void *out[DDPI_REDUCE_MOST];
    uint32_t nin; /* at least 1 */
    uint32_t nout;
    size_t count; /* elements of each */
    ddp_dtype dtype;
    ddp_reduce_op op; /* the averages and DDP_PREMUL_SUM fold like DDP_SUM */
    uint32_t divisor; /* of a sum; 1: none, as for every other reduction */
    /* One for each input; NULL: no input has one. 1 leaves an input as it is. */
    const double *factor;
    /* Set to true if an element of the result is inf or NaN, else left as it is: found while the
     * result is in the first-level cache. Of floats and complex numbers; NULL: not wanted. */
    bool *non_finite;
};

void ddpi_reduce_many(const struct ddpi_reduction *work);

/* The same of two inputs, without divisor, factors and check. */
void ddpi_reduce_pair(void *out, const void *a, const void *b, size_t count, ddp_dtype dtype,
                      ddp_reduce_op op);

/* dst[i] = round(src[i] * factor), of floats and complex numbers; @dst may be @src. The factor is
 * rounded to float32 first, except for float64 and complex128. */
void ddpi_scale(void *dst, const void *src, size_t count, ddp_dtype dtype, double factor);

/* Whether elements of @dtype can be inf or NaN, and whether one of these is; of other types none
 * is. */
bool ddpi_dtype_has_non_finite(ddp_dtype dtype);
bool ddpi_has_non_finite(const void *elements, size_t count, ddp_dtype dtype);

/* Whether @dtype is a float of 8 or 16 bits, which is folded in float32; and such elements as
 * float32, and back. */
bool ddpi_dtype_is_narrow(ddp_dtype dtype);
void ddpi_widen(float *wide, const void *in, size_t count, ddp_dtype dtype);
void ddpi_narrow(void *out, const float *wide, size_t count, ddp_dtype dtype);

/* Whether elements of @dtype can be cast: float16, bfloat16, float32, float64. */
bool ddpi_dtype_can_cast(ddp_dtype dtype);

/* Write @count elements of type @from as those of type @to, by way of float32, rounded to nearest
 * even; the two do not overlap. */
void ddpi_cast(void *out, ddp_dtype to, const void *in, ddp_dtype from, size_t count);

#endif
