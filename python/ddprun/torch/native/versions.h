/*
 * versions.h - PyTorch's classes as its newest version has them. What differs between versions is
 * here, and nowhere else.
 */
#ifndef DDPRUN_TORCH_VERSIONS_H
#define DDPRUN_TORCH_VERSIONS_H

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/version.h>

#define TORCH_BEFORE(minor) (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < (minor))

namespace ddprun
{

/* What an older version lacks is declared, and never called; what has another name there is
 * forwarded. */
class NewestBackend : public c10d::Backend
{
  public:
    using c10d::Backend::Backend;
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using Tensors = std::vector<at::Tensor>;

#if TORCH_BEFORE(14)
    /* They begin at 0 on all ranks. */
    void setSequenceNumberForGroup() override
    {
    }
    virtual WorkPtr gather_single(at::Tensor &output, at::Tensor &input,
                                  const c10d::GatherOptions &options) = 0;
    virtual WorkPtr all_gather_single(at::Tensor &output, at::Tensor &input,
                                      const c10d::AllgatherOptions &options) = 0;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &options) override
    {
        return all_gather_single(output, input, options);
    }
    virtual WorkPtr all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::AllgatherOptions &options) = 0;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &options) override
    {
        return all_gather_single_coalesced(outputs, inputs, options);
    }
    virtual WorkPtr reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                          const c10d::ReduceScatterOptions &options) = 0;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &options) override
    {
        return reduce_scatter_single(output, input, options);
    }
    virtual WorkPtr reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                    const c10d::ReduceScatterOptions &options) = 0;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &options) override
    {
        return reduce_scatter_single_coalesced(outputs, inputs, options);
    }
    virtual WorkPtr all_to_all_single(at::Tensor &output, at::Tensor &input,
                                      std::vector<int64_t> &output_splits,
                                      std::vector<int64_t> &input_splits,
                                      const c10d::AllToAllOptions &options) = 0;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input,
                          std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &options) override
    {
        return all_to_all_single(output, input, output_splits, input_splits, options);
    }
#endif

#if TORCH_BEFORE(9)
    static constexpr bool kCanSplit = false;
    virtual void setTimeout(std::chrono::milliseconds timeout) = 0;
    virtual c10::intrusive_ptr<Options> getBackendOptions() = 0;
    virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                                    const std::vector<int> &ranks,
                                                    const c10::intrusive_ptr<Options> &options) = 0;
#else
    static constexpr bool kCanSplit = true;
#endif
};

/* Whether the caller will wait for the work; where the options do not say so, it may. */
template <class Options> bool is_async(const Options &options)
{
    if constexpr (requires { options.asyncOp; })
        return options.asyncOp;
    else
        return true;
}

/* @members: ranks of the default group; none: this is the default group. */
template <class Options>
void set_group(Options &options, const std::string &name, const std::vector<int64_t> &members)
{
    if constexpr (requires { options.group_name; })
        options.group_name = name;
    if constexpr (requires { options.global_ranks_in_group; })
        options.global_ranks_in_group.assign(members.begin(), members.end());
}

/* The options of a group of @ranks that is split off one with @parent's options. PyTorch may pass
 * @options of several groups as one object. */
template <class Options>
c10::intrusive_ptr<Options> options_of_split(const Options &options, const Options &parent,
                                             const std::vector<int> &ranks)
{
    auto own = c10::make_intrusive<Options>(options);
    if constexpr (requires { own->global_ranks_in_group; }) {
        const auto above = parent.global_ranks_in_group;
        own->global_ranks_in_group.clear();
        for (const int rank : ranks)
            own->global_ranks_in_group.push_back(above.empty() ? uint64_t(rank)
                                                               : above.at(size_t(rank)));
    }
    return own;
}

/* What libddpcomm takes for the stream. */
template <class Stream> void *handle_of(const Stream &stream)
{
    if constexpr (requires { stream.native_handle(); })
        return stream.native_handle();
    else
        C10_THROW_ERROR(NotImplementedError, "ddp: tensors on cuda need PyTorch 2.11 or newer");
}

#if TORCH_BEFORE(13)
using PreMulSumSupplement = c10d::NCCLPreMulSumSupplement;
#else
using PreMulSumSupplement = c10d::PreMulSumSupplement;
#endif

#if TORCH_BEFORE(9)
struct GroupWithStore : public c10d::ProcessGroup {
    using c10d::ProcessGroup::store_;
};
inline c10::intrusive_ptr<c10d::Store> store_of(const c10d::ProcessGroup &group)
{
    return group.*&GroupWithStore::store_;
}
#else
inline c10::intrusive_ptr<c10d::Store> store_of(const c10d::ProcessGroup &group)
{
    return group.getStore();
}
#endif

} // namespace ddprun

#endif
