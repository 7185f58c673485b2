#!/usr/bin/env python3
"""replicate.py [RUNS] - how long a job with --replicate takes to start, and to go on when the node dies whose store
leads. Three nodes in network namespaces (root), two workers each, beside a job without --replicate and torchrun. The
method is in docs/benchmarks/restart.md.
"""

import shutil
import signal
import statistics
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / 'interop'), str(TESTS / 'lib')]
from ddprun_run import ROOT, kill_all
from nodes import state_of
from proc_tree import descendants
from test_replicate import TRIO, ReplicateCase

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
BOUND_S = 45
TORCHRUN = ROOT / 'build' / 'venv' / 'bin' / 'torchrun'
STAMP = 'import os, sys, time\nprint("generation", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)\ntime.sleep(1000)\n'


def begun(generation):
    """When the last of its workers began."""
    return max(record.start for record in generation.ranks.values())


class Replicate(ReplicateCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.remove_folders)
        self.number = 0

    def row(self, what, seconds):
        print(f'| {what} | {len(seconds)} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |', flush=True)

    def one(self, *words, lease=5):
        """A new job: it, its first generation, and the seconds until that ran."""
        self.number += 1
        self.endpoint = ','.join(map(self.at, TRIO)) if '--replicate' in words else self.at('n1')
        job = self.cluster('2:3', *words, name=f'j{self.number}', lease=lease, at_least=1)
        at = time.monotonic_ns()
        generation = job.start_all(*TRIO)
        return job, generation, (begun(generation) - at) / 1e9

    def starts(self, what, *words):
        seconds = []
        for _ in range(RUNS):
            job, _, took = self.one(*words)
            seconds.append(took)
            job.end(*TRIO)
        self.row(what, seconds)

    def losses(self, what, lose):
        seconds = []
        for _ in range(RUNS):
            job, before, _ = self.one('--replicate')
            first = self.leader(job)
            others = [node for node in TRIO if node != first]
            at = time.monotonic_ns()
            lose(job, first)
            after = job.running(*others, after=before.number)
            seconds.append((begun(after) - at) / 1e9)
            self.wires.heal(first)
            for node in TRIO:
                job.agents[node].signal(signal.SIGKILL)
                job.agents[node].wait()
        self.row(what, seconds)

    def torchrun(self):
        """All processes of node 0 killed."""
        self.addCleanup(lambda: [shutil.rmtree(folder) for folder in self.tmp.glob('torchelastic_*')])
        script = self.folder / 'stamp.py'
        script.write_text(STAMP)
        endpoint = f'--rdzv-endpoint={self.wires.address_of("n1")}:29500'
        jobs = []
        for node in TRIO:
            words = self.wires.enter(node, [str(TORCHRUN), '--nnodes=2:3', '--nproc-per-node=2', '--max-restarts=3',
                                            '--rdzv-backend=c10d', '--rdzv-id=t', endpoint,
                                            f'--rdzv-conf=is_host={node == "n1"}',
                                            f'--local-addr={self.wires.address_of(node)}', str(script)])
            jobs.append(self.start(*words[1:], program=words[0]))
        for job in jobs:
            job.read_until('generation 0', 2)
        pids = [jobs[0].pid, *(process.pid for process in descendants(jobs[0].pid))]
        kill_all(pids, signal.SIGSTOP)
        kill_all(reversed(pids))
        until = time.monotonic() + BOUND_S
        while time.monotonic() < until and any(state_of(job.pid) not in 'ZX' for job in jobs[1:]):
            for job in jobs[1:]:
                job.collect(0.1)
        again = sum('generation 1' in job.out for job in jobs[1:])
        codes = [job.process.poll() for job in jobs[1:]]
        print(f'| node 0 killed, torchrun | 1 | {"it went on" if again else f"never within {BOUND_S} s"}; exit codes of '
              f'the others: {codes} | |', flush=True)
        for job in jobs:
            kill_all([job.pid, *(process.pid for process in descendants(job.pid))])
            job.wait()

    def test_all(self):
        print('\n| what | runs | median, s | max, s |\n|---|---|---|---|', flush=True)
        self.starts('a start of three nodes')
        self.starts('a start of three nodes, `--replicate`', '--replicate')
        self.losses('all processes of the leader\'s node killed', lambda job, node: job.kill_node(node))
        self.losses('the cable of the leader\'s node cut', lambda job, node: self.wires.cut(node))
        if TORCHRUN.exists():
            self.torchrun()


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
