"""torch_mistakes.py CASE - what a program can do wrong on the back end "ddp": each case ends with a sentence, not with a crash
or a hang. Run by test_torch_backend.py under ddprun.
"""

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddprun.torch  # registers the back end

KNOWN = 7  # an exit code


def refused(call, *words, kinds=(ValueError, RuntimeError)):
    """The call raises, and the sentence has the words."""
    try:
        call()
    except kinds as error:
        for word in words:
            assert word.lower() in str(error).lower(), f'{word!r} is not in: {error}'
        return
    raise AssertionError(f'nothing was raised that says {words}')


def arguments(rank, size):
    refused(lambda: dist.all_reduce(torch.ones(3).to_sparse()), 'ddp', 'dense')
    refused(lambda: dist.all_gather_into_tensor(torch.empty(size + 1), torch.ones(1)), 'all_gather', 'elements')
    refused(lambda: dist.reduce_scatter_tensor(torch.empty(2), torch.ones(size)), 'reduce_scatter')
    refused(lambda: dist.all_gather([torch.empty(1)] * (size + 1), torch.ones(1)))
    refused(lambda: dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fnuz)), 'Float8_e4m3fnuz', 'reduced')
    refused(lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND), 'bit_and')
    refused(lambda: dist.send(torch.ones(1), (rank + 1) % size, tag=-1), 'tag')
    refused(lambda: dist.all_to_all_single(torch.empty(size + 1), torch.ones(size + 1)), 'split sizes')
    memory = torch.ones(2 * size + 1)
    refused(lambda: dist.all_gather_into_tensor(memory[:2 * size], memory[1:3]), 'overlap')
    refused(lambda: dist.init_process_group('ddp'), 'twice')
    total = torch.ones(1)
    dist.all_reduce(total)  # all is well afterwards
    assert total.item() == size


def mismatch(rank, size):
    """Both calls are named."""
    def differ():
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.all_reduce(torch.ones(4))
    refused(differ, '3', '4', 'mismatch')


def late(rank, size):
    """A rank that does not come is named."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank != size - 1:
        refused(lambda: dist.all_reduce(torch.ones(1), group=group), f'rank {size - 1}')
    store = dist.distributed_c10d._get_default_store()
    store.set(f'tried/{rank}', '')
    store.wait([f'tried/{other}' for other in range(size - 1)])


def death(rank, size):
    """Of the last rank, in the middle of training. The others stay until they have been told by their back end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(100, 100))
    for step in range(1000):
        if rank == size - 1 and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            model(torch.ones(1, 100)).sum().backward()
        except RuntimeError as error:
            assert f'rank {size - 1}' in str(error), error
            print(f'rank {rank} knows: {error}'.splitlines()[0], flush=True)
            os._exit(0)
    raise AssertionError('nothing was raised')


def future(rank, size):
    """The error of an operation that has begun reaches whoever waits for its future."""
    work = dist.all_reduce(torch.ones(3 if rank == 0 else 4), async_op=True)
    refused(lambda: work.get_future().then(lambda done: done.value()).wait(), 'mismatch')
    refused(work.wait, 'mismatch')
    assert work.is_completed()


def lost(rank, size):
    """The same where it is raised by the call itself."""
    refused(lambda: dist.all_reduce(torch.ones(3 if rank == 0 else 4), async_op=True), 'mismatch')
    refused(lambda: dist.send(torch.ones(1), size + 1))


def destroyed(rank, size):
    group = dist.group.WORLD
    backend = group._get_backend(torch.device('cpu'))
    dist.barrier()
    dist.destroy_process_group()
    refused(lambda: backend.allreduce([torch.ones(1)], dist.AllreduceOptions()), 'destroyed')
    os._exit(0)


def forked(rank, size):
    dist.barrier()
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except (RuntimeError, ValueError):
            os._exit(KNOWN)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KNOWN
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == size



def main(name):
    if name == 'missing':
        os.environ['DDPRUN_TORCH_LIBRARIES'] = '/nonexistent'
        refused(lambda: dist.init_process_group('ddp'), 'ddprun.torch.build')
        return
    dist.init_process_group('ddp')
    globals()[name](dist.get_rank(), dist.get_world_size())
    print(f'rank {dist.get_rank()}: {name} is right', flush=True)
    os._exit(0)  # some groups have failed


if __name__ == '__main__':
    main(*sys.argv[1:])
