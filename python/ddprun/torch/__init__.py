"""The back end "ddp" of torch.distributed, on libddpcomm.

    torch.distributed.init_process_group('ddp')

PyTorch finds it by its entry points where the package is installed (2.5 and newer); elsewhere, import this module
first. It has two forms, which do the same: C++ (native/), which `python -m ddprun.torch.build` compiles for the PyTorch
that is installed, and Python, which is slower and takes its place where that was not done (2.14 and newer).
DDPRUN_TORCH_FORM=native or =python asks for one of them.
"""

import functools
import os
import warnings

import torch
import torch.distributed as dist

from . import library
from .signals import ignore_stop_signals  # noqa: F401

NAME = 'ddp'
OLDEST = (2, 7)  # older ones do not tell a back end that its group is destroyed or aborted
OLDEST_FOR_PYTHON = (2, 14)  # older ones have no back ends in Python
DEVICES = ['cpu', 'cuda']


def _stand_aside(backend, _):
    """Of a rank outside of a group that others split off: its members make it by themselves."""
    if backend.name() != NAME:
        raise AttributeError(f'the back end {backend.name()!r} has no perform_nocolor_split()')


def _set_default_timeout(backend, timeout):
    """Gloo and NCCL have it on their back ends."""
    backend.set_timeout(timeout)


def register():
    """Make the back end known to torch.distributed; the second time nothing is left to do."""
    if library.version() < OLDEST:
        raise ImportError(f'the back end "ddp" needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer, and this is '
                          f'{torch.__version__}: install a newer one, or use another back end')
    if NAME not in dist.Backend.backend_list:
        if NAME.upper() in vars(dist.Backend):  # what autoload.py has put there
            delattr(dist.Backend, NAME.upper())
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=DEVICES)
    # PyTorch's class lacks them. new_group() calls the first where the default group is bound to a device.
    base = torch._C._distributed_c10d.Backend
    for name, function in (('perform_nocolor_split', _stand_aside), ('_set_default_timeout', _set_default_timeout)):
        if not hasattr(base, name):
            setattr(base, name, function)


def _let_buckets_be_shared():
    """DistributedDataParallel asks a back end for the memory of its buckets only where this is 0. It is so for other back
    ends, too, so nothing is changed where there is a GPU."""
    if torch.cuda.device_count() == 0:
        os.environ.setdefault('DDP_DISABLE_COMM_MEM', '0')


def _create_native(options):
    """PyTorch's group takes a back end from Python, which this one is not; so it is taken out of another group."""
    library.load()
    _let_buckets_be_shared()
    group = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    torch.ops.ddprun.attach(group.boxed(), options.group_id, int(options.timeout.total_seconds() * 1000),
                             options.global_ranks_in_group)
    return group._get_backend(torch.device('cpu'))


def _create_python(options):
    if library.version() < OLDEST_FOR_PYTHON:
        raise RuntimeError(f'the back end "ddp" needs its compiled part for PyTorch {torch.__version__}: run '
                           '"python -m ddprun.torch.build"')
    from .python_backend import PythonBackend
    backend = PythonBackend.join(options)
    _kept.append(backend)
    return backend


FORMS = {'native': _create_native, 'python': _create_python}
_kept = []  # PyTorch keeps only the C++ half of an object where it wraps it (TORCH_DISTRIBUTED_DEBUG=DETAIL)


@functools.cache
def _best_form(tells):
    """Where PyTorch is too old for the form in Python, what is wrong with the compiled one is an error."""
    why = library.why_not() if library.version() >= OLDEST_FOR_PYTHON else ''
    if why and tells:
        warnings.warn(f'"ddp" does without its compiled part: {why}', RuntimeWarning, stacklevel=2)
    return 'native' if library.path().exists() and not why else 'python'


def _create(options, _):
    form = os.environ.get('DDPRUN_TORCH_FORM') or _best_form(options.group_rank == 0)
    if form not in FORMS:
        raise ValueError(f"DDPRUN_TORCH_FORM is {form!r}; it can be native or python")
    return FORMS[form](options)


register()
