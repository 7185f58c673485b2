#!/usr/bin/env python3
"""test_ddp_perf_tune.py - ddp-perf tune: it writes a table that ranks then choose by. Which algorithm is the fastest
is not tested.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
DDPRUN = os.environ['DDPRUN']
BIN = Path(DDPRUN).parent
ALGORITHMS = ['ring', 'direct', 'doubling', 'hierarchical']
ROW = re.compile(r'^all_reduce (\d+) (\d+) (\d+) (\w+)$', re.MULTILINE)


class Tune(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.table = Path(folder.name) / 'table'

    def run_program(self, *words, **env):
        return subprocess.run([str(word) for word in words], text=True, capture_output=True, env={**os.environ, **env},
                              check=False)

    def tune(self, *words, **env):
        return self.run_program(BIN / 'ddp-perf', 'tune', f'--output={self.table}', *words, **env)

    def check_measured(self, done, sizes, possible):
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [row.split(' | ') for row in re.findall(r'^\| (\d.*) \|$', done.stdout, re.MULTILINE)]
        self.assertEqual([int(row[0]) for row in rows], sizes, done.stdout)
        for row in rows:
            self.assertEqual([name for name, us in zip(ALGORITHMS, row[1:5]) if us != '-'], possible)
            self.assertEqual(float(row[1 + ALGORITHMS.index(row[5])]),
                             min(float(us) for us in row[1:5] if us != '-'))
        self.assertEqual(list(self.table.parent.iterdir()), [self.table])

    def test_ranks_choose_by_the_table(self):
        self.check_measured(self.tune('--nproc=2', '-b8', '-e4K', '-f16'), [8, 128, 2048], ['ring', 'direct', 'doubling'])
        text = self.table.read_text()
        self.assertRegex(text, r'# Measured by ddp-perf .*, finished at 20\d\d-\d\d-\d\dT.*Z:')
        self.assertIn('# ddp-perf tune --nproc=2 --nodes=1 --minbytes=8 --maxbytes=4096 --stepfactor=16', text)
        rows = ROW.findall(text)
        self.assertEqual(rows[-1][2], '9223372036854775807', text)
        # more bytes than were measured, and few enough for each algorithm
        done = self.run_program(DDPRUN, '--nproc-per-node=2', BIN / 'ddp-perf', 'allreduce', '-b4K', '-e4K', '-n1',
                                '--device=cpu', DDP_ALGORITHM_TABLE=str(self.table), DDP_DEBUG='INFO')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'{rows[-1][3]}, as the table has it for 2 ranks on 1 nodes', done.stdout + done.stderr)

    def test_figures_as_json(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / 'figures'
            done = self.tune('--nproc=2', '-b8', '-e2K', '-f16', f'--json={figures}')
            self.check_measured(done, [8, 128, 2048], ['ring', 'direct', 'doubling'])
            lines = [json.loads(line) for line in figures.read_text().splitlines()]
        rows = [row.split(' | ') for row in re.findall(r'^\| (\d.*) \|$', done.stdout, re.MULTILINE)]
        for row, line in zip(rows, lines, strict=True):
            self.assertEqual({name: line.pop(name) for name in ('benchmark', 'call', 'ranks', 'nodes', 'size')},
                             {'benchmark': 'tune', 'call': 'allreduce', 'ranks': 2, 'nodes': 1, 'size': int(row[0])})
            self.assertEqual([line.pop('fastest'), line.pop('built_in')], row[5:7])
            self.assertIn(line.pop('chosen'), row[5:7])
            self.assertEqual(list(line), [f'{name}_us' for name in ALGORITHMS[:3]])
            for us, printed in zip(line.values(), row[1:4]):
                self.assertAlmostEqual(us, float(printed), delta=0.01)

    def test_pretended_nodes(self):
        self.table.write_text('the former one')
        done = self.tune('--nproc=3', '--nodes=2', '-b64', '-e64', DDP_ALGORITHM_TABLE='/nonexistent', DDP_ALGORITHM='ring')
        self.check_measured(done, [64], ALGORITHMS)
        self.assertEqual({row[:2] for row in ROW.findall(self.table.read_text())}, {('3', '2')})

    def test_bad_options_are_refused(self):
        for words, env, sentence in (
                ((), {}, 'tune needs --nproc=N, the number of ranks to measure with'),
                (('--nproc=1',), {}, '--nproc: '),
                (('--nproc=257',), {}, '--nproc: '),
                (('--nproc=2', '--nodes=3'), {}, '2 ranks cannot be divided among 3 nodes'),
                (('--nproc=2', '-b', '3'), {}, 'the smallest size is at least 4, an element'),
                (('--nproc=2', '-b', '8', '-e', '4'), {}, 'and at most the largest one'),
                (('--nproc=2', '-b', '8', '-e', '8X'), {}, "'8X'"),
                (('--nproc=2', '-f', '1'), {}, "-f: '1' is not in the range 2 to 1024"),
                (('--nproc=2', '-b', '4', '-e', '1024G', '-f', '2'), {}, '39 sizes are more than the 28'),
                (('--nproc=2', 'more'), {}, "'more' is not an option"),
                (('--nproc=2', '--op=sum'), {}, '--op'),
                (('--nproc=2', '--output='), {}, 'tune needs --output=FILE'),
                (('--nproc=2', '--output=/dev/null'), {}, "'/dev/null' is no regular file"),
                (('--nproc=2', '--json=/nonexistent/figures'), {}, "write to '/nonexistent/figures': "),
                (('--nproc=2', '--output=/nonexistent/table'), {}, "make a file beside '/nonexistent/table': "),
                (('--nproc=2',), {'DDP_FORCE_TCP': '1'}, 'DDP_FORCE_TCP is set and decides which ranks share memory'),
        ):
            with self.subTest(words):
                done = self.tune(*words, **env)
                self.assertIn(done.returncode, (1, 2))
                self.assertIn(sentence, done.stderr)
                self.assertEqual(done.stdout, '')
                self.assertFalse(self.table.exists())
        done = self.run_program(BIN / 'ddp-perf', 'tune', '--nproc=2')
        self.assertEqual(done.returncode, 2)
        self.assertIn('tune needs --output=FILE', done.stderr)

    def test_a_job_that_does_not_start_leaves_the_former_table(self):
        self.table.write_text('the former one')
        done = self.tune('--nproc=2', '--ddprun=/bin/false')
        self.assertEqual(done.returncode, 1)
        self.assertIn('the job has ended; what it wrote is above', done.stderr)
        self.assertEqual(self.table.read_text(), 'the former one')
        self.assertEqual(list(self.table.parent.iterdir()), [self.table])

    def test_help(self):
        done = self.run_program(BIN / 'ddp-perf', 'tune', '--help')
        self.assertEqual(done.returncode, 0)
        self.assertIn('--stepfactor=N', done.stdout)
        self.assertIn('  tune ', self.run_program(BIN / 'ddp-perf', '--help').stdout)

    def test_other_words_are_refused(self):
        for words, sentence in (((), 'no collective is given'), (('store',), "'store' is neither a collective nor 'tune'")):
            done = self.run_program(BIN / 'ddp-perf', *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"ddp-perf: {sentence}; 'ddp-perf --help' lists them", done.stderr)


if __name__ == '__main__':
    unittest.main()
