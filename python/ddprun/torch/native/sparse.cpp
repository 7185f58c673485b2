/*
 * sparse.cpp - sums of sparse tensors. Ranks may have elements in other places, and another number
 * of them. So they tell each other how many they have; then each gathers the indices and the values
 * of all, and adds up by itself.
 */
#include "backend.h"

#include "python_lock.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <numeric>

namespace ddprun
{

/* What a rank tells of its tensor. */
enum { ELEMENTS, SPARSE_DIMENSIONS, DIMENSIONS, SIZES };

static constexpr int64_t kMostDimensions = 64; /* as PyTorch has */

static at::Tensor describe(const at::Tensor &tensor)
{
    TORCH_CHECK_VALUE(tensor.dim() <= kMostDimensions, "ddp: allreduce(): a sparse tensor has ",
                      tensor.dim(), " dimensions, and can have ", kMostDimensions);
    at::Tensor about = at::zeros({SIZES + kMostDimensions}, at::kLong);
    auto *numbers = about.mutable_data_ptr<int64_t>();
    numbers[ELEMENTS] = tensor._nnz();
    numbers[SPARSE_DIMENSIONS] = tensor.sparse_dim();
    numbers[DIMENSIONS] = tensor.dim();
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), numbers + SIZES);
    return about;
}

static at::IntArrayRef sizes_of(const at::Tensor &about)
{
    const auto *numbers = about.const_data_ptr<int64_t>();
    return {numbers + SIZES, size_t(numbers[DIMENSIONS])};
}

/* How many elements each rank has. Blocks until all ranks have called. */
std::vector<int64_t> Backend::count_elements(const at::Tensor &tensor,
                                             std::chrono::milliseconds timeout)
{
    const at::Tensor own = describe(tensor);
    const at::Tensor all = at::empty({getSize(), own.numel()}, own.options());
    auto job = make_job(timeout);
    add_all_gather(*job, all, own);
    {
        const LockedWithoutPython lock(mutex_);
        start(job, false, {all});
    }
    job->wait(kNoTimeout);
    std::vector<int64_t> counts;
    for (int rank = 0; rank < getSize(); rank++) {
        const at::Tensor theirs = all[rank];
        TORCH_CHECK_VALUE(
            at::equal(theirs.slice(0, SPARSE_DIMENSIONS), own.slice(0, SPARSE_DIMENSIONS)),
            "ddp: allreduce(): rank ", rank, " has a sparse tensor of the sizes ", sizes_of(theirs),
            ", rank ", getRank(), " one of ", sizes_of(own),
            "; sizes and sparse dimensions must be the same on all ranks");
        counts.push_back(theirs[ELEMENTS].item<int64_t>());
    }
    return counts;
}

/* Memory for the rows of all ranks, of which each has as many as @counts says. */
at::Tensor Backend::add_rows(Job &job, const at::Tensor &rows,
                             const std::vector<int64_t> &counts) const
{
    auto sizes = rows.sizes().vec();
    sizes.front() = std::reduce(counts.begin(), counts.end());
    const at::Tensor all = at::empty(sizes, rows.options());
    add_all_gather(job, all.split_with_sizes(counts), rows);
    return all;
}

/* In host memory, wherever the tensors are. */
void Backend::add_sparse_sum(Job &job, const Tensors &tensors, std::chrono::milliseconds timeout)
{
    const at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor sum = tensors.front();
    for (size_t i = 1; i < tensors.size(); i++)
        sum = sum + tensors[i];
    sum = sum.coalesce().cpu();
    const auto counts = count_elements(sum, timeout);
    const at::Tensor indices = add_rows(job, sum._indices().t(), counts);
    const at::Tensor values = add_rows(job, sum._values(), counts);
    job.in_the_end([tensors, indices, values, sizes = sum.sizes().vec()] {
        const at::Tensor total =
            at::_sparse_coo_tensor_unsafe(indices.t(), values, sizes).coalesce();
        for (const auto &tensor : tensors)
            tensor.copy_(total);
    });
}

} // namespace ddprun
