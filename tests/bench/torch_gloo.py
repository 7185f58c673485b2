#!/usr/bin/env python3
"""torch_gloo.py FIGURES - PyTorch's gloo, measured on the sizes that ddp-perf has measured.

FIGURES is what 'ddp-perf CALL --json=FIGURES' wrote: each call, type and number of ranks in it is measured again
with gloo, on the same kind of memory. FILE of --json may be FIGURES itself.
"""

import json
import os
import sys
import tempfile
import time

from peers import Figures, parse_arguments, print_head, print_row

OPS = {'sum': 'SUM', 'average': 'AVG', 'min': 'MIN', 'max': 'MAX', 'product': 'PRODUCT'}
CALLS = ('allreduce', 'reduce', 'broadcast', 'allgather', 'barrier')  # that gloo has
SAME = ('call', 'ranks', 'dtype', 'op', 'device', 'iters')


# ---- a rank ------------------------------------------------------------------------------------

def make_call(dist, call, op, rank, ranks, tensor):
    """A function that does it once, on @tensor or its parts. Rank 0 is the root."""
    if call == 'allreduce':
        return lambda: dist.all_reduce(tensor, op)
    if call == 'reduce':
        return lambda: dist.reduce(tensor, 0, op)
    if call == 'broadcast':
        return lambda: dist.broadcast(tensor, 0)
    if call == 'allgather':
        parts = list(tensor.chunk(ranks))
        own = parts[rank].clone()
        return lambda: dist.all_gather(parts, own)
    return dist.barrier


def time_call(torch, dist, call, iters, cuda):
    """Microseconds of the slowest rank."""
    def often(times):
        for _ in range(times):
            call()
        if cuda:
            torch.cuda.synchronize()

    often(2)
    dist.barrier()
    began = time.perf_counter()
    often(iters)
    slowest = torch.tensor([(time.perf_counter() - began) / iters * 1e6], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def be_rank(results, rank, path, shape, sizes):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{path}', rank=rank, world_size=shape['ranks'])
    cuda = shape['device'] == 'cuda'
    device = f'cuda:{rank % torch.cuda.device_count()}' if cuda else 'cpu'
    kind = getattr(torch, shape['dtype'])
    for size in sizes:
        tensor = torch.ones(size // torch.empty((), dtype=kind).element_size(), device=device).to(kind)
        call = make_call(dist, shape['call'], getattr(dist.ReduceOp, OPS[shape['op']]), rank, shape['ranks'], tensor)
        us = time_call(torch, dist, call, shape['iters'], cuda)
        if rank == 0:
            os.write(results, f'{us}\n'.encode())
    dist.destroy_process_group()


# ---- all ranks ---------------------------------------------------------------------------------

def start_rank(*arguments):
    pid = os.fork()
    if pid > 0:
        return pid
    status = 1
    try:
        os.dup2(2, 1)  # some versions of gloo print their connections there
        be_rank(*arguments)
        status = 0
    except Exception as error:  # a rank that fails must not become a second parent
        print(f'gloo, rank {arguments[1]}: {error}', file=sys.stderr)
    finally:
        os._exit(status)


def run_gloo(shape, sizes):
    """Microseconds of a call, for each size."""
    results, writer = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        pids = [start_rank(writer, rank, os.path.join(folder, 'meeting'), shape, sizes)
                for rank in range(shape['ranks'])]
        os.close(writer)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    with os.fdopen(results) as file:
        times = [float(line) for line in file]
    if any(codes):
        sys.exit(f'gloo failed: its ranks ended with exit statuses {codes} (negative: a signal)')
    return times


def read_shapes(path):
    """[(what a job has in common, its figures)]"""
    shapes = {}
    with open(path, encoding='utf-8') as file:
        for figure in map(json.loads, file):
            if figure['benchmark'] == 'collective' and figure['call'] in CALLS:
                shapes.setdefault(tuple(figure[name] for name in SAME), []).append(figure)
    return [(dict(zip(SAME, values)), figures) for values, figures in shapes.items()]


def fastest_us(figure):
    return min(figure[name] for name in ('out_of_place_us', 'in_place_us') if name in figure)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)
    arguments = parse_arguments(__doc__)
    import torch.distributed  # before the forks: once for all ranks
    output = Figures(arguments.json)
    for shape, figures in read_shapes(path):
        print_head('size (B)', 'ddprun (us)', 'gloo (us)', 'speed, x gloo')
        for figure, us in zip(figures, run_gloo(shape, [figure['size'] for figure in figures])):
            ours = fastest_us(figure)
            print_row(figure['size'], f'{ours:.2f}', f'{us:.2f}', f'{us / ours:.2f}')
            about = {name: value for name, value in figure.items() if not name.startswith(('out_', 'in_', 'floor'))}
            output.add(**about | {'benchmark': 'collective-peer', 'peer': 'gloo', 'ddprun_us': round(ours, 3),
                                  'peer_us': round(us, 3), 'ratio': round(us / ours, 4)})


if __name__ == '__main__':
    main()
