#!/usr/bin/env python3
"""test_draw_benchmarks.py - scripts/draw-benchmarks draws what it is given, and says what it cannot."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SVG = '{http://www.w3.org/2000/svg}'

RUN = {'benchmark': 'run', 'date': '2031-05-06', 'commit': 'abc1234', 'machine': '2 cores of <Z80> & more',
       'versions': 'Debian 12, Redis 7.0'}
TIMES = {'min_ms': 1, 'median_ms': 2.5, 'max_ms': 40}
TURNS = {'benchmark': 'turns', 'call': 'allreduce', 'alloc': False, 'ranks': 2}
FIGURES = {
    'launch': [
        {'benchmark': 'launch', 'nproc': 4, 'contender': 'ddprun', **TIMES},
        {'benchmark': 'launch', 'nproc': 4, 'contender': 'other <mpirun>', **TIMES},
        {'benchmark': 'launch', 'nproc': 64, 'contender': 'ddprun', **TIMES},
        {'benchmark': 'launch', 'nproc': 64, 'contender': 'hanger', 'failed': True},
        {'benchmark': 'launch-growth', 'nproc': 1, 'ddprun_median_ms': 2, 'bare_median_ms': 1,
         'agent_peak_kib': 3000, 'guard_peak_kib': 2000},
        {'benchmark': 'launch-version', 'version_median_ms': 0.7, 'empty_median_ms': 0.5}],
    'restart': [
        {'benchmark': 'restart', 'case': 'worker', 'contender': 'ddprun', 'runs': 5, 'p50_ms': 2.4, 'p99_ms': 3},
        {'benchmark': 'restart', 'case': 'worker', 'contender': 'torchrun', 'runs': 0, 'limit_ms': 15000}],
    'store': [
        {'benchmark': 'store', 'connections': 1, 'in_flight': 1, 'op': 'set', 'contender': 'ddprun',
         'requests_per_s': 36349, 'ratio_to_redis': 1.99},
        {'benchmark': 'store', 'connections': 1, 'in_flight': 1, 'op': 'set', 'contender': 'Redis',
         'requests_per_s': 18295, 'ratio_to_redis': 1},
        {'benchmark': 'store-torch', 'clients': 8, 'op': 'add', 'contender': 'ddprun',
         'requests_per_s': 1000, 'ratio_to_torch': 2},
        {'benchmark': 'store-growth', 'what': 'sessions', 'count': 100, 'set_server_us': 0.7,
         'get_server_us': 0.6, 'bytes_each': -41},
        {'benchmark': 'store-list', 'others': 100, 'server_us': 2},
        {'benchmark': 'store-swarm', 'contender': 'Redis', 'connect_ms': 300, 'max': 900},
        {'benchmark': 'store-swarm', 'contender': 'ddprun', 'idle_bytes': 2060, 'max': 2060}],
    'rendezvous': [
        {'benchmark': 'rendezvous', 'nodes': 100, 'form_ms': 12, 'max': 20},
        {'benchmark': 'rendezvous', 'nodes': 10000, 'form_ms': 1200, 'max': 2000}],
    'collectives': [
        {**TURNS, 'size': 8, 'contender': 'ddprun', 'us': 0.6},
        {**TURNS, 'size': 8, 'contender': 'gloo', 'us': 460},
        {**TURNS, 'size': 16777216, 'contender': 'ddprun', 'us': 1100},
        {**TURNS, 'size': 16777216, 'contender': 'gloo', 'us': 12000},
        {**TURNS, 'size': 8, 'contender': 'unlike the others', 'us': 0.5, 'alloc': True},
        {**TURNS, 'size': 8, 'contender': 'not this one', 'us': 0.5, 'call': 'broadcast'}],
}
LABELS = {
    'launch': ['4 processes', '64 processes', 'other <mpirun>', '2.5 ms', 'hanger',
               'failed, or needed more than 20 s'],
    'launch-growth': ["ddprun's agent", 'KiB, peak', '1'],
    'restart': ['a worker killed, 4 on one node', '2.4 ms', 'not within 15 s'],
    'store': ['1 connection, 1 in flight on each', '36,300 (1.99 x)', '18,300', 'Redis', 'requests/s'],
    'store-torch': ['8 clients of PyTorch', '1,000 (2.00 x)'],
    'store-growth': ['set', 'get', 'list of 10 keys', 'sessions'],
    'store-clients': ['connect and greet all', '300', '2,060', 'bytes'],
    'allreduce': ['2 ranks', 'gloo', '8 B', '16 MiB', 'µs per call', '0.1', '10,000'],
    'rendezvous': ['100', '10,000', 'first join to last seat'],
}
LONE = {'benchmark': 'launch', 'nproc': 4, 'contender': 'ddprun'}
LAUNCH = {**LONE, **TIMES}
# The bytes of launch.json, and what is said of them.
REFUSED = [
    (b'', 'launch.json: empty'),
    (b'\xff\n', 'launch.json: cannot be read'),
    ([LAUNCH], 'launch.json:1: field "benchmark" is not "run"'),
    ([{**RUN, 'date': 7}, LAUNCH], 'launch.json:1: field "date" is 7, not a short printable text'),
    ([{**RUN, 'machine': 'x' * 121}, LAUNCH], 'launch.json:1: field "machine" is "xxxx'),
    ([{**RUN, 'commit': 'a\0'}, LAUNCH], 'launch.json:1: field "commit" is "a\\u0000", not'),
    ([RUN], 'nothing to draw'),
    ([RUN, 'half'], 'launch.json:2: not a JSON object'),
    (json.dumps(RUN).encode() + b'\n{"benchmark":\n', 'launch.json:2: not a line of JSON'),
    (json.dumps(RUN).encode() + b'\n' + b'[' * 100000 + b'\n', 'launch.json:2: not a line of JSON'),
    ([RUN, {'nproc': 4}], 'launch.json:2: field "benchmark" is missing'),
    ([RUN, LONE], 'launch.json:2: field "min_ms" is missing'),
    *(([RUN, {**LAUNCH, 'median_ms': figure}], f'launch.json:2: field "median_ms" is {shown}, not a number')
      for figure, shown in (('2', '"2"'), (0, '0'), (-1, '-1'), (True, 'true'), (None, 'null'), ([], '[]'),
                            (float('nan'), 'NaN'), (float('inf'), 'Infinity'),
                            (10 ** 400, '1' + '0' * 39 + '...'))),
    ([RUN, *({**LAUNCH, 'contender': f'c{i}'} for i in range(7))], '7 contenders'),
]


class DrawTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def write(self, name, lines):
        if not isinstance(lines, bytes):
            lines = ''.join(json.dumps(line) + '\n' for line in lines).encode()
        (self.root / f'{name}.json').write_bytes(lines)

    def draw(self, *folders):
        return subprocess.run([sys.executable, ROOT / 'scripts' / 'draw-benchmarks', *folders],
                              capture_output=True, text=True)

    def pictures(self):
        return {path.stem: path.read_bytes() for path in self.root.glob('*.svg')}

    def test_pictures(self):
        for name, lines in FIGURES.items():
            self.write(name, [RUN, *lines])
        done = self.draw(self.root)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        drawn = self.pictures()
        self.assertEqual(set(drawn), set(LABELS))
        for name, svg in drawn.items():
            with self.subTest(name):
                self.check_picture(svg, LABELS[name])
        self.draw(self.root)
        self.assertEqual(self.pictures(), drawn)

    def check_picture(self, svg, labels):
        """XML, on the paper, with the labels of its own and of the run."""
        self.assertLess(len(svg), 40000)
        self.assertIsNone(re.search(rb'nan|inf[ "]|e[+-]?\d\d', svg.split(b'</style>')[1]))
        tree = ElementTree.fromstring(svg)
        texts = [text.text for text in tree.iter(SVG + 'text')]
        for label in [*labels, '2031-05-06, commit abc1234', RUN['machine'], RUN['versions'], 'log scales']:
            self.assertIn(label, texts)
        for text in tree.iter(SVG + 'text'):
            self.assertTrue(0 < float(text.get('x')) < float(tree.get('width')), text.text)
            self.assertTrue(0 < float(text.get('y')) < float(tree.get('height')), text.text)

    def test_left_out(self):
        self.write('store', [RUN, *FIGURES['store'][:2]])
        done = self.draw(self.root)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(self.pictures()), {'store'})
        self.assertIn('store-torch.svg: left out', done.stdout)

    def test_refused(self):
        for lines, sentence in REFUSED:
            with self.subTest(sentence):
                self.write('launch', lines)
                done = self.draw(self.root)
                self.assertEqual(done.returncode, 1)
                self.assertIn(sentence, done.stderr)
                self.assertNotIn('Traceback', done.stderr)
                self.assertEqual(done.stderr.count('\n'), 1)
                self.assertEqual(self.pictures(), {})

    def test_folders(self):
        self.assertIn('nothing to draw', self.draw(self.root / 'none').stderr)
        self.write('store', [RUN, *FIGURES['store']])
        done = self.draw(self.root, self.root / 'none')
        self.assertEqual(done.returncode, 1)
        self.assertIn('cannot write', done.stderr)


if __name__ == '__main__':
    unittest.main()
