#!/usr/bin/env python3
"""test_ddprun_cgroup.py - where this system lets us divide our control group: workers are in one of
their own, whoever ends them kills all of it, and it is gone with the job.
"""

import os
import re
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, probe, wait_until


def own_group():
    """The directory of our own group of version 2, if we may make others in it."""
    line = re.search(r'^0::(/.*)$', Path('/proc/self/cgroup').read_text(), re.MULTILINE)
    mount = re.search(r'^\S+ \S+ \S+ / (\S+) .* - cgroup2 ',
                      Path('/proc/self/mountinfo').read_text(), re.MULTILINE)
    if not line or not mount:
        return None
    group = Path(mount.group(1) + line.group(1).rstrip('/'))
    try_out = group / f'ddprun-test-{os.getpid()}'
    try:
        try_out.mkdir()
        usable = (try_out / 'cgroup.kill').exists() and os.access(group / 'cgroup.procs', os.W_OK)
        try_out.rmdir()
    except OSError:
        return None
    return group if usable else None


class Cgroup(DdprunCase):
    def tree(self):
        job = self.start('--nproc-per-node=2', '--shutdown-timeout=0', probe('tree'), 'wait')
        job.read_until('ready', 2)
        job.leaders = [int(pid) for pid in re.findall(r'ready (\d+)', job.out)]
        job.group = OWN / f'ddprun-{job.pid}'
        return job

    def check(self, kill, code):
        job = self.tree()
        inside = [int(pid) for pid in (job.group / 'cgroup.procs').read_text().split()]
        self.assertLessEqual(set(job.leaders), set(inside))
        self.assertNotIn(job.agent(), inside)
        self.assertNotIn(job.pid, inside)
        kill(job)
        self.assertEqual(job.wait(), code, job.err)
        wait_until(lambda: not job.group.exists(), 'the group is gone')

    def test_a_worker_is_killed(self):
        self.check(lambda job: os.kill(job.leaders[0], signal.SIGKILL), 137)

    def test_the_agent_is_killed(self):
        self.check(lambda job: os.kill(job.agent(), signal.SIGKILL), 137)

    def test_the_guard_is_killed(self):
        self.check(lambda job: os.kill(job.pid, signal.SIGKILL), -9)

    def test_nothing_is_left_when_all_is_well(self):
        job = self.start('--nproc-per-node=2', '--no-python', '/bin/true')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertFalse((OWN / f'ddprun-{job.pid}').exists())


if __name__ == '__main__':
    OWN = own_group()
    if OWN is None:
        print('skipped: no cgroup v2 is ours to divide here')
        sys.exit(77)
    unittest.main()
