/*
 * lists.cpp - see lists.h. Owns nothing.
 */
#include "lists.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <algorithm>

namespace ddprun
{

void check_not_empty(const char *call, const std::vector<at::Tensor> &tensors)
{
    TORCH_CHECK_VALUE(!tensors.empty(), "ddp: ", call, "() requires a non-empty tensor list");
}

void check_alike(const char *call, const std::vector<at::Tensor> &tensors)
{
    check_not_empty(call, tensors);
    const at::Tensor &first = tensors.front();
    for (size_t i = 1; i < tensors.size(); i++) {
        const at::Tensor &other = tensors[i];
        TORCH_CHECK_VALUE(other.options().type_equal(first.options()), "ddp: ", call,
                          "(): invalid tensor type at index ", i, " (expected ", first.toString(),
                          ", got ", other.toString(), ")");
        TORCH_CHECK_VALUE(other.sizes() == first.sizes() && other.device() == first.device(),
                          "ddp: ", call, "(): invalid tensor size at index ", i, " (expected ",
                          first.sizes(), " on ", first.device(), ", got ", other.sizes(), " on ",
                          other.device(), ")");
    }
}

/* @sum becomes what the ranks would make of it and @tensor. */
static void combine(at::Tensor &sum, const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
        sum.add_(tensor);
        return;
    case c10d::ReduceOp::PRODUCT:
        sum.mul_(tensor);
        return;
    case c10d::ReduceOp::MIN:
        at::minimum_out(sum, sum, tensor);
        return;
    case c10d::ReduceOp::MAX:
        at::maximum_out(sum, sum, tensor);
        return;
    case c10d::ReduceOp::BAND:
        sum.bitwise_and_(tensor);
        return;
    case c10d::ReduceOp::BOR:
        sum.bitwise_or_(tensor);
        return;
    case c10d::ReduceOp::BXOR:
        sum.bitwise_xor_(tensor);
        return;
    default:
        TORCH_CHECK_VALUE(false, "ddp: allreduce() of several tensors of a rank has no average; "
                                 "pass one");
    }
}

at::Tensor combined(Job &job, const std::vector<at::Tensor> &tensors, const c10d::ReduceOp &op)
{
    const at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor sum = tensors.front().clone(at::MemoryFormat::Contiguous);
    for (size_t i = 1; i < tensors.size(); i++)
        combine(sum, tensors[i], op);
    for (const auto &tensor : tensors)
        job.copy_later(tensor, sum);
    return sum;
}

bool overlap(const std::vector<at::Tensor> &tensors)
{
    std::vector<std::pair<const char *, const char *>> ranges;
    for (const auto &tensor : tensors) {
        int64_t last = 0;
        for (int64_t i = 0; i < tensor.dim(); i++)
            last += (tensor.size(i) - 1) * tensor.stride(i);
        const char *first = static_cast<const char *>(tensor.const_data_ptr());
        if (tensor.numel() > 0)
            ranges.emplace_back(first, first + (last + 1) * tensor.element_size());
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); i++)
        if (ranges[i].first < ranges[i - 1].second)
            return true;
    return false;
}

} // namespace ddprun
