/*
 * failure.cpp - see failure.h. Owns nothing.
 */
#include "failure.h"

#include <c10/util/Exception.h>
#include <string>

namespace ddprun
{

void raise(ddp_status status, const struct ddp_error &err)
{
    const std::string text = std::string(err.msg) + " (" + ddp_status_name(status) + ")";
    switch (status) {
    case DDP_E_INVALID:
    case DDP_E_UNSUPPORTED:
        C10_THROW_ERROR(ValueError, text);
    case DDP_E_NOMEM:
        C10_THROW_ERROR(OutOfMemoryError, text);
    default:
        C10_THROW_ERROR(DistBackendError, text);
    }
}

bool is_lasting(ddp_status status)
{
    return status != DDP_E_INVALID && status != DDP_E_UNSUPPORTED && status != DDP_E_NOMEM &&
           status != DDP_E_CANCELED;
}

std::exception_ptr failure_of(ddp_status status, const struct ddp_error &err)
{
    try {
        raise(status, err);
    } catch (...) {
        return std::current_exception();
    }
}

} // namespace ddprun
