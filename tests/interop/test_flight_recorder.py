#!/usr/bin/env python3
"""test_flight_recorder.py - PyTorch's own analyser reads what ddpctl dump has written, and blames the
right rank.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless
DDPRUN_INTEROP=1 makes that a failure.
"""

import json
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import probe, wait_until
from ddprund_run import DdprundCase
from skip import need_torch, skip_program

PYTHON = os.environ.get('INTEROP_PYTHON', '')


class Analyser(DdprundCase):
    def dump(self, mode, odd):
        """A directory of dumps of a job that hangs."""
        job = self.start('--nproc-per-node=4', '--no-python', 'sh', '-c', 'echo store $DDPRUN_STORE; exec "$@"', '-',
                         probe('flight'), mode, odd)
        self.addCleanup(self.end, job)
        job.read_until('last call', 4)
        store = job.out.split('store ', 1)[1].split()[0]
        folder = self.folder / 'dump'

        def halted():
            code, out, _ = self.ctl(store, '--json', '--timeout=2s', f'--output={folder}', verb='dump')
            world = json.loads(out)['communicators'][0] if code == 0 else {}
            return world.get('verdict') == mode and world['number'] == 3
        wait_until(halted, 'all ranks to be there')
        return folder

    @staticmethod
    def end(job):
        job.insist(signal.SIGTERM)
        job.wait()
        job.wait_gone()

    def analyse(self, folder):
        done = subprocess.run([PYTHON, '-m', 'torch.distributed.flight_recorder.fr_trace', str(folder)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    def test_a_rank_that_does_not_call(self):
        text = self.analyse(self.dump('behind', 3))
        self.assertIn('Not all ranks joining collective, sequence number: 3', text)
        self.assertIn('missing ranks: {3}', text)
        self.assertIn('collective: nccl:all_reduce', text)

    def test_a_rank_that_calls_something_else(self):
        text = self.analyse(self.dump('differ', 3))
        # Which of the two calls it expects depends on the rank whose dump it reads first.
        self.assertIn('Error type: COLLECTIVE_TYPE_MISMATCH', text)
        self.assertIn("collective type: 'all_reduce'", text)
        self.assertIn("collective type: 'broadcast'", text)


if __name__ == '__main__':
    need_torch(PYTHON)
    if subprocess.run([PYTHON, '-c', 'import torch.distributed.flight_recorder'], capture_output=True,
                      check=False).returncode != 0:
        skip_program('this PyTorch has no analyser of flight recorders')
    unittest.main()
