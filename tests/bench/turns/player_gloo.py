#!/usr/bin/env python3
"""player_gloo.py - PyTorch's gloo as a contender of "ddp-bench turns CALL --gloo": see player.h and player.c in
cmd/perf, of which this is the same in Python. Started by ddprun, a process for each rank."""

import os
import sys
import time

import torch
import torch.distributed as dist


def make_call(name, rank, ranks, count):
    """(call, the tensor that it sends, the tensor that it fills)"""
    send = torch.zeros(count)
    if name == 'allreduce':
        return lambda: dist.all_reduce(send), send, send
    if name == 'broadcast':
        return lambda: dist.broadcast(send, 0), send, send
    if name == 'allgather':
        recv = torch.zeros(count * ranks)
        parts = list(recv.chunk(ranks))
        return lambda: dist.all_gather(parts, send), send, recv
    if name == 'reducescatter':
        send, recv = torch.zeros(count * ranks), torch.zeros(count)
        return lambda: dist.reduce_scatter_tensor(recv, send), send, recv
    if name == 'alltoall':
        send, recv = torch.zeros(count * ranks), torch.zeros(count * ranks)
        return lambda: dist.all_to_all_single(recv, send), send, recv
    return dist.barrier, send, send


def expected(name, rank, ranks, count):
    if name in ('allreduce', 'reducescatter'):
        return torch.full((count,), ranks * (ranks + 1) / 2)
    if name in ('allgather', 'alltoall'):
        return torch.arange(1., ranks + 1).repeat_interleave(count)
    return torch.ones(count)


def slowest(value):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def play(name, rank, ranks, count, iters):
    call, send, recv = make_call(name, rank, ranks, count)
    send.fill_(rank + 1)
    call()
    wrong = 0 if name == 'barrier' else int((recv != expected(name, rank, ranks, count)).sum())
    wrong = slowest(wrong)
    send.zero_()
    call()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(iters):
        call()
    return slowest((time.perf_counter() - began) / iters * 1e6), wrong


def main():
    torch.set_num_threads(1)
    dist.init_process_group('gloo')
    rank, ranks = dist.get_rank(), dist.get_world_size()
    turns = os.environ['DDP_PERF_TURNS']
    with open(f'{turns}.{rank}', encoding='ascii') as orders:
        answers = open(f'{turns}.answer', 'w', encoding='ascii') if rank == 0 else None
        for line in iter(orders.readline, ''):
            name, size, iters = line.split()
            if int(iters) == 0:
                break
            total = name in ('allgather', 'reducescatter', 'alltoall')
            count = 0 if name == 'barrier' else max(int(size) // 4 // (ranks if total else 1), 1)
            us, wrong = play(name, rank, ranks, count, int(iters))
            if answers:
                print(f'{us:.3f} {wrong:.0f}', file=answers, flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    sys.exit(main())
