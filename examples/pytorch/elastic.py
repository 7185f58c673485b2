"""elastic.py - DistributedDataParallel that goes on after workers and nodes are lost, and when nodes join.

    ddprun --nproc-per-node=2 --max-restarts=3 elastic.py --checkpoints=FOLDER

See docs/tutorial.md. It learns a made-up function on the CPU and needs nothing but PyTorch. The items of a step depend on
its number alone, so the losses do not depend on how many workers there are, or on what happened to them.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 256  # items of a step, for all workers together
EVERY = 50  # steps from one checkpoint to the next


def items_of(step):
    items = torch.rand(BATCH, 8, generator=torch.Generator().manual_seed(step))
    return items, items.square().sum(1, keepdim=True)


def save(path, state):
    """Whenever this is killed, the file has the old state or the new one."""
    new = path.with_suffix('.new')
    with open(new, 'wb') as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def load(path):
    """What rank 0 reads, on all ranks; None if there is no file."""
    state = [torch.load(path, weights_only=True) if dist.get_rank() == 0 and path.exists() else None]
    dist.broadcast_object_list(state)
    return state[0]


def train_step(model, optimizer, step):
    """The loss of all items."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    items, wanted = (tensor[rank::world_size] for tensor in items_of(step))
    optimizer.zero_grad()
    loss = (model(items) - wanted).square().sum() / BATCH
    (loss * world_size).backward()  # DistributedDataParallel divides the sum of the gradients by it
    optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description='an elastic job with checkpoints')
    parser.add_argument('--backend', default='gloo', help='gloo or ddp (gloo)')
    parser.add_argument('--checkpoints', type=Path, required=True, help='a folder that all nodes see')
    parser.add_argument('--steps', type=int, default=2000)
    parser.add_argument('--pause', type=float, default=0.05, help='seconds after each step, so that there is time to look on')
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    path, first = options.checkpoints / 'newest.pt', 0
    if state := load(path):
        model.module.load_state_dict(state['model'])
        optimizer.load_state_dict(state['optimizer'])
        first = state['step']
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f'rank {rank} of {world_size} is process {os.getpid()}; it begins at step {first}', flush=True)

    for step in range(first + 1, options.steps + 1):
        loss = train_step(model, optimizer, step)
        time.sleep(options.pause)
        if rank == 0 and step % EVERY == 0:
            save(path, {'step': step, 'model': model.module.state_dict(), 'optimizer': optimizer.state_dict()})
            print(f'step {step}: loss {loss:.5f}, {world_size} workers', flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
