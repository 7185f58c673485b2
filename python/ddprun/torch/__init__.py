"""The back end "ddp" of torch.distributed, on libddpcomm.

    torch.distributed.init_process_group('ddp')

PyTorch 2.14 and newer find it by its entry point; for others, and where the package is not installed, import this
module first. The back end itself is C++ (native/), which `python -m ddprun.torch.build` compiles for the PyTorch that
is installed.
"""

import torch
import torch.distributed as dist

from .library import load

NAME = 'ddp'
DEVICES = ['cpu', 'cuda']


def register():
    """Make the back end known to torch.distributed; the second time nothing is left to do."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=DEVICES)


def _create(options, _):
    load()
    group = options.process_group
    timeout_ms = int(options.timeout.total_seconds() * 1000)
    torch.ops.ddprun.attach(group.boxed(), options.group_rank, options.group_size, options.group_id, timeout_ms, DEVICES)
    return group._get_backend(torch.device('cpu'))


register()
