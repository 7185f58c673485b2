/*
 * collectives.cpp - PyTorch's calls as operations of libddpcomm. Each makes a job, and hands it to
 * submit().
 */
#include "backend.h"
#include "elements.h"
#include "lists.h"

#include <ddprun/comm_requests.h>

namespace ddprun
{

using Tensors = Backend::Tensors;
using WorkPtr = Backend::WorkPtr;

/* ---- checks ---- */

static at::Tensor &only(Tensors &tensors, const char *call)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "ddp: ", call, "() takes one tensor, not ",
                      tensors.size());
    check_tensor(tensors.front(), call);
    return tensors.front();
}

/* All tensors have the type of @like. */
static void check_list(const char *call, const Tensors &list, const at::Tensor &like)
{
    for (const auto &tensor : list) {
        check_tensor(tensor, call);
        TORCH_CHECK_VALUE(tensor.scalar_type() == like.scalar_type() &&
                              tensor.device() == like.device(),
                          "ddp: ", call, "(): the list has a tensor of ", tensor.scalar_type(),
                          " on ", tensor.device(), ", the other tensor is one of ",
                          like.scalar_type(), " on ", like.device());
    }
}

/* The list of a rank that has one. */
static Tensors &list_of(Backend::Lists &lists, const at::Tensor &like, const char *call)
{
    TORCH_CHECK_VALUE(lists.size() == 1, "ddp: ", call, "() takes one list of tensors, not ",
                      lists.size());
    check_list(call, lists.front(), like);
    return lists.front();
}

/* Of calls that move as many elements of each rank. */
static void check_counts(const char *call, const Tensors &list, const at::Tensor &like)
{
    for (const auto &tensor : list)
        TORCH_CHECK_VALUE(tensor.numel() == like.numel(), "ddp: ", call,
                          "(): the list has a tensor of ", tensor.numel(),
                          " elements, the other tensor has ", like.numel());
}

/* On the other ranks. */
static void check_root_has(const char *call, const Backend::Lists &lists)
{
    TORCH_CHECK_VALUE(lists.empty(), "ddp: ", call,
                      "() takes a list of tensors from the root only; pass an empty one here");
}

void Backend::check_size(const char *call, size_t tensors) const
{
    TORCH_CHECK_VALUE(tensors == size_t(getSize()), "ddp: ", call, "() takes a tensor for each of ",
                      getSize(), " ranks, not ", tensors);
}

static void check_pair(const char *call, const at::Tensor &output, const at::Tensor &input,
                       int64_t outputs, int64_t inputs)
{
    check_tensor(output, call);
    check_tensor(input, call);
    TORCH_CHECK_VALUE(
        output.scalar_type() == input.scalar_type() && output.device() == input.device(),
        "ddp: ", call, "(): the output is one of ", output.scalar_type(), " on ", output.device(),
        ", the input one of ", input.scalar_type(), " on ", input.device());
    TORCH_CHECK_VALUE(output.numel() * inputs == input.numel() * outputs, "ddp: ", call,
                      "(): the output has ", output.numel(), " elements, the input ", input.numel(),
                      "; ", outputs, " to ", inputs, " is needed");
}

static void check_root_tensor(const char *call, const Tensors &tensors, int64_t index)
{
    TORCH_CHECK_VALUE(index >= 0 && size_t(index) < tensors.size(), "ddp: ", call,
                      "(): invalid root tensor: ", index);
}

/* ---- operations ---- */

/* A tensor without elements has no address, and PyTorch's default stream is NULL: memory of its own
 * tells libddpcomm that this rank, too, takes part in an operation on a GPU. */
static const at::Tensor &with_address(struct Operation &operation, const at::Tensor &tensor)
{
    if (tensor.numel() > 0 || !tensor.device().is_cuda())
        return tensor;
    return operation.places.emplace_back(at::empty({1}, tensor.options()));
}

