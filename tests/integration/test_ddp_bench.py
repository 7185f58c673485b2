#!/usr/bin/env python3
"""test_ddp_bench.py - each benchmark of ddp-bench measures something, and contenders take turns. A shell script is gloo
here; the real ones are measured by scripts/bench.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
BIN, DDP_BENCH = Path(os.environ['DDPRUN']).parent, Path(os.environ['DDP_BENCH'])
PLAYER = '''#!/bin/sh
exec 3<"$DDP_PERF_TURNS.$RANK" 4>"$DDP_PERF_TURNS.answer"
while read -r call bytes iters <&3 && [ "$iters" != 0 ]; do
    [ "$RANK" != 0 ] || ANSWER
done
'''


class Turns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for program in (BIN / 'ddprun', BIN / 'ddp-perf-ddprun', DDP_BENCH):
            shutil.copy(program, self.folder)

    def play(self, *words, answer='echo "1234.500 0" >&4'):
        gloo = self.folder / 'ddp-bench-gloo'
        gloo.write_text(PLAYER.replace('ANSWER', answer))
        gloo.chmod(0o755)
        return subprocess.run([self.folder / 'ddp-bench', 'turns', *words], text=True, capture_output=True,
                              env={**os.environ, 'LD_LIBRARY_PATH': str(BIN.parent / 'worker')}, check=False)

    def test_all_sizes_are_compared(self):
        figures = self.folder / 'figures.json'
        for call in ('allreduce', 'broadcast', 'allgather', 'reducescatter', 'alltoall'):
            figures.unlink(missing_ok=True)
            done = self.play(call, '--nproc=2', '--gloo', '-b', '8', '-e', '4K', '-f', '16', f'--json={figures}')
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = re.findall(r'^\| (\d+) \| ([\d.]+) \| 1234\.50 \| ([\d.]+) \|$', done.stdout, re.MULTILINE)
            self.assertEqual([int(row[0]) for row in rows], [8, 128, 2048], done.stdout)
            found = [json.loads(line) for line in figures.read_text().splitlines()]
            self.assertEqual([(figure['size'], figure['contender']) for figure in found],
                             [(size, name) for size in (8, 128, 2048) for name in ('ddprun', 'gloo')])
            for ours, theirs in zip(found[::2], found[1::2]):
                self.assertEqual(theirs['us'], 1234.5)
                self.assertAlmostEqual(theirs['ratio'], 1234.5 / ours['us'], delta=0.01 * theirs['ratio'])

    def test_a_barrier_has_one_row(self):
        done = self.play('barrier', '--nproc=3', '--gloo')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r'^\| \d', done.stdout, re.MULTILINE)), 1)

    def test_a_contender_that_is_not_there_is_left_out(self):
        done = self.play('barrier', '--nproc=2', '--mpi')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('# Open MPI is left out: it needs mpicc.openmpi when ddp-bench is built', done.stdout)

    def test_a_contender_that_fails_is_named(self):
        for answer, sentence in (('exit 3', 'gloo: the job has ended; what it wrote is above'),
                                 ('echo "soon" >&4', 'gloo: the answer is not a time: soon'),
                                 ('echo "-1.000 0" >&4', 'gloo: the answer is not a time: ')):
            with self.subTest(answer):
                done = self.play('barrier', '--nproc=2', '--gloo', answer=answer)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f'ddp-bench: {sentence}', done.stderr)

    def test_wrong_elements_are_counted(self):
        done = self.play('allreduce', '--nproc=2', '--gloo', '-b', '8', '-e', '8', answer='echo "1.000 3" >&4')
        self.assertEqual(done.returncode, 1)
        self.assertIn('# gloo: 24 elements were wrong', done.stdout)

    def test_what_cannot_be_compared_is_refused(self):
        for words, sentence in ((('allreduce', '--gloo'), 'needs --nproc=N, at least 2'),
                                (('sendrecv', '--gloo', '--nproc=2'), 'sendrecv is not compared'),
                                (('--nproc=2',), 'needs a collective'),
                                (('reduction', '--nproc=2'), "'reduction' is not a collective"),
                                (('allreduce', '--nproc=2', 'barrier'), "'barrier' is not an option")):
            with self.subTest(words):
                done = self.play(*words)
                self.assertEqual(done.returncode, 2)
                self.assertIn(sentence, done.stderr)


class Benchmarks(unittest.TestCase):
    """With the programs of the build, of which ddp-bench finds its own next to itself."""

    def measure(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder, 'figures.json')
            done = subprocess.run([DDP_BENCH, *words, f'--json={figures}'], text=True, capture_output=True,
                                  env={**os.environ, 'PATH': f'{BIN}:/usr/bin:/bin'}, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertNotIn('not measured', done.stdout)
            return [json.loads(line) for line in figures.read_text().splitlines()]

    def test_launch(self):
        self.assertTrue(self.measure('launch', '--runs=1', '--slow-runs=0'))

    def test_store(self):
        self.assertTrue(self.measure('store', '--runs=1', '--duration=10ms'))

    def test_restart(self):
        self.assertTrue(self.measure('restart', '--runs=1', '--kills=1'))

    def test_help_lists_all(self):
        done = subprocess.run([DDP_BENCH, '--help'], text=True, capture_output=True, check=True)
        self.assertEqual(re.findall(r'(?m)^  (\w+) {2,}\w', done.stdout.partition('\nOptions')[0]),
                         ['launch', 'store', 'restart', 'gradients'])
        self.assertIn('\n  turns CALL ', done.stdout)


if __name__ == '__main__':
    unittest.main()
