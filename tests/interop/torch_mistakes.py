"""torch_mistakes.py [FORM:]CASE[=FOLDER]... - what a program can do wrong on the back end "ddp": each case ends with a sentence, not with a crash
or a hang. Run by test_torch_backend.py under ddprun.
"""

import os
import signal
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

import ddprun.torch  # registers the back end
from torch_version import has

KNOWN = 7  # an exit code
# What the refusal of a compiled part says, which the test has prepared.
REFUSED = {'missing': ['does not exist'], 'broken': ['cannot be used', 'too short'],
           'other_version': ['has loaded libddpcomm 9.8.7, and this package needs']}


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
    expanded = torch.ones(1).expand(4)
    for call in (lambda: dist.all_reduce(expanded), lambda: dist.irecv(expanded, (rank + 1) % size),
                 lambda: dist.all_gather([expanded] * size, torch.ones(4))):
        refused(call, 'elements share memory')
    backend = dist.group.WORLD._get_backend(torch.device('cpu'))
    refused(lambda: backend.allreduce([torch.ones(3, device='meta')], dist.AllreduceOptions()),
            'ddp: allreduce() takes tensors on cpu or cuda')
    refused(lambda: backend.broadcast([torch.ones(3).to_sparse()], dist.BroadcastOptions()), 'ddp', 'dense')
    refused(lambda: dist.all_to_all([torch.ones(1)] * size, [torch.ones(1)] * (size - 1)))
    refused(lambda: dist.broadcast(torch.ones(1), size), 'rank')
    for root in (-1, size):
        options = dist.BroadcastOptions()
        options.rootRank = root
        refused(lambda: backend.broadcast([torch.ones(1)], options).wait(), f'root {root} does not exist')
    dist.all_reduce_coalesced([torch.empty(0)])
    total = torch.ones(1)
    dist.all_reduce(total)  # all is well afterwards
    assert total.item() == size


def wrong_tensors():
    """Each kind that the back end cannot take beside a tensor of four floats."""
    return {'sparse': torch.ones(4).to_sparse(), 'float64': torch.ones(4).double(), 'long': torch.ones(5),
            'short': torch.ones(3)}


def lists(rank, size):
    """A tensor that does not fit, at each place of each call. Nothing is sent, so other ranks need not know."""
    def good():
        return [torch.ones(4) for _ in range(size)]

    def calls(bad):
        alike = bad.numel() == 4  # lists of other sizes are uneven calls of some kinds
        for place in range(size):
            with_bad = good()
            with_bad[place] = bad
            if alike:
                yield f'outputs of all_to_all {place}', lambda: dist.all_to_all(with_bad, good())
                yield f'inputs of all_to_all {place}', lambda: dist.all_to_all(good(), with_bad)
            if alike or place == rank:
                yield f'outputs of all_gather {place}', lambda: dist.all_gather(with_bad, torch.ones(4))
                yield f'inputs of reduce_scatter {place}', lambda: dist.reduce_scatter(torch.ones(4), with_bad)
            yield f'outputs of gather {place}', lambda: dist.gather(torch.ones(4), with_bad, dst=rank)
            yield f'inputs of scatter {place}', lambda: dist.scatter(torch.ones(4), with_bad, src=rank)
        yield 'all_gather', lambda: dist.all_gather(good(), bad)
        yield 'gather', lambda: dist.gather(bad, good(), dst=rank)
        yield 'scatter', lambda: dist.scatter(bad, good(), src=rank)
        yield 'reduce_scatter', lambda: dist.reduce_scatter(bad, good())
        yield 'all_gather_into_tensor', lambda: dist.all_gather_into_tensor(bad, torch.ones(4))
        yield 'reduce_scatter_tensor', lambda: dist.reduce_scatter_tensor(torch.ones(4), bad)
    for name, bad in wrong_tensors().items():
        for place, call in calls(bad):
            try:
                call()
            except (ValueError, RuntimeError, TypeError, NotImplementedError):
                continue
            raise AssertionError(f'{place} takes a tensor that is {name}')
    whole = torch.ones(size)
    parts = list(whole.chunk(size))
    refused(lambda: dist.all_to_all(parts, parts), 'overlap')
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == size


