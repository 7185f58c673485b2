/*
 * lists.h - several tensors that one rank gives to one call.
 */
#ifndef DDPRUN_TORCH_LISTS_H
#define DDPRUN_TORCH_LISTS_H

#include "job.h"

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace ddprun
{

void check_not_empty(const char *call, const std::vector<at::Tensor> &tensors);

/* ValueError unless all are of one type and of the same sizes. */
void check_alike(const char *call, const std::vector<at::Tensor> &tensors);

/* What @op makes of them. All of them get what it becomes when @job ends. */
at::Tensor combined(Job &job, const std::vector<at::Tensor> &tensors, const c10d::ReduceOp &op);

/* Whether an element may be in two of @tensors. */
bool overlap(const std::vector<at::Tensor> &tensors);

} // namespace ddprun

#endif
