#!/usr/bin/env python3
"""test_ddprun_names.py - jobs of several nodes that have no name, and jobs that share the store of one node."""

import os
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprund_run import USAGE, DdprundCase
from nodes import free_port


class Names(DdprundCase):
    def node(self, endpoint, *words):
        return self.start('--nnodes=1:2', '--settle=50ms', '--lease=10m', '--nproc-per-node=1', '--no-prefix',
                          f'--rdzv-endpoint={endpoint}', *words)

    def test_a_ddprund_refuses_a_job_without_a_name(self):
        store = self.serve()
        endpoint = store.endpoints[0]
        for words in ([], ['--rdzv-id=none'], ['--nnodes=2']):
            job = self.node(endpoint, *words, 'echo', 'ran')
            job.wait()
            self.assert_sentence(job, USAGE, 'ddprund', '--rdzv-id=NAME', 'the same on all of its nodes')
        job = self.node(endpoint, '--rdzv-id=train', 'echo', 'ran')
        self.assertEqual((job.wait(), job.out), (0, 'ran\n'), job.err)
        self.stop(store)

    def test_both_commands_are_told_once(self):
        """Each node without a name starts what it was given, in one job."""
        endpoint = f'127.0.0.1:{free_port()}'
        os.mkfifo(self.folder / 'written')  # rank 0 of the first world of both fails after rank 1 has written its line
        script = self.write('worker.sh', f'''
            echo "$1 $RANK of $WORLD_SIZE"
            case "$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $RANK" in
            "2 0 0") read line <{self.folder}/written; exit 3;;
            "2 0 1") echo >{self.folder}/written;;
            esac
            exec sleep 1000''')
        words = ['--max-restarts=1', '--crash-loop=0', '--no-python', 'sh', script]
        first = self.node(endpoint, *words, 'one')
        first.read_until('one 0 of 1')
        second = self.node(endpoint, *words, 'two')
        for job, own, other in ((first, 'one 0', 'two'), (second, 'two 1', 'one')):
            job.read_until(f'{own} of 2', 2)  # the world of both, and its restart
            told = [line for line in job.err.splitlines() if '--rdzv-id=NAME' in line]
            self.assertEqual(len(told), 1, job.err)
            self.assertRegex(told[0], r"^ddprun: node \S+ runs 'sh .*' and this node 'sh .*', in one job without a name")
            self.assertNotEqual(*told[0].split("'")[1::2][:2])
        self.end(first, second)

    def test_a_name_is_nobodys_question(self):
        endpoint = f'127.0.0.1:{free_port()}'
        jobs = [self.node(endpoint, '--nnodes=2', '--rdzv-id=train', 'sh', '-c', 'echo $0', word)
                for word in ('one', 'two')]
        for job, word in zip(jobs, ('one', 'two')):
            self.assertEqual((job.wait(), job.out), (0, f'{word}\n'), job.err)
            self.assertNotIn('in one job', job.err)

    def test_two_jobs_at_one_nodes_store(self):
        """The messages name the other job."""
        endpoint = f'127.0.0.1:{free_port()}'
        first = self.node(endpoint, '--rdzv-id=first', 'sh', '-c', 'echo up; exec sleep 1000')
        first.read_until('up')
        second = self.node(endpoint, '--rdzv-id=second', 'sh', '-c', 'echo up; exec sleep 1000')
        second.read_until('up')
        second.read_until(f"the store at {endpoint} is that of job 'first', and ends with it; a ddprund serves several "
                          'jobs')
        first.signal(signal.SIGTERM)
        first.read_until("waits for the other nodes (1), also those of job 'second'")
        first.insist(signal.SIGTERM)
        self.assertEqual(first.wait(), 143, first.err)
        second.read_until("that store was the one of job 'first', which may be over")
        second.insist(signal.SIGTERM)
        second.wait()

    def end(self, *jobs):
        for job in jobs:
            job.signal(signal.SIGTERM)
        for job in jobs:
            job.wait()


if __name__ == '__main__':
    unittest.main()
