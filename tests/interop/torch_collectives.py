"""torch_collectives.py - every call of torch.distributed on the back end "ddp", against what it must give: the ranks' inputs
are known to all, so each rank computes the results by itself.

    torch_collectives.py [FORM[@DEVICE]...]

Run by test_torch_backend.py under ddprun: for each form of the back end, or for the one that the environment asks for. With
a device, such as cpu:0, groups of a process group that is bound to it. Prints how many results were compared.
"""

import itertools
import os
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn

import ddprun.torch  # registers the back end
from torch_version import has

SIZES = ((), (0,), (1,), (5,), (3, 4), (1000,))
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OTHERS = (torch.bool, torch.complex64, torch.complex128)
MOVED_ONLY = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.uint16)
REDUCTIONS = {dist.ReduceOp.SUM: lambda x: x.sum(0), dist.ReduceOp.PRODUCT: lambda x: x.prod(0),
              dist.ReduceOp.MIN: lambda x: x.amin(0), dist.ReduceOp.MAX: lambda x: x.amax(0)}
BITS = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor}

compared = 0


def is_python():
    """PyTorch shows only some methods of a work object that is made in Python."""
    return os.environ.get('DDPRUN_TORCH_FORM') == 'python'


def same(seen, expected, what):
    global compared
    compared += 1
    assert seen.shape == expected.shape and seen.dtype == expected.dtype, what
    if expected.dtype.itemsize == 1:
        seen, expected = seen.view(torch.uint8), expected.view(torch.uint8)
    assert torch.equal(seen, expected), f'{what}: {seen} is not {expected}'


def values(rank, shape, dtype, transposed=False):
    """Small numbers, whose sums and products are exact."""
    count = max(1, torch.Size(shape).numel())
    tensor = ((torch.arange(count) * 3 + rank) % 4 + 1).to(dtype)[:torch.Size(shape).numel()].reshape(shape)
    return tensor.t().contiguous().t() if transposed and tensor.dim() == 2 else tensor


def finish(work, asynchronous):
    if asynchronous:
        assert work.wait() and (is_python() or work.is_completed() and work.is_success())


