#!/usr/bin/env python3
"""test_training_cuda.py - the demonstration on GPUs follows the one on the processor.

With HOST_CUDA, the folder of a driver that runs on the host, FASHION_MNIST_CUDA is the example
compiled for that, and a few thousand images, made-up ones if need be, have to do. Without it the
program is nvcc's, and trains on all of Fashion-MNIST:

    DDPRUN=build/bin/ddprun FASHION_MNIST=build/examples/fashion_mnist \\
    FASHION_MNIST_CUDA=build/examples/fashion_mnist_cuda tests/integration/test_training_cuda.py

Skipped (77) where that says that there is no GPU, or the data set is missing.
"""

import os
import subprocess
import sys
import tempfile
import unittest

DDPRUN, PROCESSOR, CUDA = (os.environ[name] for name in
                           ('DDPRUN', 'FASHION_MNIST', 'FASHION_MNIST_CUDA'))
HOST_CUDA = os.environ.get('HOST_CUDA')
DATA = '/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz'
# The last batch is shorter, and the one of one image leaves nothing to do for all ranks but one.
WHAT = ['--epochs=2', '--batch=60', '--limit=601'] if HOST_CUDA else []
if not os.path.exists(DATA):
    WHAT.append('--synthetic')
# How far losses may be apart, of 1 and what is more: between numbers of workers, whose sums are
# doubles; and between kernels and processor, which round each image differently, and it adds up.
ROUNDING = 1e-6
KERNELS = 1e-4
GOAL = 86.0       # percent, of the whole data set
UNAVAILABLE = 69


def environment(**settings):
    where = {'LD_LIBRARY_PATH': HOST_CUDA} if HOST_CUDA else {}
    return {**os.environ, **where, **settings}


def launch(workers):
    return [DDPRUN, f'--nproc-per-node={workers}', '--no-prefix']


def train(*command, **settings):
    """What is printed, test accuracy in percent, and the loss of every step."""
    with tempfile.NamedTemporaryFile('r', encoding='utf-8') as log:
        done = subprocess.run([*command, *WHAT, f'--loss-log={log.name}'],
                              env=environment(**settings), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f'{command}: exit code {done.returncode}\n{done.stderr}')
        print(' '.join(command), done.stdout, sep='\n')
        last = done.stdout.splitlines()[-1].split()
        assert last[:2] == ['test', 'accuracy'], done.stdout
        return float(last[2]), [float(line.split()[1]) for line in log]


class TrainingOnGpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.alone = train(CUDA)

    def same(self, run, expected, tolerance):
        (accuracy, losses), (expected_accuracy, expected_losses) = run, expected
        self.assertEqual(len(losses), len(expected_losses))
        worst = max(abs(a - b) / max(b, 1.0) for a, b in zip(losses, expected_losses))
        print(f'losses differ by {worst:.1e}')
        self.assertLess(worst, tolerance)
        self.assertAlmostEqual(accuracy, expected_accuracy, delta=0.05)

    def test_processes(self):
        for workers in (2, 4):
            with self.subTest(workers=workers):
                self.same(train(*launch(workers), CUDA), self.alone, ROUNDING)

    def test_threads(self):
        self.same(train(CUDA, '--threads=3'), self.alone, ROUNDING)

    @unittest.skipUnless(HOST_CUDA, 'a test with the simulated driver only: a real machine has the GPUs that it has')
    def test_two_gpus(self):
        two = {'DDP_HOST_CUDA_DEVICES': '2'}
        self.same(train(*launch(3), CUDA, **two), self.alone, ROUNDING)
        self.same(train(CUDA, '--threads=2', **two), self.alone, ROUNDING)

    @unittest.skipUnless(HOST_CUDA, 'a test with the simulated driver only: a real GPU takes the time that it takes')
    def test_streams_that_dawdle(self):
        self.same(train(*launch(2), CUDA, DDP_HOST_CUDA_DELAY_US='300'), self.alone, ROUNDING)

    @unittest.skipUnless(HOST_CUDA, 'a test with the simulated driver only: elsewhere small differences grow')
    def test_as_on_the_processor(self):
        self.same(self.alone, train(PROCESSOR), KERNELS)

    @unittest.skipIf(HOST_CUDA, 'this machine has no GPU, and the few images of the simulated driver are not enough')
    def test_it_learns(self):
        self.assertGreaterEqual(self.alone[0], GOAL)


class WithoutGpu(unittest.TestCase):
    def refused(self, *words, **settings):
        done = subprocess.run([CUDA, *words], env={**os.environ, **settings},
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, UNAVAILABLE, done.stderr)
        self.assertRegex(done.stderr, r'^fashion_mnist_cuda: no GPU can be used here: [^\n]+\n$')
        return done.stderr

    @unittest.skipUnless(HOST_CUDA, 'a test with the simulated driver only: this machine has a GPU')
    def test_it_says_so(self):
        for words in (['--probe'], ['--synthetic'], ['--threads=2', '--synthetic']):
            with self.subTest(words=words):
                none = {'LD_LIBRARY_PATH': HOST_CUDA, 'DDP_HOST_CUDA_DEVICES': '0'}
                self.assertIn('no CUDA-capable device', self.refused(*words, **none))


if __name__ == '__main__':
    if not HOST_CUDA:
        probe = subprocess.run([CUDA, '--probe'], capture_output=True, text=True)
        if probe.returncode == UNAVAILABLE:
            print(f'this machine has no GPU: {probe.stderr.strip()}')
            sys.exit(77)
        if not os.path.exists(DATA):
            print('the images of Fashion-MNIST are missing (Debian package dataset-fashion-mnist)')
            sys.exit(77)
    unittest.main()
