/*
 * work.h - the handle of a job that PyTorch's callers get.
 */
#ifndef DDPRUN_TORCH_WORK_H
#define DDPRUN_TORCH_WORK_H

#include "job.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace ddprun
{

class Work : public c10d::Work
{
  public:
    Work(c10::intrusive_ptr<Job> job, int rank, c10d::OpType type, uint64_t sequence);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override;

  private:
    c10::intrusive_ptr<Job> job_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    uint64_t sequence_;
};

} // namespace ddprun

#endif
