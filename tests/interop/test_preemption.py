#!/usr/bin/env python3
"""test_preemption.py - a training with DataLoader workers is told to save, and each time there is a checkpoint.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless DDPRUN_INTEROP=1 makes that a
failure. With DDPRUN_TEST_WHOLE=1 each way to start the workers is preempted a hundred times.
"""

import os
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, kill_all
from sample import WHOLE
from skip import need_torch

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get('INTEROP_PYTHON', '')
PROGRAM = ROOT / 'tests/interop/programs/preempted.py'
TIMES = 100 if WHOLE else 1


class Preemption(DdprunCase):
    def preempted(self, method, *wrapper, everybody=False):
        """Twice it is told to save and go on, then to save and end."""
        folder = self.folder / 'checkpoints'
        folder.mkdir()
        job = self.start('--no-prefix', '--shutdown-timeout=1h', *wrapper, PROGRAM, method, folder,
                         env={'PYTHON_EXEC': PYTHON, 'PYTHONPATH': str(ROOT / 'python'), 'OMP_NUM_THREADS': '1'})
        for times, sig in enumerate((signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM), 1):
            job.read_until('trains', times)
            kill_all(job.running() if everybody else [job.pid], sig)
            job.read_until('saved', times)
        self.assertEqual(job.wait(), 143, job.err)
        saved = sorted(file.name for file in folder.iterdir())
        if everybody: # a notice to all processes comes once more from ddprun: it may be saved for twice
            self.assertLessEqual({f'checkpoint.{n}' for n in range(3)}, set(saved), job.err)
        else:
            self.assertEqual(saved, [f'checkpoint.{n}' for n in range(3)], job.err)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        job.wait_gone()

    def test_workers_that_are_forked(self):
        for _ in range(TIMES):
            self.preempted('fork')

    def test_workers_that_are_spawned(self):
        for _ in range(TIMES):
            self.preempted('spawn')

    def test_workers_of_a_forkserver(self):
        for _ in range(TIMES):
            self.preempted('forkserver')

    def test_a_training_behind_a_shell(self):
        shell = self.write('train.sh', f'#!/bin/sh\nexport SOME=thing\n{PYTHON} "$@"\n')
        for _ in range(TIMES):
            self.preempted('fork', '--no-python', shell)

    def test_workers_that_ignore_what_everybody_gets(self):
        """As from a scheduler that signals all processes."""
        self.preempted('ignore', everybody=True)


if __name__ == '__main__':
    need_torch(PYTHON)
    unittest.main(verbosity=2)
