#!/usr/bin/env python3
"""test_tutorial.py - the commands of docs/tutorial.md, and what it does between them: a worker is killed, a node leaves and
comes back. The losses are those of a run that nothing happened to.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless DDPRUN_INTEROP=1 makes that a
failure.
"""

import os
import re
import signal
import socket
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, ROOT, wait_until
from ddprund_run import DdprundCase
from documents import block
from nodes import free_port
from skip import need_torch

PYTHON = os.environ.get('INTEROP_PYTHON', '')
ENDLESS = ' --pause=0.03 --steps=1000000000'
LOSS = re.compile(r'step (\d+): loss ([\d.]+)')


def is_served(port):
    with socket.socket() as client:
        return client.connect_ex(('127.0.0.1', port)) == 0


class Tutorial(DdprundCase):
    def setUp(self):
        super().setUp()
        self.env.update(PYTHON_EXEC=PYTHON, TORCHINDUCTOR_CACHE_DIR=str(self.folder / 'inductor'),
                        PATH=f'{os.path.dirname(DDPRUN)}:{self.env["PATH"]}')

    def type(self, line, **env):
        return self.start('-c', f'exec {line}', program='sh', cwd=ROOT / 'examples/pytorch', env=env)

    def await_line(self, job, pattern):
        """What @pattern has in parentheses, of the first line that has it; what came before is forgotten."""
        job.collect_until(lambda: re.search(pattern, job.out), pattern)
        found = re.search(pattern, job.out)
        job.pipes[job.out_fd][1][:] = job.out[found.end():].encode()
        return found.groups()

    def end(self, job, by=signal.SIGTERM):
        job.signal(by)
        self.assertEqual(job.wait(), 128 + by, job.err)

    def losses_until(self, job, step):
        """By step, up to one behind @step."""
        job.collect_until(lambda: max((int(found[1]) for found in LOSS.finditer(job.out)), default=0) > step, 'more steps')
        return {int(found[1]): float(found[2]) for found in LOSS.finditer(job.out)}

    def assert_same(self, losses, undisturbed):
        """As sums are made in another order, to some digits."""
        both = losses.keys() & undisturbed.keys()
        self.assertTrue(both, (losses, undisturbed))
        for step in both:
            self.assertAlmostEqual(losses[step], undisturbed[step], delta=1e-3)

    def test_what_the_tutorial_does(self):
        job = self.type(f'ddprun elastic.py --checkpoints={self.home}/undisturbed --pause=0 --steps=3000')
        self.assertEqual(job.wait(), 0, job.err)
        undisturbed = {int(found[1]): float(found[2]) for found in LOSS.finditer(job.out)}
        self.kill_a_worker(undisturbed)
        self.lose_a_node(undisturbed)

    def kill_a_worker(self, undisturbed):
        job = self.type(block('docs/tutorial.md', 'ddprun --nproc-per-node=2').strip() + ENDLESS)
        pid, = self.await_line(job, r'rank 1 of 2 is process (\d+); it begins at step 0\n')
        saved, = self.await_line(job, r'step (\d+): loss .*, 2 workers\n')
        os.kill(int(pid), signal.SIGKILL)
        first, = self.await_line(job, r'rank 0 of 2 is process \d+; it begins at step (\d+)\n')
        self.assertGreaterEqual(int(first), int(saved))
        self.assertIn('rank 1 failed first: killed by SIGKILL', job.err)
        self.assert_same(self.losses_until(job, int(first)), undisturbed)
        self.end(job)

    def lose_a_node(self, undisturbed):
        port = free_port()
        text = block('docs/tutorial.md', 'node1$ ddprun').replace('node1:29400', f'localhost:{port}')
        node1, node2 = (line.partition('$ ')[2] + ENDLESS for line in text.splitlines() if line)
        # Here both have one name, by which they would be ordered.
        stays = self.type(node1, PET_NODE_RANK=0)
        wait_until(lambda: is_served(port), 'the store, which the first node hosts')
        leaves = self.type(node2, PET_NODE_RANK=1)
        self.await_line(stays, r'rank 0 of (2) is process')
        saved, = self.await_line(stays, r'step (\d+): loss .*, 2 workers\n')
        self.end(leaves, signal.SIGINT)
        first, = self.await_line(stays, r'rank 0 of 1 is process \d+; it begins at step (\d+)\n')
        self.assertGreaterEqual(int(first), int(saved))
        self.assert_same(self.losses_until(stays, int(first)), undisturbed)
        comes = self.type(node2, PET_NODE_RANK=1)
        self.await_line(comes, r'rank 1 of (2) is process')
        self.end(comes, signal.SIGINT)
        self.end(stays)


if __name__ == '__main__':
    need_torch(PYTHON)
    unittest.main()
