/*
 * backend.cpp - the life of the back end: how ranks meet, how jobs begin, how it ends. The calls
 * are in collectives.cpp. Owns the communicator.
 */
#include "backend.h"

#include "elements.h"
#include "failure.h"
#include "python_lock.h"

#include <algorithm>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <ddprun/comm_groups.h>
#include <ddprun/comm_requests.h>
#include <ddprun/kv.h>

namespace ddprun
{

/* As libddpcomm has it, where 0 is what PyTorch calls unset, which is negative. */
static uint32_t milliseconds_of(std::chrono::milliseconds timeout)
{
    const auto count = timeout.count();
    return count < 0 ? 0 : uint32_t(std::clamp<int64_t>(count, 1, UINT32_MAX));
}

/* ---- meeting ---- */

/* Functions of struct ddp_kv on a store of PyTorch, which raises. */
template <class Function> static ddp_status on_store(struct ddp_error *err, Function function)
{
    try {
        return function();
    } catch (const std::exception &exception) {
        err->status = DDP_E_CLOSED;
        err->sys_errno = 0;
        snprintf(err->msg, sizeof err->msg, "the store of the process group: %s", exception.what());
        return DDP_E_CLOSED;
    }
}

static c10d::Store &store_of(void *ctx)
{
    return *static_cast<c10d::Store *>(ctx);
}

static ddp_status store_set(void *ctx, const char *key, const void *value, size_t len,
                            struct ddp_error *err)
{
    return on_store(err, [&] {
        const auto *bytes = static_cast<const uint8_t *>(value);
        store_of(ctx).set(key, std::vector<uint8_t>(bytes, bytes + len));
        return DDP_OK;
    });
}

static ddp_status store_get(void *ctx, const char *key, void *buffer, size_t size, size_t *ret_len,
                            struct ddp_error *err)
{
    return on_store(err, [&] {
        if (!store_of(ctx).check({key}))
            return DDP_E_NOT_FOUND;
        const std::vector<uint8_t> value = store_of(ctx).get(key);
        std::copy_n(value.begin(), std::min(size, value.size()), static_cast<uint8_t *>(buffer));
        *ret_len = value.size();
        return DDP_OK;
    });
}

/* A store says by an exception that the time is over. */
static ddp_status store_wait(void *ctx, const char *key, uint32_t timeout_ms, struct ddp_error *err)
{
    return on_store(err, [&] {
        try {
            store_of(ctx).wait({key}, std::chrono::milliseconds(timeout_ms));
        } catch (const c10::DistStoreError &) {
            return DDP_E_TIMEOUT;
        }
        return DDP_OK;
    });
}

static ddp_status store_remove(void *ctx, const char *key, struct ddp_error *err)
{
    return on_store(err, [&] {
        (void)store_of(ctx).deleteKey(key);
        return DDP_OK;
    });
}

c10::intrusive_ptr<Backend> Backend::join(const c10::intrusive_ptr<c10d::Store> &store, int rank,
                                          int size, c10::intrusive_ptr<Options> options)
{
    struct ddp_kv kv = {};
    kv.size = sizeof kv;
    kv.ctx = store.get();
    kv.set = store_set;
    kv.get = store_get;
    kv.wait = store_wait;
    kv.remove = store_remove;
    struct ddp_comm_options init = {};
    init.size = sizeof init;
    init.name = "torch";
    init.world_size = uint32_t(size);
    init.rank = uint32_t(rank);
    init.timeout_ms = init.init_timeout_ms = milliseconds_of(options->timeout);
    init.kv = &kv;
    ddp_comm *comm;
    struct ddp_error err;
    check(ddp_comm_init(&init, &comm, &err), err);
    return c10::make_intrusive<Backend>(comm, std::move(options));
}

Backend::Backend(ddp_comm *comm, c10::intrusive_ptr<Options> options)
    : NewestBackend(int(ddp_comm_rank(comm)), int(ddp_comm_world_size(comm))),
      shared_(std::make_shared<Shared>()), memory_(std::make_shared<Memory>(comm)),
      options_(std::move(options))
{
    shared_->comm = comm;
}

/* ---- the end ---- */

Backend::~Backend()
{
    destroy();
}

void Backend::destroy()
{
    memory_->outlive();
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    ddp_comm_destroy(shared_->comm);
    shared_->comm = nullptr;
}

/* What other ranks still take from this one arrives, even if it did not wait for it. A failure that
 * the program has got is not told once more. */
void Backend::shutdown()
{
    const LockedWithoutPython lock(mutex_);
    struct ddp_error err;
    if (shared_->comm == nullptr)
        return;
    if (ddp_comm_finalize(shared_->comm, 0, &err) != DDP_OK && !shared_->told)
        TORCH_WARN("ddp: ", err.msg);
    destroy();
    under_way_.clear();
}

void Backend::abort()
{
    shared_->told = true;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    if (shared_->comm != nullptr)
        ddp_comm_abort(shared_->comm);
}

/* ---- memory ---- */

/* Of the processor, which has no index. */
bool Backend::supportsTensorAlloc(c10::DeviceIndex index)
{
    return index < 0;
}

/* Where ranks copy anyway, as they do so few bytes. */
static constexpr size_t kCopied = 16 * 1024;

/* A machine may have too little memory that ranks can share, and any memory will do. */
at::Tensor Backend::allocateTensor(long size, at::TensorOptions options)
{
    TORCH_CHECK(options.device().is_cpu(),
                "ddp: allocate_tensor() has memory of the cpu only, not of ", options.device());
    TORCH_CHECK(size >= 0 && size <= PTRDIFF_MAX / ptrdiff_t(options.dtype().itemsize()),
                "ddp: allocate_tensor(): there is no tensor of ", size, " elements");
    const auto type = c10::typeMetaToScalarType(options.dtype());
    if (c10::isComplexType(type)) { /* PyTorch's Reducer uses a complex bucket as real numbers */
        options = options.dtype(c10::toRealValueType(type));
        size *= 2;
    }
    const size_t bytes = size_t(size) * options.dtype().itemsize();
    struct ddp_error err, failure;
    ddp_comm *const own = comm();
    if (bytes <= kCopied)
        return at::empty({size}, options);
    void *const memory = memory_->allocate(bytes, err);
    if (memory == nullptr) {
        require(ddp_comm_check(own, &failure), failure);
        TORCH_WARN_ONCE("ddp: ranks will copy gradients: ", err.msg);
        return at::empty({size}, options);
    }
    return at::from_blob(
        memory, {size}, [owner = memory_](void *address) { owner->give_back(address); }, options);
}

/* ---- groups ---- */

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                 const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<Options> &options)
{
    (void)store;
    if (std::find(ranks.begin(), ranks.end(), getRank()) == ranks.end())
        return nullptr;
    const std::vector<uint32_t> members(ranks.begin(), ranks.end());
    ddp_comm *comm;
    struct ddp_error err;
    require(
        ddp_comm_create_group(this->comm(), members.data(), uint32_t(members.size()), &comm, &err),
        err);
    auto backend = c10::make_intrusive<Backend>(comm, options_of_split(*options, *options_, ranks));
    backend->setTimeout(options->timeout);
    return backend;
}

