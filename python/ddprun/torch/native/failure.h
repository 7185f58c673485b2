/*
 * failure.h - failures of libddpcomm as exceptions of PyTorch: ValueError for an argument that is
 * not valid, torch.distributed.DistBackendError for the rest.
 */
#ifndef DDPRUN_TORCH_FAILURE_H
#define DDPRUN_TORCH_FAILURE_H

#include <ddprun/status.h>
#include <exception>

namespace ddprun
{

[[noreturn]] void raise(ddp_status status, const struct ddp_error &err);

/* Whether the communicator has failed with it, and not this call alone. */
bool is_lasting(ddp_status status);

/* The same exception, to be raised later. */
std::exception_ptr failure_of(ddp_status status, const struct ddp_error &err);

inline void check(ddp_status status, const struct ddp_error &err)
{
    if (status != DDP_OK)
        raise(status, err);
}

} // namespace ddprun

#endif
