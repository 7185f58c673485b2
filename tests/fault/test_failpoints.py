#!/usr/bin/env python3
"""test_failpoints.py - ddprun fails or dies at each failpoint: nothing may be left of the job.

Needs a build with -Dfailpoints=true; exits 77 (skipped) otherwise. The one argument is ddprun.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DDPRUN = os.path.abspath(sys.argv.pop(1))
DEADLINE_S = 60
WORKERS = 3

# The list of all failpoints of ddprun, with what can be asked of each.
POINTS = {
    'guard.split': ['kill'],
    'agent.starter': ['kill@1', 'kill@2', 'kill@3'],
    'agent.report': ['kill'],
    'spawn.clone': ['error:11@1', 'error:12@3', 'kill@2'],
    'worker.watch': ['error:24@1', 'error:24@3', 'kill@2'],
    'logmux.pipe': ['error:24@1', 'error:24@4', 'kill@5'],
}

# Reached when a worker is forked (--preload).
WARM_POINT = 'warm.words'

# A worker with a grandchild in a session of its own that ignores SIGTERM.
WORKER = ['sh', '-c', 'trap "" TERM; setsid sleep 300 & exec sleep "$0"']


def processes_with(marker):
    """Pids whose environment carries @marker."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/environ', 'rb') as environ:
                if marker.encode() in environ.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def run(spec, seconds, marker):
    env = dict(os.environ, DDPRUN_FAILPOINTS=spec, DDPRUN_TEST_MARK=marker, OMP_NUM_THREADS='1')
    return subprocess.run([DDPRUN, f'--nproc-per-node={WORKERS}', *WORKER, seconds], env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)


class Failpoints(unittest.TestCase):
    def assert_nothing_left(self, marker):
        deadline = time.monotonic() + DEADLINE_S
        while left := processes_with(marker):
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                self.fail(f'{len(left)} processes of the job were left')

    def test_every_failpoint(self):
        for point, actions in POINTS.items():
            for action in actions:
                spec = f'{point}={action}'
                with self.subTest(spec):
                    marker = f'mark-{os.getpid()}-{point}-{action}'
                    # Only at the end of a job that ends by itself is its report reached.
                    done = run(spec, '0' if point == 'agent.report' else '300', marker)
                    self.assert_nothing_left(marker)
                    if action.startswith('kill'):
                        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr)
                        self.assertIn('the agent was killed by SIGKILL', done.stderr)
                    else:
                        self.assertEqual(done.returncode, 78, done.stderr)
                        self.assertRegex(done.stderr, r'^ddprun: cannot .*\n$')

    def test_the_agent_dies_while_it_starts_a_forked_worker(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, 'train.py')
            script.write_text('import json, os, sys\nsys.exit(1)\n')
            marker = f'mark-{os.getpid()}-warm'
            env = dict(os.environ, DDPRUN_FAILPOINTS=f'{WARM_POINT}=kill@2', DDPRUN_TEST_MARK=marker)
            done = subprocess.run([DDPRUN, '--preload=json', '--max-restarts=100000', '--crash-loop=0', script],
                                  env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
            self.assert_nothing_left(marker)
            self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr[-2000:])
            self.assertIn('the agent was killed by SIGKILL', done.stderr)

    def test_a_node_check(self):
        """It is the first process and the first pipe of a job."""
        for spec in ('spawn.clone=error:11@1', 'spawn.clone=kill@1', 'logmux.pipe=error:24@1', 'logmux.pipe=kill@1'):
            with self.subTest(spec):
                marker = f'mark-{os.getpid()}-check-{spec}'
                env = dict(os.environ, DDPRUN_FAILPOINTS=spec, DDPRUN_TEST_MARK=marker, OMP_NUM_THREADS='1')
                done = subprocess.run([DDPRUN, '--node-check=setsid sleep 300 & sleep 300', *WORKER, '300'], env=env,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
                self.assert_nothing_left(marker)
                if 'kill' in spec:
                    self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr)
                else:
                    self.assertEqual(done.returncode, 78, done.stderr)
                    self.assertIn('is left out, and the job has no other: node check did not start: cannot ',
                                  done.stderr)

    def test_the_list_is_complete(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
        found = set()
        for folder in ('base', 'rendezvous', 'worker', 'daemon', 'cmd'):
            for path in pathlib.Path(root, folder).glob('**/*.c'):
                found |= set(re.findall(r'DDPI_FAILPOINT\("([^"]+)"\)', path.read_text(encoding='utf-8')))
        # Those of the store's state are test_state_crash's.
        self.assertEqual({name for name in found if not name.startswith('state.')},
                         {*POINTS, WARM_POINT})

    def test_control_arm(self):
        """Without a failpoint the same job runs, and is seen by the search for what is left."""
        marker = f'mark-{os.getpid()}-control'
        env = dict(os.environ, DDPRUN_TEST_MARK=marker)
        job = subprocess.Popen([DDPRUN, f'--nproc-per-node={WORKERS}', *WORKER, '300'], env=env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + DEADLINE_S
        # One look may miss a process that is in the middle of its exec.
        while (seen := len(processes_with(marker))) < 2 + 2 * WORKERS:
            if time.monotonic() > deadline:
                break
        job.kill()
        job.wait()
        self.assertEqual(seen, 2 + 2 * WORKERS)
        self.assert_nothing_left(marker)


if __name__ == '__main__':
    if os.environ.get('DDPRUN_HAS_FAILPOINTS') != '1':
        print('skipped: this build has no failpoints')
        sys.exit(77)
    unittest.main()
