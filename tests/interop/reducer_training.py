"""reducer_training.py - a rank that trains the same model twice: with PyTorch's DistributedDataParallel on gloo, and with a
reducer of libddpcomm that gets its gradients from autograd. Same weights, batches and optimizer: the losses must be equal
to the rounding of float32.

    ddprun --nproc-per-node=2 reducer_training.py CASE
"""

import contextlib
import copy
import ctypes
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import ddp_library as ddp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from sample import WHOLE

STEPS, BATCH, WIDTH = 200 if WHOLE else 100, 16, 48
TYPES = {torch.float32: ddp.FLOAT32, torch.int64: 5}


class Net(torch.nn.Module):
    """With a buffer that is trained by each rank on its own, and parts that some steps leave out."""

    def __init__(self, norm=True):
        super().__init__()
        self.first = torch.nn.Linear(20, WIDTH)
        self.norm = torch.nn.BatchNorm1d(WIDTH) if norm else torch.nn.Identity()
        self.left = torch.nn.Linear(WIDTH, WIDTH)
        self.right = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.last = torch.nn.Linear(WIDTH, 5)

    def forward(self, x, parts):
        x = torch.relu(self.norm(self.first(x)))
        if 'left' in parts:
            x = x + torch.tanh(self.left(x))
        if 'right' in parts:
            x = x + torch.tanh(self.right(x))
        return self.last(x)


def all_parts(step, rank):
    return ('left', 'right')


def some_parts(step, rank):
    """In every third step no rank uses the right part."""
    return (('left', 'right'), ('left',), ())[(step + (rank if step % 3 else 0)) % 3]


def same_parts(step, rank):
    return ('left',) if rank else ('left', 'right')


class Ours:
    """The model with a reducer, in the form of DistributedDataParallel."""

    def __init__(self, comm, model, **options):
        self.model, self.synchronises = model, True
        self.parameters = list(model.parameters())
        views = options.get('as_views')
        described = []
        for parameter in self.parameters:
            if not views:
                parameter.grad = torch.zeros_like(parameter)
            described.append((parameter.data_ptr(), None if views else parameter.grad.data_ptr(), parameter.numel(),
                              parameter.shape[0] if parameter.dim() > 1 else 0, TYPES[parameter.dtype]))
        buffers = [ddp.Parameter(name.encode(), buffer.data_ptr(), None, buffer.numel(), 0, TYPES[buffer.dtype])
                   for name, buffer in model.named_buffers()]
        options.update(buffers=(ddp.Parameter * len(buffers))(*buffers), nbuffers=len(buffers))
        self.reducer = ddp.Reducer(comm, described, **options)
        for i, parameter in enumerate(self.parameters):
            if views:
                memory = (ctypes.c_float * parameter.numel()).from_address(self.reducer.gradient(i))
                parameter.grad = torch.frombuffer(memory, dtype=torch.float32).view_as(parameter)
            parameter.register_post_accumulate_grad_hook(lambda _, i=i: self.reducer.ready(i))

    def step(self, x, y, parts):
        self.reducer.set_sync(self.synchronises)
        self.reducer.begin()
        loss = torch.nn.functional.mse_loss(self.model(x, parts), y)
        loss.backward()
        self.reducer.finish()
        return loss.item()

    @contextlib.contextmanager
    def no_sync(self):
        self.synchronises = False
        yield
        self.synchronises = True


class Theirs:
    def __init__(self, model, **options):
        self.model = DistributedDataParallel(model, **options)
        self.no_sync = self.model.no_sync

    def step(self, x, y, parts):
        loss = torch.nn.functional.mse_loss(self.model(x, parts), y)
        loss.backward()
        return loss.item()


def batches(rank, steps, size):
    generator = torch.Generator().manual_seed(1000 + rank)
    teacher = torch.randn(20, 5, generator=torch.Generator().manual_seed(5))
    for _ in range(steps):
        x = torch.randn(size, 20, generator=generator)
        yield x, torch.tanh(x @ teacher)


def train(side, model, rank, steps, parts, batch=BATCH, each=1, rate=0.05):
    """Losses; with @each > 1 only every so many steps synchronise, and change the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses = []
    for step, (x, y) in enumerate(batches(rank, steps, batch)):
        last = (step + 1) % each == 0
        with contextlib.nullcontext() if last else side.no_sync():
            losses.append(side.step(x, y, parts(step, rank)))
        if last:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return losses


class Pair:
    """Both sides, from the same weights; rank 0's decide."""

    name = None  # of the case

    def __init__(self, theirs=None, hook=None, our_hook=None, norm=True, **ours):
        torch.manual_seed(dist.get_rank())
        model = Net(norm)
        self.their_model, self.our_model = copy.deepcopy(model), copy.deepcopy(model)
        self.theirs = Theirs(self.their_model, **(theirs or {}))
        if hook:
            self.theirs.model.register_comm_hook(*hook)
        self.comm = ddp.Communicator()
        self.ours = Ours(self.comm, self.our_model, hook=our_hook, **ours)

    def compare(self, tolerance=2e-5, steps=STEPS, parts=all_parts, **how):
        rank = dist.get_rank()
        theirs = train(self.theirs, self.their_model, rank, steps, parts, **how)
        ours = train(self.ours, self.our_model, rank, steps, parts, **how)
        self.check(theirs, ours, tolerance)

    def check(self, theirs, ours, tolerance):
        worst = max(abs(a - b) / (abs(a) + 1e-3) for a, b in zip(theirs, ours))
        assert len(theirs) == len(ours) and sum(theirs[:10]) > 2 * sum(theirs[-10:]), 'it does not learn'
        assert worst <= tolerance, f'rank {dist.get_rank()}: losses differ by {worst}'
        for a, b in zip(self.their_model.parameters(), self.our_model.parameters()):
            torch.testing.assert_close(a, b, rtol=max(1e-3, tolerance), atol=max(1e-4, tolerance))
        print(f'rank {dist.get_rank()}: {self.name}: largest difference {worst:.1e}', flush=True)
        self.close()

    def close(self):
        self.ours.reducer.close()
        self.comm.close()