def reductions(rank, size):
    for dtype, shape, asynchronous in itertools.product(FLOATS + WHOLE, SIZES, (False, True)):
        inputs = torch.stack([values(r, shape, dtype) for r in range(size)])
        wide = inputs.to(torch.float64 if dtype.is_floating_point else torch.int64)
        for op, compute in REDUCTIONS.items():
            tensor = values(rank, shape, dtype, transposed=True)
            finish(dist.all_reduce(tensor, op, async_op=asynchronous), asynchronous)
            same(tensor, compute(wide).to(dtype), f'all_reduce {op} {dtype} {shape}')
            tensor = values(rank, shape, dtype)
            finish(dist.reduce(tensor, size - 1, op, async_op=asynchronous), asynchronous)
            same(tensor, compute(wide).to(dtype) if rank == size - 1 else inputs[rank], f'reduce {op} {dtype} {shape}')
    for dtype, (op, compute) in itertools.product(WHOLE, BITS.items()):
        tensor, expected = values(rank, (9,), dtype), values(0, (9,), dtype)
        dist.all_reduce(tensor, op)
        for other in range(1, size):
            expected = compute(expected, values(other, (9,), dtype))
        same(tensor, expected, f'all_reduce {op} {dtype}')
    for dtype in (torch.float32, torch.float64):
        tensor = values(rank, (6,), dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        same(tensor, torch.stack([values(r, (6,), dtype) for r in range(size)]).sum(0) / size, f'average {dtype}')
    tensor = values(rank, (6,), torch.complex64) * 1j
    dist.all_reduce(tensor)
    same(tensor, sum(values(r, (6,), torch.complex64) * 1j for r in range(size)), 'complex sum')
    tensor = values(rank, (6,), torch.float32)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    same(tensor, sum(values(r, (6,), torch.float32) * 0.5 for r in range(size)), 'premultiplied sum')
    tensors = [values(rank, (4,), torch.float32), values(rank, (2, 3), torch.float32)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        same(tensor, sum(values(r, tensor.shape, torch.float32) for r in range(size)), 'all_reduce_coalesced')


def moves(rank, size):
    for dtype, shape in itertools.product(FLOATS + WHOLE + OTHERS + MOVED_ONLY, SIZES):
        whole = [values(r, shape, dtype) for r in range(size)]
        tensor = values(rank, shape, dtype, transposed=True)
        dist.broadcast(tensor, size - 1)
        same(tensor, whole[-1], f'broadcast {dtype} {shape}')
        lists = [torch.empty_like(tensor) for _ in range(size)], list(torch.empty((size, *shape), dtype=dtype).unbind(0))
        for parts in lists:
            dist.all_gather(parts, values(rank, shape, dtype))
            for seen, expected in zip(parts, whole):
                same(seen, expected, f'all_gather {dtype} {shape}')
        parts = [torch.empty_like(tensor) for _ in range(size)] if rank == 0 else None
        dist.gather(values(rank, shape, dtype), parts, 0)
        for seen, expected in zip(parts or [], whole):
            same(seen, expected, f'gather {dtype} {shape}')
        tensor = torch.empty(shape, dtype=dtype)
        dist.scatter(tensor, whole if rank == 1 else None, 1)
        same(tensor, whole[rank], f'scatter {dtype} {shape}')
        outputs = [torch.empty(shape, dtype=dtype) for _ in range(size)]
        dist.all_to_all(outputs, [values(rank + 5 * r, shape, dtype) for r in range(size)])
        for other, seen in enumerate(outputs):
            same(seen, values(other + 5 * rank, shape, dtype), f'all_to_all {dtype} {shape}')
        if rank == 0:
            dist.send(whole[0], 1, tag=3)
        elif rank == 1:
            tensor = torch.empty(shape, dtype=dtype)
            dist.recv(tensor, 0, tag=3)
            same(tensor, whole[0], f'send {dtype} {shape}')
    tensor = torch.ones(1).expand(4) if rank == 0 else torch.zeros(4)
    dist.broadcast(tensor, 0)  # which cannot be written to on the root
    same(tensor, torch.ones(4), 'broadcast of an expanded tensor')


def singles(rank, size):
    for dtype, count in itertools.product(FLOATS + WHOLE, (0, 1, 7)):
        parts = [values(r, (count, 2), dtype) for r in range(size)]
        output = torch.empty((size * count, 2), dtype=dtype)
        dist.all_gather_into_tensor(output, parts[rank])
        same(output, torch.cat(parts), f'all_gather_into_tensor {dtype} {count}')
        inputs = [values(r, (size * count,), dtype) for r in range(size)]
        output = torch.empty(count, dtype=dtype)
        dist.reduce_scatter_tensor(output, inputs[rank])
        total = torch.stack(inputs).to(torch.float64).sum(0).to(dtype)
        same(output, total[rank * count:(rank + 1) * count], f'reduce_scatter_tensor {dtype} {count}')
        output = torch.empty(count, dtype=dtype)
        dist.reduce_scatter(output, list(inputs[rank].chunk(size)) if count else [output.clone() for _ in range(size)])
        same(output, total[rank * count:(rank + 1) * count], f'reduce_scatter {dtype} {count}')
        # rank r sends r + 1 rows to each
        rows = torch.cat([values(10 * rank + r, (rank + 1, count), dtype) for r in range(size)])
        output = torch.empty((size * (size + 1) // 2, count), dtype=dtype)
        dist.all_to_all_single(output, rows, [r + 1 for r in range(size)], [rank + 1] * size)
        same(output, torch.cat([values(10 * r + rank, (r + 1, count), dtype) for r in range(size)]), 'all_to_all_single')
    uneven = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    for other, seen in enumerate(uneven):
        same(seen, torch.full((other + 1,), float(other)), 'uneven all_gather')


def native_only(rank, size):
    """What PyTorch keeps a back end in Python from."""
    if is_python():
        return
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        print("left out: gather_single, which PyTorch's detailed checks do not have")
    elif has('gather_single', (2, 14)):
        output = torch.empty(2 * size) if rank == size - 1 else None
        dist.gather_single(torch.full((2,), float(rank)), output, size - 1)
        if output is not None:
            same(output, torch.arange(size, dtype=torch.float32).repeat_interleave(2), 'gather_single')
    gradients = []
    for hook in (None, dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        model = nn.parallel.DistributedDataParallel(nn.Linear(50, 20))
        if hook is not None:
            model._register_builtin_comm_hook(hook)
        model(torch.full((3, 50), float(rank))).sum().backward()
        gradients.append(model.module.weight.grad)
    same(gradients[1], gradients[0], 'the C++ hook all_reduce')
    torch.testing.assert_close(gradients[2], gradients[0], rtol=1e-3, atol=1e-3)


def objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {'rank': rank, 'text': 'x' * rank})
    assert gathered == [{'rank': r, 'text': 'x' * r} for r in range(size)]
    sent = [f'from {rank}', rank] if rank == 1 else [None, None]
    dist.broadcast_object_list(sent, 1)
    assert sent == ['from 1', 1]
    mine = [None]
    dist.scatter_object_list(mine, list(range(10, 10 + size)) if rank == 0 else None, 0)
    assert mine == [10 + rank]


def messages(rank, size):
    large = 1 << 20
    right, left = (rank + 1) % size, (rank - 1) % size
    for kind in ('batch', 'single'):
        incoming, outgoing = torch.empty(large), torch.full((large,), float(rank))
        if kind == 'batch':
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, outgoing, right),
                                            dist.P2POp(dist.irecv, incoming, left)])
        else:
            works = [dist.isend(outgoing, right), dist.irecv(incoming, left)]
        for work in works:
            work.wait()
        same(incoming, torch.full((large,), float(left)), f'{kind} messages')
    if is_python():
        return
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            tensor = torch.empty(1, dtype=torch.int64)
            source = dist.recv(tensor)
            assert tensor.item() == source
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.tensor([rank]), 0)