static void set_send(struct Operation &operation, const at::Tensor &tensor)
{
    operation.call.send = with_address(operation, tensor).const_data_ptr();
    operation.call.dtype = elements_of(tensor).dtype;
}

static void set_recv(struct Operation &operation, const at::Tensor &tensor)
{
    operation.call.recv = with_address(operation, tensor).mutable_data_ptr();
    operation.call.dtype = elements_of(tensor).dtype;
}

static size_t count_of(const at::Tensor &tensor)
{
    return size_t(tensor.numel()) * elements_of(tensor).each;
}

/* The counts of a list whose tensors are of different sizes; empty if they are not. */
static std::vector<size_t> counts_of(const Tensors &tensors)
{
    std::vector<size_t> counts;
    bool differ = false;
    for (const auto &tensor : tensors) {
        counts.push_back(count_of(tensor));
        differ = differ || counts.back() != counts.front();
    }
    return differ ? counts : std::vector<size_t>();
}

static void set_reduction(struct Operation &operation, const at::Tensor &tensor,
                          const c10d::ReduceOp &op)
{
    const Reduction reduction = reduction_of(op);
    operation.call.dtype = reduced_type(tensor);
    operation.call.op = reduction.op;
    operation.call.factor = reduction.factor;
}

/* ---- one value for all ---- */

WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    check_alike("broadcast", tensors);
    check_root_tensor("broadcast", tensors, options.rootTensor);
    const at::Tensor &tensor = tensors[size_t(options.rootTensor)];
    check_tensor(tensor, "broadcast");
    auto job = make_job(options.timeout);
    auto &operation = job->add(DDP_KIND_BROADCAST);
    const bool root = options.rootRank == getRank();
    const at::Tensor memory = root ? job->input(tensor) : job->output(tensor);
    set_recv(operation, memory);
    operation.call.count = count_of(tensor);
    operation.call.peer = uint32_t(options.rootRank);
    for (const auto &other : tensors)
        if (!other.is_same(tensor))
            job->copy_later(other, memory);
    return submit(job, c10d::OpType::BROADCAST, is_async(options), tensors);
}

/* Neighbours of one type in the list are one operation. Memory that is in the list twice is summed
 * up once. */
void Backend::add_all_reduce(Job &job, const Tensors &tensors, const c10d::ReduceOp &op) const
{
    struct Operation *last = nullptr;
    for (const auto &tensor : tensors)
        check_tensor(tensor, "allreduce");
    const bool copies = tensors.size() > 1 && overlap(tensors);
    for (const auto &tensor : tensors) {
        const at::Tensor memory = copies ? job.in_a_copy(tensor) : job.in_place(tensor);
        if (last == nullptr || last->call.dtype != reduced_type(tensor)) {
            last = &job.add(DDP_KIND_ALL_REDUCE);
            set_reduction(*last, tensor, op);
        }
        last->buffers.push_back(
            {memory.const_data_ptr(), memory.mutable_data_ptr(), size_t(memory.numel())});
        last->call.send = last->buffers.front().send;
        last->call.recv = last->buffers.front().recv;
        last->call.count = last->buffers.front().count;
    }
}

WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    check_alike("allreduce", tensors);
    auto job = make_job(options.timeout);
    if (tensors.front().layout() == at::kSparse) {
        TORCH_CHECK_VALUE(options.reduceOp == c10d::ReduceOp::SUM,
                          "ddp: allreduce() of sparse tensors only works with ReduceOp.SUM");
        add_sparse_sum(*job, tensors, options.timeout);
    } else if (tensors.size() > 1) {
        check_tensor(tensors.front(), "allreduce");
        add_all_reduce(*job, {combined(*job, tensors, options.reduceOp)}, options.reduceOp);
    } else {
        add_all_reduce(*job, tensors, options.reduceOp);
    }
    return submit(job, c10d::OpType::ALLREDUCE, is_async(options), tensors);
}

WorkPtr Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    return allreduce(tensors, options);
}