def coalesced(rank, size):
    """A call that is only noted cannot be waited for. Notes that a call has left by raising are forgotten."""
    def left_open():
        with dist._coalescing_manager(device=torch.device('cpu')):
            dist.isend(torch.ones(2), (rank + 1) % size, tag=1)
            dist.isend(torch.ones(2), (rank + 1) % size, tag=-1)
    refused(left_open, 'tag')
    with dist._coalescing_manager(device=torch.device('cpu')) as manager:
        work = dist.isend(torch.ones(2), (rank + 1) % size)
        taken = torch.empty(2)
        dist.irecv(taken, (rank - 1) % size)
        refused(work.wait, 'coalesced', 'has not begun')
    manager.wait()
    assert taken.tolist() == [1, 1]


def batched(rank, size):
    """A message that cannot be sent leaves its process group as it was, and the messages before it on their way."""
    right, left, taken = (rank + 1) % size, (rank - 1) % size, torch.empty(2)
    def batch(tag):
        return dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(2), right),
                                       dist.P2POp(dist.irecv, taken, left, tag=tag)])
    refused(lambda: batch(-1), 'tag')
    dist.recv(taken, left)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert (taken.tolist(), total.item()) == ([1, 1], size)
    for work in batch(0):
        work.wait()


def patient(rank, size):
    """A wait with a limit ends, and the message comes nevertheless, even if its receive is older than the group's timeout."""
    store = dist.distributed_c10d._get_default_store()
    given_up, taken = f'waited/{os.environ.get("DDPRUN_TORCH_FORM")}', torch.empty(1)
    group, long = dist.new_group(timeout=timedelta(seconds=1)), timedelta(minutes=10)
    if rank == 0:
        work = dist.irecv(taken, 1, group)
        refused(lambda: work.wait(timedelta(milliseconds=50)), '50 ms')
        refused(lambda: work.wait(timedelta(seconds=2)), '2000 ms')
        refused(work.wait, '1000 ms')
        store.set(given_up, '')
        work.wait(long)
        assert taken.item() == 1
    elif rank == 1:
        store.wait([given_up])
        dist.isend(torch.ones(1), 0, group).wait(long)


def polled(rank, size):
    """A work may be waited for in one thread and looked at in another, while Python drops its tensors."""
    def look():
        while not work.is_completed():
            pass

    for _ in range(300):
        taken = torch.empty(1000)
        work = dist.reduce_scatter_tensor(taken, torch.ones(1000 * size), async_op=True)
        looking = threading.Thread(target=look)
        looking.start()
        work.wait()
        looking.join()
        assert taken[0] == size


def mismatch(rank, size):
    """Both calls are named."""
    def differ():
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.all_reduce(torch.ones(4))
    refused(differ, '3', '4', 'mismatch')


def late(rank, size):
    """A rank that does not come is named; a timeout of 0 is over at once."""
    store = dist.distributed_c10d._get_default_store()
    given_up = f'given up/{os.environ.get("DDPRUN_TORCH_FORM")}'  # forms share the store
    if has('monitored_barrier for all back ends', (2, 14)):
        at_once = dist.new_group()
        if rank == 0:
            refused(lambda: dist.monitored_barrier(at_once, timedelta(0)), 'rank 0 has waited', 'timeout')
            store.set(given_up, '')
        store.wait([given_up])
        if rank > 0:
            refused(lambda: dist.monitored_barrier(at_once), 'rank 0 has waited', 'timeout')
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank != size - 1:
        refused(lambda: dist.all_reduce(torch.ones(1), group=group), f'rank {size - 1}')
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


def on_cuda(rank, size):
    """The form in Python could not order streams."""
    with FakeTensorMode():
        tensor = torch.empty(1, device='cuda')
    backend = dist.group.WORLD._get_backend(torch.device('cpu'))
    for call in (lambda: backend.allreduce([tensor], dist.AllreduceOptions()), lambda: backend.send([tensor], 0, 0)):
        refused(call, 'tensors on cuda need the compiled part', 'python -m ddprun.torch.build')


