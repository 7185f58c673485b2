#!/usr/bin/env python3
"""test_ddprun_torch.py - an unmodified PyTorch script under ddprun, whose ranks meet in its store.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless
DDPRUN_INTEROP=1 makes that a failure.
"""

import os
import subprocess
import sys
import unittest

DDPRUN = os.environ.get('DDPRUN', '')
PYTHON = os.environ.get('INTEROP_PYTHON', '')
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'torch_worker.py')
WORKERS = 3


def run(*words, options=(), **env):
    return subprocess.run([DDPRUN, f'--nproc-per-node={WORKERS}', '--no-prefix', *options, WORKER,
                           *words],
                          env=dict(os.environ, PYTHON_EXEC=PYTHON, **env),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def lines(attempt):
    return [f'rank {rank} of {WORKERS}, attempt {attempt}: 6.0' for rank in range(WORKERS)]


class Torch(unittest.TestCase):
    def test_ranks_meet_in_the_store(self):
        done = run()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), lines(0))

    def test_a_restart_finds_no_key_of_the_attempt_before(self):
        done = run('fail', options=['--max-restarts=1'])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(lines(0) + lines(1)))
        self.assertIn('rank 1 failed first: exit code 1', done.stderr)
        self.assertIn('RuntimeError: once', done.stderr)

    def test_rank_0_can_host_its_own(self):
        done = run('fail', options=['--max-restarts=1'], TORCH_DISABLE_SHARE_RDZV_TCP_STORE='1')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(lines(0) + lines(1)))


if __name__ == '__main__':
    if not os.access(PYTHON, os.X_OK):
        print(f'there is no PyTorch: {PYTHON or "INTEROP_PYTHON"} does not exist; '
              'run scripts/setup interop')
        sys.exit(1 if os.environ.get('DDPRUN_INTEROP') == '1' else 77)
    unittest.main()
