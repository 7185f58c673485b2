"""torch_same.py FORM... - the same calls on the back ends gloo and ddp, of which each gives the same result, or an error on both.

Run by test_torch_backend.py under ddprun, with three ranks. A call of the table CALLS gets a process group and its raw back
end. After an error all ranks still reduce, so nothing of the call is left. MORE has the calls that gloo refuses and ddp does.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import ddprun.torch  # registers the back end

SIZE = 3
OP = dist.ReduceOp
CALLS, MORE = {}, {}


def numbers(rank, first=1, count=4, dtype=torch.float32):
    """Small ones, whose sums and products are exact."""
    return (torch.arange(first, first + count) + rank).to(dtype)


def filled(options, **members):
    for name, value in members.items():
        setattr(options, name, value)
    return options


def allreduce(raw, tensors, op=OP.SUM):
    raw.allreduce(tensors, filled(dist.AllreduceOptions(), reduceOp=op)).wait()
    return tensors


def coalesced(raw, tensors, op=OP.SUM):
    raw.allreduce_coalesced(tensors, filled(c10d.AllreduceCoalescedOptions(), reduceOp=op)).wait()
    return tensors


def rooted(call, kind, tensors, root, *arguments, **members):
    call(tensors, *arguments, filled(kind(), rootRank=root, **members)).wait()
    return tensors


# ---- one value for all ----

WHOLE = {'sum': OP.SUM, 'product': OP.PRODUCT, 'min': OP.MIN, 'max': OP.MAX, 'and': OP.BAND, 'or': OP.BOR, 'xor': OP.BXOR}
for _name, _op in WHOLE.items():
    CALLS[f'allreduce of two, {_name}'] = lambda group, raw, rank, op=_op: allreduce(
        raw, [numbers(rank, dtype=torch.int64), numbers(rank, 3, dtype=torch.int64)], op)


def nested(count, rank):
    return [numbers(rank, 10 * i) for i in range(count)]


def flat(lists):
    return [tensor for tensors in lists for tensor in tensors]


def overlapping(rank):
    memory = numbers(rank, count=6)
    return [memory[:4], memory[2:]]


def twice(rank):
    return [numbers(rank)] * 2


def columns(rank):
    memory = numbers(rank, count=6).reshape(3, 2)
    return [memory[:, 0], memory[:, 1]]


def leaf(rank, transposed):
    tensor = numbers(rank, count=6).reshape(2, 3)
    return nn.Parameter(tensor.t() if transposed else tensor)


CALLS.update({
    'allreduce of three': lambda group, raw, rank: allreduce(raw, nested(3, rank)),
    'allreduce of one tensor twice': lambda group, raw, rank: allreduce(raw, twice(rank)),
    'allreduce of nothing': lambda group, raw, rank: allreduce(raw, []),
    'allreduce of two types': lambda group, raw, rank: allreduce(raw, [numbers(rank), numbers(rank).double()]),
    'allreduce of two sizes': lambda group, raw, rank: allreduce(raw, [numbers(rank), numbers(rank, count=5)]),
    'allreduce of two shapes': lambda group, raw, rank: allreduce(raw, [numbers(rank), numbers(rank).reshape(2, 2)]),
    'allreduce of two layouts': lambda group, raw, rank: allreduce(raw, [numbers(rank), numbers(rank).to_sparse()]),
    'allreduce of a leaf': lambda group, raw, rank: allreduce(raw, [leaf(rank, False)]),
    'allreduce_coalesced': lambda group, raw, rank: coalesced(raw, [numbers(rank), numbers(rank, 7, 9)]),
    'allreduce_coalesced of one tensor twice': lambda group, raw, rank: coalesced(raw, twice(rank)),
    'allreduce_coalesced of one tensor twice among others': lambda group, raw, rank: coalesced(
        raw, [numbers(rank), *twice(rank), numbers(rank, 9)]),
    'allreduce_coalesced of overlapping tensors': lambda group, raw, rank: coalesced(raw, overlapping(rank)),
    'allreduce_coalesced of columns': lambda group, raw, rank: coalesced(raw, columns(rank)),
    'allreduce_coalesced of nothing': lambda group, raw, rank: coalesced(raw, []),
    'allreduce_coalesced of sparse tensors': lambda group, raw, rank: coalesced(raw, [numbers(rank).to_sparse()]),
    'allreduce_coalesced of two layouts': lambda group, raw, rank: coalesced(
        raw, [numbers(rank), numbers(rank).to_sparse()]),
    'reduce of two': lambda group, raw, rank: rooted(raw.reduce, dist.ReduceOptions, nested(2, rank), 0),
    'reduce of a root tensor that is not there': lambda group, raw, rank: rooted(
        raw.reduce, dist.ReduceOptions, [numbers(rank)], 0, rootTensor=1),
    'reduce of nothing': lambda group, raw, rank: rooted(raw.reduce, dist.ReduceOptions, [], 0),
    'broadcast of two': lambda group, raw, rank: rooted(raw.broadcast, dist.BroadcastOptions, nested(2, rank), 1),
    'broadcast of the second': lambda group, raw, rank: rooted(
        raw.broadcast, dist.BroadcastOptions, nested(3, rank), 2, rootTensor=1),
    'broadcast of a root tensor that is not there': lambda group, raw, rank: rooted(
        raw.broadcast, dist.BroadcastOptions, nested(2, rank), 0, rootTensor=2),
    'broadcast of a negative root tensor': lambda group, raw, rank: rooted(
        raw.broadcast, dist.BroadcastOptions, nested(2, rank), 0, rootTensor=-1),
    'broadcast of nothing': lambda group, raw, rank: rooted(raw.broadcast, dist.BroadcastOptions, [], 0),
    'broadcast of two types': lambda group, raw, rank: rooted(
        raw.broadcast, dist.BroadcastOptions, [numbers(rank), numbers(rank).double()], 0),
    'broadcast of two sizes': lambda group, raw, rank: rooted(
        raw.broadcast, dist.BroadcastOptions, [numbers(rank), numbers(rank, count=5)], 0),
    'broadcast of a sparse tensor': lambda group, raw, rank: rooted(
        raw.broadcast, dist.BroadcastOptions, [numbers(rank).to_sparse()], 0),
})
MORE.update({
    'allreduce_coalesced of two types': lambda group, raw, rank: coalesced(raw, [numbers(rank), numbers(rank).double()]),
})
for _root in (-1, SIZE):
    CALLS.update({
        f'broadcast from {_root}': lambda group, raw, rank, root=_root: rooted(
            raw.broadcast, dist.BroadcastOptions, [numbers(rank)], root),
        f'reduce to {_root}': lambda group, raw, rank, root=_root: rooted(
            raw.reduce, dist.ReduceOptions, [numbers(rank)], root),
        f'gather to {_root}': lambda group, raw, rank, root=_root: rooted(
            raw.gather, dist.GatherOptions, [], root, [numbers(rank)]),
        f'scatter from {_root}': lambda group, raw, rank, root=_root: rooted(
            raw.scatter, dist.ScatterOptions, [numbers(rank)], root, []),
    })


# ---- a part of each rank ----

def allgather(raw, inputs, lists, each):
    outputs = [[torch.zeros(4) for _ in range(each)] for _ in range(lists)]
    raw.allgather(outputs, inputs, c10d.AllgatherOptions()).wait()
    return flat(outputs)


def allgather_coalesced(raw, inputs, lists, each):
    outputs = [[torch.zeros(4) for _ in range(each)] for _ in range(lists)]
    raw.allgather_coalesced(outputs, inputs, c10d.AllgatherOptions()).wait()
    return flat(outputs)


def all_gather_coalesced(group, rank):
    outputs = [parts(2) for _ in range(SIZE)]
    dist.all_gather_coalesced(outputs, nested(2, rank), group=group)
    return flat(outputs)


def parts(count=SIZE):
    return [torch.zeros(4) for _ in range(count)]


def gather(raw, rank, inputs, outputs):
    """Of rank 1, which has @outputs."""
    outputs = outputs if rank == 1 else []
    rooted(raw.gather, dist.GatherOptions, outputs, 1, inputs)
    return flat(outputs)


def scatter(raw, rank, outputs, inputs):
    return rooted(raw.scatter, dist.ScatterOptions, outputs, 1, inputs if rank == 1 else [])


for _count in (1, 2, 3):
    CALLS[f'allgather of {_count}'] = lambda group, raw, rank, count=_count: allgather(
        raw, nested(count, rank), count, count * SIZE)
CALLS.update({
    'allgather of two, the future': lambda group, raw, rank: raw.allgather(
        [parts(2 * SIZE), parts(2 * SIZE)], nested(2, rank), c10d.AllgatherOptions()).get_future().wait(),
    'allgather of nothing': lambda group, raw, rank: allgather(raw, [], 0, 0),
    'allgather with too few lists': lambda group, raw, rank: allgather(raw, nested(2, rank), 1, 2 * SIZE),
    'allgather with short lists': lambda group, raw, rank: allgather(raw, nested(2, rank), 2, SIZE),
    'allgather with a later list of another size': lambda group, raw, rank: raw.allgather(
        [[torch.zeros_like(numbers(rank)) for _ in range(2 * SIZE)], [torch.zeros(1) for _ in range(2 * SIZE)]],
        nested(2, rank), c10d.AllgatherOptions()).wait(),
    'allgather of two types': lambda group, raw, rank: allgather(raw, [numbers(rank), numbers(rank).double()], 2, 2 * SIZE),
    'allgather of two sizes': lambda group, raw, rank: allgather(
        raw, [numbers(rank), numbers(rank, count=5)], 2, 2 * SIZE),
    'allgather of a sparse tensor': lambda group, raw, rank: allgather(raw, [numbers(rank).to_sparse()], 1, SIZE),
    'allgather_coalesced': lambda group, raw, rank: allgather_coalesced(raw, nested(2, rank), SIZE, 2),
    'allgather_coalesced of nothing': lambda group, raw, rank: allgather_coalesced(raw, [], SIZE, 0),
    'allgather_coalesced with too few lists': lambda group, raw, rank: allgather_coalesced(raw, nested(2, rank), SIZE - 1, 2),
    'allgather_coalesced with short lists': lambda group, raw, rank: allgather_coalesced(raw, nested(2, rank), SIZE, 1),
    'all_gather_coalesced': lambda group, raw, rank: all_gather_coalesced(group, rank),
    'gather': lambda group, raw, rank: gather(raw, rank, [numbers(rank)], [parts()]),
    'gather of two': lambda group, raw, rank: gather(raw, 1, nested(2, rank), [parts()]),
    'gather of nothing': lambda group, raw, rank: gather(raw, 1, [], [parts()]),
    'scatter': lambda group, raw, rank: scatter(raw, rank, [numbers(rank)], [nested(SIZE, rank)]),
    'scatter to two': lambda group, raw, rank: scatter(raw, 1, nested(2, rank), [nested(SIZE, rank)]),
    'scatter to nothing': lambda group, raw, rank: scatter(raw, 1, [], [nested(SIZE, rank)]),
    'scatter of two lists': lambda group, raw, rank: raw.scatter(
        [numbers(rank)], [nested(SIZE, rank)] * 2, filled(dist.ScatterOptions(), rootRank=rank)),
    'gather into two lists': lambda group, raw, rank: raw.gather(
        [parts(), parts()], [numbers(rank)], filled(dist.GatherOptions(), rootRank=rank)),
    'gather into a short list': lambda group, raw, rank: raw.gather(
        [parts(2)], [numbers(rank)], filled(dist.GatherOptions(), rootRank=rank)),
    'outputs of gather that are not the root\'s': lambda group, raw, rank: raw.gather(
        [parts()], [numbers(rank)], filled(dist.GatherOptions(), rootRank=(rank + 1) % SIZE)),
    'inputs of scatter that are not the root\'s': lambda group, raw, rank: raw.scatter(
        [numbers(rank)], [parts()], filled(dist.ScatterOptions(), rootRank=(rank + 1) % SIZE)),
    'reduce_scatter of nothing': lambda group, raw, rank: raw.reduce_scatter([], [], dist.ReduceScatterOptions()).wait(),
    'alltoall of nothing': lambda group, raw, rank: raw.alltoall([], [], c10d.AllToAllOptions()).wait(),
    'alltoall with short lists': lambda group, raw, rank: raw.alltoall(parts(2), parts(2), c10d.AllToAllOptions()).wait(),
})


# ---- messages ----

CALLS.update({
    'send of two': lambda group, raw, rank: raw.send(nested(2, rank), (rank + 1) % SIZE, 0),
    'send of nothing': lambda group, raw, rank: raw.send([], (rank + 1) % SIZE, 0),
    'send of a sparse tensor': lambda group, raw, rank: raw.send([numbers(rank).to_sparse()], (rank + 1) % SIZE, 0),
    'send with a negative tag': lambda group, raw, rank: raw.send([numbers(rank)], (rank + 1) % SIZE, -1),
    'recv of two': lambda group, raw, rank: raw.recv(nested(2, rank), (rank + 1) % SIZE, 0),
    'recv from any of two': lambda group, raw, rank: raw.recv_anysource(nested(2, rank), 0),
})


# ---- sparse tensors ----

def sparse(rank, dense=(), dtype=torch.float32, count=None, doubled=False):
    """Of rank r, elements r and r + 1 of 5; with @doubled, some twice."""
    count = 2 if count is None else count
    indices = torch.arange(rank, rank + count)[None] % 5
    values = torch.ones(count, *dense).to(dtype) * (rank + 1)
    if doubled:
        indices, values = torch.cat([indices, indices], 1), torch.cat([values, values])
    return torch.sparse_coo_tensor(indices, values, (5, *dense), check_invariants=True)


def matrix(rank):
    """Two sparse dimensions, and one that is dense."""
    indices = torch.tensor([[rank, 0], [rank, 3]])
    return torch.sparse_coo_tensor(indices, torch.ones(2, 4) * (rank + 1), (3, 4, 4), check_invariants=True)


def all_reduce(group, tensor, op=OP.SUM, asynchronous=False):
    work = dist.all_reduce(tensor, op, group=group, async_op=asynchronous)
    if asynchronous:
        work.wait()
    return [tensor]


def in_flight(group, rank):
    """Two at once, and one of another kind between."""
    tensors = [sparse(rank), numbers(rank), matrix(rank)]
    for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]:
        work.wait()
    return tensors


def future_of(group, rank):
    work = dist.all_reduce(sparse(rank), group=group, async_op=True)
    return work.get_future().wait()


CALLS.update({
    'sparse': lambda group, raw, rank: all_reduce(group, sparse(rank)),
    'sparse, asynchronous': lambda group, raw, rank: all_reduce(group, sparse(rank), asynchronous=True),
    'sparse, the future': lambda group, raw, rank: future_of(group, rank),
    'sparse, several at once': lambda group, raw, rank: in_flight(group, rank),
    'sparse, coalesced': lambda group, raw, rank: all_reduce(group, sparse(rank, doubled=True).coalesce()),
    'sparse, elements twice': lambda group, raw, rank: all_reduce(group, sparse(rank, doubled=True)),
    'sparse, rows': lambda group, raw, rank: all_reduce(group, sparse(rank, dense=(2, 3))),
    'sparse, a matrix': lambda group, raw, rank: all_reduce(group, matrix(rank)),
    'sparse, uneven': lambda group, raw, rank: all_reduce(group, sparse(rank, count=rank)),
    'sparse, empty': lambda group, raw, rank: all_reduce(group, sparse(rank, count=0)),
    'sparse, two tensors': lambda group, raw, rank: allreduce(raw, [sparse(rank), sparse(rank + 1, count=3)]),
    'sparse, two sizes on a rank': lambda group, raw, rank: allreduce(raw, [sparse(rank), matrix(rank)]),
    'sparse, max': lambda group, raw, rank: all_reduce(group, sparse(rank), OP.MAX),
    'sparse, sizes of ranks differ': lambda group, raw, rank: all_reduce(group, sparse(rank) if rank else matrix(rank)),
    'sparse, CSR': lambda group, raw, rank: all_reduce(group, torch.eye(4).to_sparse_csr()),
})
for _dtype in (torch.float64, torch.bfloat16, torch.int64, torch.int32):
    CALLS[f'sparse, {_dtype}'] = lambda group, raw, rank, dtype=_dtype: all_reduce(group, sparse(rank, dtype=dtype))
MORE['allgather with outputs of two sizes'] = lambda group, raw, rank: raw.allgather(
    [[torch.zeros(r + 1) for r in range(SIZE)]], [torch.ones(rank + 1)], c10d.AllgatherOptions()).wait()
MORE['sparse, torch.float16'] = lambda group, raw, rank: all_reduce(group, sparse(rank, dtype=torch.float16))


# ---- inference mode, which ends before the wait ----

def in_inference(call):
    """call makes tensors and works."""
    with torch.inference_mode():
        tensors, works = call()
    for work in works:
        work.wait()
    return tensors


def gathered(raw, rank, count=1):
    outputs = [parts(count * SIZE) for _ in range(count)]
    return flat(outputs), [raw.allgather(outputs, nested(count, rank), c10d.AllgatherOptions())]


def reduced(raw, tensors):
    return tensors, [raw.allreduce(tensors, dist.AllreduceOptions())]


def passed_on(raw, rank):
    """Into columns, whose message is copied to them."""
    taken = torch.zeros(4, 2)[:, 0]
    return [taken], [raw.send([numbers(rank)], (rank + 1) % SIZE, 5), raw.recv([taken], (rank - 1) % SIZE, 5)]


CALLS.update({
    'allreduce in inference mode': lambda group, raw, rank: in_inference(lambda: reduced(raw, [numbers(rank)])),
    'allreduce of two in inference mode': lambda group, raw, rank: in_inference(lambda: reduced(raw, nested(2, rank))),
    'allgather in inference mode': lambda group, raw, rank: in_inference(lambda: gathered(raw, rank)),
    'allgather of two in inference mode': lambda group, raw, rank: in_inference(lambda: gathered(raw, rank, 2)),
    'sparse, in inference mode': lambda group, raw, rank: in_inference(lambda: reduced(raw, [sparse(rank)])),
})
MORE['recv in inference mode'] = lambda group, raw, rank: in_inference(lambda: passed_on(raw, rank))


# ---- DistributedDataParallel with sparse gradients ----

def train(group, rank, view=False, hook=None):
    torch.manual_seed(3)
    model = nn.Sequential(nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 4))
    model = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=view)
    if hook is not None:
        model.register_comm_hook(group, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model((torch.arange(12).reshape(3, 4) * (rank + 2) + step) % 50).square().sum().backward()
        optimizer.step()
    return [*model.parameters(), model.module[0].weight.grad]


def doubling_hook(group, bucket):
    return dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future().then(
        lambda done: done.value()[0] * 2)


CALLS.update({
    'DDP with a sparse embedding': lambda group, raw, rank: train(group, rank),
    'DDP with a sparse embedding, views': lambda group, raw, rank: train(group, rank, view=True),
    'DDP with a sparse embedding, a hook': lambda group, raw, rank: train(group, rank, hook=default_hooks.allreduce_hook),
    'DDP with a sparse embedding, a hook with then()': lambda group, raw, rank: train(group, rank, hook=doubling_hook),
})


# ---- the rest ----

def set_default_timeout(group, raw, rank):
    raw._set_default_timeout(timedelta(minutes=7))
    return allreduce(raw, [numbers(rank)])


CALLS['the default timeout of the raw back end'] = set_default_timeout


# ---- comparing ----

def plain(value):
    """What is compared."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, torch.Tensor) and value.layout == torch.sparse_coo:
        return ['sparse', value.is_coalesced(), value._nnz(), plain(value.to_dense())]
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), value.detach().flatten().tolist()]
    return type(value).__name__