def alone(rank, size):
    """A group of one: each call gives its input back, and there is nobody to send to."""
    tensor, parts = torch.arange(4.0), [torch.empty(4)]
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    dist.reduce(tensor, 0)
    dist.all_gather(parts, tensor)
    dist.gather(parts[0], [tensor], 0)
    dist.scatter(tensor, parts, 0)
    dist.reduce_scatter(tensor, parts)
    dist.all_to_all(parts, [tensor])
    dist.barrier()
    if has('monitored_barrier for all back ends', (2, 14)):
        dist.monitored_barrier()
    assert size == 1 and parts[0].tolist() == [0, 1, 2, 3]
    refused(lambda: dist.send(tensor, rank))
    refused(lambda: dist.recv(tensor, 1))


def aborted(rank, size):
    """By one rank: the operations of all others end."""
    dist.barrier()
    if rank == 0:
        dist.distributed_c10d._abort_process_group()
    else:
        refused(lambda: dist.all_reduce(torch.ones(1)), 'rank 0', 'abort')


def left(rank, size):
    """A rank that leaves does not take back what it has sent."""
    message = torch.full((1 << 21,), float(rank))
    dist.barrier()
    if rank == 0:
        dist.isend(message, 1)
        dist.destroy_process_group()
    elif rank == 1:
        dist.recv(message, 0)
        assert message.count_nonzero() == 0


def destroyed(rank, size):
    group = dist.group.WORLD
    backend = group._get_backend(torch.device('cpu'))
    dist.barrier()
    dist.destroy_process_group()
    refused(lambda: backend.allreduce([torch.ones(1)], dist.AllreduceOptions()), 'destroyed')
    refused(lambda: backend.barrier(dist.BarrierOptions()), 'destroyed')
    refused(lambda: backend.send([torch.ones(1)], (rank + 1) % size, 0), 'destroyed')
    refused(lambda: backend.broadcast([torch.ones(1)], dist.BroadcastOptions()), 'destroyed')
    if has('a timeout that changes', (2, 9)):
        refused(lambda: backend.set_timeout(timedelta(seconds=1)), 'destroyed')
    refused(lambda: dist.all_reduce(torch.ones(1)), 'process group')
    refused(lambda: dist.all_reduce(torch.ones(1), group=group), 'group')
    backend.shutdown()  # once more
    backend.abort()


def unmatched(rank, size):
    """Receives that nobody sends to do not keep a group from being destroyed, also where a thread waits for one."""
    store = dist.distributed_c10d._get_default_store()
    destroyed = f'destroyed/{os.environ.get("DDPRUN_TORCH_FORM")}'
    works = [dist.irecv(torch.empty(1), (rank + 1) % size, tag=tag) for tag in range(2)]
    waiting = threading.Thread(target=refused, args=(works[0].wait,))
    dist.barrier()
    if rank == 0:
        waiting.start()
        dist.destroy_process_group()
        waiting.join()
        store.set(destroyed, '')
    store.wait([destroyed])
    if rank > 0:
        dist.destroy_process_group()
    refused(works[1].wait)


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


def main(*names):
    for name in names:  # some leave a group that has failed: each has its own
        case, _, folder = name.partition('=')
        if case in REFUSED:
            os.environ['DDPRUN_TORCH_LIBRARIES'] = folder
            refused(lambda: dist.init_process_group('ddp'), 'ddprun.torch.build', *REFUSED[case])
            print(f'{case} is refused', flush=True)
            continue
        form, _, case = name.rpartition(':')
        if form:
            os.environ['DDPRUN_TORCH_FORM'] = form
        dist.init_process_group('ddp')
        rank = dist.get_rank()
        globals()[case](rank, dist.get_world_size())
        print(f'rank {rank}: {name} is right', flush=True)
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == '__main__':
    main(*sys.argv[1:])
