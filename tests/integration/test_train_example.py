#!/usr/bin/env python3
"""test_train_example.py - examples/train.c, which README shows: all ranks find the line, with and without a launcher."""

import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase

TRAIN = Path(DDPRUN).resolve().parents[1] / 'examples' / 'train'
LINE = 'y = 3.000 x + 1.000'


class Train(DdprunCase):
    def test_every_rank_finds_the_line(self):
        for ranks in (1, 4):
            job = self.run_job(f'--nproc-per-node={ranks}', '--no-prefix', TRAIN)
            self.assert_succeeded(job)
            self.assertEqual(sorted(job.out.splitlines()), [f'rank {rank}: {LINE}' for rank in range(ranks)])

    def test_without_a_launcher(self):
        done = subprocess.run([TRAIN], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, f'rank 0: {LINE}\n')


if __name__ == '__main__':
    unittest.main()
