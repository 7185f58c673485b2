#!/usr/bin/env python3
"""torch_on_gpu.py [--device=cpu] [RANKS [PART...]] - the back end "ddp" of PyTorch on tensors of one GPU.

Each part is run by ranks of its own, within a limit, and says one line. Without a PART, all are run.
"train" and "speed" are run with gloo as well, and "speed" with NCCL and with "ddp" on one rank, as NCCL
refuses several on one GPU. Exit status 1: a part on "ddp" was wrong, failed or hung; what its ranks were
doing then is said, too.

gpu_torch_build.py makes what it needs; DDPRUN_LIBRARY_PATH and DDPRUN_TORCH_LIBRARIES say where. --device=cpu tries
this command out where there is no GPU.
"""

import argparse
import datetime
import faulthandler
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMITS_S = {'collectives': 60, 'segments': 45, 'train': 50, 'cpu': 40, 'free': 40, 'queue': 40, 'speed': 50,
            'async': 50, 'hook': 50}
TIMEOUT_S = 15  # of an operation, so that one that hangs says so itself
SEGMENTS = dict.fromkeys(('PYTORCH_ALLOC_CONF', 'PYTORCH_CUDA_ALLOC_CONF'), 'expandable_segments:True')


class Rank:
    """What a rank has: PyTorch, its group, and the device on which it computes."""

    def __init__(self, backend, device):
        import torch
        import torch.distributed as dist
        if backend == 'ddp':
            import ddprun.torch  # noqa: F401
        self.torch, self.dist, self.device = torch, dist, device
        self.on_gpu = device == 'cuda'
        if self.on_gpu:
            torch.cuda.set_device(0)
        else:
            torch.set_num_threads(1)
        torch.ones(1, device=device).sum().item()  # a context, and the kernels that this loads
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=TIMEOUT_S))
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()

    def synchronize(self):
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def ones(self, count):
        return self.torch.ones(count, device=self.device)

    def time(self, function, rounds=15):
        """The median, in milliseconds."""
        times = []
        for number in range(rounds):
            self.synchronize()
            began = time.perf_counter()
            function(number)
            self.synchronize()
            times.append(time.perf_counter() - began)
        return statistics.median(times) * 1e3


# ---- collectives -------------------------------------------------------------------------------

def compare_reductions(me, base, dtype):
    op = me.dist.ReduceOp
    total = base * me.ranks + me.ranks * (me.ranks + 1) // 2
    for name, how, want in (('sum', op.SUM, total), ('max', op.MAX, base + me.ranks), ('min', op.MIN, base + 1)):
        for asynchronous in (False, True):
            y = (base + me.rank + 1).to(dtype)
            work = me.dist.all_reduce(y, how, async_op=asynchronous)
            if asynchronous:
                work.wait()
            if not me.torch.equal(y, want.to(dtype)):  # on the current stream, so nothing else waits
                yield f'all_reduce {name}{" async" if asynchronous else ""} {dtype} {len(base)}'


def compare_moves(me, base, dtype):
    x = (base + me.rank + 1).to(dtype)
    sent = x.clone()
    me.dist.broadcast(sent, me.ranks - 1)
    every = x.new_empty(me.ranks * len(x))
    me.dist.all_gather_into_tensor(every, x)
    part = me.torch.empty_like(x)
    me.dist.reduce_scatter_tensor(part, x.repeat(me.ranks))
    swapped = me.torch.empty_like(every)
    me.dist.all_to_all_single(swapped, x.repeat(me.ranks))
    of_all = me.torch.cat([base + rank + 1 for rank in range(me.ranks)])
    total = base * me.ranks + me.ranks * (me.ranks + 1) // 2
    for name, got, want in (('broadcast', sent, base + me.ranks), ('all_gather', every, of_all),
                            ('reduce_scatter', part, total), ('all_to_all', swapped, of_all)):
        if not me.torch.equal(got, want.to(dtype)):
            yield f'{name} {dtype} {len(base)}'


