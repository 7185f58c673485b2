#!/usr/bin/env python3
"""test_segments.py - shared memory of Python's and PyTorch's helpers: nothing of it is left after failures.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless DDPRUN_INTEROP=1 makes that a
failure. With DDPRUN_TEST_WHOLE=1 there are 50 restarts, else one.
"""

import os
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase
from sample import WHOLE
from skip import need_torch

PYTHON = os.environ.get('INTEROP_PYTHON', '')
PROGRAM = Path(__file__).resolve().parent / 'programs/segments.py'
RESTARTS = 50 if WHOLE else 1
SEGMENTS = Path('/dev/shm')


class Segments(DdprunCase):
    def test_none_is_left(self):
        prefix = self.folder.name
        job = self.run_job('--nproc-per-node=2', f'--max-restarts={RESTARTS}', '--crash-loop=0', '--no-prefix', PROGRAM,
                           prefix, RESTARTS, env={'PYTHON_EXEC': PYTHON, 'OMP_NUM_THREADS': '1'})
        self.assert_succeeded(job)
        made = [line.split('/')[-1] for line in job.out.splitlines() if line.startswith('segment ')]
        self.assertEqual(len(made), 2 * (RESTARTS + 1), job.out)
        self.assertEqual([name for name in os.listdir(SEGMENTS) if name in made or name.startswith(prefix)], [])


if __name__ == '__main__':
    need_torch(PYTHON)
    unittest.main(verbosity=2)
