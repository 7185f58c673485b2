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

__all__ = ['Aborted', 'Closed', 'Communicator', 'Error', 'Invalid', 'LibraryError', 'Mismatch', 'NotFound', 'PeerDead',
           'Request', 'Store', 'Timeout', '__version__', 'get_unique_id']
