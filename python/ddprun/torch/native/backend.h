/*
 * backend.h - the back end "ddp" of torch.distributed: a communicator of libddpcomm, and PyTorch's
 * calls in terms of it.
 *
 * Each call makes a job and starts it. Jobs on host memory move their bytes in whatever thread
 * waits for one of them. All calls may come from any thread.
 */
#ifndef DDPRUN_TORCH_BACKEND_H
#define DDPRUN_TORCH_BACKEND_H

#include "job.h"
#include "memory.h"
#include "versions.h"
#include "work.h"

#include <deque>
#include <memory>

namespace ddprun
{

class Backend : public NewestBackend
{
  public:
    /* Takes @comm over. */
    Backend(ddp_comm *comm, c10::intrusive_ptr<Options> options);
    /* Meet the other ranks through @store. */
    static c10::intrusive_ptr<Backend> join(const c10::intrusive_ptr<c10d::Store> &store, int rank,
                                            int size, c10::intrusive_ptr<Options> options);
    ~Backend() override;

    const std::string getBackendName() const override;
    c10::intrusive_ptr<Options> getBackendOptions() override;
    uint64_t getSequenceNumberForGroup() override;
    void setTimeout(std::chrono::milliseconds timeout) override;
    bool supportsSplitting() const override;
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                            const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &options) override;
    void shutdown() override;
    void abort() override;
    bool supportsCoalescing() const override;
    void startCoalescing() override;
    c10::intrusive_ptr<c10d::Work> endCoalescing() override;

    /* Memory in which ranks of a machine reduce without copying: buckets of
     * DistributedDataParallel, with DDP_DISABLE_COMM_MEM=0. */
    bool supportsTensorAlloc(c10::DeviceIndex index) override;
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;

    using Lists = std::vector<Tensors>;

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &options) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    WorkPtr allgather(Lists &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &options) override;
    WorkPtr all_gather_single(at::Tensor &output, at::Tensor &input,
                              const c10d::AllgatherOptions &options) override;
    WorkPtr all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                        const c10d::AllgatherOptions &options) override;
    WorkPtr allgather_coalesced(Lists &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &options) override;
    WorkPtr gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &options) override;
    WorkPtr gather_single(at::Tensor &output, at::Tensor &input,
                          const c10d::GatherOptions &options) override;
    WorkPtr scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &options) override;
    WorkPtr reduce_scatter(Tensors &outputs, Lists &inputs,
                           const c10d::ReduceScatterOptions &options) override;
    WorkPtr reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                  const c10d::ReduceScatterOptions &options) override;
    WorkPtr reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &options) override;
    WorkPtr all_to_all_single(at::Tensor &output, at::Tensor &input,
                              std::vector<int64_t> &output_splits,
                              std::vector<int64_t> &input_splits,
                              const c10d::AllToAllOptions &options) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                     const c10d::AllToAllOptions &options) override;
    WorkPtr send(Tensors &tensors, int rank, int tag) override;
    WorkPtr recv(Tensors &tensors, int rank, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions &options) override;
    void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks) override;

  private:
    using JobPtr = c10::intrusive_ptr<Job>;

    /* Raises after shutdown(). */
    ddp_comm *comm() const;
    /* Raises @err if @status is not DDP_OK. */
    void require(ddp_status status, const struct ddp_error &err) const;
    JobPtr make_job(std::chrono::milliseconds timeout) const;
    /* Start @job, or note it while calls are coalesced. */
    WorkPtr submit(JobPtr job, c10d::OpType type, bool async, Tensors results);
    void start(const JobPtr &job, bool async, const Tensors &results);
    void drop_ended();
    void destroy();
    std::optional<c10::Stream> stream_for(const Tensors &tensors, bool async);
    WorkPtr message(ddp_kind kind, Tensors &tensors, uint32_t peer, int tag, c10d::OpType type);
    void add_all_reduce(Job &job, const Tensors &tensors, const c10d::ReduceOp &op) const;
    void add_all_gather(Job &job, const at::Tensor &output, const at::Tensor &input) const;
    void add_all_gather(Job &job, const Tensors &outputs, const at::Tensor &input) const;
    void add_reduce_scatter(Job &job, const at::Tensor &output, const at::Tensor &input,
                            const c10d::ReduceOp &op) const;
    std::vector<int64_t> count_elements(const at::Tensor &tensor,
                                        std::chrono::milliseconds timeout);
    at::Tensor add_rows(Job &job, const at::Tensor &rows, const std::vector<int64_t> &counts) const;
    void add_sparse_sum(Job &job, const Tensors &tensors, std::chrono::milliseconds timeout);
    void check_size(const char *call, size_t tensors) const;

    std::shared_ptr<Shared> shared_;
    std::shared_ptr<Memory> memory_; /* what allocateTensor() has returned; tensors have it, too */
    c10::intrusive_ptr<Options> options_;
    std::mutex mutex_;             /* what follows; operations begin in the order of calls */
    std::deque<JobPtr> under_way_; /* they keep their tensors even if their work is dropped */
    size_t most_under_way_ = 0;    /* with more than these, look for ended ones */
    JobPtr batch_;                 /* calls that are coalesced; NULL: none are */
    Tensors batch_results_;
    bool batch_async_ = false;
    std::optional<c10::Stream> side_; /* for operations on a device that later work may overtake */
    uint64_t sequence_ = 0;
};

} // namespace ddprun

#endif
