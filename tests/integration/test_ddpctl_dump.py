#!/usr/bin/env python3
"""test_ddpctl_dump.py - ddpctl dump on jobs whose ranks hang: it says which one the others wait for,
also if that rank or its node does not answer, and leaves nothing in the store."""

import json
import os
import pickle
import re
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import growing, probe, wait_until
from ddprund_run import TIMEOUT, UNREACHABLE, USAGE, DdprundCase

FAILED = 1
CALL = 'all_reduce #3 (sum of 100 float32)'
ENTRY = {'record_id', 'pg_id', 'process_group', 'collective_seq_id', 'p2p_seq_id', 'op_id', 'is_p2p',
         'profiling_name', 'input_sizes', 'output_sizes', 'input_dtypes', 'output_dtypes', 'state',
         'time_created_ns', 'time_discovered_started_ns', 'time_discovered_completed_ns',
         'duration_ms', 'timeout_ms', 'retired', 'frames'}


class DumpCase(DdprundCase):
    def launch(self, *words, **options):
        job = self.start(*words, **options)
        self.addCleanup(self.end, job)
        return job

    @staticmethod
    def end(job):
        """Its ranks do not mind to be asked."""
        job.insist(signal.SIGTERM)
        job.wait()
        job.wait_gone()

    def one_node(self, mode, odd, *words, nproc=3):
        """A job of one node, and the address of its store."""
        job = self.launch(f'--nproc-per-node={nproc}', '--rdzv-id=alone', *words, '--no-python', 'sh', '-c',
                          'echo store $DDPRUN_STORE; exec "$@"', '-', probe('flight'), mode, odd)
        job.read_until('store ')
        job.read_until('\n')
        store = job.out.split('store ', 1)[1].split()[0]
        return job, store

    def dump(self, store, seconds, *words):
        """What ddpctl dump prints as JSON; None if no agent answers within @seconds."""
        code, out, err = self.ctl(store, '--json', f'--timeout={seconds}s', *words, verb='dump')
        self.assertIn(code, (0, TIMEOUT, UNREACHABLE, FAILED), err)  # the job may not be there yet
        return json.loads(out) if code == 0 else None

    def whole_dump(self, store, *words):
        """The same of a job whose agents do answer, however long it takes."""
        return json.loads(self.done(store, '--json', '--timeout=60s', *words, verb='dump'))

    def await_verdict(self, store, verdict, sentence, *words, answered=None):
        """Asks with more patience each time: some agents never answer, and all are slow on a slow machine."""
        patience = growing(2, 60)
        def found():
            dump = self.dump(store, next(patience), *words)
            if dump is None or not dump['communicators']:
                return None
            world = dump['communicators'][0]
            enough = answered is None or len(dump['ranks']) == answered
            right = world['verdict'] == verdict and re.fullmatch(sentence, world['sentence'])
            return dump if enough and right else None
        return wait_until(found, f'{verdict}: {sentence}')

    def text(self, store, *words):
        return self.done(store, '--timeout=60s', *words, verb='dump').decode()


