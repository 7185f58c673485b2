/*
 * library.cpp - the operator by which Python puts the back end into a process group. A library of
 * operators needs neither pybind nor libpython, so this depends on PyTorch's version only.
 */
#include "backend.h"

#include <ddprun/comm.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

namespace
{

/* Ranks of @group meet through its store; the back end serves @devices of it. */
void attach(const c10::intrusive_ptr<c10d::ProcessGroup> &group, int64_t rank, int64_t size,
            const std::string &name, int64_t timeout_ms, const std::vector<std::string> &devices)
{
    auto options =
        c10::make_intrusive<c10d::Backend::Options>("ddp", std::chrono::milliseconds(timeout_ms));
    options->group_name = name;
    auto backend =
        ddprun::Backend::join(group->getStore(), int(rank), int(size), std::move(options));
    for (const auto &device : devices)
        group->setBackend(c10::Device(device).type(), c10d::ProcessGroup::BackendType::CUSTOM,
                          backend);
}

} // namespace

TORCH_LIBRARY(ddprun, library)
{
    library.def("version() -> str", [] { return std::string(ddp_version()); });
    library.def("attach(__torch__.torch.classes.c10d.ProcessGroup group, int rank, int size, "
                "str name, int timeout_ms, str[] devices) -> ()",
                attach);
}
