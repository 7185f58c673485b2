#!/usr/bin/env python3
"""test_ddprun_life.py - a worker that links the collectives library is seen to die before the
kernel has taken its memory apart, and nothing that a worker does to the page by which that is seen
harms anybody else.
"""

import ctypes
import os
import platform
import re
import select
import signal
import sys
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, probe

MIB = 1024
KERNEL = tuple(int(number) for number in re.findall(r'\d+', platform.release())[:2])


def has_waitv():
    """Sandboxes may refuse what the kernel has."""
    futex_waitv = 449
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(futex_waitv, None, 0, 0, None, 0)
    return ctypes.get_errno() == 22


class Buried(threading.Thread):
    """Notes when its parent could wait for a process."""

    def __init__(self, pid):
        super().__init__()
        self.pidfd = os.pidfd_open(pid)
        self.ns = None
        self.start()

    def run(self):
        select.select([self.pidfd], [], [])
        self.ns = time.monotonic_ns()
        os.close(self.pidfd)


class Life(DdprunCase):
    def hold(self, mib, *words):
        job = self.start('--nproc-per-node=2', '--no-python', *words, probe('life'), 'hold', mib)
        job.read_until('ready', 2)
        job.pids = {int(rank): int(pid) for rank, pid
                    in re.findall(r'default(\d)\]:ready (\d+)', job.out)}
        return job

    @unittest.skipIf(KERNEL < (5, 17) or not has_waitv(), 'needs Linux 5.17 and futex_waitv')
    def test_the_others_are_told_before_it_is_buried(self):
        job = self.hold(MIB)
        buried = Buried(job.pids[0])
        killed = time.monotonic_ns()
        os.kill(job.pids[0], signal.SIGKILL)
        self.assertEqual(job.wait(), 137, job.err)
        buried.join()
        told = int(re.search(r'told (\d+)', job.out).group(1))
        print(f'\n  {MIB} MiB: told after {(told - killed) / 1e6:.2f} ms, '
              f'buried after {(buried.ns - killed) / 1e6:.2f} ms', file=sys.stderr)
        self.assertLess(killed, told)
        self.assertLess(told, buried.ns)
        # What is said of it is what is true of it in the end.
        self.assertIn('SIGKILL', job.err)
        self.assertRegex(job.err, r'rank 0\b')

    def test_it_starts_again(self):
        job = self.hold(16, '--max-restarts=1')
        os.kill(job.pids[0], signal.SIGKILL)
        job.read_until('ready', 4)
        second = [int(pid) for pid in re.findall(r'ready (\d+)', job.out)][2:]
        os.kill(second[0], signal.SIGKILL)
        self.assertEqual(job.wait(), 137, job.err)

    def test_exits_are_what_they_are(self):
        for words, code in ((['leave'], 0), (['hold', '0', '0'], 0), (['hold', '0', '3'], 3)):
            job = self.start('--nproc-per-node=2', '--no-python', probe('life'), *words)
            self.assertEqual(job.wait(), code, job.err)

    def test_a_page_of_rubbish_harms_nobody(self):
        for code in (0, 5):
            job = self.start('--nproc-per-node=3', '--no-python', probe('life'), 'scribble', code)
            self.assertEqual(job.wait(), code, job.err)


if __name__ == '__main__':
    unittest.main()
