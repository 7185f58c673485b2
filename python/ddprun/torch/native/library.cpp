/*
 * library.cpp - the operator by which Python gets the back end. A library of operators needs neither
 * pybind nor libpython, so this depends on PyTorch's version only.
 */
#include "backend.h"

#include <ddprun/comm.h>
#include <torch/library.h>

namespace
{

/* Ranks of @group meet through its store; the back end becomes the one for its tensors on CPUs. */
void attach(const c10::intrusive_ptr<c10d::ProcessGroup> &group, const std::string &name,
            int64_t timeout_ms, const std::vector<int64_t> &members)
{
    auto options =
        c10::make_intrusive<c10d::Backend::Options>("ddp", std::chrono::milliseconds(timeout_ms));
    ddprun::set_group(*options, name, members);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      ddprun::Backend::join(ddprun::store_of(*group), group->getRank(),
                                            group->getSize(), std::move(options)));
}

} // namespace

TORCH_LIBRARY(ddprun, library)
{
    library.def("version() -> str", [] { return std::string(ddp_version()); });
    library.def("attach(__torch__.torch.classes.c10d.ProcessGroup group, str name, int timeout_ms, int[] members) -> ()",
                attach);
}
