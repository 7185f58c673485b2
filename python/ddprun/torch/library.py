"""The compiled part of the back end: where it lies, and how it is loaded.

It is compiled for one minor version of PyTorch, whose classes it extends, so its name has that version in it.
"""

import os
import re
from pathlib import Path

import torch

from ..version import VERSION

HERE = Path(__file__).resolve().parent


def version():
    """The minor version of PyTorch: (2, 15)."""
    return tuple(map(int, re.match(r'(\d+)\.(\d+)', torch.__version__).groups()))


def path():
    """The library for this version of PyTorch, in $DDPRUN_TORCH_LIBRARIES or beside this file."""
    return Path(os.environ.get('DDPRUN_TORCH_LIBRARIES', HERE)) / 'libddptorch-{}.{}.so'.format(*version())


def load():
    """Load the library, unless it is loaded; RuntimeError says what to do where there is none."""
    library = path()
    if not library.exists():
        raise RuntimeError(f'{library} does not exist: run "python -m ddprun.torch.build", which compiles the back end '
                           f'"ddp" for PyTorch {torch.__version__}')
    try:
        torch.ops.load_library(library)
        found = torch.ops.ddprun.version()
    except (OSError, AttributeError) as error:  # no library of ours, or one of an older package
        problem = f'cannot be used ({error.__cause__ or error})'
    else:
        if found == VERSION:
            return
        problem = f'has loaded libddpcomm {found}, and this package needs {VERSION}'
    raise RuntimeError(f'{library} {problem}: install both from one release, and run "python -m ddprun.torch.build"')
