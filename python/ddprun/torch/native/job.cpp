/*
 * job.cpp - see job.h.
 */
#include "job.h"

#include "failure.h"
#include "python_lock.h"
#include "versions.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <algorithm>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <ddprun/comm_requests.h>
#include <unistd.h>

namespace ddprun
{

Job::Job(uint32_t timeout_ms, std::shared_ptr<Shared> shared)
    : timeout_ms_(timeout_ms), shared_(std::move(shared))
{
}

Job::~Job()
{
    for (auto &operation : operations_)
        ddp_request_free(operation.request);
}

/* ---- before it starts ---- */

struct Operation &Job::add(ddp_kind kind)
{
    struct Operation &operation = operations_.emplace_back();
    operation.call = {};
    operation.call.size = sizeof operation.call;
    operation.call.kind = kind;
    operation.call.timeout_ms = timeout_ms_;
    return operation;
}

at::Tensor Job::input(const at::Tensor &tensor)
{
    if (!device_ && tensor.device().is_cuda())
        device_ = tensor.device();
    return kept_.emplace_back(tensor.contiguous());
}

at::Tensor Job::output(const at::Tensor &tensor)
{
    if (tensor.is_contiguous())
        return input(tensor);
    at::Tensor memory = input(at::empty(tensor.sizes(), tensor.options()));
    copy_later(tensor, memory);
    return memory;
}

at::Tensor Job::in_place(const at::Tensor &tensor)
{
    at::Tensor memory = input(tensor);
    if (!memory.is_same(tensor))
        copy_later(tensor, memory);
    return memory;
}

at::Tensor Job::in_a_copy(const at::Tensor &tensor)
{
    at::Tensor memory = input(tensor.clone(at::MemoryFormat::Contiguous));
    copy_later(tensor, memory);
    return memory;
}

/* Views of one piece of memory, such as those of chunk(), lie one after the other already. So may
 * pieces of their own, of which none is part of another. */
static bool are_neighbours(const std::vector<at::Tensor> &tensors)
{
    const char *end = nullptr;
    for (const auto &tensor : tensors) {
        const char *begin = static_cast<const char *>(tensor.const_data_ptr());
        if (!tensor.is_contiguous() || !tensor.storage().is_alias_of(tensors.front().storage()) ||
            (end != nullptr && tensor.numel() > 0 && begin != end))
            return false;
        if (tensor.numel() > 0)
            end = begin + tensor.nbytes();
    }
    return true;
}

/* All elements from the first tensor on. */
static at::Tensor span(const std::vector<at::Tensor> &tensors)
{
    int64_t count = 0;
    const at::Tensor *first = &tensors.front();
    for (const auto &tensor : tensors) {
        if (count == 0)
            first = &tensor;
        count += tensor.numel();
    }
    return first->as_strided({count}, {1});
}

at::Tensor Job::input_parts(const std::vector<at::Tensor> &tensors)
{
    if (are_neighbours(tensors))
        return input(span(tensors));
    std::vector<at::Tensor> flat;
    for (const auto &tensor : tensors)
        flat.push_back(tensor.reshape({-1}));
    return input(at::cat(flat));
}

at::Tensor Job::output_parts(const std::vector<at::Tensor> &tensors)
{
    if (are_neighbours(tensors))
        return input(span(tensors));
    int64_t count = 0;
    for (const auto &tensor : tensors)
        count += tensor.numel();
    at::Tensor memory = input(at::empty({count}, tensors.front().options()));
    int64_t at = 0;
    for (const auto &tensor : tensors) {
        copy_later(tensor, memory.narrow(0, at, tensor.numel()).view(tensor.sizes()));
        at += tensor.numel();
    }
    return memory;
}

/* Before anything is sent: copy_() would refuse it when the other ranks have their results. */
void Job::copy_later(const at::Tensor &tensor, const at::Tensor &from)
{
    TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
                      "ddp: a tensor whose elements share memory, such as one of expand(), cannot "
                      "have a result: clone() it first");
    copies_.emplace_back(tensor, from);
}