def groups(rank, size):
    group = dist.new_group([1, 0])
    if rank < 2:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.full((3,), 2.0), 'new_group')
        dist.destroy_process_group(group)
    half, halves = dist.new_subgroups(1)
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=half)
    same(tensor, torch.ones(2), 'a group of one')
    assert len(halves) == size
    if has('split_group on CPUs', (2, 15)):
        split_groups(rank, size)
    dist.barrier()
    if has('monitored_barrier for all back ends', (2, 14)):
        dist.monitored_barrier()


def split_groups(rank, size):
    split = dist.split_group(split_ranks=[list(range(size))])
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=split)
    same(tensor, torch.full((2,), float(size)), 'split_group')
    turned = dist.split_group(split_ranks=[[size - 1], list(range(size - 1))[::-1]])
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=turned)
    same(tensor, torch.full((2,), 1.0 if rank == size - 1 else size - 1.0), 'split_group into two')
    assert dist.get_rank(turned) == (0 if rank == size - 1 else size - 2 - rank)
    below = dist.split_group(turned, [list(range(turned.size()))[::-1]])
    if os.environ.get('TORCH_DISTRIBUTED_DEBUG') != 'DETAIL':  # whose groups hide the options of ours
        assert members(dist.group.WORLD) == [], members(dist.group.WORLD)
        assert members(split) == list(range(size)), members(split)
        assert members(turned) == ([rank] if rank == size - 1 else list(range(size - 1))[::-1]), members(turned)
        assert members(below) == ([rank] if rank == size - 1 else list(range(size - 1))), members(below)


def members(group):
    """Ranks of the default group, as PyTorch asks the back end for them."""
    return group._get_backend(torch.device('cpu')).options.global_ranks_in_group


def ranks_outside(rank, size):
    """Of groups that others split off, also where the default group is bound to a device."""
    assert dist.new_group([0]) == dist.GroupMember.NON_GROUP_MEMBER or rank == 0
    if not has('split_group on CPUs', (2, 15)):
        pass
    elif rank > 0 and is_python():
        try:
            dist.split_group(split_ranks=[[0]])
        except dist.DistBackendError as error:
            assert f'rank {rank} is in none of the groups' in str(error), error
    else:
        assert dist.split_group(split_ranks=[[0]]) == dist.GroupMember.NON_GROUP_MEMBER or rank == 0
    dist.barrier()


def futures(rank, size):
    tensor = torch.ones(4)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), torch.full((4,), 2.0 * size), 'a future')
    dropped = torch.ones(1000)
    dist.all_reduce(dropped, async_op=True)  # its work is dropped
    dist.barrier()
    with dist._coalescing_manager(async_ops=True) as manager:
        tensors = [torch.ones(3), torch.full((5,), 2.0)]
        for each in tensors:
            dist.all_reduce(each)
    manager.wait()
    same(tensors[1], torch.full((5,), 2.0 * size), 'coalesced')


def a_future_lets_threads_run(rank, size):
    """Rank 0 asks for a future while the others wait for a thread of rank 0."""
    store = dist.distributed_c10d._get_default_store()
    entered = threading.Event()

    def tell():
        entered.wait()
        for _ in range(20000):
            os.sched_yield()
        store.set('a thread of rank 0 runs', '')
    thread = threading.Thread(target=tell)
    tensor = torch.ones(4)
    if rank == 0:
        thread.start()
        entered.set()  # the form in Python waits in all_reduce()
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        thread.join()
    else:
        store.wait(['a thread of rank 0 runs'])
        dist.all_reduce(tensor)
    same(tensor, torch.full((4,), float(size)), 'a future beside a thread')


def run_parts(variant):
    global compared
    form, _, device = variant.partition('@')
    if form:
        os.environ['DDPRUN_TORCH_FORM'] = form
    compared = 0
    # As from the environment, but with keys of its own in the store: the Gloo group of PyTorch's detailed checks may read the
    # address that a group of the same name left there, of the form before.
    store, rank, size = next(dist.rendezvous('env://'))
    dist.init_process_group('ddp', store=dist.PrefixStore(variant, store), rank=rank, world_size=size,
                            device_id=torch.device(device) if device else None)
    whole = (reductions, moves, singles, native_only, objects, messages, groups, ranks_outside, futures, a_future_lets_threads_run)
    for part in (groups, ranks_outside) if device else whole:
        part(rank, size)
    dist.destroy_process_group()
    print(f'rank {rank}:{variant}: {compared} results are right', flush=True)


def main(*variants):
    for variant in variants or ('',):
        run_parts(variant)


if __name__ == '__main__':
    main(*sys.argv[1:])
