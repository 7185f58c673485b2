"""horovod_worker.py - a program for the real Horovod, with PyTorch: collectives, a small training, a group of ranks,
and all of it again after hvd.shutdown(). With 'fail' rank 1 ends in the first attempt.
"""

import os
import sys

import torch
import horovod.torch as hvd


def train():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(8, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01),
                                         named_parameters=model.named_parameters())
    for step in range(5):
        optimizer.zero_grad()
        loss = (model(torch.full((4, 8), float(hvd.rank() + step) / 8)) ** 2).mean()
        loss.backward()
        optimizer.step()
    mine = torch.cat([one.detach().reshape(1, -1) for one in model.parameters()], 1)
    every = hvd.allgather(mine, name='models') # else its name depends on how many operations came before
    assert torch.equal(every, mine.repeat(hvd.size(), 1)), every


def use():
    size = int(os.environ['HOROVOD_SIZE'])
    evens = hvd.ProcessSet(range(0, size, 2))
    hvd.init(process_sets=[evens] if size > 1 else None) # a group of all is refused
    assert hvd.size() == size
    values = torch.arange(1000, dtype=torch.float32)
    total = hvd.allreduce(values + hvd.rank(), op=hvd.Sum, name='total')
    assert torch.equal(total, values * size + size * (size - 1) / 2), total
    if size > 1 and evens.included():
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name='evens', process_set=evens).item() == evens.size()
    train()
    place = (hvd.rank(), size, hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
    hvd.barrier()
    hvd.shutdown()
    return place


first = use()
assert use() == first
attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])
if 'fail' in sys.argv and attempt == 0:
    if first[0] == 1:
        sys.exit(3)
    sys.stdin.read()
    hvd.init() # rank 1 does not come
print(*first, attempt, flush=True)
