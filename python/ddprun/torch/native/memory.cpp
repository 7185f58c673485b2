/*
 * memory.cpp - see memory.h. Owns what has outlived the communicator.
 */
#include "memory.h"

#include "python_lock.h"

#include <cstdio>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>

namespace ddprun
{

Memory::Memory(ddp_comm *comm) : comm_(comm), home_(getpid())
{
}

/* Python's lock is released before ours is taken, and taken after ours is released. */
void *Memory::allocate(size_t bytes, struct ddp_error &err)
{
    const PythonLockReleased released;
    const std::lock_guard<std::mutex> lock(mutex_);
    void *address;
    if (comm_ == nullptr) {
        snprintf(err.msg, sizeof err.msg, "this process group has been destroyed");
        return nullptr;
    }
    if (ddp_alloc(comm_, bytes, &address, &err) != DDP_OK)
        return nullptr;
    sizes_[address] = 0;
    return address;
}

void Memory::give_back(void *address)
{
    if (getpid() != home_)
        return;
    const std::lock_guard<std::mutex> lock(mutex_);
    struct ddp_error ignored;
    const auto found = sizes_.find(address);
    if (comm_ != nullptr)
        std::ignore = ddp_free(comm_, address, &ignored);
    else if (found->second > 0)
        munmap(address, found->second);
    sizes_.erase(found);
}

void Memory::outlive()
{
    if (getpid() != home_)
        return;
    const std::lock_guard<std::mutex> lock(mutex_);
    struct ddp_error ignored;
    if (comm_ == nullptr)
        return;
    for (auto &[address, size] : sizes_)
        std::ignore = ddp_alloc_detach(comm_, address, &size, &ignored);
    comm_ = nullptr;
}

} // namespace ddprun
