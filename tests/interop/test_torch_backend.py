#!/usr/bin/env python3
"""test_torch_backend.py - the back end "ddp" of torch.distributed: each call, what is built on them beside gloo, mistakes and
deaths; under ddprun, torchrun and mp.spawn.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless DDPRUN_INTEROP=1 makes that a
failure. The back end is compiled into $TORCH_LIBRARIES first, unless it is newer than its sources.
"""

import gzip
import itertools
import os
import random
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, DdprunCase

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get('INTEROP_PYTHON', '')
PACKAGE = ROOT / 'python'
LIBRARIES = Path(os.environ.get('TORCH_LIBRARIES', ''))
FORMS = ('native', 'python')
ERRORS = {'native': 'future', 'python': 'lost'}  # how the error of an asynchronous call is seen
LAST = 'compiled_functional'  # of the cases of torch_features.py

COMPARE = '''
import sys, torch
ours, theirs = (torch.load(path) for path in sys.argv[1:])
assert ours.keys() == theirs.keys()
for name in ours:
    assert len(ours[name]) == len(theirs[name]) > 0, name
    for seen, expected in zip(ours[name], theirs[name]):
        torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-6, msg=lambda text: f'{name}: {text}')
print(len(ours), 'cases are equal')
'''

SPAWN = '''
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def main(rank, path):
    import ddprun.torch
    dist.init_process_group('ddp', init_method='file://' + path, rank=rank, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    print('sum', total.item(), flush=True)
    dist.destroy_process_group()
if __name__ == '__main__':
    mp.spawn(main, args=(sys.argv[1],), nprocs=2)
'''


NAME_ALONE = '''
import torch, torch.distributed as dist
dist.init_process_group('ddp')
total = torch.ones(1)
dist.all_reduce(total)
print('sum', total.item(), flush=True)
dist.destroy_process_group()
'''


def environment():
    return {'PYTHONPATH': str(PACKAGE), 'DDPRUN_TORCH_LIBRARIES': str(LIBRARIES), 'PYTHONDONTWRITEBYTECODE': '1',
            'PKG_CONFIG_PATH': os.environ['UNINSTALLED'], 'DDPRUN_LIBRARY_PATH': os.environ['DDPCOMM_FOLDER']}


def compile_back_end():
    sources = list((PACKAGE / 'ddprun/torch').rglob('*'))
    newest = max(path.stat().st_mtime for path in sources)
    if any(path.stat().st_mtime > newest for path in LIBRARIES.glob('libddptorch-*.so')):
        return
    subprocess.run([PYTHON, '-m', 'ddprun.torch.build'], env=os.environ | environment(), check=True)


