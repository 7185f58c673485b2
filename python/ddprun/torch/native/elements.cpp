/*
 * elements.cpp - see elements.h. Owns nothing.
 */
#include "elements.h"

#include "versions.h"

#include <optional>

namespace ddprun
{

static std::optional<ddp_dtype> known_type(at::ScalarType type)
{
    switch (type) {
    case at::kFloat:
        return DDP_FLOAT32;
    case at::kDouble:
        return DDP_FLOAT64;
    case at::kHalf:
        return DDP_FLOAT16;
    case at::kBFloat16:
        return DDP_BFLOAT16;
    case at::kInt:
        return DDP_INT32;
    case at::kLong:
        return DDP_INT64;
    case at::kByte:
        return DDP_UINT8;
    case at::kChar:
        return DDP_INT8;
    case at::kShort:
        return DDP_INT16;
    case at::kUInt16:
        return DDP_UINT16;
    case at::kUInt32:
        return DDP_UINT32;
    case at::kUInt64:
        return DDP_UINT64;
    case at::kBool:
        return DDP_BOOL;
    case at::kFloat8_e4m3fn:
        return DDP_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
        return DDP_FLOAT8_E5M2;
    case at::kComplexFloat:
        return DDP_COMPLEX64;
    case at::kComplexDouble:
        return DDP_COMPLEX128;
    default:
        return std::nullopt;
    }
}

Elements elements_of(const at::Tensor &tensor)
{
    if (const auto dtype = known_type(tensor.scalar_type()))
        return {*dtype, 1};
    return {DDP_BYTE, size_t(tensor.element_size())};
}

ddp_dtype reduced_type(const at::Tensor &tensor)
{
    const auto dtype = known_type(tensor.scalar_type());
    TORCH_CHECK_VALUE(dtype.has_value(), "ddp: tensors of ", tensor.scalar_type(),
                      " can be moved, but not reduced; convert them first");
    return *dtype;
}

Reduction reduction_of(const c10d::ReduceOp &op)
{
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
        return {DDP_SUM, 0};
    case c10d::ReduceOp::AVG:
        return {DDP_AVERAGE, 0};
    case c10d::ReduceOp::PRODUCT:
        return {DDP_PRODUCT, 0};
    case c10d::ReduceOp::MIN:
        return {DDP_MIN, 0};
    case c10d::ReduceOp::MAX:
        return {DDP_MAX, 0};
    case c10d::ReduceOp::BAND:
        return {DDP_BIT_AND, 0};
    case c10d::ReduceOp::BOR:
        return {DDP_BIT_OR, 0};
    case c10d::ReduceOp::BXOR:
        return {DDP_BIT_XOR, 0};
    case c10d::ReduceOp::PREMUL_SUM: {
        const auto *supplement = static_cast<const PreMulSumSupplement *>(op.supplement_.get());
        TORCH_CHECK_VALUE(supplement != nullptr, "ddp: PREMUL_SUM has no factor");
        const at::Tensor &factor = supplement->tensor_factor;
        return {DDP_PREMUL_SUM,
                factor.defined() ? factor.item<double>() : supplement->double_factor};
    }
    default:
        TORCH_CHECK_VALUE(false, "ddp: there is no reduction number ", int(op.op_));
    }
}

void check_tensor(const at::Tensor &tensor, const char *call)
{
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "ddp: ", call,
                      "() takes dense tensors, not ", tensor.layout(), "; call to_dense() first");
    TORCH_CHECK_VALUE(tensor.device().is_cpu() || tensor.device().is_cuda(), "ddp: ", call,
                      "() takes tensors on cpu or cuda, not on ", tensor.device());
}

} // namespace ddprun