WorkPtr Backend::allreduce_coalesced(Tensors &tensors,
                                     const c10d::AllreduceCoalescedOptions &options)
{
    check_not_empty("allreduce_coalesced", tensors);
    auto job = make_job(options.timeout);
    add_all_reduce(*job, tensors, options.reduceOp);
    return submit(job, c10d::OpType::ALLREDUCE_COALESCED, is_async(options), tensors);
}

WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    const at::Tensor &tensor = only(tensors, "reduce");
    check_root_tensor("reduce", tensors, options.rootTensor);
    const bool root = options.rootRank == getRank();
    auto job = make_job(options.timeout);
    auto &operation = job->add(DDP_KIND_REDUCE);
    const at::Tensor memory = root ? job->in_place(tensor) : job->input(tensor);
    set_reduction(operation, tensor, options.reduceOp);
    operation.call.send = memory.const_data_ptr();
    operation.call.recv = root ? memory.mutable_data_ptr() : nullptr;
    operation.call.count = count_of(tensor);
    operation.call.peer = uint32_t(options.rootRank);
    return submit(job, c10d::OpType::REDUCE, is_async(options), tensors);
}

/* ---- a part of each rank ---- */

void Backend::add_all_gather(Job &job, const at::Tensor &output, const at::Tensor &input) const
{
    check_pair("all_gather", output, input, getSize(), 1);
    auto &operation = job.add(DDP_KIND_ALL_GATHER);
    set_send(operation, job.input(input));
    set_recv(operation, job.output(output));
    operation.call.count = count_of(input);
}

WorkPtr Backend::all_gather_single(at::Tensor &output, at::Tensor &input,
                                   const c10d::AllgatherOptions &options)
{
    auto job = make_job(options.timeout);
    add_all_gather(*job, output, input);
    return submit(job, c10d::OpType::_ALLGATHER_BASE, is_async(options), {output});
}

WorkPtr Backend::all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                             const c10d::AllgatherOptions &options)
{
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "ddp: all_gather takes as many outputs (",
                      outputs.size(), ") as inputs (", inputs.size(), ")");
    auto job = make_job(options.timeout);
    for (size_t i = 0; i < outputs.size(); i++)
        add_all_gather(*job, outputs[i], inputs[i]);
    return submit(job, c10d::OpType::ALLGATHER_COALESCED, is_async(options), outputs);
}

/* An output for each rank, which may be of different sizes. */
void Backend::add_all_gather(Job &job, const Tensors &outputs, const at::Tensor &input) const
{
    check_tensor(input, "all_gather");
    check_size("all_gather", outputs.size());
    check_list("all_gather", outputs, input);
    const at::Tensor &own = outputs[size_t(getRank())];
    TORCH_CHECK_VALUE(own.numel() == input.numel(), "ddp: all_gather(): output ", getRank(),
                      " has ", own.numel(), " elements, the input of this rank ", input.numel());
    auto &operation = job.add(DDP_KIND_ALL_GATHER);
    operation.recv_counts = counts_of(outputs);
    operation.call.uneven = !operation.recv_counts.empty();
    set_send(operation, job.input(input));
    set_recv(operation, job.output_parts(outputs));
    operation.call.count = count_of(input);
}

/* Each list of outputs has the inputs of rank 0, then those of rank 1, ... */
WorkPtr Backend::allgather(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    check_alike("all_gather", inputs);
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                      "ddp: all_gather() takes a list for each of ", inputs.size(), " inputs, not ",
                      outputs.size());
    const Tensors &first = outputs.front();
    for (const auto &list : outputs) {
        TORCH_CHECK_VALUE(list.size() == inputs.size() * size_t(getSize()),
                          "ddp: all_gather() takes a tensor for each input of each of ", getSize(),
                          " ranks, not ", list.size());
        for (size_t at = 0; at < list.size(); at++)
            TORCH_CHECK_VALUE(list[at].numel() == first[at].numel() &&
                                  list[at].scalar_type() == first[at].scalar_type(),
                              "ddp: all_gather(): all lists must have outputs of the same types and "
                              "sizes");
    }
    auto job = make_job(options.timeout);
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors of_input;
        for (size_t at = i; at < first.size(); at += inputs.size())
            of_input.push_back(first[at]);
        add_all_gather(*job, of_input, inputs[i]);
    }
    for (size_t i = 1; i < outputs.size(); i++)
        for (size_t at = 0; at < first.size(); at++)
            job->copy_later(outputs[i][at], first[at]);
    if (outputs.size() > 1)
        job->set_lists(outputs);
    return submit(job, c10d::OpType::ALLGATHER, is_async(options), first);
}