class Backend(DdprunCase):
    def setUp(self):
        super().setUp()
        self.env.update(environment(), TORCHINDUCTOR_CACHE_DIR=str(self.folder / 'inductor'))

    def succeed(self, *words, timeout=250, **options):
        job = self.run_job(*words, timeout=timeout, **options)
        self.assert_succeeded(job)
        return job

    def test_calls(self):
        for form, ranks in itertools.product(FORMS, (2, 3)):
            with self.subTest(form=form, ranks=ranks):
                job = self.succeed(f'--nproc-per-node={ranks}', PYTHON, HERE / 'torch_collectives.py',
                                   env={'DDPRUN_TORCH_FORM': form})
                counts = [int(count) for count in re.findall(r': (\d+) results are right', job.out)]
                self.assertEqual(len(counts), ranks, job.out)
                self.assertGreater(min(counts), 1500)

    def test_calls_with_detailed_checks(self):
        for form in FORMS:
            with self.subTest(form):
                job = self.succeed('--nproc-per-node=2', PYTHON, HERE / 'torch_collectives.py',
                                   env={'DDPRUN_TORCH_FORM': form, 'TORCH_DISTRIBUTED_DEBUG': 'DETAIL'})
                self.assertEqual(job.out.count('results are right'), 2, job.out)

    def test_what_is_built_on_them_gives_the_results_of_gloo(self):
        files = [self.folder / f'{name}.pt' for name in ('gloo', *FORMS)]
        for file in files:
            job = self.succeed('--nproc-per-node=2', PYTHON, HERE / 'torch_features.py',
                               'ddp' if file.stem in FORMS else 'gloo', file, env={'DDPRUN_TORCH_FORM': file.stem})
            self.assertIn(LAST, job.out)
        for file in files[1:]:
            done = subprocess.run([PYTHON, '-c', COMPARE, file, files[0]], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r'^\d\d cases are equal')

    def test_the_example_learns_as_with_gloo(self):
        for name, count in (('train', 600), ('t10k', 200)):
            pixels = random.Random(name).randbytes(count * 784)
            labels = bytes(pixels[i * 784] % 10 for i in range(count))
            (self.folder / f'{name}-images-idx3-ubyte.gz').write_bytes(gzip.compress(bytes(16) + pixels))
            (self.folder / f'{name}-labels-idx1-ubyte.gz').write_bytes(gzip.compress(bytes(8) + labels))
        lines = []
        for backend in ('ddp', 'gloo'):
            job = self.succeed('--nproc-per-node=2', '--no-prefix', PYTHON, ROOT / 'examples/pytorch/train.py',
                               f'--backend={backend}', f'--data={self.folder}', '--epochs=2')
            lines.append(job.out)
        self.assertEqual(lines[0], lines[1])
        self.assertRegex(lines[0], r'epoch 2/2 .*\ntest accuracy \d+\.\d\d %')

    def test_mistakes(self):
        for form, case in itertools.product(FORMS, ('arguments', 'mismatch', 'late', 'error', 'forked')):
            with self.subTest(form=form, case=case):
                case = ERRORS[form] if case == 'error' else case
                job = self.succeed('--nproc-per-node=3', PYTHON, HERE / 'torch_mistakes.py', case,
                                   env={'DDPRUN_TORCH_FORM': form})
                self.assertEqual(job.out.count(f'{case} is right'), 3, job.out + job.err)
        for form, case in (*itertools.product(FORMS, ['destroyed']), ('native', 'missing')):
            with self.subTest(form=form, case=case):
                self.succeed('--nproc-per-node=2', PYTHON, HERE / 'torch_mistakes.py', case,
                             env={'DDPRUN_TORCH_FORM': form})

    def test_a_death_is_an_exception_that_names_the_rank(self):
        for form in FORMS:
            with self.subTest(form):
                job = self.run_job('--nproc-per-node=3', PYTHON, HERE / 'torch_mistakes.py', 'death', timeout=250,
                                   env={'DDPRUN_TORCH_FORM': form})
                self.assertRegex(job.err, 'rank 2 failed first: killed by SIGKILL')
                told = re.findall(r'rank (\d) knows: .*rank 2 \(pid \d+ on .*\) has died', job.out)
                self.assertEqual(sorted(told), ['0', '1'], job.out + job.err)

    def test_the_name_alone_is_enough(self):
        """Where the package is installed: what pip leaves of pyproject.toml."""
        project = (ROOT / 'pyproject.toml').read_text()
        group, point = re.search(r"^\[project\.entry-points\.'(.*)'\]\nddp = '(.*)'$", project, re.MULTILINE).groups()
        info = self.folder / 'site/ddprun-0.1.0.dist-info'
        info.mkdir(parents=True)
        (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: ddprun\nVersion: 0.1.0\n')
        (info / 'entry_points.txt').write_text(f'[{group}]\nddp = {point}\n')
        job = self.succeed('--nproc-per-node=2', PYTHON, '-c', NAME_ALONE,
                           env={'PYTHONPATH': f'{PACKAGE}:{info.parent}'})
        self.assertEqual(job.out.count('sum 2.0'), 2, job.out)

    def test_torchrun(self):
        done = subprocess.run([PYTHON, '-m', 'torch.distributed.run', '--nproc-per-node=2', '--standalone',
                               HERE / 'torch_collectives.py'], env=self.env, capture_output=True, text=True, timeout=250,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count('results are right'), 2)

    def test_spawned_processes_meet_in_a_file(self):
        script = self.folder / 'spawn.py'
        script.write_text(SPAWN)
        done = subprocess.run([PYTHON, script, self.folder / 'meeting'], env=self.env, capture_output=True, text=True,
                              timeout=250, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count('sum 2.0'), 2)


if __name__ == '__main__':
    if not PYTHON or subprocess.run([PYTHON, '-c', 'import torch'], capture_output=True, check=False).returncode != 0:
        print('there is no Python with PyTorch', file=sys.stderr)
        sys.exit(1 if os.environ.get('DDPRUN_INTEROP') == '1' else 77)
    compile_back_end()
    unittest.main(verbosity=2)
