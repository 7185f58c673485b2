/*
 * memory.h - memory of a communicator, in which the ranks of a machine reduce without copying, for
 * tensors, which may outlive it.
 */
#ifndef DDPRUN_TORCH_MEMORY_H
#define DDPRUN_TORCH_MEMORY_H

#include <ddprun/comm.h>
#include <map>
#include <mutex>
#include <sys/types.h>

namespace ddprun
{

/* All calls may come from any thread. */
class Memory
{
  public:
    explicit Memory(ddp_comm *comm);

    /* nullptr: @err says why. Other ranks may have to come first. */
    void *allocate(size_t bytes, struct ddp_error &err);

    /* Free what allocate() has returned; in a child of fork(), which does not have it, nothing. */
    void give_back(void *address);

    /* The communicator is about to be destroyed: keep what tensors still have. Nothing can be
     * allocated afterwards. */
    void outlive();

  private:
    std::mutex mutex_;
    ddp_comm *comm_; /* NULL after outlive() */
    const pid_t home_;
    std::map<void *, size_t> sizes_; /* 0: it is the communicator's */
};

} // namespace ddprun

#endif
