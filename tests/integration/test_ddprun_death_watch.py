#!/usr/bin/env python3
"""test_ddprun_death_watch.py - the death of a worker that links the collectives library is detected
before the kernel has freed its memory, and a worker that writes to the shared page harms no other.
"""

import ctypes
import os
import platform
import re
import select
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, probe, wait_until

MIB = 64
KERNEL = tuple(int(number) for number in re.findall(r'\d+', platform.release())[:2])


def has_waitv():
    """Sandboxes may refuse what the kernel has."""
    futex_waitv = 449
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(futex_waitv, None, 0, 0, None, 0)
    return ctypes.get_errno() == 22


class Dying:
    """A killed process, one thread of which does not exit before bury(): the other threads have ended,
    but its memory still exists, and waitpid() does not report it. A tracer holds that thread."""

    SEIZE, DETACH, TRACE_EXIT, WALL = 0x4206, 17, 0x40, 0x40000000

    def __init__(self, pid):
        self.pid = pid
        self.tid = wait_until(self._idler, 'the thread that is to stay')
        self.pidfd = os.pidfd_open(pid)
        self._ptrace(self.SEIZE, self.TRACE_EXIT)

    def _idler(self):
        return next((int(task.name) for task in Path(f'/proc/{self.pid}/task').iterdir()
                     if (task / 'comm').read_text() == 'idler\n'), None)

    def _ptrace(self, request, data):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        if libc.ptrace(request, self.tid, None, data) != 0:
            raise unittest.SkipTest(f'a process may not be traced here (ptrace): {os.strerror(ctypes.get_errno())}')

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: os.waitpid(self.tid, os.WNOHANG | self.WALL)[0], 'the thread to exit')

    def is_buried(self):
        return bool(select.select([self.pidfd], [], [], 0)[0])

    def resident_kib(self):
        return int(re.search(r'VmRSS:\s+(\d+)',
                             Path(f'/proc/{self.pid}/task/{self.tid}/status').read_text())[1])

    def bury(self):
        if self.pidfd is None:
            return
        self._ptrace(self.DETACH, None)
        wait_until(self.is_buried, 'the burial')
        os.close(self.pidfd)
        self.pidfd = None


class Life(DdprunCase):
    def hold(self, mib, *words):
        job = self.start('--nproc-per-node=2', '--no-python', *words, probe('life'), 'hold', mib)
        job.read_until('ready', 2)
        job.pids = {int(rank): int(pid) for rank, pid
                    in re.findall(r'default(\d)\]:ready (\d+)', job.out)}
        return job

    @unittest.skipIf(KERNEL < (5, 17) or not has_waitv(),
                     'this kernel has no futex_waitv (Linux 5.17), or a sandbox refuses it')
    def test_the_others_are_told_before_it_is_buried(self):
        job = self.hold(MIB)
        dying = Dying(job.pids[0])
        self.addCleanup(dying.bury)
        dying.kill()
        job.read_until('told')
        self.assertFalse(dying.is_buried())
        self.assertGreater(dying.resident_kib(), MIB << 10)
        dying.bury()
        self.assertEqual(job.wait(), 137, job.err)
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
