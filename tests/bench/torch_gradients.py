#!/usr/bin/env python3
"""torch_gradients.py - DistributedDataParallel on gloo, where 'ddp-bench gradients' measures a reducer: the gradients of
ResNet-50, reduced during a backward pass that takes processor time. The method is in docs/benchmarks/gradients.md.
"""

import multiprocessing
import os
import socket
import statistics
import sys
import time

from peers import Figures, parse_arguments, print_head, print_row

BACKWARDS_MS = (50, 200, 800)
WARMUP = 2


def resnet50():
    sizes, before = [64 * 3 * 49, 64, 64], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            sizes += [width * before, width, width, width * width * 9, width, width, width * 4 * width, width * 4,
                      width * 4]
            if block == 0:
                sizes += [width * 4 * before, width * 4, width * 4]
            before = width * 4
    return sizes + [1000 * 2048, 1000]


def rank_main(rank, world, port, steps, results):
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group('gloo')
    torch.set_num_threads(1)
    block = torch.ones(16384)

    def work(passes):
        for _ in range(passes):
            block.mul_(0.999).add_(0.001)

    begin = time.perf_counter()
    work(2000)
    pass_s = (time.perf_counter() - begin) / 2000

    class Layer(torch.autograd.Function):
        """Its backward pass works as long as it is told to, then has its gradient."""
        @staticmethod
        def forward(ctx, x, parameter, gradient, passes):
            ctx.gradient, ctx.passes = gradient, passes
            return x.clone()

        @staticmethod
        def backward(ctx, upstream):
            work(ctx.passes)
            return upstream, ctx.gradient, None, None

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(n)) for n in resnet50())
            self.gradients = [torch.ones_like(weight) for weight in self.weights]
            self.elements = sum(weight.numel() for weight in self.weights)

        def forward(self, x, backward_s):
            for weight, gradient in zip(self.weights, self.gradients):
                x = Layer.apply(x, weight, gradient, int(backward_s / pass_s * weight.numel() / self.elements))
            return x.sum()

    model = torch.nn.parallel.DistributedDataParallel(Model(), gradient_as_bucket_view=True)
    x = torch.zeros(1, requires_grad=True)

    def measure(backward_s, sync):
        dist.barrier()
        begin = time.perf_counter()
        if sync:
            model(x, backward_s).backward()
        else:
            with model.no_sync():
                model(x, backward_s).backward()
        elapsed = time.perf_counter() - begin
        for weight in model.module.weights:
            weight.grad.zero_()
        return elapsed * 1e3

    for backward_ms in BACKWARDS_MS:
        rows = [(measure(backward_ms / 1e3, False), measure(0, True), measure(backward_ms / 1e3, True))
                for _ in range(WARMUP + steps)][WARMUP:]
        if rank == 0:
            results.put((backward_ms, *(statistics.median(column) for column in zip(*rows))))
    dist.destroy_process_group()


def run_world(world, steps):
    """A row for each backward pass: its time, and that of backward alone, reduction alone, and both."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        port = listener.getsockname()[1]
    context = multiprocessing.get_context('spawn')
    results = context.Queue()
    ranks = [context.Process(target=rank_main, args=(rank, world, port, steps, results), daemon=True)
             for rank in range(world)]
    for process in ranks:
        process.start()
    rows = [results.get(timeout=600) for _ in BACKWARDS_MS]
    for process in ranks:
        process.join(60)
    return rows


def main():
    options = parse_arguments('DistributedDataParallel on gloo', ('--runs', int, 30, 'three times the steps of each kind'))
    figures = Figures(options.json)
    print('\nPyTorch, DistributedDataParallel on gloo, gradients in its buckets:')
    print_head('ranks', 'backward alone, ms', 'reduction alone, ms', 'step, ms', 'x the slower', 'exposed, ms',
               'of the reduction')
    for world in (2, 4):
        for backward_ms, compute, reduce, step in run_world(world, options.runs // 3 + 1):
            exposed = max(step - compute, 0)
            print_row(world, f'{compute:.1f}', f'{reduce:.1f}', f'{step:.1f}', f'{step / max(compute, reduce):.2f}',
                      f'{exposed:.1f}', f'{exposed / reduce:.2f}')
            figures.add(benchmark='gradients', contender='gloo', ranks=world, backward_ms=backward_ms,
                        compute_ms=round(compute, 3), reduce_ms=round(reduce, 3), step_ms=round(step, 3))
    return 0


if __name__ == '__main__':
    sys.exit(main())
