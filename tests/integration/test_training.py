#!/usr/bin/env python3
"""test_training.py - the demonstration at full size: it learns, with any number of workers the same.

Three epochs over all of Fashion-MNIST under ddprun, with 1, 2 and 4 workers at the same global batch.
Skipped (77) where the data set is not installed, and with sanitizers, where it takes minutes;
test_fashion_mnist.c trains on a part of it there.
"""

import os
import subprocess
import sys
import tempfile
import unittest

DDPRUN = os.environ.get('DDPRUN', '')
EXAMPLE = os.environ.get('FASHION_MNIST', '')
DATA = '/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz'
ROUNDING = 1e-6  # of a float, relative
GOAL = 86.0      # percent


def train(workers, folder):
    """Test accuracy in percent, and the loss of every step."""
    log = os.path.join(folder, f'losses-{workers}')
    done = subprocess.run([DDPRUN, f'--nproc-per-node={workers}', '--no-prefix', EXAMPLE,
                           f'--loss-log={log}'],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f'{workers} workers: exit code {done.returncode}\n{done.stderr}')
    last = done.stdout.splitlines()[-1].split()
    assert last[:2] == ['test', 'accuracy'], done.stdout
    with open(log, encoding='utf-8') as lines:
        return float(last[2]), [float(line.split()[1]) for line in lines]


class Training(unittest.TestCase):
    def test_it_learns_the_same_with_1_2_and_4_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            results = {workers: train(workers, folder) for workers in (1, 2, 4)}
        alone = results[1][1]
        self.assertGreater(len(alone), 1000)
        for workers, (accuracy, losses) in results.items():
            with self.subTest(workers=workers):
                self.assertGreaterEqual(accuracy, GOAL)
                self.assertEqual(len(losses), len(alone))
                worst = max(abs(a - b) / b for a, b in zip(losses, alone))
                self.assertLess(worst, ROUNDING)


if __name__ == '__main__':
    if not os.path.exists(DATA):
        print('the images of Fashion-MNIST are missing (Debian package dataset-fashion-mnist)')
        sys.exit(77)
    unittest.main()