def compare_uneven(me):
    """Rank 0 sends nothing and receives nothing, as an expert without tokens."""
    counts = [int(me.rank > 0 and to > 0) for to in range(me.ranks)]
    got = me.torch.zeros(sum(counts), device=me.device)
    me.dist.all_to_all_single(got, me.torch.full_like(got, me.rank), counts, counts)
    if got.tolist() != list(range(1, me.ranks))[:len(got)]:
        yield f'all_to_all without elements: {got.tolist()}'


def compare_collectives(me, dtypes):
    wrong = [*compare_uneven(me)]
    for dtype in dtypes:
        for count in (1, 7, 1000, 1_000_003):
            base = me.torch.arange(count, device=me.device) % 5
            wrong += [*compare_reductions(me, base, dtype), *compare_moves(me, base, dtype)]
    return not wrong, f'{len(wrong)} wrong: {wrong[:5]}' if wrong else f'{len(dtypes)} types all right'


def collectives(me):
    torch = me.torch
    return compare_collectives(me, [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32,
                                    torch.int64, torch.uint8])


def segments(me):
    """Memory of the device that PyTorch maps by pieces, which others cannot open as they can what it allocates."""
    return compare_collectives(me, [me.torch.float32, me.torch.bfloat16])


# ---- what may block inside the driver ----------------------------------------------------------

def cpu(me):
    """A copy to pageable memory straight after a collective, during which the driver may keep its lock."""
    x = me.ones(1 << 18)
    wrong = 0
    for _ in range(100):
        me.dist.all_reduce(x)
        wrong += x.cpu()[-1].item() != me.ranks
        x.fill_(1)
    return wrong == 0, f'{wrong} of 100 wrong' if wrong else 'went on'


def free(me):
    """Memory is freed straight after a collective, for which the driver waits for the device."""
    x = me.ones(1 << 18)
    wrong = 0
    for _ in range(30):
        y = me.torch.empty(64 << 20, device=me.device)
        me.dist.all_reduce(x)
        del y
        if me.on_gpu:
            me.torch.cuda.empty_cache()
        wrong += x[-1].item() != me.ranks
        x.fill_(1)
    return wrong == 0, f'{wrong} of 30 wrong' if wrong else 'went on'


def queue(me):
    """More kernels than a queue of the driver takes, behind a collective for which one rank comes late."""
    x = me.ones(1 << 18)
    wrong = 0
    for _ in range(5):
        if me.rank == me.ranks - 1:
            time.sleep(0.2)
        me.dist.all_reduce(x)
        for _ in range(5000 if me.on_gpu else 50):
            x.mul_(1)
        wrong += x[-1].item() != me.ranks
        x.fill_(1)
    return wrong == 0, f'{wrong} of 5 wrong' if wrong else 'went on'


# ---- training ----------------------------------------------------------------------------------