# ---- cases ----

def plain():
    Pair().compare()


def views():
    Pair(theirs={'gradient_as_bucket_view': True}, as_views=1).compare()


def small_buckets():
    Pair(theirs={'bucket_cap_mb': 0.002}, limits=[int(0.002 * 1024 * 1024)]).compare()


def accumulate():
    Pair().compare(each=4)


def unused():
    Pair(theirs={'find_unused_parameters': True}, find_unused=1).compare(parts=some_parts)


def unused_views():
    Pair(theirs={'find_unused_parameters': True, 'gradient_as_bucket_view': True}, find_unused=1,
         as_views=1).compare(parts=some_parts, each=2)


def static_graph():
    Pair(theirs={'static_graph': True}, static_graph=1).compare(parts=same_parts)


def fp16():
    compression = ddp.Compression(dtype=ddp.FLOAT16)
    hook = ddp.LIBRARY.ddp_compression_hook(ctypes.byref(compression))
    Pair(hook=(None, default_hooks.fp16_compress_hook), our_hook=hook).compare(tolerance=2e-2)


def uneven(initial):
    """Rank r has r * 20 steps fewer."""
    pair = Pair(uneven_inputs=1, divide_by_active=int(not initial))
    rank = dist.get_rank()
    steps = STEPS - 20 * rank
    with Join([pair.theirs.model], divide_by_initial_world_size=initial):
        theirs = train(pair.theirs, pair.their_model, rank, steps, all_parts)
    ours = train(pair.ours, pair.our_model, rank, steps, all_parts)
    last = pair.ours.reducer.join()
    assert last == 0, last
    pair.check(theirs, ours, 2e-5)


def join_initial():
    uneven(True)


def join_active():
    uneven(False)


def power_sgd_pair(feedback):
    state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=2, start_powerSGD_iter=10,
                                        use_error_feedback=feedback)
    handle = ctypes.c_void_p()
    ddp.call('ddp_power_sgd_create', ctypes.byref(ddp.PowerSgdOptions(
        size=ctypes.sizeof(ddp.PowerSgdOptions), rank=2, start_step=10, no_error_feedback=int(not feedback))),
        ctypes.byref(handle))
    return handle, Pair(hook=(state, powerSGD_hook.powerSGD_hook), norm=False,
                        our_hook=ddp.LIBRARY.ddp_power_sgd_hook(handle))


def power_sgd_exact():
    """With one row in each batch, the averages of two ranks are matrices of rank 2: nothing is lost."""
    handle, pair = power_sgd_pair(feedback=False)
    pair.compare(tolerance=1e-3, batch=1, rate=0.005)
    ddp.LIBRARY.ddp_power_sgd_destroy(handle)


def power_sgd():
    """What is lost depends on random numbers, so both sides learn as fast, but not by the same steps."""
    handle, pair = power_sgd_pair(feedback=True)
    rank = dist.get_rank()
    theirs = train(pair.theirs, pair.their_model, rank, STEPS, all_parts)
    ours = train(pair.ours, pair.our_model, rank, STEPS, all_parts)
    ratio = sum(ours[-20:]) / sum(theirs[-20:])
    assert max(abs(a - b) for a, b in zip(theirs[:10], ours[:10])) < 1e-5
    assert theirs[20:] != ours[20:] and 0.8 < ratio < 1.25, ratio
    print(f'rank {rank}: {pair.name}: largest difference {abs(ratio - 1):.1e}', flush=True)
    pair.close()
    ddp.LIBRARY.ddp_power_sgd_destroy(handle)


CASES = (plain, views, small_buckets, accumulate, unused, unused_views, static_graph, fp16, join_initial, join_active)


def main():
    """All cases, or the one that is named."""
    dist.init_process_group('gloo')
    torch.set_num_threads(1)
    for case in CASES + (power_sgd, power_sgd_exact) * (dist.get_world_size() == 2):
        if sys.argv[1] in ('all', case.__name__):
            Pair.name = case.__name__
            case()
    dist.destroy_process_group()


main()