/* List i of the outputs belongs to rank i here, not to input i. */
WorkPtr Backend::allgather_coalesced(Lists &outputs, Tensors &inputs,
                                     const c10d::AllgatherOptions &options)
{
    check_not_empty("all_gather_coalesced", inputs);
    check_size("all_gather_coalesced", outputs.size());
    auto job = make_job(options.timeout);
    Tensors results;
    for (size_t i = 0; i < inputs.size(); i++) {
        Lists list(1);
        for (auto &of_rank : outputs) {
            TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                              "ddp: all_gather_coalesced() takes as many outputs of each rank (",
                              of_rank.size(), ") as inputs (", inputs.size(), ")");
            list[0].push_back(of_rank[i]);
        }
        check_tensor(inputs[i], "all_gather_coalesced");
        check_counts("all_gather_coalesced", list_of(list, inputs[i], "all_gather_coalesced"),
                     inputs[i]);
        auto &operation = job->add(DDP_KIND_ALL_GATHER);
        set_send(operation, job->input(inputs[i]));
        set_recv(operation, job->output_parts(list[0]));
        operation.call.count = count_of(inputs[i]);
        results.insert(results.end(), list[0].begin(), list[0].end());
    }
    return submit(job, c10d::OpType::ALLGATHER_COALESCED, is_async(options), results);
}

WorkPtr Backend::gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
    const at::Tensor &input = only(inputs, "gather");
    auto job = make_job(options.timeout);
    auto &operation = job->add(DDP_KIND_GATHER);
    Tensors results;
    if (options.rootRank == getRank()) {
        results = list_of(outputs, input, "gather");
        check_size("gather", results.size());
        check_counts("gather", results, input);
        set_recv(operation, job->output_parts(results));
    } else {
        check_root_has("gather", outputs);
    }
    set_send(operation, job->input(input));
    operation.call.count = count_of(input);
    operation.call.peer = uint32_t(options.rootRank);
    return submit(job, c10d::OpType::GATHER, is_async(options),
                  results.empty() ? Tensors{input} : results);
}

WorkPtr Backend::gather_single(at::Tensor &output, at::Tensor &input,
                               const c10d::GatherOptions &options)
{
    auto job = make_job(options.timeout);
    auto &operation = job->add(DDP_KIND_GATHER);
    const bool root = options.rootRank == getRank();
    if (root) {
        check_pair("gather_single", output, input, getSize(), 1);
        set_recv(operation, job->output(output));
    }
    check_tensor(input, "gather_single");
    set_send(operation, job->input(input));
    operation.call.count = count_of(input);
    operation.call.peer = uint32_t(options.rootRank);
    return submit(job, c10d::OpType::GATHER, is_async(options), {root ? output : input});
}

WorkPtr Backend::scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &options)
{
    const at::Tensor &output = only(outputs, "scatter");
    auto job = make_job(options.timeout);
    auto &operation = job->add(DDP_KIND_SCATTER);
    if (options.rootRank == getRank()) {
        const Tensors &list = list_of(inputs, output, "scatter");
        check_size("scatter", list.size());
        check_counts("scatter", list, output);
        set_send(operation, job->input_parts(list));
    } else {
        check_root_has("scatter", inputs);
    }
    set_recv(operation, job->output(output));
    operation.call.count = count_of(output);
    operation.call.peer = uint32_t(options.rootRank);
    return submit(job, c10d::OpType::SCATTER, is_async(options), outputs);
}

