/*
 * ddprun/comm_types.h - element types, reductions and algorithms of collectives. Part of
 * <ddprun/comm.h>.
 */
#ifndef DDPRUN_COMM_TYPES_H
#define DDPRUN_COMM_TYPES_H

#include <ddprun/status.h>
#include <stddef.h>

/* In place of the peer of a receive: a message of any rank. */
#define DDP_ANY_RANK UINT32_MAX

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_comm ddp_comm; /* a communicator */

/*
 * Element types: X(symbol, bytes per element, name). Values never change; new types are appended.
 *
 * - bool: 0 or 1. Any other byte counts as 1; what a reduction computes is 0 or 1.
 * - float8_e4m3: the form without infinities, PyTorch's float8_e4m3fn: the largest number is 448,
 *   0x7f and 0xff are NaN. What is rounded beyond 448 becomes NaN.
 * - float8_e5m2: IEEE 754's layout; the largest number is 57344. What is rounded beyond it becomes
 *   infinity.
 * - complex64, complex128: the real part, then the imaginary part, as float32 or float64.
 * - byte: data without a value, for calls that move it. It has bitwise reductions only.
 */
#define DDP_DTYPE_MAP(X)                                                      \
    X(DDP_FLOAT32, 4, "float32")                                              \
    X(DDP_FLOAT64, 8, "float64")                                              \
    X(DDP_FLOAT16, 2, "float16")   /* IEEE 754 binary16, as uint16_t */       \
    X(DDP_BFLOAT16, 2, "bfloat16") /* upper half of a float32, as uint16_t */ \
    X(DDP_INT32, 4, "int32")                                                  \
    X(DDP_INT64, 8, "int64")                                                  \
    X(DDP_UINT8, 1, "uint8")                                                  \
    X(DDP_INT8, 1, "int8")                                                    \
    X(DDP_INT16, 2, "int16")                                                  \
    X(DDP_UINT16, 2, "uint16")                                                \
    X(DDP_UINT32, 4, "uint32")                                                \
    X(DDP_UINT64, 8, "uint64")                                                \
    X(DDP_BOOL, 1, "bool")                                                    \
    X(DDP_FLOAT8_E4M3, 1, "float8_e4m3")                                      \
    X(DDP_FLOAT8_E5M2, 1, "float8_e5m2")                                      \
    X(DDP_COMPLEX64, 8, "complex64")                                          \
    X(DDP_COMPLEX128, 16, "complex128")                                       \
    X(DDP_BYTE, 1, "byte")

typedef enum ddp_dtype {
#define DDP_DTYPE_ENUM(symbol, size, name) symbol,
    DDP_DTYPE_MAP(DDP_DTYPE_ENUM)
#undef DDP_DTYPE_ENUM
} ddp_dtype;

/*
 * Reductions: X(symbol, name). Values never change; new reductions are appended.
 *
 * - sum, product: integers wrap around. Of bool: or, and. Complex numbers are multiplied by the
 *   textbook formula, without C's special cases for infinities.
 * - average: divides the sum by the world size; integers truncate toward zero. Not of bool.
 * - average_before: multiplies each element by 1 / world size, and sums. With float32 these are the
 *   bits that DistributedDataParallel makes of the same order.
 * - premul_sum: multiplies the elements of each rank by the rank's own factor, and sums.
 * - min, max: NaN if an input is NaN; order -0 before +0. Of bool: and, or. Not of complex numbers.
 * - bit_and, bit_or, bit_xor: of integers, bool and byte.
 *
 * average_before and premul_sum take floats and complex numbers, not integers. Their factor is a
 * real number: a float64 for float64 and complex128, rounded to float32 for the other types. A
 * product is rounded to the element's type before it is summed; both parts of a complex number are
 * multiplied.
 *
 * Device memory is reduced on the host, as host memory is (libddpcomm(3)).
 *
 * The types of 8 and 16 bits that are floats are computed in float32, and so is the division of an
 * average; the algorithm decides when they are rounded, to nearest even.
 */
#define DDP_REDUCE_OP_MAP(X)        \
    X(DDP_SUM, "sum")               \
    X(DDP_AVERAGE, "average")       \
    X(DDP_MIN, "min")               \
    X(DDP_MAX, "max")               \
    X(DDP_PRODUCT, "product")       \
    X(DDP_BIT_AND, "bit_and")       \
    X(DDP_BIT_OR, "bit_or")         \
    X(DDP_BIT_XOR, "bit_xor")       \
    X(DDP_PREMUL_SUM, "premul_sum") \
    X(DDP_AVERAGE_BEFORE, "average_before")

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
 *   element; each rank adds its own element as the left operand. Floats of 8 and 16 bits are
 *   rounded at each hop. Moves as few bytes as a reduction can.
 * - direct: reduces the elements of all ranks in the order of ranks, and rounds once at the end.
 *   The bits depend neither on @count nor on the position of an element. Ranks that share memory
 *   meet there, and it is the fastest. Over TCP it moves more bytes: see the functions.
 * - doubling: an all_reduce of at most 512 KiB by recursive doubling, in log2 N steps; other
 *   operations have the algorithm of auto. Elements of neighbours are reduced first, then those of
 *   neighbouring pairs, and so on, the lower ranks' as the left operand: the bits depend neither on
 *   @count nor on the position of an element. Floats of 8 and 16 bits are rounded at each step.
 * - hierarchical: an all_reduce of ranks on several nodes, one of which has several ranks; other
 *   operations have the algorithm of auto. A node is a row of ranks with consecutive numbers that
 *   share memory. Their elements are reduced in the order of ranks, then the results of the nodes
 *   in the order of nodes. Floats of 8 and 16 bits are rounded after each of both; averages are
 *   divided at the end. The bits depend neither on @count nor on the position of an element, but on
 *   which ranks share memory. Nodes may have different numbers of ranks; those beyond the number of
 *   the smallest node exchange nothing with other nodes.
 * - auto: direct if all ranks share memory; else doubling for a small all_reduce, hierarchical for
 *   a larger one where it is possible, and ring. Device memory has the algorithm of host memory.
 */
#define DDP_ALGORITHM_MAP(X)              \
    X(DDP_ALGORITHM_AUTO, "auto")         \
    X(DDP_ALGORITHM_RING, "ring")         \
    X(DDP_ALGORITHM_DIRECT, "direct")     \
    X(DDP_ALGORITHM_DOUBLING, "doubling") \
    X(DDP_ALGORITHM_HIERARCHICAL, "hierarchical")

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
