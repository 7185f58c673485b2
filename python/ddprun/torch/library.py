"""The compiled part of the back end: where it lies, and how it is loaded.

It is compiled for one minor version of PyTorch, whose classes it extends, and for one version of this package, whose
library it calls. Its name has both in it, so one that is of another version is not loaded.
"""

import os
import re
from pathlib import Path

import torch

from .. import libraries
from ..version import VERSION

HERE = Path(__file__).resolve().parent


def version():
    """The minor version of PyTorch: (2, 15)."""
    return tuple(map(int, re.match(r'(\d+)\.(\d+)', torch.__version__).groups()))


def path():
    """The library for this version of PyTorch, in $DDPRUN_TORCH_LIBRARIES or beside this file."""
    return Path(os.environ.get('DDPRUN_TORCH_LIBRARIES', HERE)) / 'libddptorch-{}.{}-{}.so'.format(*version(), VERSION)


def others():
    """Those for this version of PyTorch and another one of this package."""
    return sorted(set(path().parent.glob('libddptorch-{}.{}[-.]*so'.format(*version()))) - {path()})


def why_not():
    """Why the library cannot be used, although it was compiled once; "": it can, or it was not."""
    if not path().exists():
        return f'{others()[-1]} was compiled for another version than {VERSION}: run "python -m ddprun.torch.build"' \
            if others() else ''
    try:
        load()
    except RuntimeError as error:
        return str(error)
    return ''


def load():
    """Load the library, unless it is loaded; RuntimeError says what to do where there is none."""
    library = path()
    if not library.exists():
        raise RuntimeError(f'{library} does not exist: run "python -m ddprun.torch.build", which compiles the back end '
                           f'"ddp" for PyTorch {torch.__version__}')
    libraries.comm()  # so that it finds that of the package, and not another one by the loader
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
