#!/usr/bin/env python3
"""test_ddprun_cgroup.py - with a delegated control group: workers are in a group of their own, agent
or guard kill all of it, and it is removed with the job.
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
    """The directory of our own group of version 2."""
    line = re.search(r'^0::(/.*)$', Path('/proc/self/cgroup').read_text(), re.MULTILINE)
    mount = re.search(r'^\S+ \S+ \S+ / (\S+) .* - cgroup2 ',
                      Path('/proc/self/mountinfo').read_text(), re.MULTILINE)
    return Path(mount.group(1) + line.group(1).rstrip('/')) if line and mount else None


def delegated_group():
    """Make a group below our own, marked as systemd marks those that it hands over; None: we may not."""
    above = own_group()
    if above is None:
        return None
    group = above / f'test-{os.getpid()}'
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        os.setxattr(group, 'user.delegate', b'1')
        if (group / 'cgroup.kill').exists() and os.access(above / 'cgroup.procs', os.W_OK):
            return group
    except OSError:
        pass
    group.rmdir()
    return None


class Cgroup(DdprunCase):
    @classmethod
    def setUpClass(cls):
        (OWN / 'cgroup.procs').write_text('0')  # what we start is there, too
        cls.addClassCleanup(OWN.rmdir)
        cls.addClassCleanup((OWN.parent / 'cgroup.procs').write_text, '0')

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

    def test_a_group_that_was_not_handed_over_is_left_alone(self):
        os.removexattr(OWN, 'user.delegate')
        try:
            job = self.tree()
            self.assertFalse(job.group.exists())
        finally:
            os.setxattr(OWN, 'user.delegate', b'1')
        os.kill(job.pid, signal.SIGTERM)
        job.wait()


if __name__ == '__main__':
    OWN = delegated_group()
    if OWN is None:
        print('a control group may not be divided here: that takes root, cgroup v2 and cgroup.kill (Linux 5.14)')
        sys.exit(77)
    unittest.main()
