"""torch_worker.py - what users write: nothing in it knows of ddprun. Rank 1 fails once if told to."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group('gloo')
rank, size = dist.get_rank(), dist.get_world_size()
attempt = os.environ['TORCHELASTIC_RESTART_COUNT']
tensor = torch.full((1000,), float(rank + 1))
dist.all_reduce(tensor)
assert tensor.eq(size * (size + 1) / 2).all()
store = dist.distributed_c10d._get_default_store()
arrivals = store.add('arrivals', 1)  # a key of this attempt: it counts from zero again
assert arrivals <= size, arrivals
dist.barrier()
print(f'rank {rank} of {size}, attempt {attempt}: {tensor[0].item()}', flush=True)
if rank == 1 and attempt == '0' and 'fail' in sys.argv[1:]:
    raise RuntimeError('once')
dist.barrier()
dist.destroy_process_group()
