"""ddprun: the store and the collectives of ddprun, for any array library. See docs/python.md.

    import ddprun
    with ddprun.Communicator() as comm:       # below "ddprun --nproc-per-node=4 python train.py"
        comm.all_reduce(gradients)            # NumPy, PyTorch, CuPy, array, bytearray ...
"""

from .communicator import Communicator
from .errors import Aborted, Closed, Error, Invalid, LibraryError, Mismatch, NotFound, PeerDead, Timeout
from .meeting import get_unique_id
from .request import Request
from .store import Store
from .version import VERSION as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .spawn import RankFailed as RankFailed, Spawned as Spawned, spawn as spawn

__all__ = ['Aborted', 'Closed', 'Communicator', 'Error', 'Invalid', 'LibraryError', 'Mismatch', 'NotFound', 'PeerDead',
           'RankFailed', 'Request', 'Spawned', 'Store', 'Timeout', '__version__', 'get_unique_id', 'spawn']


def __getattr__(name: str) -> object:
    """multiprocessing is imported when it is first used, as it takes longer than all else."""
    if name not in ('RankFailed', 'Spawned', 'spawn'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    import importlib
    module = importlib.import_module('.spawn', __name__)
    found = {each: getattr(module, each) for each in ('RankFailed', 'Spawned', 'spawn')}
    globals().update(found) # also in place of the submodule, which has the name of its function
    return found[name]
