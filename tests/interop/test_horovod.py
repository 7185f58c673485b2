#!/usr/bin/env python3
"""test_horovod.py - a program that imports the real Horovod, under ddprun: one node, two nodes, a restart.

$HOROVOD_PYTHON is a Python that has Horovod with PyTorch and gloo; scripts/setup horovod makes one in build/horovod,
which takes a quarter of an hour. Skipped (77) where there is none, unless DDPRUN_HOROVOD=1 demands it.
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase
from nodes import free_port
from skip import skip_program

PYTHON = os.environ.get('HOROVOD_PYTHON', '')
WORKER = Path(__file__).resolve().parent / 'horovod_worker.py'


class Horovod(DdprunCase):
    def setUp(self):
        super().setUp()
        self.env['PYTHON_EXEC'] = PYTHON

    def test_one_node(self):
        for size in (1, 4):
            job = self.run_job(f'--nproc-per-node={size}', '--no-prefix', WORKER)
            self.assert_succeeded(job)
            self.assertEqual(sorted(job.out.splitlines()), [f'{rank} {size} {rank} {size} 0 1 0' for rank in range(size)])

    def test_two_nodes_and_a_restart(self):
        endpoint = f'127.0.0.1:{free_port()}'
        nodes = [self.start('--nnodes=2', '--lease=10m', f'--node-rank={node}', '--nproc-per-node=2',
                            f'--rdzv-endpoint={endpoint}', '--rdzv-id=hvd', '--no-prefix', '--max-restarts=1', WORKER, 'fail')
                 for node in range(2)]
        for at, node in enumerate(nodes):
            self.assertEqual(node.wait(), 0, node.err)
            self.assertEqual(sorted(node.out.splitlines()),
                             [f'{2 * at + local} 4 {local} 2 {at} 2 1' for local in range(2)])

    def test_nodes_of_different_sizes(self):
        endpoint = f'127.0.0.1:{free_port()}'
        nodes = [self.start('--nnodes=2', '--lease=10m', f'--node-rank={node}', f'--nproc-per-node={node + 1}',
                            f'--rdzv-endpoint={endpoint}', '--rdzv-id=hvd', '--no-prefix', WORKER)
                 for node in range(2)]
        for at, node in enumerate(nodes):
            self.assertEqual(node.wait(), 0, node.err)
            self.assertEqual(sorted(node.out.splitlines()),
                             [f'{at + local} 3 {local} {at + 1} 0 1 0' for local in range(at + 1)])


if __name__ == '__main__':
    if not os.access(PYTHON, os.X_OK) or subprocess.run([PYTHON, '-c', 'import horovod.torch'], capture_output=True,
                                                        check=False).returncode != 0:
        skip_program(f"Horovod is missing: {PYTHON or 'HOROVOD_PYTHON'} cannot import it; 'scripts/setup horovod' "
                     'builds it', demanded_by='DDPRUN_HOROVOD')
    unittest.main()
