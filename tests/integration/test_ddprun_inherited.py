#!/usr/bin/env python3
"""test_ddprun_inherited.py - odd states and tight limits that ddprun inherits."""

import os
import re
import resource
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase, SANITIZED, probe
from strangers import needs_strangers, reachable


def limit(what, value):
    return lambda: resource.setrlimit(what, (value, value))


class Signals(DdprunCase):
    def test_children_that_are_not_waited_for(self):
        def ignore_children():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for code in (0, 7):
            job = self.run_job('--nproc-per-node=3', '--no-prefix', 'sh', '-c',
                               f'{probe("state")}; exit {code}', preexec_fn=ignore_children)
            self.assertEqual(job.code, code, job.err)
            self.assertIn('ignored\n', job.out)

    def test_everything_blocked(self):
        def block_all():
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        job = self.start('--nproc-per-node=2', probe('signals'), preexec_fn=block_all)
        job.read_until('ready', 2)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.err)

    def test_everything_ignored(self):
        def ignore_all():
            for sig in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(sig, signal.SIG_IGN)
        job = self.run_job('--no-prefix', probe('state'), preexec_fn=ignore_all)
        self.assertEqual(job.code, 0, job.err)
        self.assertIn('ignored\n', job.out)


class Limits(DdprunCase):
    def test_of_descriptors(self):
        """Whatever the number, it works or it is said; and it works from some number on."""
        worked = []
        for number in [*range(3, 26), 30, 40, 60, 80]:
            job = self.run_job('--nproc-per-node=4', 'true', preexec_fn=limit(resource.RLIMIT_NOFILE, number))
            if job.code == 0:
                worked.append(number)
                self.assertEqual(job.err, '')
            elif number > 8: # with less the dynamic loader or libuv gives up by itself
                with self.subTest(number):
                    self.assert_sentence(job, 78)
        self.assertIn(80, worked)
        self.assertEqual(worked, sorted(worked))

    def test_of_descriptors_with_many_workers(self):
        job = self.run_job('--nproc-per-node=200', 'sleep', '1000',
                           preexec_fn=limit(resource.RLIMIT_NOFILE, 100))
        self.assert_sentence(job, 78, 'ulimit -n')

    def test_of_descriptors_with_ports_of_workers(self):
        def needed(*words):
            job = self.run_job(*words, '--nproc-per-node=20', 'true', preexec_fn=limit(resource.RLIMIT_NOFILE, 60))
            self.assert_sentence(job, 78, 'ulimit -n')
            return int(re.search(r'(\d+) files must be opened', job.err)[1])
        self.assertEqual(needed('--tf-config') - needed(), 19)  # one port is there without the option, too

    @needs_strangers
    @unittest.skipIf(SANITIZED, 'the leak check of this sanitizer needs a process of its own')
    def test_of_processes(self):
        other_user = 54321
        for path in (self.folder, self.tmp):
            os.chown(path, other_user, other_user)

        def become_other_user():
            resource.setrlimit(resource.RLIMIT_NPROC, (7, 7)) # guard, agent, its threads, two workers
            os.setgroups([])
            os.setresgid(other_user, other_user, other_user)
            os.setresuid(other_user, other_user, other_user)
        program = reachable(self, DDPRUN)
        job = self.run_job('--nproc-per-node=2', 'true', program=program, preexec_fn=become_other_user)
        self.assertEqual(job.code, 0, job.err)
        job = self.run_job('--nproc-per-node=20', 'sleep', '1000', program=program, preexec_fn=become_other_user)
        self.assert_sentence(job, 78, 'sleep')

    def test_of_argument_size(self):
        job = self.run_job('true', 'x' * 100000, env={f'V{n}': 'y' * 100000 for n in range(15)})
        self.assertIn(job.code, (0, 78))


if __name__ == '__main__':
    unittest.main()
