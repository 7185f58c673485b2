/*
 * job.h - what one call of the back end does: operations of libddpcomm, the tensors that they work
 * on, and what is copied when they have ended.
 *
 * A job has operations on host memory, which are requests of libddpcomm, or operations on memory of
 * one device, which are enqueued on a stream. It owns the requests, and keeps the tensors.
 */
#ifndef DDPRUN_TORCH_JOB_H
#define DDPRUN_TORCH_JOB_H

#include <ATen/ATen.h>
#include <atomic>
#include <c10/core/Event.h>
#include <chrono>
#include <ddprun/comm.h>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace ddprun
{

/* An operation, and the arrays that it points to. */
struct Operation {
    struct ddp_operation call;
    std::vector<size_t> send_counts, recv_counts;
    std::vector<struct ddp_buffer> buffers;
    std::vector<at::Tensor> places; /* of tensors without elements */
    ddp_request *request = nullptr;
};

/* The communicator, for those who may outlive it. */
struct Shared {
    std::mutex mutex;               /* held where it is destroyed */
    ddp_comm *comm;                 /* NULL: it was */
    std::atomic<bool> told = false; /* a caller has got its failure */
};

class Job : public c10::intrusive_ptr_target
{
  public:
    Job(uint32_t timeout_ms, std::shared_ptr<Shared> shared);
    ~Job() override; /* it has ended, or its communicator is destroyed */

    /* ---- before it starts ---- */

    /* A further operation. The reference stays valid. */
    struct Operation &add(ddp_kind kind);
    /* @tensor, or a contiguous copy of it to read from. */
    at::Tensor input(const at::Tensor &tensor);
    /* @tensor, or contiguous memory that is copied to it in the end. */
    at::Tensor output(const at::Tensor &tensor);
    /* The same with its elements. */
    at::Tensor in_place(const at::Tensor &tensor);
    /* A copy of it that is copied to it in the end. */
    at::Tensor in_a_copy(const at::Tensor &tensor);
    /* All of them one after the other, as input() or output(). */
    at::Tensor input_parts(const std::vector<at::Tensor> &tensors);
    at::Tensor output_parts(const std::vector<at::Tensor> &tensors);
    /* Copy @from to @tensor when all operations have ended. */
    void copy_later(const at::Tensor &tensor, const at::Tensor &from);
    /* Call @last when they have, and copies are made. */
    void in_the_end(std::function<void()> last);
    /* Take over what @other would do. */
    void append(Job &other);

    /* How long a wait() without a timeout waits. 0: until the operations have ended, which have
     * timeouts of their own. */
    void wait_at_most(std::chrono::milliseconds limit);
    void set_results(std::vector<at::Tensor> tensors);
    const std::vector<at::Tensor> &results() const;
    /* Lists that a future has in place of results(). */
    void set_lists(std::vector<std::vector<at::Tensor>> lists);
    const std::vector<std::vector<at::Tensor>> &lists() const;

    /* ---- its life ---- */

    /* Begin all operations. @stream: of device memory. If that raises, it has ended. */
    void start(ddp_comm *comm, std::optional<c10::Stream> stream);
    /* Whether it has ended; does not block. */
    bool test();
    /* Wait until it has ended, or later work of the current stream will wait; raises its failure,
     * that it has not started, or that the time is over (0: that of wait_at_most()). */
    void wait(std::chrono::milliseconds timeout);
    /* NULL: it has not failed. */
    std::exception_ptr failure() const;
    /* The rank whose message was received. */
    int source() const;

  private:
    void start_requests(ddp_comm *comm);
    void enqueue(ddp_comm *comm, c10::Stream stream);
    void finish(std::exception_ptr failure, bool lasting);
    void tell(bool lasting) const;
    void give_results();
    bool test_locked();
    void wait_for_device();

    mutable std::mutex mutex_;
    uint32_t timeout_ms_;
    std::chrono::milliseconds limit_{0}; /* of a wait() without a timeout */
    std::deque<struct Operation> operations_;
    std::vector<at::Tensor> kept_, results_;
    std::vector<std::vector<at::Tensor>> lists_;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies_; /* to, from */
    std::vector<std::function<void()>> last_;
    std::optional<c10::Device> device_;
    std::optional<c10::Event> event_; /* of the stream; it has no requests then */
    bool begun_ = false, ended_ = false;
    std::exception_ptr failure_;
    bool lasting_ = false; /* the communicator has failed with it */
    std::shared_ptr<Shared> shared_;
    uint32_t source_ = DDP_ANY_RANK;
};

} // namespace ddprun

#endif
