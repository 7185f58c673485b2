#!/usr/bin/env python3
"""torch_restart.py - torchrun, where 'ddp-bench restart' measures ddprun: a worker or an agent dies, a node comes.

The workers are the same program, ddp-bench-worker, which stamps on a board in shared memory when it runs. It is
the one in PATH. A few runs with a bound: some of it never recovers. The method is in docs/benchmarks/restart.md.
"""

import math
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from peers import Figures, parse_arguments, print_head, print_row

WORKERS = 4           # of a node
START_LIMIT_S = 60    # its import takes seconds
LIMIT_S = 45          # torchrun's last call is 30 s
LOSS_LIMIT_S = 15     # its heartbeats time out after that, and nothing follows

# tests/bench/jobs/perf_board.h
HEAD = struct.Struct('=iII4x')     # owner, over, count
STAMP = struct.Struct('=iIQQQI4x')  # pid, world, generation, meeting, at_us, done
STAMPS = 4096

CASES = {'worker': 'a worker killed, 4 on one node', 'agent': 'an agent killed, 3 nodes of 4',
         'join': 'a second node joins', 'lone': 'a lone node of 1:2'}


def now_us():
    return time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6


class Board:
    """Where workers stamp that they run."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(dir='/dev/shm', prefix='ddp-bench-')
        self.file.truncate(HEAD.size + STAMPS * STAMP.size)
        self.memory = mmap.mmap(self.file.fileno(), 0)
        self.clear()

    def clear(self):
        """Forget what has been stamped."""
        self.memory[HEAD.size:] = bytes(STAMPS * STAMP.size)
        HEAD.pack_into(self.memory, 0, os.getpid(), 0, 0)

    def end(self):
        """All workers exit."""
        HEAD.pack_into(self.memory, 0, os.getpid(), 1, 0)

    def workers(self, world):
        """(pids, time of the last stamp) of the latest generation, once all @world ranks of it have stamped that they
        meet at one place; else None."""
        count = min(HEAD.unpack_from(self.memory)[2], STAMPS)
        stamps = [STAMP.unpack_from(self.memory, HEAD.size + i * STAMP.size) for i in range(count)]
        stamps = [stamp for stamp in stamps if stamp[5]]
        latest = max((stamp[2] for stamp in stamps), default=0)
        current = [stamp for stamp in stamps if stamp[2] == latest]
        if len(current) != world or any((stamp[1], stamp[3]) != (world, current[0][3]) for stamp in current):
            return None
        return [stamp[0] for stamp in current], max(stamp[4] for stamp in current)


class Job:
    """A job of torchrun; all of it ends with the block."""

    def __enter__(self):
        self.board, self.nodes = Board(), []
        with socket.create_server(('127.0.0.1', 0)) as free:
            self.endpoint = f'localhost:{free.getsockname()[1]}'
        return self

    def __exit__(self, *_):
        self.board.end()
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            try:
                node.wait(10)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()

    def start_node(self, nnodes):
        self.nodes.append(subprocess.Popen(
            [sys.executable, '-m', 'torch.distributed.run', f'--nnodes={nnodes}', f'--nproc-per-node={WORKERS}',
             '--max-restarts=1000', '--rdzv-backend=c10d', '--rdzv-id=perf', f'--rdzv-endpoint={self.endpoint}',
             '--no-python', 'ddp-bench-worker', self.board.file.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def await_workers(self, world, limit_s):
        """What Board.workers() returns; None when the time is over."""
        end_us = now_us() + limit_s * 1e6
        while now_us() < end_us:
            workers = self.board.workers(world)
            if workers:
                return workers
            time.sleep(0.001)
        return None

    def start(self, nodes, nnodes):
        for _ in range(nodes):
            self.start_node(nnodes)
        workers = self.await_workers(nodes * WORKERS, START_LIMIT_S)
        if workers is None:
            sys.exit(f'torchrun: {nodes * WORKERS} workers did not run within {START_LIMIT_S} s')
        return workers[0]

    def time_until_running(self, act, world, limit_s):
        """Milliseconds from before act() until @world workers run; None when they never do."""
        self.board.clear()
        begin_us = now_us()
        act()
        workers = self.await_workers(world, limit_s)
        return (workers[1] - begin_us) / 1e3 if workers else None


# ---- cases: some end the job, so each has one of its own -----------------------------------------

def run_worker(runs):
    with Job() as job:
        pids = job.start(1, '1:1')
        for run in range(runs):
            yield job.time_until_running(lambda: os.kill(pids[run % WORKERS], signal.SIGKILL), WORKERS, LIMIT_S)
            pids = (job.board.workers(WORKERS) or (pids,))[0]


def run_agent():
    with Job() as job:
        job.start(3, '2:3')
        yield job.time_until_running(job.nodes[2].kill, 2 * WORKERS, LOSS_LIMIT_S)  # the first has the store


def run_lone_and_join():
    with Job() as job:
        yield 'lone', job.time_until_running(lambda: job.start_node('1:2'), WORKERS, LIMIT_S)
        yield 'join', job.time_until_running(lambda: job.start_node('1:2'), 2 * WORKERS, LIMIT_S)


def percentile(times, percent):
    """Nearest rank, as ddp-bench takes it."""
    return sorted(times)[max(math.ceil(len(times) * percent / 100), 1) - 1] if times else 0


def report(case, seen, limit_s, figures):
    times = [ms for ms in seen if ms is not None]
    p50, p99, longest = (percentile(times, percent) for percent in (50, 99, 100))
    cells = (f'{p50:.1f}', f'{p99:.1f}', f'{longest:.1f}') if times else (f'never within {limit_s} s', '', '')
    print_row(CASES[case], 'torchrun', len(seen), *cells)
    figures.add(benchmark='restart', case=case, contender='torchrun', runs=len(times), lost=len(seen) - len(times),
                limit_ms=limit_s * 1000, p50_ms=round(p50, 3), p99_ms=round(p99, 3), max_ms=round(longest, 3))


def main():
    arguments = parse_arguments(__doc__, ('--slow-runs', int, 3, 'deaths of a worker; 0: measure nothing'))
    if arguments.slow_runs == 0:
        return
    figures = Figures(arguments.json)
    print_head('what', 'launcher', 'runs', 'p50', 'p99', 'max')
    report('worker', list(run_worker(arguments.slow_runs)), LIMIT_S, figures)
    report('agent', list(run_agent()), LOSS_LIMIT_S, figures)
    for case, ms in sorted(run_lone_and_join()):
        report(case, [ms], LIMIT_S, figures)


if __name__ == '__main__':
    main()
