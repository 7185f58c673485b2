/*
 * kernels.h - what the kernels of reduce_copy.cu and the C code that launches them agree on: names,
 * the parameter, and how work is divided. For C and CUDA C++.
 */
#ifndef DDPI_KERNELS_H
#define DDPI_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * X(dtype symbol, type): the element types that are folded; X(type, operation): the kernels, each
 * named ddp_reduce_copy_TYPE_OPERATION. An average is a sum with a divisor. One input without a
 * divisor and a finite check is for ddp_copy_BYTES, which moves elements of that size. Complex
 * numbers are twice as many reals.
 */
#define DDPI_KERNEL_TYPES(X) \
    X(DDP_FLOAT32, f32)      \
    X(DDP_FLOAT64, f64)      \
    X(DDP_FLOAT16, f16)      \
    X(DDP_BFLOAT16, bf16)    \
    X(DDP_INT32, i32)        \
    X(DDP_INT64, i64)

#define DDPI_KERNEL_OPS(X, type) \
    X(type, sum)                 \
    X(type, min)                 \
    X(type, max)                 \
    X(type, product)

#define DDPI_KERNEL_NAME(type, op) ddp_reduce_copy_##type##_##op

/* X(dtype symbol, type): the types of the kernels ddp_scale_TYPE, which multiply. */
#define DDPI_KERNEL_FLOATS(X) \
    X(DDP_FLOAT32, f32)       \
    X(DDP_FLOAT64, f64)       \
    X(DDP_FLOAT16, f16)       \
    X(DDP_BFLOAT16, bf16)

#define DDPI_KERNEL_SCALE(type) ddp_scale_##type

/* The kernels ddp_cast_TYPE, which cast elements of TYPE to any of these types. */
#define DDPI_KERNEL_CAST(type) ddp_cast_##type

enum {
#define DDPI_KERNEL_CAST_TO(symbol, type) DDPI_KERNEL_CAST_TO_##type,
    DDPI_KERNEL_FLOATS(DDPI_KERNEL_CAST_TO)
#undef DDPI_KERNEL_CAST_TO
};

/* X(bytes, an unsigned integer of that size): the kernels that copy. */
#define DDPI_KERNEL_COPIES(X) \
    X(1, uint8_t)             \
    X(2, uint16_t)            \
    X(4, uint32_t)            \
    X(8, uint64_t)

#define DDPI_KERNEL_COPY(bytes) ddp_copy_##bytes

enum {
    DDPI_KERNEL_BUFFERS = 16, /* inputs, and outputs, at most */
    DDPI_KERNEL_PACK = 16,    /* bytes that a thread reads or writes at once */
    DDPI_KERNEL_THREADS = 256,
    DDPI_KERNEL_BLOCKS = 4 /* a multiprocessor has registers for at least this many */
};

/*
 * The parameter of the kernels that fold and copy, by value. If all buffers have the same offset
 * within 16 bytes, the elements after the first @head are in @packs packs of 16 bytes, and those
 * before and after go one by one. Otherwise all go one by one. Every buffer is aligned to its
 * elements.
 */
struct ddpi_kernel_work {
    const void *in[DDPI_KERNEL_BUFFERS];
    void *out[DDPI_KERNEL_BUFFERS];
    uint64_t count; /* elements */
    uint64_t head;
    uint64_t packs;
    uint32_t nin;
    uint32_t nout;
    uint32_t divisor; /* of a sum; 1 = none */
    /* Of floats that are folded: set to true if an element of the result is inf or NaN, else left
     * as it is; NULL: not wanted. */
    bool *non_finite;
};

/* The parameter of those that multiply, by value: @count elements, in place. */
struct ddpi_kernel_scale {
    void *elements;
    uint64_t count;
    double factor; /* rounded to float32 first, except for float64 */
};

/* The parameter of those that cast, by value. */
struct ddpi_kernel_cast {
    const void *in;
    void *out;
    uint64_t count; /* elements */
    uint32_t to;    /* DDPI_KERNEL_CAST_TO_... */
};

#endif
