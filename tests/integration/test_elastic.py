#!/usr/bin/env python3
"""test_elastic.py - examples/elastic: the demonstration in its quick form, and checkpoints of every kind."""

import re
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase, ROOT, left_in

BUILD = Path(DDPRUN).resolve().parents[1]
ELASTIC = BUILD / 'examples' / 'elastic'
SMALL = ['--synthetic', '--limit=500', '--batch=10', '--epochs=2', '--every=30']
STEPS = 100


class Checkpoints(DdprunCase):
    def setUp(self):
        super().setUp()
        self.saved = self.folder / 'saved'
        self.saved.mkdir()

    def train(self, *words, workers=1):
        return self.run_job(f'--nproc-per-node={workers}', '--no-prefix', ELASTIC,
                            '--checkpoints', self.saved, *SMALL, *words)

    def from_step(self, job):
        self.assertEqual(job.code, 0, job.err)
        self.assertIn('test accuracy', job.out)
        return int(re.search(rf'from step (\d+)/{STEPS}', job.out)[1])

    def test_it_goes_on_where_it_was(self):
        self.assertEqual(self.from_step(self.train()), 0)
        self.assertEqual(sorted(path.name for path in self.saved.iterdir()), ['newest', 'previous'])
        self.assertEqual(self.from_step(self.train(workers=2)), STEPS)
        (self.saved / 'newest').unlink()    # as between two renames
        self.assertEqual(self.from_step(self.train(workers=3)), 90)

    def test_any_number_of_workers_ends_at_the_same_point(self):
        models = []
        for first, second in ((1, 1), (3, 2), (2, 4)):
            for path in self.saved.iterdir():
                path.unlink()
            self.train(workers=first)
            (self.saved / 'newest').unlink()
            job = self.train(workers=second)
            self.assertEqual(self.from_step(job), 90)
            models.append(float(re.search(r'test accuracy ([\d.]+)', job.out)[1]))
        self.assertLessEqual(max(models) - min(models), 0.1)

    def test_a_damaged_one_is_passed_over(self):
        self.train()
        newest = self.saved / 'newest'
        whole, before = newest.read_bytes(), (self.saved / 'previous').read_bytes()
        for damaged in (whole[:-1], whole[:1000] + b'\x55' + whole[1001:], b'', whole[:40]):
            newest.write_bytes(damaged)
            (self.saved / 'previous').write_bytes(before)
            job = self.train()
            self.assertEqual(self.from_step(job), 90)
            self.assertIn('newest is damaged: ', job.err)
        for path in self.saved.iterdir():
            path.write_bytes(b'nothing of use')
        self.assertEqual(self.from_step(self.train()), 0)

    def test_one_of_another_run_is_not_overwritten(self):
        self.train()
        before = (self.saved / 'newest').read_bytes()
        job = self.train('--seed=2')
        self.assertEqual(job.code, 78)
        self.assertIn('belongs to a run with other options', job.err)
        self.assertEqual((self.saved / 'newest').read_bytes(), before)

    def test_what_is_missing_is_said(self):
        job = self.run_job('--no-prefix', ELASTIC, '--synthetic')
        self.assertEqual(job.code, 2)
        self.assertIn('--checkpoints DIR is missing', job.err)
        job = self.run_job('--no-prefix', ELASTIC, '--checkpoints', self.folder / 'none', *SMALL)
        self.assertEqual(job.code, 1)
        self.assertIn(f'cannot open the folder of checkpoints {self.folder}/none', job.err)

    def test_a_killed_worker_costs_the_steps_since_the_last_checkpoint(self):
        job = self.run_job('--nproc-per-node=2', '--max-restarts=1', '--no-prefix', 'sh', '-c',
                           f'[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && '
                           f'(while [ ! -e {self.saved}/newest ]; do :; done; kill -9 $$$$) & '
                           f'exec {ELASTIC} --checkpoints {self.saved} {" ".join(SMALL)} '
                           '--epochs=40')
        self.assertEqual(job.code, 0, job.err)
        starts = [int(step) for step in re.findall(r'from step (\d+)/', job.out)]
        self.assertEqual(starts[0], 0)
        self.assertGreater(starts[1], 0)
        self.assertIn('rank 1 failed first: killed by SIGKILL', job.err)


class Demo(DdprunCase):
    def test_quick(self):
        job = self.start('--quick', '--loopback', '--synthetic', f'--build={BUILD}',
                         program=str(ROOT / 'scripts' / 'demo-elastic'))
        self.assertEqual(job.wait(), 0, job.out + job.err)
        for text in ('killed with all its processes', 'node5 started',
                     'worker with rank 3 killed', 'with 3 workers', 'points apart, within 0.1'):
            self.assertIn(text, job.out)
        for what in ('node killed', 'node joins', 'worker killed'):
            self.assertRegex(job.out, rf'(?m)^{what}( +(-|[\d.]+)){{4}}  \S')
        self.assertEqual(job.running(), [])

    def test_interrupted_it_leaves_nothing(self):
        job = self.start('--quick', '--loopback', '--synthetic', f'--build={BUILD}',
                         program=str(ROOT / 'scripts' / 'demo-elastic'))
        job.read_until('training from step 0')
        self.assertNotEqual(left_in(self.tmp), [])
        job.signal(2)
        self.assertEqual(job.wait(), 130, job.err)
        self.assertEqual(job.running(), [])


if __name__ == '__main__':
    unittest.main()
