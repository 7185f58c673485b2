#!/usr/bin/env python3
"""test_torchrun.py - PyTorch's own torchrun agents meet in ddprund.

Two agents of one worker each, with the c10d backend and is_host=0: their whole rendezvous goes
through PyTorch's TCPStore client to ddprund. And ranks of libddpcomm, which torchrun starts, meet in
its store, or at MASTER_ADDR where it has none for them. $INTEROP_PYTHON is the Python that has PyTorch; skipped
(77) where there is none, unless DDPRUN_INTEROP=1 makes that a failure.
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from skip import need_torch

DDPRUND = os.environ.get('DDPRUND', '')
PYTHON = os.environ.get('INTEROP_PYTHON', '')
ALLREDUCE = os.environ.get('ALLREDUCE', '')
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'torch_worker.py')


class Torchrun(unittest.TestCase):
    def setUp(self):
        self.daemon = subprocess.Popen([DDPRUND, '--listen=127.0.0.1:0'], text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(self.stop)
        line = self.daemon.stdout.readline()
        self.assertRegex(line, r'^listening on 127\.0\.0\.1:\d+\n$')
        self.endpoint = line.split()[-1]

    def stop(self):
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.daemon.stdout.close()

    def agent(self, *words):
        return subprocess.Popen(
            [PYTHON, '-m', 'torch.distributed.run', '--nnodes=2', '--nproc-per-node=1',
             '--rdzv-backend=c10d', '--rdzv-id=job', f'--rdzv-endpoint={self.endpoint}',
             '--rdzv-conf=is_host=0', '--local-addr=127.0.0.1', *words, WORKER],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_two_agents_meet(self):
        agents = [self.agent(), self.agent()]
        results = [agent.communicate() for agent in agents]
        for agent, (_, errors) in zip(agents, results):
            self.assertEqual(agent.returncode, 0, errors)
        self.assertEqual(sorted(line for output, _ in results for line in output.splitlines()),
                         ['rank 0 of 2, attempt 0: 3.0', 'rank 1 of 2, attempt 0: 3.0'])


class Ranks(unittest.TestCase):
    def run_ranks(self, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith('DDPRUN_')}
        done = subprocess.run(
            [PYTHON, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=3', '--no-python', ALLREDUCE],
            env=environment | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), [f'rank {rank} of 3: the sum is 6' for rank in range(3)])

    def test_ranks_meet_in_the_store_of_the_agent(self):
        self.run_ranks()

    def test_ranks_meet_without_a_store(self):
        self.run_ranks(TORCH_DISABLE_SHARE_RDZV_TCP_STORE='1')


if __name__ == '__main__':
    need_torch(PYTHON)
    unittest.main()
