/*
 * work.cpp - see work.h. Owns the future.
 */
#include "work.h"

#include "python_lock.h"

#include <ATen/core/ivalue.h>

namespace ddprun
{

Work::Work(c10::intrusive_ptr<Job> job, int rank, c10d::OpType type, uint64_t sequence)
    : c10d::Work(rank, type), job_(std::move(job)), sequence_(sequence)
{
}

bool Work::isCompleted()
{
    return job_->test();
}

bool Work::isSuccess() const
{
    return job_->failure() == nullptr;
}

std::exception_ptr Work::exception() const
{
    return job_->failure();
}

int Work::sourceRank() const
{
    return job_->source();
}

std::vector<at::Tensor> Work::result()
{
    return job_->results();
}

void Work::synchronize()
{
    job_->wait(kNoTimeout);
}

bool Work::wait(std::chrono::milliseconds timeout)
{
    job_->wait(timeout);
    return true;
}

void Work::abort()
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "ddp: an operation cannot be aborted alone; abort its process group");
}

/* Nobody moves bytes for a future. Where ranks fill the processors, a thread that did would only
 * take turns with them; so the operation is carried out here. On a device the future is complete
 * when the stream is. */
c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    const LockedWithoutPython lock(mutex_);
    if (future_ != nullptr)
        return future_;
    std::vector<c10::Device> devices;
    for (const auto &tensor : job_->results())
        if (tensor.device().is_cuda() && devices.empty())
            devices.push_back(tensor.device());
    const bool has_lists = !job_->lists().empty();
    const auto list = c10::ListType::create(c10::TensorType::get());
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        has_lists ? c10::ListType::create(list) : list, devices);
    try {
        job_->wait(kNoTimeout);
        future->markCompleted(has_lists ? at::IValue(job_->lists()) : at::IValue(job_->results()));
    } catch (...) {
        future->setError(std::current_exception());
    }
    future_ = std::move(future);
    return future_;
}

uint64_t Work::getSequencenumber() const
{
    return sequence_;
}

} // namespace ddprun
