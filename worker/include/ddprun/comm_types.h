/*
 * ddprun/comm_types.h - element types, reductions and algorithms of collectives. Part of
 * <ddprun/comm.h>.
 */
#ifndef DDPRUN_COMM_TYPES_H
#define DDPRUN_COMM_TYPES_H

#include <ddprun/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_comm ddp_comm; /* a communicator */

/* Element types: X(symbol, bytes per element, name). */
#define DDP_DTYPE_MAP(X)                                                      \
    X(DDP_FLOAT32, 4, "float32")                                              \
    X(DDP_FLOAT64, 8, "float64")                                              \
    X(DDP_FLOAT16, 2, "float16")   /* IEEE 754 binary16, as uint16_t */       \
    X(DDP_BFLOAT16, 2, "bfloat16") /* upper half of a float32, as uint16_t */ \
    X(DDP_INT32, 4, "int32")                                                  \
    X(DDP_INT64, 8, "int64")

typedef enum ddp_dtype {
#define DDP_DTYPE_ENUM(symbol, size, name) symbol,
    DDP_DTYPE_MAP(DDP_DTYPE_ENUM)
#undef DDP_DTYPE_ENUM
} ddp_dtype;

/*
 * Reductions: X(symbol, name). Integers wrap around. Average divides the sum by the world size;
 * integers truncate toward zero. Min and max return NaN if an input is NaN, and order -0 before +0.
 * The 16-bit types are computed in float32, and so is the division of an average; the algorithm
 * decides when they are rounded, to nearest even.
 */
#define DDP_REDUCE_OP_MAP(X)  \
    X(DDP_SUM, "sum")         \
    X(DDP_AVERAGE, "average") \
    X(DDP_MIN, "min")         \
    X(DDP_MAX, "max")         \
    X(DDP_PRODUCT, "product")

typedef enum ddp_reduce_op {
#define DDP_REDUCE_OP_ENUM(symbol, name) symbol,
    DDP_REDUCE_OP_MAP(DDP_REDUCE_OP_ENUM)
#undef DDP_REDUCE_OP_ENUM
} ddp_reduce_op;

/*
 * Algorithms of reductions: X(symbol, name). The algorithm decides in which order elements are
 * reduced, and so which bits result; it must be the same on all ranks. All ranks get identical
 * bits, the same in every run, and the same for host and device memory.
 *
 * - ring: partial results go round the ring, from a rank that depends on the position of the
 *   element; each rank adds its own element as the left operand. 16-bit types are rounded at each
 *   hop. Moves as few bytes as a reduction can.
 * - direct: reduces the elements of all ranks in the order of ranks, and rounds once at the end.
 *   The bits depend neither on @count nor on the position of an element. Moves more bytes: see the
 *   functions.
 * - auto: ring; direct for device memory if all ranks share one device.
 */
#define DDP_ALGORITHM_MAP(X)      \
    X(DDP_ALGORITHM_AUTO, "auto") \
    X(DDP_ALGORITHM_RING, "ring") \
    X(DDP_ALGORITHM_DIRECT, "direct")

typedef enum ddp_algorithm {
#define DDP_ALGORITHM_ENUM(symbol, name) symbol,
    DDP_ALGORITHM_MAP(DDP_ALGORITHM_ENUM)
#undef DDP_ALGORITHM_ENUM
} ddp_algorithm;

/**
 * The bytes of an element of @dtype, 0 if it is unknown; the names of types and reductions,
 * "unknown" if they are. Any thread may call them, and they do not block; strings are static.
 */
DDP_API size_t ddp_dtype_size(ddp_dtype dtype);
DDP_API const char *ddp_dtype_name(ddp_dtype dtype);
DDP_API const char *ddp_reduce_op_name(ddp_reduce_op op);

#ifdef __cplusplus
}
#endif

#endif
