"""perf_gloo.py - collectives by PyTorch's gloo, for ddp-perf, which carries this text inside.

    RANKS CALL DTYPE OP ROOT ITERS WARMUP cuda|cpu SIZE...    SIZE: bytes of a rank's buffer

Prints a line for each size: SIZE NANOSECONDS, of the slowest rank. Exit status 3: this Python has no
PyTorch, or gloo has no such call.
"""

import os
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(3)

OPS = {'sum': 'SUM', 'average': 'AVG', 'min': 'MIN', 'max': 'MAX', 'product': 'PRODUCT'}


def make_call(call, op, root, rank, ranks, tensor):
    """A function that does it once, on @tensor or its parts."""
    if call == 'allreduce':
        return lambda: dist.all_reduce(tensor, op)
    if call == 'reduce':
        return lambda: dist.reduce(tensor, root, op)
    if call == 'broadcast':
        return lambda: dist.broadcast(tensor, root)
    if call == 'allgather':
        parts = list(tensor.chunk(ranks))
        own = parts[rank].clone()
        return lambda: dist.all_gather(parts, own)
    if call == 'barrier':
        return dist.barrier
    sys.exit(3)


def measure(call, iters, warmup, cuda):
    def often(times):
        for _ in range(times):
            call()
        if cuda:
            torch.cuda.synchronize()

    often(warmup + 1)
    dist.barrier()
    began = time.perf_counter()
    often(iters)
    slowest = torch.tensor([(time.perf_counter() - began) / iters * 1e6], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def be_rank(results, rank, path, ranks, call, dtype, op, root, iters, warmup, place, *sizes):
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{path}', rank=rank, world_size=ranks)
    cuda = place == 'cuda'
    device = f'cuda:{rank % torch.cuda.device_count()}' if cuda else 'cpu'
    kind = getattr(torch, dtype)
    for size in sizes:
        count = int(size) // torch.empty((), dtype=kind).element_size()
        tensor = torch.ones(count, device=device).to(kind)
        once = make_call(call, getattr(dist.ReduceOp, OPS[op]), int(root), rank, ranks, tensor)
        us = measure(once, int(iters), int(warmup), cuda)
        if rank == 0:
            os.write(results, f'{size} {round(us * 1000)}\n'.encode())
    dist.destroy_process_group()


def run(ranks, *rest):
    results = os.dup(1)
    os.dup2(2, 1)  # some versions of gloo say there whom they are connected to
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(int(ranks)):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    be_rank(results, rank, os.path.join(folder, 'meeting'), int(ranks), *rest)
                    status = 0
                except SystemExit as end:
                    status = end.code
                except Exception as error:  # a rank that fails must not become a second parent
                    print(f'gloo, rank {rank}: {error}', file=sys.stderr)
                finally:
                    os._exit(status)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        if min(codes) < 0:
            print(f'gloo: a rank was ended by signal {-min(codes)}', file=sys.stderr)
        return min(codes) if min(codes) < 0 else max(codes)


sys.exit(run(*sys.argv[1:]))
