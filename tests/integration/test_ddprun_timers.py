#!/usr/bin/env python3
"""test_ddprun_timers.py - the FIFO of PyTorch's FileTimerClient, with shells as clients.

tests/interop/test_ddprun_torch.py has the real one.
"""

import json
import os
import signal
import stat
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, wait_until

ON = {'TORCHELASTIC_ENABLE_FILE_TIMER': '1'}
FIFO = '$TORCHELASTIC_TIMER_FILE'


def request(pid='$$$$', scope='step', at=0.0, sig=9):
    """What a worker's shell says to ask for it."""
    text = json.dumps({'version': 1, 'pid': 0, 'scope_id': scope, 'expiration_time': at, 'signal': sig})
    return 'echo \'' + text.replace('"pid": 0', f'"pid": \'{pid}\'') + f"' > {FIFO}; "


class Timers(DdprunCase):
    def start_worker(self, script, *words, **env):
        return self.start(*words, 'sh', '-c', script, env={**ON, **env}, stdin=-1)

    def test_one_that_expires_ends_its_worker(self):
        job = self.start_worker(f'[ $RANK = 1 ] && {{ {request(at=time.time() + 0.1)} }}; sleep 60',
                                '--nproc-per-node=2')
        self.assertEqual(job.wait(), 137)
        self.assertRegex(job.err, r"rank 1: its timer 'step' has expired: process \d+ is ended by SIGKILL")
        self.assertIn('rank 1 failed first: killed by SIGKILL', job.err)

    def test_its_signal_may_be_another_and_a_child_of_the_worker_may_ask(self):
        child = self.write('child', '#!/bin/sh\ntrap "exit 7" USR1\n' + request(pid='$$', sig=10) +
                           '\nwhile :; do sleep 0.01; done\n')
        job = self.start_worker(f'{child}; exit $?')
        self.assertEqual(job.wait(), 7)
        self.assertIn('is ended by SIGUSR1', job.err)

    def test_one_that_is_taken_back_ends_nothing(self):
        job = self.start_worker(request(at=time.time() + 3600) + request(at=-1, sig=0) +
                                request(scope='long', at=time.time() + 3600) + 'read -r x; echo done')
        job.process.stdin.close()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(job.out, '[default0]:done\n')

    def test_every_attempt_has_them(self):
        job = self.start_worker(request() + 'sleep 60', '--max-restarts=2', '--crash-loop=0')
        self.assertEqual(job.wait(), 137)
        self.assertEqual(job.err.count('has expired'), 3)

    def test_one_without_a_signal_is_said(self):
        job = self.start_worker(request(sig=0) + 'read -r x')
        job.read_until("its timer 'step' has expired; it asks for no signal")
        job.process.stdin.close()
        job.wait()

    def test_the_place_that_is_given_is_taken_and_removed(self):
        fifo = self.folder / 'timers'
        job = self.start_worker(f'echo {FIFO}; read -r x', '--nproc-per-node=2', TORCHELASTIC_TIMER_FILE=fifo)
        job.read_until(str(fifo), 2)
        self.assertTrue(stat.S_ISFIFO(fifo.stat().st_mode))
        self.assertEqual(stat.S_IMODE(fifo.stat().st_mode), 0o600)
        job.process.stdin.close()
        job.wait()
        self.assertFalse(fifo.exists())
        os.mkfifo(fifo)  # of a job that could not remove it
        self.assert_succeeded(self.run_job('true', env={**ON, 'TORCHELASTIC_TIMER_FILE': fifo}))
        fifo.write_text('mine')
        job = self.run_job('true', env={**ON, 'TORCHELASTIC_TIMER_FILE': fifo})
        self.assert_sentence(job, 78, 'TORCHELASTIC_TIMER_FILE', f"'{fifo}'")
        self.assertEqual(fifo.read_text(), 'mine')

    def test_it_is_removed_when_the_agent_is_killed(self):
        job = self.start_worker('echo up; read -r x')
        job.read_until('up')
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.wait(), 137)  # and nothing is left in TMPDIR

    def test_there_is_none_unless_it_is_asked_for(self):
        for env in ({}, {'TORCHELASTIC_ENABLE_FILE_TIMER': '0'}):
            self.assertEqual(self.run_job('sh', '-c', f'echo "<{FIFO}>"', env=env).out, '[default0]:<>\n')

    def test_garbage_is_left_out_and_said_once(self):
        lines = ('x', '{}', '[' * 5000, '{"pid":1}', '{"pid":-1,"scope_id":"s","expiration_time":0,"signal":9}',
                 '{"pid":1e300,"scope_id":"s","expiration_time":0,"signal":9}', '\\0', '"' + 'y' * 9000)
        (self.folder / 'garbage').write_text('\n'.join(lines) + '\n')
        job = self.start_worker(f'cat garbage > {FIFO}; ' + request() + 'sleep 60')
        self.assertEqual(job.wait(), 137)
        self.assertEqual(job.err.count('a line that is not a timer request was ignored'), 1)
        self.assertIn("its timer 'step' has expired", job.err)

    def test_a_generation_begins_without_what_the_last_has_left(self):
        """Half a request of a worker that died does not swallow the first of those that come next."""
        job = self.start_worker(f'[ $TORCHELASTIC_RESTART_COUNT = 1 ] || {{ printf half > {FIFO}; exit 1; }}; ' +
                                request() + 'read -r x', '--max-restarts=1', '--crash-loop=0')
        job.read_until("its timer 'step' has expired")
        self.assertEqual(job.wait(), 137)
        self.assertNotIn('is not a timer request', job.err)

    def test_garbage_is_said_once_in_each_generation(self):
        job = self.run_job('--max-restarts=1', '--crash-loop=0', 'sh', '-c',
                           f'echo x > {FIFO}; echo y > {FIFO}; ' + request() + 'sleep 60', env=ON)
        self.assertEqual(job.code, 137)
        self.assertEqual(job.err.count('a line that is not a timer request was ignored'), 2, job.err)

    def test_two_jobs_do_not_share_one(self):
        fifo = self.folder / 'timers'
        job = self.start_worker('echo up; read -r x; ' + request() + 'sleep 60', TORCHELASTIC_TIMER_FILE=fifo)
        job.read_until('up')
        other = self.run_job('true', env={**ON, 'TORCHELASTIC_TIMER_FILE': fifo})
        self.assert_sentence(other, 78, f"'{fifo}' is the timer file of another job that is running; unset it")
        job.process.stdin.close()
        self.assertEqual(job.wait(), 137)
        self.assertIn("its timer 'step' has expired", job.err)

    def test_a_path_that_cannot_be_is_refused_with_what_to_do(self):
        job = self.run_job('true', env={**ON, 'TORCHELASTIC_TIMER_FILE': self.folder / 'missing' / 'f'})
        self.assert_sentence(job, 78, 'No such file', 'a directory that exists')

    def test_a_process_that_is_no_worker_is_left_alone(self):
        with subprocess.Popen(['sleep', '60'], start_new_session=True) as other:
            try:
                job = self.start_worker(request(pid=other.pid) + request(pid=os.getpid()) + 'read -r x')
                job.read_until('which is not a worker of this job: it was not signalled', 2)
                self.assertIsNone(other.poll())
                job.process.stdin.close()
                self.assertEqual(job.wait(), 1, job.err)
            finally:
                other.kill()

    def test_too_many_are_said(self):
        job = self.start_worker('i=0; { while [ $i -lt 8200 ]; do echo "{\\"pid\\":$$$$,\\"scope_id\\":\\"$i\\",'
                                f'\\"expiration_time\\":9e9,\\"signal\\":9}}"; i=$((i+1)); done; }} > {FIFO}; read -r x')
        job.read_until('the limit is 8192')
        job.process.stdin.close()
        job.wait()


if __name__ == '__main__':
    unittest.main()
