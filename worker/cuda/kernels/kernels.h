/*
 * kernels.h - what the kernels of reduce_copy.cu and the C code that launches them agree on: names,
 * the parameter, and how work is divided. For C and CUDA C++.
 */
#ifndef DDPI_KERNELS_H
#define DDPI_KERNELS_H

#include <stdint.h>

/*
 * X(dtype symbol, type): the element types that are folded; X(type, operation): the kernels, each
 * named ddp_reduce_copy_TYPE_OPERATION. An average is a sum with a divisor. One input without a
 * divisor is for ddp_copy_BYTES, which moves elements of that size. Complex numbers are twice as
 * many reals.
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
 * The parameter of every kernel, by value. If all buffers have the same offset within 16 bytes, the
 * elements after the first @head are in @packs packs of 16 bytes, and those before and after go one
 * by one. Otherwise all go one by one. Every buffer is aligned to its elements.
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
};

#endif
