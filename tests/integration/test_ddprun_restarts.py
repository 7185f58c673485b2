#!/usr/bin/env python3
"""test_ddprun_restarts.py - --max-restarts: all workers restart, and share nothing with the last attempt."""

import re
import resource
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, in_order, probe
from nodes import free_port

SHOW = 'echo "$RANK $TORCHELASTIC_RESTART_COUNT $DDPRUN_STORE_PREFIX $DDPRUN_STORE $MASTER_PORT"'
FAIL_ONCE = '[ $TORCHELASTIC_RESTART_COUNT -gt 0 ] || [ $RANK != 1 ] || exit 9'


class Restarts(DdprunCase):
    def test_success_at_the_second_attempt(self):
        job = self.run_job('--nproc-per-node=3', '--max-restarts=3', '--no-prefix', 'sh', '-c',
                           f'{SHOW}; {FAIL_ONCE}')
        self.assertEqual(job.code, 0, job.err)
        in_order(self, job.err, 'rank 1 failed first: exit code 9', 'restart 1 of 3')
        self.assertNotIn('giving up', job.err)
        again = [line.split() for line in job.out.splitlines() if line.split()[1] == '1']
        self.assertEqual(sorted(words[0] for words in again), ['0', '1', '2'])
        self.assertEqual({words[2] for words in again}, {'g2/'})

    def test_count_prefix_and_addresses(self):
        job = self.run_job('--max-restarts=3', '--no-prefix', 'sh', '-c', f'{SHOW}; exit 6')
        self.assertEqual(job.code, 6)
        lines = [line.split() for line in job.out.splitlines()]
        self.assertEqual([words[1] for words in lines], ['0', '1', '2', '3'])
        self.assertEqual([words[2] for words in lines], ['g1/', 'g2/', 'g3/', 'g4/'])
        self.assertEqual(len({(words[3], words[4]) for words in lines}), 1)
        self.assertEqual(job.err.count('rank 0 failed first: exit code 6'), 4)
        self.assertIn('giving up after 3 restarts (--max-restarts=3)', job.err)

    def test_none_by_default(self):
        job = self.run_job('sh', '-c', 'echo x; exit 3')
        self.assertEqual((job.code, job.out), (3, '[default0]:x\n'))
        self.assertNotIn('restart', job.err)

    def test_an_elastic_job_says_that_there_are_none(self):
        job = self.run_job('--nnodes=1:2', '--settle=10ms', '--rdzv-id=j', f'--rdzv-endpoint=127.0.0.1:{free_port()}',
                           'sh', '-c', 'exit 3')
        self.assertEqual(job.code, 3, job.err)
        self.assertIn('\nddprun: no restart: --max-restarts is 0\n', job.err)
        self.assertIn('this node is 0 of 1, its worker is rank 0 of 1\n', job.err)

    def test_logs_and_error_files_of_all_attempts_are_kept(self):
        self.run_job('--max-restarts=2', '--tee=3', '--rdzv-id=j',
                     f'--log-dir={self.folder}/logs', 'sh', '-c',
                     'echo "out $TORCHELASTIC_RESTART_COUNT"; '
                     'echo "{}" > $TORCHELASTIC_ERROR_FILE; exit 1')
        top, = (self.folder / 'logs').glob('*_*')
        for attempt in range(3):
            where = top / f'attempt_{attempt}' / '0'
            self.assertEqual((where / 'stdout.log').read_text(), f'out {attempt}\n')
            self.assertTrue((where / 'error.json').exists())

    def test_an_old_error_file_is_not_shown_again(self):
        job = self.run_job('--max-restarts=1', 'sh', '-c',
                           '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || '
                           'echo "{\\"message\\": \\"the first\\"}" > $TORCHELASTIC_ERROR_FILE; '
                           'exit 1')
        self.assertEqual(job.err.count('the first'), 1)

    def test_nothing_of_the_last_attempt_runs_in_the_next(self):
        self.write('worker.py', 'import os, subprocess, sys\n'
                   'sys.path.insert(0, os.environ["LIB"])\n'
                   'from ddprun_run import marked_processes, describe\n'
                   'mine = [describe(p) for p in marked_processes(os.environ["DDPRUN_TEST_MARK"])]\n'
                   'print([name for name in mine if "probe" in name])\n'
                   'leader = subprocess.Popen([os.environ["TREE"], "exit"])\n'
                   'leader.wait()\n'
                   'raise SystemExit(1)\n')
        job = self.run_job('--max-restarts=3', '--no-prefix', 'worker.py',
                           env={'LIB': Path(__file__).resolve().parents[1] / 'lib',
                                'TREE': probe('tree')})
        self.assertEqual(re.findall(r'\[.*\]', job.out), ['[]'] * 4, job.err)

    def test_output_of_an_attempt_comes_before_that_of_the_next(self):
        job = self.run_job('--nproc-per-node=4', '--max-restarts=2', '--no-prefix', 'sh', '-c',
                           'i=0; while [ $i -lt 200 ]; do i=$((i+1)); '
                           'echo "a$TORCHELASTIC_RESTART_COUNT $i"; done; [ $RANK != 2 ]',
                           stderr=-2)
        attempts = re.findall(r'^a(\d) ', job.out, re.MULTILINE)
        self.assertEqual(attempts, sorted(attempts))
        in_order(self, job.out, 'a0 200', 'failed first', 'restart 1 of 2', 'a1 ', 'failed first')

    def test_an_outage_is_waited_for(self):
        """What the workers need comes back: that is at the fourth attempt here."""
        job = self.start('--nproc-per-node=2', '--max-restarts=100', 'sh', '-c',
                         '[ $TORCHELASTIC_RESTART_COUNT -ge 3 ] || exit 4; exec sleep 600')
        job.read_until('restart 3 of 100')
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.err)
        self.assertRegex(job.err, r'(workers|rank . on node \S+) failed 2 times in a row with exit code 4, each time within \S+ s '
                                  r'of the start: the next restart follows in 0.5 s\n')
        self.assertEqual(len(re.findall('the next restart follows', job.err)), 2, job.err)

    def test_a_program_that_cannot_run_is_not_waited_for(self):
        for text in ('import no_such_module\n', 'x = = 1\n'):
            with self.subTest(text):
                job = self.run_job('--max-restarts=100', '--crash-loop=3', self.write('broken.py', text))
                self.assertEqual(job.code, 93, job.err)
                self.assertIn('failed 3 times in a row with exit code 1', job.err)
                self.assertIn('its program cannot run as it is', job.err)
                self.assertNotIn('the next restart follows', job.err)

    def test_a_signal_ends_them(self):
        job = self.start('--max-restarts=1000000', '--crash-loop=0', '--no-prefix', 'sh', '-c', 'echo x; exit 1')
        job.read_until('restart 5 of')
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.err[-1000:])
        self.assertIn('ended by SIGTERM', job.err)

    def test_many_leak_no_descriptor(self):
        job = self.run_job('--nproc-per-node=2', '--max-restarts=60', '--crash-loop=0', '--tee=3',
                           f'--log-dir={self.folder}/logs', 'false',
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (56, 56)))
        self.assertIn('giving up after 60 restarts', job.err)


if __name__ == '__main__':
    unittest.main()
