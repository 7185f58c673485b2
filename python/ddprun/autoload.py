"""What `import torch` calls, from PyTorch 2.5 on: it makes the back end "ddp" known without importing it.

A registered back end changes what PyTorch does for programs that name other ones, so the name is only left for it to
find. It must not fail: `import torch` would fail with it. PyTorch 2.14 has an entry point for this, and needs nothing.
"""

import contextlib
import sys


class _Name:
    """Stands for the name in PyTorch's class Backend; the first program that reads it registers the back end."""

    def __get__(self, _: object, backend: type) -> str:
        from . import torch as back_end  # registers it under this name
        return back_end.NAME


def leave_name() -> None:
    with contextlib.suppress(Exception):  # then the program has to import ddprun.torch
        backend = getattr(sys.modules.get('torch.distributed'), 'Backend', None)
        if backend is not None and not hasattr(backend, '_ensure_backend_registered') and 'DDP' not in vars(backend):
            backend.DDP = _Name()
