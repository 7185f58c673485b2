#!/usr/bin/env python3
"""test_failpoints.py - ddprun fails or dies at each failpoint: nothing may be left of the job.

Needs a build with -Dfailpoints=true; exits 77 (skipped) otherwise.
"""

import os
import re
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, DdprunCase, wait_until

KILLED, CONFIG = 128 + signal.SIGKILL, 78
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


class Failpoints(DdprunCase):
    def run_at(self, spec, *words, **options):
        """One job, of which nothing is left."""
        return self.run_job(*words, env={'DDPRUN_FAILPOINTS': spec}, **options)

    def assert_killed(self, job):
        self.assertEqual(job.code, KILLED, job.err)
        self.assertIn('the agent was killed by SIGKILL', job.err)

    def test_every_failpoint(self):
        for point, actions in POINTS.items():
            for action in actions:
                spec = f'{point}={action}'
                with self.subTest(spec):
                    # Only at the end of a job that ends by itself is its report reached.
                    seconds = '0' if point == 'agent.report' else '300'
                    job = self.run_at(spec, f'--nproc-per-node={WORKERS}', *WORKER, seconds)
                    if action.startswith('kill'):
                        self.assert_killed(job)
                    else:
                        self.assertEqual(job.code, CONFIG, job.err)
                        self.assertRegex(job.err, r'^ddprun: cannot .*\n$')

    def test_the_agent_dies_while_it_starts_a_forked_worker(self):
        script = self.write('train.py', 'import json, os, sys\nsys.exit(1)\n')
        self.assert_killed(self.run_at(f'{WARM_POINT}=kill@2', '--preload=json', '--max-restarts=100000',
                                       '--crash-loop=0', script))

    def test_a_node_check(self):
        """It is the first process and the first pipe of a job."""
        for spec in ('spawn.clone=error:11@1', 'spawn.clone=kill@1', 'logmux.pipe=error:24@1', 'logmux.pipe=kill@1'):
            with self.subTest(spec):
                job = self.run_at(spec, '--node-check=setsid sleep 300 & sleep 300', *WORKER, '300')
                if 'kill' in spec:
                    self.assert_killed(job)
                else:
                    self.assertEqual(job.code, CONFIG, job.err)
                    self.assertIn('is left out, and the job has no other: node check did not start: cannot ', job.err)

    def test_the_list_is_complete(self):
        found = set()
        for folder in ('base', 'rendezvous', 'worker', 'daemon', 'cmd'):
            for path in (ROOT / folder).glob('**/*.c'):
                found |= set(re.findall(r'DDPI_FAILPOINT\("([^"]+)"\)', path.read_text(encoding='utf-8')))
        # Those of the store's state are test_state_crash's.
        self.assertEqual({name for name in found if not name.startswith('state.')},
                         {*POINTS, WARM_POINT})

    def test_control_arm(self):
        """Without a failpoint the same job runs, and is seen by the search for what is left."""
        job = self.start(f'--nproc-per-node={WORKERS}', *WORKER, '300')
        wait_until(lambda: len(job.running()) == 2 + 2 * WORKERS, 'all processes of the job')
        job.signal(signal.SIGKILL)
        job.wait_gone()


if __name__ == '__main__':
    if os.environ.get('DDPRUN_HAS_FAILPOINTS') != '1':
        print('this build has no failpoints (-Dfailpoints=true)')
        sys.exit(77)
    unittest.main()