/* ---- reduced parts ---- */

void Backend::add_reduce_scatter(Job &job, const at::Tensor &output, const at::Tensor &input,
                                 const c10d::ReduceOp &op) const
{
    check_pair("reduce_scatter", output, input, 1, getSize());
    auto &operation = job.add(DDP_KIND_REDUCE_SCATTER);
    set_send(operation, job.input(input));
    set_recv(operation, job.output(output));
    set_reduction(operation, input, op);
    operation.call.count = count_of(output);
}

WorkPtr Backend::reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                       const c10d::ReduceScatterOptions &options)
{
    auto job = make_job(options.timeout);
    add_reduce_scatter(*job, output, input, options.reduceOp);
    return submit(job, c10d::OpType::_REDUCE_SCATTER_BASE, is_async(options), {output});
}

WorkPtr Backend::reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                 const c10d::ReduceScatterOptions &options)
{
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                      "ddp: reduce_scatter takes as many outputs (", outputs.size(),
                      ") as inputs (", inputs.size(), ")");
    auto job = make_job(options.timeout);
    for (size_t i = 0; i < outputs.size(); i++)
        add_reduce_scatter(*job, outputs[i], inputs[i], options.reduceOp);
    return submit(job, c10d::OpType::REDUCE_SCATTER, is_async(options), outputs);
}

WorkPtr Backend::reduce_scatter(Tensors &outputs, Lists &inputs,
                                const c10d::ReduceScatterOptions &options)
{
    const at::Tensor &output = only(outputs, "reduce_scatter");
    const Tensors &list = list_of(inputs, output, "reduce_scatter");
    check_size("reduce_scatter", list.size());
    TORCH_CHECK_VALUE(list[size_t(getRank())].numel() == output.numel(),
                      "ddp: reduce_scatter(): input ", getRank(), " has ",
                      list[size_t(getRank())].numel(), " elements, the output of this rank ",
                      output.numel());
    auto job = make_job(options.timeout);
    auto &operation = job->add(DDP_KIND_REDUCE_SCATTER);
    operation.send_counts = counts_of(list);
    operation.call.uneven = !operation.send_counts.empty();
    set_send(operation, job->input_parts(list));
    set_recv(operation, job->output(output));
    set_reduction(operation, output, options.reduceOp);
    operation.call.count = count_of(output);
    return submit(job, c10d::OpType::REDUCE_SCATTER, is_async(options), outputs);
}

/* ---- all to all ---- */

/* Elements of the parts into which @splits divides the first dimension; no splits: equal parts. */
static std::vector<size_t> split_counts(const at::Tensor &tensor, std::vector<int64_t> splits,
                                        int size)
{
    const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    if (splits.empty()) {
        TORCH_CHECK_VALUE(rows % size == 0, "ddp: all_to_all_single(): the first dimension, ", rows,
                          ", cannot be divided by ", size, " ranks; pass split sizes");
        splits.assign(size_t(size), rows / size);
    }
    int64_t sum = 0;
    bool negative = false;
    for (const int64_t split : splits) {
        negative = negative || split < 0;
        sum += split;
    }
    TORCH_CHECK_VALUE(splits.size() == size_t(size) && sum == rows && !negative,
                      "ddp: all_to_all_single(): the split sizes must be ", size,
                      " numbers whose sum is the first dimension, ", rows);
    std::vector<size_t> counts;
    for (const int64_t split : splits)
        counts.push_back(rows == 0 ? 0 : size_t(split) * (count_of(tensor) / size_t(rows)));
    return counts;
}