void Job::in_the_end(std::function<void()> last)
{
    last_.push_back(std::move(last));
}

void Job::append(Job &other)
{
    for (auto &operation : other.operations_)
        operations_.push_back(std::move(operation));
    other.operations_.clear();
    kept_.insert(kept_.end(), other.kept_.begin(), other.kept_.end());
    copies_.insert(copies_.end(), other.copies_.begin(), other.copies_.end());
    last_.insert(last_.end(), other.last_.begin(), other.last_.end());
    results_.insert(results_.end(), other.results_.begin(), other.results_.end());
    if (!device_)
        device_ = other.device_;
    limit_ = std::max(limit_, other.limit_);
}

void Job::wait_at_most(std::chrono::milliseconds limit)
{
    limit_ = limit;
}

void Job::set_results(std::vector<at::Tensor> tensors)
{
    results_ = std::move(tensors);
}

const std::vector<at::Tensor> &Job::results() const
{
    return results_;
}

void Job::set_lists(std::vector<std::vector<at::Tensor>> lists)
{
    lists_ = std::move(lists);
}

const std::vector<std::vector<at::Tensor>> &Job::lists() const
{
    return lists_;
}

/* ---- its life ---- */

void Job::start(ddp_comm *comm, std::optional<c10::Stream> stream)
{
    begun_ = true;
    for (auto &operation : operations_) {
        if (!operation.send_counts.empty())
            operation.call.send_counts = operation.send_counts.data();
        if (!operation.recv_counts.empty())
            operation.call.recv_counts = operation.recv_counts.data();
        if (!operation.buffers.empty()) {
            operation.call.buffers = operation.buffers.data();
            operation.call.nbuffers = operation.buffers.size();
        }
        operation.call.source = &source_;
    }
    try {
        if (device_)
            enqueue(comm, stream.value());
        else
            start_requests(comm);
    } catch (...) {
        const LockedWithoutPython lock(mutex_);
        struct ddp_error ignored;
        tell(ddp_comm_check(comm, &ignored) != DDP_OK);
        finish(std::current_exception(), false);
        throw;
    }
}

/* What has begun before one that is refused goes on, and the job with it. */
void Job::start_requests(ddp_comm *comm)
{
    for (auto &operation : operations_) {
        struct ddp_error err;
        const ddp_status status = ddp_start(comm, &operation.call, &operation.request, &err);
        if (status == DDP_OK)
            continue;
        for (auto &begun : operations_)
            if (begun.request != nullptr)
                (void)!ddp_request_wait(begun.request, 0, nullptr, nullptr);
        raise(status, err);
    }
}

/* Messages of one job must not wait for each other's order, so several calls are a group. */
void Job::enqueue(ddp_comm *comm, c10::Stream stream)
{
    struct ddp_error err;
    void *const handle = handle_of(stream);
    const bool group = operations_.size() > 1;
    ddp_status status = group ? ddp_group_start(comm, &err) : DDP_OK;
    check(status, err);
    for (auto &operation : operations_) {
        operation.call.stream = handle;
        if (status == DDP_OK)
            status = ddp_run(comm, &operation.call, &err);
    }
    struct ddp_error end_err;
    const ddp_status end = group ? ddp_group_end(comm, &end_err) : DDP_OK;
    const c10::impl::VirtualGuardImpl device(stream.device_type());
    for (const auto &tensor : kept_)
        device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
    event_.emplace(stream.device_type());
    event_->record(stream); /* where one is refused, the others have begun */
    check(status, err);
    check(end, end_err);
    {
        const c10::StreamGuard guard(stream);
        give_results();
    }
    for (const auto &copy : copies_)
        device.recordDataPtrOnStream(copy.first.storage().data_ptr(), stream);
    event_->record(stream);
}

