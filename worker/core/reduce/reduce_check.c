/*
 * reduce_check.c - the table of types and reductions: what is allowed, and why the rest is not.
 * Pure.
 */
#include "reduce_check.h"

#include "error.h"
#include "reduce.h"

enum kind { FLOAT, INTEGER, BOOLEAN, COMPLEX, OPAQUE, KINDS };

static const enum kind kinds[DDPI_DTYPES] = {
    [DDP_FLOAT32] = FLOAT,     [DDP_FLOAT64] = FLOAT,      [DDP_FLOAT16] = FLOAT,
    [DDP_BFLOAT16] = FLOAT,    [DDP_INT32] = INTEGER,      [DDP_INT64] = INTEGER,
    [DDP_UINT8] = INTEGER,     [DDP_INT8] = INTEGER,       [DDP_INT16] = INTEGER,
    [DDP_UINT16] = INTEGER,    [DDP_UINT32] = INTEGER,     [DDP_UINT64] = INTEGER,
    [DDP_BOOL] = BOOLEAN,      [DDP_FLOAT8_E4M3] = FLOAT,  [DDP_FLOAT8_E5M2] = FLOAT,
    [DDP_COMPLEX64] = COMPLEX, [DDP_COMPLEX128] = COMPLEX, [DDP_BYTE] = OPAQUE,
};

#define NO_BITS       "bitwise reductions are of integers; pass the buffer as a type of those"
#define NO_VALUE      "bytes have no value; pass the buffer as uint8, or as the type that it holds"
#define NO_ORDER      "complex numbers have no order; reduce their absolute values instead"
#define NO_FRACTION   "a product with a factor is no integer; use sum or average, or a float type"
#define NO_BOOL_VALUE "bools are not numbers; sum (or) and product (and) are defined for them"

/* NULL: the type has the reduction. */
static const char *const refusals[KINDS][DDPI_REDUCE_OPS] = {
    [FLOAT] = {[DDP_BIT_AND] = NO_BITS, [DDP_BIT_OR] = NO_BITS, [DDP_BIT_XOR] = NO_BITS},
    [INTEGER] = {[DDP_PREMUL_SUM] = NO_FRACTION, [DDP_AVERAGE_BEFORE] = NO_FRACTION},
    [BOOLEAN] = {[DDP_AVERAGE] = NO_BOOL_VALUE,
                 [DDP_PREMUL_SUM] = NO_BOOL_VALUE,
                 [DDP_AVERAGE_BEFORE] = NO_BOOL_VALUE},
    [COMPLEX] = {[DDP_MIN] = NO_ORDER,
                 [DDP_MAX] = NO_ORDER,
                 [DDP_BIT_AND] = NO_BITS,
                 [DDP_BIT_OR] = NO_BITS,
                 [DDP_BIT_XOR] = NO_BITS},
    [OPAQUE] = {[DDP_SUM] = NO_VALUE,
                [DDP_AVERAGE] = NO_VALUE,
                [DDP_MIN] = NO_VALUE,
                [DDP_MAX] = NO_VALUE,
                [DDP_PRODUCT] = NO_VALUE,
                [DDP_PREMUL_SUM] = NO_VALUE,
                [DDP_AVERAGE_BEFORE] = NO_VALUE},
};

ddp_status ddpi_reduce_check(ddp_dtype dtype, ddp_reduce_op op, struct ddp_error *err)
{
    if ((unsigned)dtype >= DDPI_DTYPES)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not an element type", (int)dtype);
    if ((unsigned)op >= DDPI_REDUCE_OPS)
        return ddpi_error_set(err, DDP_E_INVALID, "%d is not a reduction", (int)op);
    const char *refusal = refusals[kinds[dtype]][op];
    if (refusal == NULL)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID, "%s of %s: %s", ddp_reduce_op_name(op),
                          ddp_dtype_name(dtype), refusal);
}
