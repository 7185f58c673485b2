"""segments.py PREFIX RESTARTS - a training whose helpers have shared memory to clean up, and that fails RESTARTS times.

Each rank has a segment of Python's with a fixed name, which resource_tracker removes, and one of PyTorch's, which
torch_shm_manager removes. It prints the name of the latter.
"""

import os
import sys
import time
from multiprocessing.shared_memory import SharedMemory

import torch

prefix, restarts = sys.argv[1], int(sys.argv[2])
rank, attempt = int(os.environ['RANK']), int(os.environ['TORCHELASTIC_RESTART_COUNT'])
torch.multiprocessing.set_sharing_strategy('file_system')
own = SharedMemory(f'{prefix}-{rank}', create=True, size=4096)
shared = torch.zeros(1024).share_memory_()
name = shared.untyped_storage()._share_filename_cpu_()[1].decode()
os.write(1, f'segment {name}\n'.encode())
peer = f'/dev/shm/{prefix}-ready-{attempt}'
if rank == 1:
    os.close(os.open(peer, os.O_CREAT))
    while attempt < restarts:  # until it is ended
        time.sleep(1)
    os._exit(0)
while not os.path.exists(peer):
    time.sleep(0.01)
os.unlink(peer)
os._exit(3 if attempt < restarts else 0)
