"""torch_memory.py - memory that the back end "ddp" gives to DistributedDataParallel, and to programs that ask for it. Run by
test_torch_backend.py under ddprun, on the C++ form.
"""

import itertools
import os
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import DistributedDataParallel

import ddprun.torch  # registers the back end

ROWS, COLUMNS = 300, 200  # of a layer: more than what ranks copy in any case


def is_shared(tensor):
    """Whether it lies in the memory of the ranks of this machine."""
    for line in open('/proc/self/maps'):
        first, last = (int(address, 16) for address in line.split()[0].split('-'))
        if first <= tensor.data_ptr() < last:
            return 'memfd:ddprun-arena' in line
    raise AssertionError(f'{tensor.data_ptr():#x} is not mapped')


def train(comm_memory, steps=4):
    """The gradients of each step, and whether they lie in shared memory: as views, or nowhere to be seen."""
    os.environ['DDP_DISABLE_COMM_MEM'] = '0' if comm_memory else '1'
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(COLUMNS, ROWS), nn.ReLU(), nn.Linear(ROWS, ROWS)),
                                    gradient_as_bucket_view=True, bucket_cap_mb=0.1)
    seen = []
    for step in range(steps):
        x = torch.randn(8, COLUMNS, generator=torch.Generator().manual_seed(100 * step + dist.get_rank()))
        model(x).square().mean().backward()
        assert all(is_shared(parameter.grad) == comm_memory for parameter in model.parameters())
        seen += [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad(set_to_none=False)
    return model, seen


def back_end():
    return dist.group.WORLD._get_backend(torch.device('cpu'))


def buckets():
    """The same bits, wherever buckets lie, and memory that comes and goes."""
    model, copied = train(False)
    assert all(torch.equal(*pair) for pair in zip(train(True)[1], copied, strict=True))
    kept = [train(True)[0] for _ in range(3)]
    assert len({model.module[0].weight.grad.data_ptr() for model in kept}) == 3
    return kept + [model]


class Phases(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.phases = nn.Parameter(torch.ones(count, dtype=torch.cfloat))

    def forward(self, x):
        return torch.view_as_real(self.phases * x).square().sum()


def complex_buckets(rank, size):
    for count, comm_memory, view in itertools.product((10, ROWS * COLUMNS), '10', (False, True)):
        os.environ['DDP_DISABLE_COMM_MEM'] = comm_memory
        model = DistributedDataParallel(Phases(count), gradient_as_bucket_view=view)
        model(torch.tensor(complex(rank, 1))).backward()
        wanted = complex(sum(2 * (r * r + 1) for r in range(size)) / size)
        assert torch.allclose(model.module.phases.grad, torch.full((count,), wanted)), (count, comm_memory, view)


def one_rank_alone(rank, size):
    """Ranks ask when they like, and need not use it together."""
    own = torch.ones(ROWS * COLUMNS)
    if rank == 0:
        own = back_end().allocate_tensor(ROWS * COLUMNS, dtype=torch.float32, device=torch.device('cpu'))
        assert is_shared(own) and own.count_nonzero() == 0
        own.fill_(1)
    dist.all_reduce(own)
    assert own.eq(size).all()
    both = [back_end().allocate_tensor(count, dtype=torch.int64, device=torch.device('cpu'))
            for count in (0, 3000 * (1 + rank), ROWS * COLUMNS)]
    both[2].fill_(rank)
    dist.all_reduce(both[2], dist.ReduceOp.MAX)
    assert both[2].eq(size - 1).all()


def refusals():
    assert back_end().supports_tensor_alloc(torch.device('cpu')) and not back_end().supports_tensor_alloc(torch.device('cuda:0'))
    for count, device, sentence in ((-1, 'cpu', 'no tensor of -1 elements'), (4, 'meta', 'memory of the cpu only'),
                                    (1 << 60, 'cpu', 'no tensor of'), (1 << 55, 'cpu', 'memory')):
        try:
            back_end().allocate_tensor(count, dtype=torch.float64, device=torch.device(device))
        except RuntimeError as error:
            assert sentence in str(error), error
        else:
            raise AssertionError(f'{count} elements on {device}')


def forked(rank, size, models):
    """A child does not have the memory, nor what carries a call, and can end with all that is its own."""
    taken = torch.empty(ROWS)
    pending = dist.irecv(taken, (rank + 1) % size)
    child = os.fork()
    if child == 0:
        same = [model.module[0].weight.sum().item() for model in models]
        models.clear()
        try:
            pending.wait()
        except ValueError as error:
            os._exit(0 if same and 'was forked from rank' in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    dist.send(torch.full((ROWS,), float(rank)), (rank - 1) % size)
    pending.wait()
    assert taken.eq((rank + 1) % size).all()


def behind_a_receive(rank, size):
    """Calls that have ended keep nothing, while an earlier one has not."""
    pending, ended = dist.irecv(torch.empty(ROWS), (rank + 1) % size), []
    for _ in range(20):
        tensor = torch.ones(ROWS)
        ended.append(StorageWeakRef(tensor.untyped_storage()))
        dist.all_reduce(tensor)
        del tensor
    assert sum(not storage.expired() for storage in ended) < 5
    dist.send(torch.ones(ROWS), (rank - 1) % size)
    pending.wait()


def unfinished(rank, size):
    """What is under way when a program ends, or is thrown away, is over then."""
    bucket = back_end().allocate_tensor(ROWS * COLUMNS, dtype=torch.float32, device=torch.device('cpu'))
    late = dist.new_group()
    store = dist.distributed_c10d._get_default_store()
    dist.barrier(late)
    works = [dist.irecv(torch.empty(ROWS), (rank + 1) % size), dist.irecv(torch.empty(ROWS), (rank + 1) % size)]
    threading.Thread(target=works.pop().wait, daemon=True).start()
    if rank == 0:
        works.append(dist.all_reduce(bucket, async_op=True))
        works.append(dist.all_reduce(bucket, group=late, async_op=True))
        assert not any(work.is_completed() for work in works)
        store.set('rank 0 has looked', '')
    store.wait(['rank 0 has looked'])  # a rank that ends fails them
    print('unfinished is right', flush=True)


def main():
    os.environ['DDPRUN_TORCH_FORM'] = 'native'
    dist.init_process_group('ddp')
    assert os.environ['DDP_DISABLE_COMM_MEM'] == '0'
    rank, size = dist.get_rank(), dist.get_world_size()
    models = buckets()
    complex_buckets(rank, size)
    one_rank_alone(rank, size)
    refusals()
    forked(rank, size, models)
    behind_a_receive(rank, size)
    gone = back_end()
    dist.destroy_process_group()
    try:
        gone.allocate_tensor(1, dtype=torch.float32, device=torch.device('cpu'))
    except RuntimeError as error:
        assert 'has been destroyed' in str(error), error
    del gone
    grad = models[0].module[0].weight.grad  # outlives the group
    grad.fill_(3)
    assert is_shared(grad) and grad.eq(3).all()
    dist.init_process_group('ddp')  # and another one works beside it
    models.append(train(True)[0])
    models.clear()
    assert grad.eq(3).all()
    total = torch.full((ROWS * COLUMNS,), 1.0)
    dist.all_reduce(total)
    assert total.eq(size).all()
    dist.destroy_process_group()
    print('memory is right', flush=True)
    dist.init_process_group('ddp')
    unfinished(rank, size)


if __name__ == '__main__':
    main()