WorkPtr Backend::all_to_all_single(at::Tensor &output, at::Tensor &input,
                                   std::vector<int64_t> &output_splits,
                                   std::vector<int64_t> &input_splits,
                                   const c10d::AllToAllOptions &options)
{
    check_tensor(output, "all_to_all_single");
    check_tensor(input, "all_to_all_single");
    TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type() &&
                          output.device() == input.device(),
                      "ddp: all_to_all_single(): the tensors are of ", output.scalar_type(), " on ",
                      output.device(), " and of ", input.scalar_type(), " on ", input.device());
    auto job = make_job(options.timeout);
    auto &operation = job->add(DDP_KIND_ALL_TO_ALL);
    operation.call.uneven = 1;
    operation.send_counts = split_counts(input, input_splits, getSize());
    operation.recv_counts = split_counts(output, output_splits, getSize());
    set_send(operation, job->input(input));
    set_recv(operation, job->output(output));
    return submit(job, c10d::OpType::ALLTOALL_BASE, is_async(options), {output});
}

WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
    check_size("all_to_all", outputs.size());
    check_size("all_to_all", inputs.size());
    Lists output_lists{outputs}, input_lists{inputs};
    list_of(output_lists, inputs.front(), "all_to_all");
    list_of(input_lists, inputs.front(), "all_to_all");
    auto job = make_job(options.timeout);
    auto &operation = job->add(DDP_KIND_ALL_TO_ALL);
    operation.call.uneven = 1;
    for (const auto &tensor : inputs)
        operation.send_counts.push_back(count_of(tensor));
    for (const auto &tensor : outputs)
        operation.recv_counts.push_back(count_of(tensor));
    set_send(operation, job->input_parts(inputs));
    set_recv(operation, job->output_parts(outputs));
    return submit(job, c10d::OpType::ALLTOALL, is_async(options), outputs);
}

/* ---- messages ---- */

/* What libddpcomm takes. */
static constexpr std::chrono::milliseconds kLongest{UINT32_MAX};

/* A receive may be called long before its message is sent. So its time begins with the wait(). */
WorkPtr Backend::message(ddp_kind kind, Tensors &tensors, uint32_t peer, int tag, c10d::OpType type)
{
    const char *call = kind == DDP_KIND_SEND ? "send" : "recv";
    const at::Tensor &tensor = only(tensors, call);
    TORCH_CHECK_VALUE(tag >= 0, "ddp: ", call, "(): the tag is ", tag, "; it cannot be negative");
    const bool waits = !tensor.is_cuda(); /* somebody does, not its stream */
    auto job = make_job(waits ? kLongest : c10d::kUnsetTimeout);
    if (waits)
        job->wait_at_most(options_->timeout);
    auto &operation = job->add(kind);
    if (kind == DDP_KIND_SEND)
        set_send(operation, job->input(tensor));
    else
        set_recv(operation, job->output(tensor));
    operation.call.count = count_of(tensor);
    operation.call.peer = peer;
    operation.call.tag = uint32_t(tag);
    return submit(job, type, true, tensors);
}

WorkPtr Backend::send(Tensors &tensors, int rank, int tag)
{
    return message(DDP_KIND_SEND, tensors, uint32_t(rank), tag, c10d::OpType::SEND);
}

WorkPtr Backend::recv(Tensors &tensors, int rank, int tag)
{
    return message(DDP_KIND_RECV, tensors, uint32_t(rank), tag, c10d::OpType::RECV);
}

WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    return message(DDP_KIND_RECV, tensors, DDP_ANY_RANK, tag, c10d::OpType::RECVANYSOURCE);
}

/* ---- barriers ---- */

WorkPtr Backend::barrier(const c10d::BarrierOptions &options)
{
    auto job = make_job(options.timeout);
    job->add(DDP_KIND_BARRIER);
    return submit(job, c10d::OpType::BARRIER, is_async(options), {});
}

/* All ranks learn of all that are missing, with @wait_all_ranks and without. */
void Backend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks)
{
    (void)wait_all_ranks;
    auto job = make_job(options.timeout);
    job->add(DDP_KIND_MONITORED_BARRIER);
    (void)submit(job, c10d::OpType::BARRIER, false, {})->wait(kNoTimeout);
}

} // namespace ddprun
