/*
 * elements.h - types and reductions of PyTorch as those of libddpcomm.
 */
#ifndef DDPRUN_TORCH_ELEMENTS_H
#define DDPRUN_TORCH_ELEMENTS_H

#include <ddprun/comm.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace ddprun
{

/* The elements of a tensor as libddpcomm moves them: types that it does not know go as bytes. */
struct Elements {
    ddp_dtype dtype;
    size_t each; /* of them in an element of the tensor */
};

Elements elements_of(const at::Tensor &tensor);

/* The type of a tensor that is reduced; ValueError if there is none. */
ddp_dtype reduced_type(const at::Tensor &tensor);

struct Reduction {
    ddp_reduce_op op;
    double factor; /* of DDP_PREMUL_SUM */
};

Reduction reduction_of(const c10d::ReduceOp &op);

/* ValueError unless the tensor is dense, in memory of the host or of CUDA. */
void check_tensor(const at::Tensor &tensor, const char *call);

} // namespace ddprun

#endif