bool Backend::supportsSplitting() const
{
    return kCanSplit;
}

const std::string Backend::getBackendName() const
{
    return "ddp";
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions()
{
    return options_;
}

uint64_t Backend::getSequenceNumberForGroup()
{
    const LockedWithoutPython lock(mutex_);
    return sequence_;
}

void Backend::setTimeout(std::chrono::milliseconds timeout)
{
    struct ddp_error err;
    check(ddp_comm_set_timeout(comm(), milliseconds_of(timeout), &err), err);
    options_->timeout = timeout;
}

/* ---- jobs ---- */

ddp_comm *Backend::comm() const
{
    TORCH_CHECK_WITH(DistBackendError, shared_->comm != nullptr,
                     "ddp: this process group has been destroyed");
    return shared_->comm;
}

void Backend::require(ddp_status status, const struct ddp_error &err) const
{
    if (status != DDP_OK && is_lasting(status))
        shared_->told = true;
    check(status, err);
}

Backend::JobPtr Backend::make_job(std::chrono::milliseconds timeout) const
{
    (void)comm();
    return c10::make_intrusive<Job>(milliseconds_of(timeout), shared_);
}

/* Synchronous calls take the current stream; others one of their own, which waits for it. */
std::optional<c10::Stream> Backend::stream_for(const Tensors &tensors, bool async)
{
    for (const auto &tensor : tensors) {
        if (!tensor.device().is_cuda())
            continue;
        const c10::impl::VirtualGuardImpl device(tensor.device().type());
        const c10::Stream current = device.getStream(tensor.device());
        if (!async)
            return current;
        if (!side_)
            side_ = device.getStreamFromGlobalPool(tensor.device());
        c10::Event before(tensor.device().type());
        before.record(current);
        before.block(*side_);
        return side_;
    }
    return std::nullopt;
}

/* Most calls end in their order. Behind one that does not end, it looks at all when they have
 * doubled, which costs each call the same, however many do not end. */
void Backend::drop_ended()
{
    while (!under_way_.empty() && under_way_.front()->test())
        under_way_.pop_front();
    if (under_way_.size() <= most_under_way_)
        return;
    std::erase_if(under_way_, [](const JobPtr &job) { return job->test(); });
    most_under_way_ = 2 * under_way_.size();
}

/* With the lock held. A job that is refused may have operations that go on, which use its arrays. */
void Backend::start(const JobPtr &job, bool async, const Tensors &results)
{
    drop_ended();
    job->set_results(results);
    ddp_comm *const communicator = comm();
    const auto stream = stream_for(results, async);
    under_way_.push_back(job);
    job->start(communicator, stream);
}

/* Messages have no sequence number: PyTorch's detailed checks compare those of all ranks. */
Backend::WorkPtr Backend::submit(JobPtr job, c10d::OpType type, bool async, Tensors results)
{
    const LockedWithoutPython lock(mutex_);
    if (!c10d::isP2POp(type))
        sequence_++;
    if (batch_ != nullptr) {
        batch_->append(*job);
        batch_results_.insert(batch_results_.end(), results.begin(), results.end());
        batch_async_ = batch_async_ || async;
        return c10::make_intrusive<Work>(batch_, getRank(), type, sequence_);
    }
    start(job, async, results);
    return c10::make_intrusive<Work>(std::move(job), getRank(), type, sequence_);
}

/* Messages on a device must begin together, as one would wait behind another in its stream. On a
 * machine without one, messages of a batch are better begun one by one: a call that raises between
 * others leaves a batch open, in PyTorch's own lists, too. */
bool Backend::supportsCoalescing() const
{
    return at::hasCUDA();
}

/* A batch that is open was left by a call that has raised. */
void Backend::startCoalescing()
{
    auto batch = make_job(c10d::kUnsetTimeout);
    const LockedWithoutPython lock(mutex_);
    batch_ = std::move(batch);
    batch_results_.clear();
    batch_async_ = false;
}

Backend::WorkPtr Backend::endCoalescing()
{
    const LockedWithoutPython lock(mutex_);
    TORCH_CHECK(batch_ != nullptr, "ddp: no calls are being coalesced");
    const JobPtr batch = std::move(batch_);
    const Tensors results = std::move(batch_results_);
    batch_ = nullptr;
    batch_results_.clear();
    start(batch, batch_async_, results);
    return c10::make_intrusive<Work>(batch, getRank(), c10d::OpType::COALESCED, sequence_);
}

} // namespace ddprun
