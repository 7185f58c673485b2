#!/usr/bin/env python3
"""test_ddprun_events.py - --event-log: the logs of jobs of one and two nodes."""

import json
import os
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import wait_until
from ddprund_run import DdprundCase, kept

START = ['rendezvous_started', 'rendezvous_completed', 'worker_start_started',
         'worker_start_completed']
FAILURE = ['failure_detected', 'worker_terminated']
END = ['worker_terminated', 'job_ended']


def fail_once(*logs):
    """A worker: rank 1 fails, when the logs say that all workers have been started; else a failure may
    come first, and the start is never complete."""
    waits = ''.join(f'until grep -q worker_start_completed {log}; do sleep 0.01; done; ' for log in logs)
    return f'[ $TORCHELASTIC_RESTART_COUNT -gt 0 ] || [ $RANK != 1 ] || {{ {waits}exit 9; }}'


def events(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def names(lines):
    return [line['event'] for line in lines]


class Events(DdprundCase):
    def check_fields(self, lines, job):
        """What every log must hold, whatever happened."""
        at_us, since_ms, recovers = 0, 0, False
        for line in lines:
            with self.subTest(line):
                self.assertEqual((line['schema'], line['job']), (1, job))
                self.assertGreater(line['time_unix_ms'], 1e12)
                self.assertEqual(line['node'], os.uname().nodename.split('.')[0])
                self.assertGreaterEqual(line['monotonic_us'], at_us)
                at_us = line['monotonic_us']
                if line['event'] == 'failure_detected':
                    recovers, since_ms = True, 0
                self.assertEqual('since_failure_ms' in line, recovers)
                if recovers:
                    self.assertGreaterEqual(line['since_failure_ms'], since_ms)
                    since_ms = line['since_failure_ms']
                if line['event'] == 'worker_start_completed':
                    recovers = False
                self.assertEqual('exit_code' in line, line['event'] == 'job_ended')
                self.assertEqual('world_size' in line, line['event'] != 'rendezvous_started')

    def test_one_node(self):
        log = self.folder / 'events'
        job = self.run_job('--nproc-per-node=2', '--max-restarts=1', '--rdzv-id=train',
                           f'--event-log={log}', 'sh', '-c', fail_once(log))
        self.assertEqual(job.code, 0, job.err)
        lines = events(log)
        self.assertEqual(names(lines), START + FAILURE + START + END)
        self.check_fields(lines, 'train')
        failure = lines[4]
        # Which of its signs of death comes first is the kernel's to say.
        self.assertRegex(failure['reason'], r'rank 1 .*(exit code 9|is dying)')
        self.assertEqual((failure['generation'], failure['world_size'], failure['node_rank']),
                         (1, 2, 0))
        self.assertEqual([(line['generation'], line['restarts']) for line in lines[6:9]],
                         [(1, 0), (2, 1), (2, 1)])
        self.assertEqual(lines[-1]['exit_code'], 0)

    def test_a_failure_that_is_the_end(self):
        log = self.folder / 'events'
        job = self.run_job(f'--event-log={log}', '--rdzv-id=train', 'sh', '-c', 'exit 7')
        self.assertEqual(job.code, 7)
        lines = events(log)
        self.assertEqual(names(lines), START + FAILURE + ['rendezvous_started', 'job_ended'])
        self.assertEqual(lines[-1]['exit_code'], 7)
        self.assertIn('exit code 7', lines[-1]['reason'])

    def test_a_program_that_cannot_start(self):
        self.write('worker', '#!/nowhere/interpreter\n')
        log = self.folder / 'events'
        self.run_job(f'--event-log={log}', './worker')
        lines = names(events(log))
        self.assertEqual(lines[:5], START[:3] + FAILURE)
        self.assertEqual(lines[-1], 'job_ended')

    def test_on_standard_error(self):
        for option in ('--event-log=-', '--event-log-handler=console'):
            job = self.run_job(option, '--rdzv-id=train', 'sh', '-c', 'echo out; echo err >&2')
            self.assertEqual((job.code, job.out), (0, '[default0]:out\n'))
            lines = [json.loads(line) for line in job.err.splitlines() if line[0] == '{']
            self.assertEqual(names(lines), START + END)
        job = self.run_job('--event-log=-', '--event-log-handler=null', 'true')
        self.assertEqual(job.err, '')

    def test_a_log_that_cannot_be_opened(self):
        job = self.run_job('--event-log=/nowhere/events', 'true')
        self.assert_sentence(job, 78, '--event-log', '/nowhere/events')

    def test_a_log_that_is_full(self):
        job = self.run_job('--event-log=/dev/full', 'sh', '-c', 'echo out')
        self.assertEqual((job.code, job.out), (0, '[default0]:out\n'))
        self.assertEqual(job.err.count('--event-log: events are missing'), 1)

    def node(self, name, endpoint, *words, nnodes='2'):
        return self.start(f'--nnodes={nnodes}', '--rdzv-id=train', f'--rdzv-endpoint={endpoint}',
                          '--nproc-per-node=1', '--max-restarts=1', '--lease=10m', '--settle=10m',
                          f'--event-log={self.folder}/{name}', *words)

    def test_two_nodes_one_of_which_fails(self):
        endpoint = self.serve().endpoints[0]
        logs = [self.folder / name for name in ('a', 'b')]
        nodes = [self.node(name, endpoint, 'sh', '-c', f'{fail_once(*logs)}; [ $RANK != 0 ] || '
                           '[ $TORCHELASTIC_RESTART_COUNT -gt 0 ] || sleep 60')
                 for name in ('a', 'b')]
        for node in nodes:
            self.assertEqual(node.wait(), 0, node.err)
        logs = [events(self.folder / name) for name in ('a', 'b')]
        for lines in logs:
            self.assertEqual(names(lines), START + FAILURE + START + END)
            self.check_fields(lines, 'train')
            self.assertIn('rank 1', lines[4]['reason'])
            self.assertEqual({line['world_size'] for line in lines if 'world_size' in line}, {2})
        self.assertEqual({lines[4]['node_rank'] for lines in logs}, {0, 1})
        failed = max(logs, key=lambda lines: lines[4]['node_rank'])
        other = min(logs, key=lambda lines: lines[4]['node_rank'])
        self.assertLess(failed[4]['monotonic_us'], other[4]['monotonic_us'])
        self.assertLess(max(lines[5]['monotonic_us'] for lines in logs),
                        min(lines[7]['monotonic_us'] for lines in logs))
        self.end_store()

    def test_a_node_that_leaves_is_no_failure_of_its_own(self):
        endpoint = self.serve().endpoints[0]
        nodes = [self.node(name, endpoint, 'sh', '-c', 'sleep 60', nnodes='1:2')
                 for name in ('a', 'b')]
        for name in ('a', 'b'):
            wait_until(lambda: (self.folder / name).exists() and
                       'worker_start_completed' in names(events(self.folder / name)), name)
        nodes[0].signal(signal.SIGTERM)
        self.assertEqual(nodes[0].wait(), 143, nodes[0].err)
        lines = events(self.folder / 'a')
        self.assertEqual(names(lines), START + END)
        self.assertIn('SIGTERM', lines[-1]['reason'])
        wait_until(lambda: names(events(self.folder / 'b'))[4:] ==
                   ['worker_terminated', *START], 'the other goes on alone')
        nodes[1].signal(signal.SIGTERM)
        nodes[1].wait()
        self.assertEqual(names(events(self.folder / 'b'))[-1], 'job_ended')
        self.end_store()

    def test_a_store_on_three_machines(self):
        endpoint = self.serve().endpoints[0]
        self.done(endpoint, 'set', 'store/keepers', kept(0, 'member', 'member', 'member'))
        node = self.node('a', f'{endpoint},127.0.0.1:1', 'sh', '-c', 'echo runs; sleep 60', nnodes='1')
        node.read_until('runs')
        for state, life in (('missing', 1), ('joining', 2), ('member', 2)):
            self.done(endpoint, 'set', 'store/keepers', kept(1, state, 'member', 'member', life=life))
        node.read_until('n0:29400 is a new member, as it had lost its data: the store survives any one of n0, n1, n2')
        self.assertIn('ddprun: n1:29400 leads the store instead of n0:29400\n', node.err)
        self.assertIn('ddprun: n0:29400 is missing: the store survives no other loss until n0 is back\n', node.err)
        node.signal(signal.SIGTERM)
        node.wait()
        lines = [line for line in events(self.folder / 'a') if 'endpoint' in line]
        self.assertEqual([(line['event'], line['endpoint']) for line in lines],
                         [('store_leader_changed', 'n1:29400'), ('member_lost', 'n0:29400'),
                          ('member_replaced', 'n0:29400')])
        self.end_store()

    def end_store(self):
        store = self.jobs[0]
        store.signal(signal.SIGTERM)
        store.wait()


if __name__ == '__main__':
    unittest.main()
