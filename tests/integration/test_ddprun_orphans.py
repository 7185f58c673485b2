#!/usr/bin/env python3
"""test_ddprun_orphans.py - no process of a job outlives it, whichever process is killed.

Each worker of these jobs has descendants in sessions of their own that ignore polite signals. The
last class is the control: the same processes without ddprun do survive, and the search finds them.
"""

import errno
import os
import random
import re
import signal
import subprocess
import sys
import unittest
import uuid
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import (DDPRUN, DdprunCase, MARK, SANITIZED, children, marked_processes, probe, wait_until)

WORKERS = 3
PER_WORKER = 4  # the leader, and three that have fled
ROUNDS = 5 if SANITIZED else 10
SHORT_JOBS = 40 if SANITIZED else 100


class Orphans(DdprunCase):
    def tree(self, *words, mode=('wait',)):
        job = self.start(f'--nproc-per-node={WORKERS}', *words, probe('tree'), *mode)
        job.read_until('ready', WORKERS)
        job.leaders = [int(pid) for pid in re.findall(r'ready (\d+)', job.out)]
        return job

    def repeat(self, kill, expect, *words):
        for _ in range(ROUNDS):
            job = self.tree(*words)
            # The one that made the daemon may be about to exit still.
            wait_until(lambda: len(job.running()) == WORKERS * PER_WORKER + 2, 'the whole tree')
            kill(job)
            job.wait_gone()
            self.assertEqual(job.wait(), expect, job.err)

    def test_the_agent_is_killed(self):
        self.repeat(lambda job: os.kill(job.agent(), signal.SIGKILL), 137)
        self.assertIn('the agent was killed by', self.jobs[-1].err)

    def test_the_guard_is_killed(self):
        self.repeat(lambda job: job.signal(signal.SIGKILL), -9)

    def test_a_worker_is_killed(self):
        self.repeat(lambda job: os.kill(job.leaders[1], signal.SIGKILL), 137, '--shutdown-timeout=0')

    def test_the_agent_is_stopped_and_the_guard_killed(self):
        def kill(job):
            agent = job.agent()
            os.kill(agent, signal.SIGSTOP)
            job.signal(signal.SIGKILL)
            os.kill(agent, signal.SIGCONT)
        job = self.tree()
        kill(job)
        job.wait_gone()

    def test_the_agent_is_killed_by_a_worker(self):
        job = self.start('--nproc-per-node=2', 'sh', '-c',
                         f'{probe("tree")} exit; if [ $RANK = 1 ]; then kill -9 $PPID; fi; exec sleep 1000')
        self.assertEqual(job.wait(), 137)
        job.wait_gone()

    def test_workers_end_and_leave_others_behind(self):
        for code in (0, 3):
            job = self.start(f'--nproc-per-node={WORKERS}', probe('tree'), 'exit', code)
            self.assertEqual(job.wait(), code, job.err)
            self.assertEqual(job.running(), [])

    def test_what_is_left_at_a_good_end_is_named(self):
        for code in (0, 3):
            job = self.start('--nproc-per-node=2', 'sh', '-c', f'there=$(setsid sh -c "sleep 1000 >/dev/null & echo"); exit {code}')
            self.assertEqual(job.wait(), code, job.err)
            self.assertEqual(job.running(), [])
            named = re.findall(r'left running are killed, (\d) in all: sleep \(pid \d+\), sleep \(pid \d+\); ', job.err)
            self.assertEqual(named, ['2'] if code == 0 else [], job.err)

    def test_helpers_that_clean_up_have_time_for_it(self):
        """Like Python's resource tracker: it ignores SIGTERM, and works when its pipe ends, as the main program has died."""
        script = self.write('crash.py', """
import os, signal, subprocess
name = f'{os.environ["RANK"]}.{os.environ["TORCHELASTIC_RESTART_COUNT"]}'
helper = subprocess.Popen(['sh', '-c', f'trap "" TERM; echo begins; read -r end; : > cleaned.{name}'],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
helper.stdout.readline()
print('a helper of', name, flush=True)
os.kill(os.getpid(), signal.SIGKILL if os.environ['RANK'] == '0' else signal.SIGSTOP)
""")
        job = self.start('--nproc-per-node=2', '--max-restarts=3', '--crash-loop=0', '--no-prefix', script)
        self.assertEqual(job.wait(), 137, job.err)
        begun = re.findall(r'a helper of (\S+)', job.out)
        self.assertGreaterEqual(len(begun), 4, job.out)
        self.assertEqual([name for name in begun if not (self.folder / f'cleaned.{name}').exists()], [])

    def tell(self, job, fifo):
        """Open @fifo for its reader, who comes while @job runs."""
        def opened():
            try:
                return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                self.assertEqual(error.errno, errno.ENXIO)
                self.assertIsNone(job.process.poll(), 'it has ended without its manager of shared memory')
                return None
        os.close(wait_until(opened, 'the reader'))

    def test_the_manager_of_shared_memory_ends_by_itself(self):
        """PyTorch's removes segments at its end, a while after the last client's. This one's client is killed after a good
        end; a signal would end the manager."""
        for code in (0, 3):
            job = self.with_manager(code)
            self.tell(job, self.folder / 'go')
            self.assertEqual(job.wait(), code, job.err)
            self.assertTrue((self.folder / 'cleaned').exists(), job.err)
            self.assertEqual(job.running(), [])
            self.assertEqual(re.findall(r'left running are killed, (\d) in all: .*sleep', job.err), [] if code else ['2'])

    def test_a_signal_while_the_manager_is_waited_for(self):
        """One lets it end; one that is repeated does not."""
        for insists in (False, True):
            job = self.with_manager(0)
            job.read_until('waiting for PyTorch')
            if insists:
                job.insist(signal.SIGTERM)
            else:
                job.signal(signal.SIGTERM)
                job.read_until('SIGTERM: leaving when what the workers have left')
                self.tell(job, self.folder / 'go')
            self.assertEqual(job.wait(), 143, job.err)
            self.assertEqual((self.folder / 'cleaned').exists(), not insists, job.err)
            self.assertEqual(job.running(), [])

    def with_manager(self, code):
        """A worker that exits with @code, and leaves the manager and its client."""
        self.write('torch_shm_manager', '#!/bin/sh\n: >up\nread -r client\nread -r go <go\n: >cleaned\n')
        for name in ('up', 'cleaned', 'go'):
            (self.folder / name).unlink(missing_ok=True)
        os.mkfifo(self.folder / 'go')
        return self.start('sh', '-c', 'setsid sh -c "sleep 1000 | setsid ./torch_shm_manager" & '
                          f'until [ -e up ]; do sleep 0.01; done; exit {code}')

    def test_a_signal_ends_the_job(self):
        job = self.tree('--shutdown-timeout=100ms')
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(job.running(), [])

    def test_stopped_processes_end_too(self):
        job = self.tree()
        for pid in job.leaders:
            for child in children(pid):
                os.kill(child, signal.SIGSTOP)
            os.kill(pid, signal.SIGSTOP)
        os.kill(job.agent(), signal.SIGKILL)
        job.wait_gone()

    def test_processes_that_change_their_pid_all_the_time_end_too(self):
        for _ in range(3):
            job = self.tree('--shutdown-timeout=0', mode=('flee',))
            job.signal(signal.SIGTERM)
            self.assertEqual(job.wait(), 143, job.err)
            self.assertEqual(job.running(), [])
            job = self.tree(mode=('flee',))
            os.kill(job.agent(), signal.SIGKILL)
            job.wait_gone()

    def test_many_descendants(self):
        script = ('i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; '
                  'echo ready; exec sleep 1000')
        job = self.start('sh', '-c', script)
        job.read_until('ready')
        os.kill(job.agent(), signal.SIGKILL)
        job.wait_gone()
        job.wait()

    def test_a_launcher_in_a_launcher(self):
        job = self.start(DDPRUN, '--log-dir=/dev/null', '--nproc-per-node=2', probe('tree'), 'wait')
        job.read_until('ready', 2)
        os.kill(job.agent(), signal.SIGKILL)
        job.wait_gone()