class OneNode(DumpCase):
    def test_a_rank_that_does_not_call(self):
        _, store = self.one_node('behind', 1)
        sentence = 'rank 1 has not called all_reduce #3, in which ranks 0 and 2 wait'
        dump = self.await_verdict(store, 'behind', sentence)
        self.assertEqual((dump['schema'], dump['job'], dump['world_size']), (1, 'alone', 3))
        world = dump['communicators'][0]
        self.assertEqual([world[name] for name in ('name', 'size', 'number')], ['world', 3, 3])
        self.assertEqual([member['odd'] for member in world['members']], [False, True, False])
        self.assertEqual([member['last_completed'] for member in world['members']], [2, 2, 2])
        self.assertEqual([member['pending'] and member['pending']['call'] for member in world['members']],
                         [CALL, None, CALL])
        lines = self.text(store).splitlines()
        self.assertEqual(lines[0], 'job alone, generation 1: records of 3 of 3 ranks')
        self.assertEqual(lines[2], f'communicator world, 3 ranks: {sentence}')
        self.assertRegex(lines[4], r'\A +0 +\S+ +\d+ +#2  all_reduce #3 \(sum of 100 float32\) \d+\.\d s\Z')
        self.assertRegex(lines[5], r'\A-> +1 +\S+ +\d+ +#2  -\Z')

    def test_the_records_are_those_of_pytorch(self):
        _, store = self.one_node('behind', 1)
        self.await_verdict(store, 'behind', 'rank 1 has not called all_reduce #3, in which ranks 0 and 2 wait')
        folder = self.folder / 'dump'
        dump = self.whole_dump(store, f'--output={folder}')
        self.assertEqual(sorted(os.listdir(folder)), ['rank_0', 'rank_1', 'rank_2'])
        for rank in range(3):
            records = dump['ranks'][str(rank)]
            self.assertEqual(pickle.loads((folder / f'rank_{rank}').read_bytes()), records)
            self.assertEqual(records['version'], '2.10')
            self.assertEqual(records['pg_config'],
                             {'world': {'name': 'world', 'desc': 'world', 'ranks': '[0, 1, 2]'}})
            last = 2 if rank == 1 else 3
            self.assertEqual(records['pg_status']['world'],
                             {'last_enqueued_collective': last, 'last_started_collective': last,
                              'last_completed_collective': 2})
            entries = records['entries']
            self.assertEqual([entry['collective_seq_id'] for entry in entries], list(range(1, last + 1)))
            for entry in entries:
                self.assertEqual(set(entry), ENTRY)
                self.assertEqual((entry['profiling_name'], entry['input_sizes'], entry['process_group']),
                                 ('nccl:all_reduce', [[100]], ['world', 'world']))
                self.assertEqual(entry['state'], 'completed' if entry['collective_seq_id'] < 3 else 'started')

    def test_a_rank_that_calls_something_else(self):
        _, store = self.one_node('differ', 2)
        self.await_verdict(store, 'differ',
                           r'rank 2 called broadcast #3 \(100 float32, root 0\), but ranks? [01 and]+ called ' +
                           re.escape(CALL))
        wait_until(lambda: f'{CALL} failed (mismatch) after' in self.text(store), 'it to fail')

    def test_ranks_with_other_counts(self):
        _, store = self.one_node('counts', 2)
        call = r'all_gather #3 \(6 float32, digest of counts [0-9a-f]{4}\)'
        self.await_verdict(store, 'differ', f'rank 2 called {call}, but ranks 0 and 1 called {call}')

    def test_ranks_with_other_counts_of_each_other(self):
        _, store = self.one_node('pairs', 2)
        self.await_verdict(store, 'counts', r'ranks 0 to 2 called all_to_all #3 \(float32 in uneven parts\), '
                           'but disagree about its counts')
        wait_until(lambda: 'all_to_all #3 (float32 in uneven parts) failed (mismatch) after' in self.text(store),
                   'it to fail')

    def test_a_rank_that_makes_no_communicator(self):
        _, store = self.one_node('absent', 0)
        self.await_verdict(store, 'behind', 'rank 0 has not called init #0, in which ranks 1 and 2 wait')

    def test_a_rank_that_was_killed(self):
        _, store = self.one_node('behind', 1, '--failure-timeout=10m')
        sentence = 'rank 1 has not called all_reduce #3, in which ranks 0 and 2 wait'
        dump = self.await_verdict(store, 'behind', sentence)
        os.kill(dump['communicators'][0]['members'][1]['pid'], signal.SIGKILL)
        killed = wait_until(lambda: [member for member in self.whole_dump(store)['communicators'][0]['members']
                                     if member['exit_code'] is not None], 'its end')
        self.assertEqual([(member['rank'], member['exit_code'], member['last_completed']) for member in killed],
                         [(1, 137, 2)])
        self.assertRegex(self.text(store), r'\n-> +1 +\S+ +\d+ +#2  exited with code 137\n')

    def test_only_the_last_records(self):
        _, store = self.one_node('behind', 1, '--flight-records=16')
        self.await_verdict(store, 'behind', 'rank 1 has not called all_reduce #3, in which ranks 0 and 2 wait')
        dump = self.whole_dump(store, '--last=1')
        self.assertEqual([len(dump['ranks'][rank]['entries']) for rank in '012'], [1, 1, 1])

    def test_no_records(self):
        _, store = self.one_node('behind', 1, '--flight-records=0')
        patience = growing(2, 60)
        dump = wait_until(lambda: self.dump(store, next(patience)), 'an answer')
        self.assertEqual((dump['communicators'], len(dump['ranks'])), ([], 3))
        self.assertIn('no rank has made a communicator', self.text(store))

    def test_refusals(self):
        for words in (['--last=0'], ['--last=65537'], ['a', 'b']):
            self.assertEqual(self.ctl('127.0.0.1:9', *words, verb='dump')[0], USAGE, words)
        code, _, err = self.ctl('127.0.0.1:9', '--output=x', verb='status')
        self.assertEqual((code, err), (USAGE, 'ddpctl: --last and --output are for dump only\n'))


class SeveralNodes(DumpCase):
    def setUp(self):
        super().setUp()
        self.service = self.serve()
        self.addCleanup(self.stop, self.service)
        self.store = self.service.endpoints[0]

    def node(self, rank, mode, odd):
        return self.launch('--nnodes=2', f'--node-rank={rank}', '--nproc-per-node=2', '--rdzv-id=train',
                           f'--rdzv-endpoint={self.store}', '--lease=10m', '--no-python', probe('flight'), mode, odd)

    def test_ranks_of_all_nodes(self):
        for rank in range(2):
            self.node(rank, 'behind', 3)
        sentence = 'rank 3 has not called all_reduce #3, in which ranks 0 to 2 wait'
        dump = self.await_verdict(self.store, 'behind', sentence, 'train', answered=4)
        self.assertEqual(dump['job'], 'train')
        self.assertIn('job train, generation 1: records of 4 of 4 ranks\n', self.text(self.store))
        self.assertEqual(self.done(self.store, 'list', 'job/train/dump'), b'')

    def test_a_node_that_does_not_answer(self):
        nodes = [self.node(rank, 'behind', 3) for rank in range(2)]
        sentence = 'rank 3 has not called all_reduce #3, in which ranks 0 to 2 wait'
        self.await_verdict(self.store, 'behind', sentence, answered=4)
        agent = nodes[1].agent()
        os.kill(agent, signal.SIGSTOP)
        self.await_verdict(self.store, 'unfinished', 'ranks 0 and 1 are in all_reduce #3; of 2 more there are no '
                           'records', answered=2)
        os.kill(agent, signal.SIGCONT)

    def test_jobs_that_do_not_answer(self):
        code, _, err = self.ctl(self.store, '--timeout=2s', verb='dump')
        self.assertEqual(code, TIMEOUT)
        self.assertIn('no agent of a job of one node has answered', err)
        code, _, err = self.ctl(self.store, 'other', verb='dump')
        self.assertEqual(code, FAILED)
        self.assertIn("no job 'other'", err)


if __name__ == '__main__':
    unittest.main()
