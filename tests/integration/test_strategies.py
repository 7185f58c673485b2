#!/usr/bin/env python3
"""test_strategies.py - the examples that divide the model among ranks, or round it, train as the plain program does.

Every loss of a run on generated images is compared with that of fashion_mnist with one worker.
"""

import functools
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

DDPRUN = os.environ['DDPRUN']
EXAMPLES = Path(os.environ['DDPRUN_EXAMPLES'])
ROUNDING = 1e-5   # relative: sums of floats in another order
HALF_ROUNDING = 0.02
SMALL = 0.1       # a loss is the difference of scores of about 10; below this the error does not shrink with it
EXIT_CONFIG = 78  # of a program that was started with a wrong number of ranks
IMAGES, EPOCHS = 1000, 2

# The learning rate for each size of batch. 7 cuts into micro-batches of one image and of two, on 8 ranks also of none,
# and leaves a last batch of 6. At a higher rate so small a batch makes the losses jump, and rounding grows with them.
RATES = {64: 0.1, 7: 0.01}


def ddprun(name, ranks, *words):
    return subprocess.run([DDPRUN, f'--nproc-per-node={ranks}', '--no-prefix', EXAMPLES / name, '--synthetic',
                           f'--limit={IMAGES}', f'--epochs={EPOCHS}', *words],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)


@functools.cache
def train(name, ranks, batch):
    """The last line of output, which is the test accuracy, and the loss of every step."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / 'losses'
        done = ddprun(name, ranks, f'--batch={batch}', f'--lr={RATES[batch]}', f'--loss-log={log}')
        if done.returncode != 0:
            raise AssertionError(f'{name}, {ranks} ranks: exit code {done.returncode}\n{done.stderr}')
        losses = [float(line.split()[1]) for line in log.read_text(encoding='utf-8').splitlines()]
        return done.stdout.splitlines()[-1], losses


class Strategies(unittest.TestCase):
    def trains_as_the_plain_program(self, name, ranks, batches=tuple(RATES)):
        for batch in batches:
            with self.subTest(ranks=ranks, batch=batch):
                plain_accuracy, plain = train('fashion_mnist', 1, batch)
                accuracy, losses = train(name, ranks, batch)
                self.assertEqual(len(losses), EPOCHS * -(-IMAGES // batch))
                self.assertEqual(len(losses), len(plain))
                worst = max(abs(a - b) / max(b, SMALL) for a, b in zip(losses, plain))
                self.assertLess(worst, ROUNDING)
                self.assertEqual(accuracy, plain_accuracy)

    def is_refused(self, name, ranks, sentence):
        done = ddprun(name, ranks)
        self.assertIn(sentence, done.stderr)
        self.assertIn(f'exit code {EXIT_CONFIG}', done.stderr)

    def test_pipeline(self):
        self.trains_as_the_plain_program('pipeline', 2)

    def test_tensor_parallel(self):
        self.trains_as_the_plain_program('tensor_parallel', 2)
        for ranks in (1, 3):
            self.trains_as_the_plain_program('tensor_parallel', ranks, (64,))

    def test_hybrid(self):
        self.trains_as_the_plain_program('hybrid', 4)
        self.trains_as_the_plain_program('hybrid', 8)

    @unittest.skipUnless((EXAMPLES / 'half_precision').exists(), 'the C compiler has no _Float16')
    def test_half_precision(self):
        """Rounded to 11 bits, but near."""
        plain_accuracy, plain = train('fashion_mnist', 1, 64)
        for ranks in (1, 3):
            accuracy, losses = train('half_precision', ranks, 64)
            self.assertEqual(len(losses), len(plain))
            self.assertLess(max(abs(a - b) / max(b, SMALL) for a, b in zip(losses, plain)), HALF_ROUNDING)
            self.assertEqual(accuracy, plain_accuracy)
            self.assertNotEqual(losses, plain)

    def test_wrong_numbers_of_ranks(self):
        self.is_refused('pipeline', 3, 'the pipeline has 2 stages, and there are 3 ranks: start 2')
        self.is_refused('hybrid', 6, 'a replica of the model takes 4 ranks (2 stages of 2), and there are 6: '
                                     'start a multiple of 4')


if __name__ == '__main__':
    unittest.main()
