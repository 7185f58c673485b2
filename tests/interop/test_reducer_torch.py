#!/usr/bin/env python3
"""test_reducer_torch.py - a reducer beside PyTorch's DistributedDataParallel: the same buckets, and the same losses with each
option that changes the arithmetic, over 200 steps (a sample: 100).

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless
DDPRUN_INTEROP=1 makes that a failure.
"""

import os
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, DdprunCase
from sample import whole_only
from skip import need_torch

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get('INTEROP_PYTHON', '')
CASES = {'plain', 'views', 'small_buckets', 'accumulate', 'unused', 'unused_views', 'static_graph', 'fp16', 'join_initial',
         'join_active'}


class Reducer(DdprunCase):
    def setUp(self):
        super().setUp()
        self.env['PYTHONPATH'] = str(ROOT / 'python')
        self.env['DDPRUN_LIBRARY_PATH'] = os.path.dirname(os.environ['LIBDDPCOMM'])
        self.env['PYTHONDONTWRITEBYTECODE'] = '1'
        self.env['TORCHINDUCTOR_CACHE_DIR'] = str(self.folder / 'inductor')

    def test_buckets_are_those_of_pytorch(self):
        job = self.run_job(PYTHON, HERE / 'reducer_buckets.py')
        self.assert_succeeded(job)
        self.assertIn('equal', job.out)

    def train(self, ranks, cases):
        job = self.run_job(f'--nproc-per-node={ranks}', PYTHON, HERE / 'reducer_training.py', 'all')
        self.assert_succeeded(job)
        seen = {line.split(': ')[1] for line in job.out.splitlines() if ': largest difference ' in line}
        self.assertEqual(seen, cases)

    def test_losses_of_two_ranks(self):
        self.train(2, CASES | {'power_sgd', 'power_sgd_exact'})

    @whole_only
    def test_losses_of_four_ranks(self):
        self.train(4, CASES)


if __name__ == '__main__':
    need_torch(PYTHON)
    unittest.main(verbosity=2)