/* Tensors of the caller may be leaves of a graph, which no differentiated call may change, or of
 * inference mode, which the thread that waits may have left. */
void Job::give_results()
{
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (auto &[to, from] : copies_)
        to.copy_(from, /*non_blocking=*/true);
    for (auto &last : last_)
        last();
}

/* A caller gets a failure. */
void Job::tell(bool lasting) const
{
    if (lasting)
        shared_->told = true;
}

/* With the lock held, once. */
void Job::finish(std::exception_ptr failure, bool lasting)
{
    failure_ = failure;
    lasting_ = lasting;
    ended_ = true;
    try {
        if (failure == nullptr)
            give_results();
    } catch (...) {
        failure_ = std::current_exception();
    }
    copies_.clear();
    last_.clear();
    kept_.clear();
}

/* A job ends when all its operations have: they use its tensors until then. */
bool Job::test_locked()
{
    if (event_ || ended_)
        return event_ ? event_->query() : true;
    if (!begun_)
        return false;
    std::exception_ptr first;
    bool lasting = false;
    for (auto &operation : operations_) {
        struct ddp_error err;
        int done = 0;
        const ddp_status status = ddp_request_test(operation.request, &done, &err);
        if (!done)
            return false;
        if (status != DDP_OK && first == nullptr) {
            first = failure_of(status, err);
            lasting = is_lasting(status);
        }
    }
    finish(first, lasting);
    return true;
}

bool Job::test()
{
    const LockedWithoutPython lock(mutex_);
    return test_locked();
}

/* Errors of enqueued operations are known later. The process group may be destroyed already. */
void Job::wait_for_device()
{
    const c10::impl::VirtualGuardImpl device(device_->type());
    event_->block(device.getStream(*device_));
    struct ddp_error err;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    const ddp_status status =
        shared_->comm != nullptr ? ddp_comm_check(shared_->comm, &err) : DDP_OK;
    tell(status != DDP_OK);
    check(status, err);
}

/* What is left of @timeout, for libddpcomm, where 0 is no limit as well. */
static uint32_t left_of(std::chrono::milliseconds timeout,
                        std::chrono::steady_clock::time_point begin)
{
    using std::chrono::milliseconds;
    if (timeout <= milliseconds::zero())
        return 0;
    const auto spent = std::chrono::steady_clock::now() - begin;
    const auto left = timeout - std::chrono::duration_cast<milliseconds>(spent);
    return uint32_t(std::clamp<int64_t>(left.count(), 1, UINT32_MAX));
}

void Job::wait(std::chrono::milliseconds timeout)
{
    const PythonLockReleased released;
    const auto begin = std::chrono::steady_clock::now();
    const auto limit = timeout > kNoTimeout ? timeout : limit_;
    const bool in_the_end = python_ends();
    TORCH_CHECK(begun_, "ddp: this call is coalesced with others and has not begun: wait "
                        "for it when all have been called");
    if (event_ && !ended_) /* it was not refused */
        return wait_for_device();
    for (auto &operation : operations_) {
        int done = 0;
        struct ddp_error err;
        if (operation.request == nullptr) /* an earlier one was refused */
            continue;
        (void)!ddp_request_wait(operation.request, left_of(limit, begin), &done, &err);
        while (python_ends() && !in_the_end) /* a daemon thread: Python would end the process */
            pause();
        TORCH_CHECK_WITH(DistBackendError, done, "ddp: the operation has not ended after ",
                         limit.count(), " ms; it can be waited for again: ", err.msg);
    }
    const LockedWithoutPython lock(mutex_);
    (void)test_locked();
    tell(lasting_);
    if (failure_ != nullptr)
        std::rethrow_exception(failure_);
}

std::exception_ptr Job::failure() const
{
    const LockedWithoutPython lock(mutex_);
    tell(lasting_);
    return failure_;
}

int Job::source() const
{
    return int(source_);
}

} // namespace ddprun