class Stress(DdprunCase):
    def test_short_jobs_and_random_kills(self):
        choose = random.Random(1)
        victims = {'none': 0, 'guard': 0, 'agent': 0, 'any': 0}
        running = []
        for number in range(SHORT_JOBS):
            running.append(self.start(
                '--nproc-per-node=2', '--max-restarts=1', '--shutdown-timeout=0', 'sh', '-c',
                f'{probe("tree")} exit; [ $RANK = {number % 3} ] || exec sleep 1000'))
            if len(running) < 2:
                continue
            job = running.pop(0)
            victims[self.end(job, choose, number)] += 1
        for job in running:
            victims[self.end(job, choose, 0)] += 1
        print(f'\n  killed: {victims}', file=sys.stderr)

    @staticmethod
    def end(job, choose, number):
        """Let @job run for a moment, kill one of its processes, and see to its end."""
        # With one process killed before the split, its directory would stay.
        wait_until(lambda: children(job.pid) or job.process.poll() is not None, 'the agent')
        job.collect(choose.random() * 0.02)
        victim = ('none', 'guard', 'agent', 'any')[number % 4]
        pids = {'none': lambda: [], 'guard': lambda: [job.pid], 'agent': lambda: children(job.pid),
                'any': job.running}[victim]()
        if pids:
            try:
                os.kill(choose.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if victim != 'guard' and job.process.poll() is None:
            job.signal(signal.SIGTERM)
        job.wait()
        job.wait_gone()
        return victim


class Control(unittest.TestCase):
    """Without ddprun the same processes survive, and the search above sees them."""

    def test_they_do_survive(self):
        mark = uuid.uuid4().hex
        leader = subprocess.Popen([probe('tree'), 'wait'], stdout=subprocess.PIPE,
                                  env=dict(os.environ, **{MARK: mark}))
        try:
            leader.stdout.readline()
            # The one that made the daemon may be about to exit still.
            wait_until(lambda: len(marked_processes(mark)) == PER_WORKER, 'the whole tree')
            leader.kill()
            leader.wait()
            left = marked_processes(mark)
            self.assertEqual(len(left), PER_WORKER - 1)
            for pid in left:
                os.kill(pid, signal.SIGTERM)
            self.assertEqual(sorted(marked_processes(mark)), sorted(left))
        finally:
            leader.stdout.close()
            for pid in marked_processes(mark):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not marked_processes(mark), 'the end of the control processes')


if __name__ == '__main__':
    unittest.main()
