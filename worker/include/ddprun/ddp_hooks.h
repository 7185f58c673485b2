/*
 * ddprun/ddp_hooks.h - communication hooks for a reducer: gradients reduced in another type, and
 * PowerSGD. Part of <ddprun/ddp.h>.
 *
 * For float gradients. A hook is passed to ddp_reducer_create(); what it was made of must outlive
 * the reducer, and serves one reducer.
 */
#ifndef DDPRUN_DDP_HOOKS_H
#define DDPRUN_DDP_HOOKS_H

#include <ddprun/ddp_reducer.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Gradients are reduced in @dtype: DDP_FLOAT16 or DDP_BFLOAT16 halve the bytes of float32 gradients
 * (PyTorch's fp16_compress_hook, bf16_compress_hook; Horovod's Compression.fp16), DDP_FLOAT32 keeps
 * the sums of half gradients exact (Apex's allreduce_always_fp32). Averages are computed in @dtype,
 * then cast back. Gradients that are float32, float64, float16 or bfloat16 are cast, rounded to
 * nearest even; others are averaged as they are.
 */
struct ddp_compression {
    ddp_dtype dtype;
    ddp_reducer_average average;
    double predivide; /* as in struct ddp_reducer_options */
    const struct ddp_comm_hook
        *inner; /* reduces the cast gradients, instead of an average; NULL: none */
};

/**
 * The hook of @compression, which stays the caller's. Does not block, and cannot fail: what is not
 * valid is an error of the first step. Memory: a copy of all gradients in @dtype, where the
 * gradients are. On a GPU its kernels cast; gradients must be aligned to their elements there.
 */
DDP_API struct ddp_comm_hook ddp_compression_hook(const struct ddp_compression *compression);

/*
 * PowerSGD (Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
 * Distributed Optimization", 2019), with the rules of PyTorch's powerSGD_hook: a float32 gradient
 * of n x m elements, whose parameter has @rows n, is reduced as two matrices of n x r and m x r
 * elements. What that loses is added to the gradient of the next step. Vectors, and matrices that
 * would not shrink enough, are averaged. An infinity or NaN in the gradient of one rank makes all
 * of it NaN on all ranks in that step, and what was kept for the next one begins anew. The products
 * of matrices are computed on the host: gradients in memory of a GPU are copied there and back, so
 * the call that completes a bucket waits for the stream on which its gradients were marked.
 */
struct ddp_power_sgd_options {
    size_t size;                 /* sizeof(struct ddp_power_sgd_options) */
    uint32_t rank;               /* r; 0 = 1 */
    uint64_t start_step;         /* before this step all gradients are averaged; 0 = 1,000 */
    double min_compression_rate; /* compress if n * m > rate * (n + m) * r; 0 = 2 */
    uint32_t no_error_feedback;  /* 1: forget what is lost */
    uint32_t no_warm_start;      /* 1: begin each step with random matrices */
    uint64_t seed;               /* of these; the same on all ranks */
};

typedef struct ddp_power_sgd ddp_power_sgd;

/**
 * Create the state of PowerSGD, and free it after the reducer; NULL is allowed. Memory: a copy of
 * all compressed gradients, unless no_error_feedback is set. Do not block.
 *
 * DDP_E_INVALID: the size is not set, the rank is above 1,024, or the rate is not a finite number
 * of at least 0.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_power_sgd_create(const struct ddp_power_sgd_options *options,
                                                       ddp_power_sgd **ret_power_sgd,
                                                       struct ddp_error *err);
DDP_API void ddp_power_sgd_destroy(ddp_power_sgd *power_sgd);

/** Its hook. Does not block. */
DDP_API struct ddp_comm_hook ddp_power_sgd_hook(ddp_power_sgd *power_sgd);

#ifdef __cplusplus
}
#endif

#endif