def outcome(call, group, rank):
    """('result', what it is), or ('error', its sentence). No error breaks the group."""
    raw = group._get_backend(torch.device('cpu'))
    try:
        seen = 'result', plain(call(group, raw, rank))
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        seen = 'error', f'{type(error).__name__}: {error}'.splitlines()[0]
    total = torch.ones(1)
    dist.all_reduce(total, group=group)
    assert total.item() == SIZE
    return seen


def group_of(backend, form=None):
    if form is not None:
        os.environ['DDPRUN_TORCH_FORM'] = form
    return dist.new_group(backend=backend)


def close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-5 * max(1, abs(a))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(*pair) for pair in zip(a, b))
    return a == b


def compare(form, rank, groups):
    wrong = []
    for name, call in (CALLS | MORE).items():
        theirs, ours = (outcome(call, group, rank) for group in groups)
        expected = ('error', 'result') if name in MORE else (theirs[0], theirs[0])
        if (theirs[0], ours[0]) != expected or theirs[0] == 'result' and not close(theirs[1], ours[1]):
            wrong.append(f'{form}: {name}: gloo has {theirs}, ddp {ours}')
        elif ours[0] == 'error' and '4294967295' in ours[1]:
            wrong.append(f'{form}: {name}: {ours[1]}')
    return wrong


def main(*forms):
    dist.init_process_group('gloo')
    rank = dist.get_rank()
    assert dist.get_world_size() == SIZE
    wrong = []
    for form in forms:
        wrong += compare(form, rank, [group_of('gloo'), group_of('ddp', form)])
    dist.barrier()
    dist.destroy_process_group()
    for line in wrong:
        print(f'rank {rank}: {line}', file=sys.stderr, flush=True)
    if wrong:
        sys.exit(1)
    print(f'rank {rank}: {len(CALLS | MORE)} calls are the same', flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
