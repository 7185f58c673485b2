"""ddprun: the store and the collectives of ddprun, for any array library. See docs/python.md.

    import ddprun
    with ddprun.Communicator() as comm:       # below "ddprun --nproc-per-node=4 python train.py"
        comm.all_reduce(gradients)            # NumPy, PyTorch, CuPy, array, bytearray ...

Importing it imports nothing else: each name is looked up in its module when it is first used.
"""

from .version import VERSION as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .communicator import Communicator as Communicator
    from .errors import (Aborted as Aborted, Closed as Closed, Error as Error, Invalid as Invalid,
                         LibraryError as LibraryError, Mismatch as Mismatch, NotFound as NotFound,
                         PeerDead as PeerDead, Timeout as Timeout)
    from .meeting import get_unique_id as get_unique_id
    from .request import Request as Request
    from .spawn import RankFailed as RankFailed, Spawned as Spawned, spawn as spawn
    from .store import Store as Store

_NAMES = {
    'communicator': ('Communicator',),
    'errors': ('Aborted', 'Closed', 'Error', 'Invalid', 'LibraryError', 'Mismatch', 'NotFound', 'PeerDead', 'Timeout'),
    'meeting': ('get_unique_id',),
    'request': ('Request',),
    'spawn': ('RankFailed', 'Spawned', 'spawn'),
    'store': ('Store',),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ['__version__', *_MODULE_OF]


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    import importlib
    found = importlib.import_module('.' + module, __name__)
    for each in _NAMES[module]: # the function spawn() also in place of its submodule
        globals()[each] = getattr(found, each)
    return globals()[name]


def __dir__() -> 'list[str]':
    return sorted({*globals(), *__all__})
