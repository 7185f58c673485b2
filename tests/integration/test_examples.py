#!/usr/bin/env python3
"""test_examples.py - the examples that embed the store, against a ddprund, and the one that starts ranks itself."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprund_run import DdprundCase
from nodes import free_port

LEASE_S = 3  # of the members
EXAMPLES = Path(os.environ['DDPRUN_EXAMPLES'])


class Examples(DdprundCase):
    def setUp(self):
        super().setUp()
        self.job = self.serve()
        self.addCleanup(lambda: self.stop(self.job))
        self.store = self.job.endpoints[0]

    def example(self, name, *words):
        return self.start(*words, program=str(EXAMPLES / name))

    def sees(self, job, line):
        job.collect_until(lambda: line in job.out.splitlines(), line)

    def leave(self, job):
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 0, job.err)

    def test_ranks_find_each_other(self):
        ranks = [self.example('embed_store', self.store, rank, 3) for rank in range(3)]
        for rank in ranks:
            self.sees(rank, 'rank 2 is at 10.0.0.3:5000')
            self.assertEqual(rank.wait(), 0)

    def test_members_come_and_go(self):
        anna = self.example('embed_store_uv', f'--endpoint={self.store}', 'anna')
        self.sees(anna, '+ anna')
        ben = self.example('embed_store_uv', f'--endpoint={self.store}', 'ben')
        self.sees(ben, '= anna')
        self.sees(anna, '+ ben')
        self.leave(ben)
        self.sees(anna, '- ben')
        carl = self.example('embed_store_uv', f'--endpoint={self.store}', 'carl')
        self.sees(anna, '+ carl')
        carl.signal(signal.SIGKILL)  # says no good-bye: its lease is over some seconds later
        carl.wait()
        self.sees(anna, '- carl')
        self.leave(anna)

    def test_a_suspended_service_takes_nobody_for_dead(self):
        anna = self.example('embed_store_uv', f'--endpoint={self.store}', 'anna')
        self.sees(anna, '+ anna')
        self.job.signal(signal.SIGSTOP)
        time.sleep(LEASE_S + 1)  # the suspension itself, longer than the lease
        self.job.signal(signal.SIGCONT)
        ben = self.example('embed_store_uv', f'--endpoint={self.store}', 'ben')
        self.sees(ben, '= anna')
        self.sees(anna, '+ ben')
        self.assertNotIn('- anna', anna.out + ben.out)
        self.leave(ben)
        self.leave(anna)

    def test_members_outlive_the_service(self):
        self.stop(self.job)
        self.job = self.serve(listen=f'127.0.0.1:{free_port()}')
        self.store = self.job.endpoints[0]
        anna = self.example('embed_store_uv', f'--endpoint={self.store}', 'anna')
        self.sees(anna, '+ anna')
        self.stop(self.job)
        self.job = self.serve(listen=self.store)
        anna.read_until('+ anna', 2)
        self.leave(anna)

    def test_a_server_inside_a_program(self):
        program = self.example('embed_server', '0')
        program.read_until('\n')
        endpoint = program.out.splitlines()[0].removeprefix('listening on ')
        # This user has a token by now, and the program has none to prove it by.
        self.done(endpoint, '--no-auth', 'set', 'job/a', '1')
        self.done(endpoint, '--no-auth', 'set', 'elsewhere', '1')
        self.done(endpoint, '--no-auth', 'delete', 'job/a')
        self.sees(program, 'job/a is 1')
        self.sees(program, 'job/a is gone')
        self.assertNotIn('elsewhere', program.out)
        self.leave(program)

    def test_a_server_where_none_can_be(self):
        taken = self.example('embed_server', self.store)
        self.assertEqual(taken.wait(), 1)
        self.assertIn('choose another port', taken.err)
        open_to_all = self.example('embed_server', '0.0.0.0:0')
        self.assertEqual(open_to_all.wait(), 1)
        self.assertIn('not a loopback address', open_to_all.err)


def run_alone(name, *words):
    """Without a launcher, and without a store."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ('RANK', 'WORLD_SIZE') and not name.startswith('DDPRUN_')}
    return subprocess.run([EXAMPLES / name, *words], env=environment, capture_output=True, text=True, check=False)


class Shrink(unittest.TestCase):
    def test_three_processes_train_to_the_end(self):
        for victim in (1, 2, 3):
            done = run_alone('shrink', str(victim))
            self.assertEqual(done.returncode, 0, done.stderr)
            began = re.findall(r'^pid (\d+), step \d+: .*\brank (\d)\b.*(?:died|left|closed)', done.stdout, re.MULTILINE)
            went_on = re.findall(r'^pid (\d+) goes on from step 100 as rank (\d) of 3$', done.stdout, re.MULTILINE)
            ended = re.findall(r'^pid (\d+), step 200: the weights are right to 0\.00', done.stdout, re.MULTILINE)
            self.assertEqual({rank for _, rank in began}, {str(victim)}, done.stdout)
            self.assertEqual(sorted(rank for _, rank in went_on), ['0', '1', '2'], done.stdout)
            self.assertEqual(sorted(ended), sorted(pid for pid, _ in went_on), done.stdout)
            self.assertEqual(sorted(ended), sorted(pid for pid, _ in began), done.stdout)


class Spawn(unittest.TestCase):
    def example(self, *words):
        return run_alone('spawn', *words)

    def test_all_succeed(self):
        done = self.example()
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(sorted(lines[:4]), [f'rank {rank} of 4: the sum is 10' for rank in range(4)])
        self.assertEqual(lines[4:], ['all 4 ranks have succeeded'])

    def test_one_fails(self):
        for rank in range(4):
            done = self.example(str(rank))
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf'^spawn: rank {rank} \(pid \d+\) failed: this rank was told to fail\n$')
            self.assertNotIn('the sum', done.stdout)


if __name__ == '__main__':
    unittest.main()