class Training:
    """A model, and its steps on made-up data, of which each rank has @rows for a step."""

    def __init__(self, me, width, rows, rate, bucket_mb=25):
        from torch.nn.parallel import DistributedDataParallel
        self.me, self.width, self.rows, self.rate = me, width, rows, rate
        self.plain = self.make_model()
        self.model = DistributedDataParallel(self.make_model(), device_ids=[0] if me.on_gpu else None,
                                             bucket_cap_mb=bucket_mb)
        self.optimizer, self.plain_optimizer = (self.make_optimizer(model) for model in (self.model, self.plain))

    def make_model(self):
        nn = self.me.torch.nn
        self.me.torch.manual_seed(1)
        layers = [layer for _ in range(6) for layer in (nn.Linear(self.width, self.width), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(self.width, 10)).to(self.me.device)

    def make_optimizer(self, model):
        return self.me.torch.optim.SGD(model.parameters(), lr=self.rate, momentum=0.9)

    def data(self, number, rank):
        generator = self.me.torch.Generator(device=self.me.device).manual_seed(1000 * number + rank)
        return self.me.torch.randn(self.rows, self.width, device=self.me.device, generator=generator)

    @staticmethod
    def update(model, optimizer, x):
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def step(self, number):
        return self.update(self.model, self.optimizer, self.data(number, self.me.rank))

    def step_alone(self, number):
        """Computes the same, but no rank hears of the others."""
        with self.model.no_sync():
            return self.step(number)

    def step_of_all(self, number):
        """One process with the data of all ranks, on a model of its own."""
        parts = [self.data(number, rank) for rank in range(self.me.ranks)]
        return self.update(self.plain, self.plain_optimizer, self.me.torch.cat(parts))

    def difference(self):
        """Between the two models, as a part of how far they have come: the largest of their layers'."""
        three = zip(self.model.parameters(), self.plain.parameters(), self.make_model().parameters())
        return max(((one - other).norm() / (other - first).norm()).item() for one, other, first in three)


def train(me):
    training = Training(me, 512, 32, 0.1, bucket_mb=1)
    for number in range(20):
        loss = training.step(number)
        training.step_of_all(number)
    digest = sum(weights.detach().double().abs().sum() for weights in training.model.parameters())
    seen = me.torch.zeros(me.ranks, dtype=me.torch.float64, device=me.device)
    seen[me.rank] = digest
    me.dist.all_reduce(seen)
    same, far = bool((seen == seen[0]).all()), training.difference()
    return (same and far < 1e-2,
            f'ranks agree: {same}; weights {digest.item():.12f}, loss {loss.item():.9f}; {far:.1e} off one process')


def training_for_speed(me):
    """On a GPU 100 MB of gradients."""
    return Training(me, 2048, 256, 0.01) if me.on_gpu else Training(me, 256, 16, 0.01)


def speed(me):
    training = training_for_speed(me)
    lines = [f'step {me.time(training.step):.2f} ms', f'no_sync {me.time(training.step_alone):.2f} ms']
    for size in (1 << 10, 1 << 20, 100_000_000 if me.on_gpu else 10_000_000):
        x = me.torch.zeros(size // 4, device=me.device)
        took = me.time(lambda _, x=x: me.dist.all_reduce(x), 21)
        lines.append(f'all_reduce {size} B {took * 1e3:.0f} us')
    return True, ', '.join(lines)


def training_without(me):
    """As that for speed, but gradients go no further than into the buckets."""
    from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
    training = training_for_speed(me)
    training.model.register_comm_hook(None, noop_hook)
    return training


def time_in_turns(me, calls):
    """name -> milliseconds: the best of a few medians each, as the speed of a machine changes."""
    times = {name: [] for name in calls}
    for _ in range(3):
        for name, call in calls.items():
            times[name].append(me.time(call))
    return {name: min(took) for name, took in times.items()}


def overlap(me):
    """How much of the gradients' way is hidden behind the computation."""
    training, without = training_for_speed(me), training_without(me)
    gradients = me.torch.zeros(sum(weights.numel() for weights in training.model.parameters()), device=me.device)

    def beside(number):
        work = me.dist.all_reduce(gradients, async_op=True)
        training.step_alone(number)
        work.wait()

    took = time_in_turns(me, {
        'step': training.step, 'step that exchanges nothing': without.step, 'no_sync': training.step_alone,
        f'all_reduce of {gradients.numel() * 4 / 1e6:.0f} MB': lambda _: me.dist.all_reduce(gradients),
        'no_sync beside it': beside})
    step, nothing, alone, way, _ = took.values()
    lines = [f'{name} {milliseconds:.2f} ms' for name, milliseconds in took.items()]
    return True, (f'{", ".join(lines)}; step - no_sync {step - alone:.2f} ms, '
                  f'hidden {(nothing + way - step) / way * 100:.0f} % of all_reduce')


def hook(me):
    """On one rank, where there is nothing to exchange: what a step costs through the back end, and without it."""
    took = time_in_turns(me, {'through the back end': training_for_speed(me).step,
                              'with a hook that does nothing': training_without(me).step})
    return True, ', '.join(f'step {name} {milliseconds:.2f} ms' for name, milliseconds in took.items())


PARTS = {'collectives': collectives, 'segments': segments, 'train': train, 'cpu': cpu, 'free': free, 'queue': queue,
         'speed': speed, 'async': overlap, 'hook': hook}


# ---- ranks -------------------------------------------------------------------------------------

def be_rank(part, backend, device):
    faulthandler.dump_traceback_later(LIMITS_S[part] - 4, exit=True)
    sys.path[0] = str(ROOT / 'python')  # this folder has a ddprun.py
    me = Rank(backend, device)
    good, said = PARTS[part](me)
    if me.rank == 0:
        print(said, flush=True)
    elif not good:
        print(f'rank {me.rank}: {said}', file=sys.stderr, flush=True)
    sys.stderr.flush()
    me.dist.barrier()
    me.dist.destroy_process_group()
    if backend != 'ddp':
        os._exit(not good)  # how others end is not the question; gloo's threads have been seen to abort
    return 0 if good else 1


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as listener:
        return listener.getsockname()[1]


def environment(part, ranks):
    env = os.environ | {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free_port()), 'WORLD_SIZE': str(ranks),
                        'LOCAL_WORLD_SIZE': str(ranks), 'DDPRUN_TORCH_FORM': 'native', 'PYTHONUNBUFFERED': '1',
                        'DDP_TIMEOUT': f'{TIMEOUT_S}s', 'DDP_INIT_TIMEOUT': f'{TIMEOUT_S}s'}
    return env | (SEGMENTS if part == 'segments' else {})


def await_end(workers, limit_s):
    """Their exit statuses; of one that was killed when the time was over, "hung"."""
    end, codes = time.monotonic() + limit_s, []
    for worker in workers:
        try:
            codes.append(worker.wait(max(0.1, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            worker.kill()
            codes.append('hung')
    return codes


def run_part(part, backend, ranks, device):
    """True if it is to be held against "ddp"."""
    began, env = time.monotonic(), environment(part, ranks)
    with tempfile.TemporaryFile('w+') as said:
        words = [sys.executable, __file__, '--rank', part, backend, device]
        workers = [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said,
                                    env=env | {'RANK': str(rank), 'LOCAL_RANK': str(rank)}) for rank in range(ranks)]
        codes = await_end(workers, LIMITS_S[part])
        said.seek(0)
        text = ' '.join(said.read().split())
    bad = any(codes)
    became = f'failed {codes}' if bad else 'ok'
    print(f'{backend} x {ranks}, {part}: {became}, {time.monotonic() - began:.1f} s: {text}', flush=True)
    return bad and backend == 'ddp'


def plan(parts, ranks, device):
    """What matters most first: right before fast, "ddp" before others."""
    for part in parts:
        yield part, 'ddp', 1 if part == 'hook' else ranks
        if part in ('train', 'speed'):
            yield part, 'gloo', ranks
        if part == 'speed':
            yield part, 'ddp', 1
            if device == 'cuda':
                yield part, 'nccl', 1


def main():
    if sys.argv[1:2] == ['--rank']:
        return be_rank(*sys.argv[2:5])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', choices=['cuda', 'cpu'], default='cuda')
    parser.add_argument('ranks', nargs='?', type=int, default=2)
    parser.add_argument('parts', nargs='*', metavar='part', help=', '.join(PARTS))
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f'there is no part {", ".join(sorted(unknown))}')
    failed = [run_part(*what, arguments.device)
              for what in plan(arguments.parts or PARTS, arguments.ranks, arguments.device)]
    return 1 if any(failed) else 0


if __name__ == '__main__':
    sys.exit(main())
