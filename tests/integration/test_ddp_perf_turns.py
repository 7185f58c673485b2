#!/usr/bin/env python3
"""test_ddp_perf_turns.py - ddp-perf CALL --mpi --gloo: contenders that take turns. A shell script is gloo here;
the real ones are measured by scripts/bench.
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
BIN = Path(os.environ['DDPRUN']).parent
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
        for name in ('ddprun', 'ddp-perf', 'ddp-perf-ddprun'):
            shutil.copy(BIN / name, self.folder)

    def play(self, *words, answer='echo "1234.500 0" >&4'):
        gloo = self.folder / 'ddp-perf-gloo'
        gloo.write_text(PLAYER.replace('ANSWER', answer))
        gloo.chmod(0o755)
        return subprocess.run([self.folder / 'ddp-perf', *words], text=True, capture_output=True,
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
        self.assertIn('# Open MPI is left out: it needs mpicc.openmpi when ddp-perf is built', done.stdout)

    def test_a_contender_that_fails_is_named(self):
        for answer, sentence in (('exit 3', 'gloo: the job has ended; what it wrote is above'),
                                 ('echo "soon" >&4', 'gloo: the answer is not a time: soon'),
                                 ('echo "-1.000 0" >&4', 'gloo: the answer is not a time: ')):
            with self.subTest(answer):
                done = self.play('barrier', '--nproc=2', '--gloo', answer=answer)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f'ddp-perf: {sentence}', done.stderr)

    def test_wrong_elements_are_counted(self):
        done = self.play('allreduce', '--nproc=2', '--gloo', '-b', '8', '-e', '8', answer='echo "1.000 3" >&4')
        self.assertEqual(done.returncode, 1)
        self.assertIn('# gloo: 24 elements were wrong', done.stdout)

    def test_what_cannot_be_compared_is_refused(self):
        for words, sentence in ((('allreduce', '--gloo'), 'need --nproc=N, at least 2'),
                                (('sendrecv', '--gloo', '--nproc=2'), 'sendrecv is not compared'),
                                (('allreduce', '--mpi', '--nproc=2', '-d', 'int32'), 'compare sums of float32')):
            done = self.play(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(sentence, done.stderr)


if __name__ == '__main__':
    unittest.main()
