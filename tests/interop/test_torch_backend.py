#!/usr/bin/env python3
"""test_torch_backend.py - the back end "ddp" of torch.distributed: each call, calls and what is built on them beside gloo, mistakes
and deaths; under ddprun, torchrun and mp.spawn.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless DDPRUN_INTEROP=1 makes that a
failure. The back end is compiled into $TORCH_LIBRARIES first, unless it is newer than its sources.
"""

import gzip
import os
import random
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, DdprunCase
from sample import sample, whole_only
from skip import need_torch

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get('INTEROP_PYTHON', '')
PACKAGE = ROOT / 'python'
LIBRARIES = Path(os.environ.get('TORCH_LIBRARIES', ''))
FORMS = ('native', 'python')
# Of torch_mistakes.py. How the error of an asynchronous call is seen, and coalescing, differ.
MISTAKES = ('arguments', 'lists', 'batched', 'patient', 'mismatch', 'late', 'aborted', 'left', 'destroyed', 'unmatched',
            'forked')
MISTAKES_OF = {'native': (*MISTAKES, 'future', 'coalesced', 'polled'), 'python': (*MISTAKES, 'lost', 'on_cuda')}
OLDEST_FOR_PYTHON = (2, 14)
NEWEST = (2, 15)  # of which PyTorch's own tests are listed

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


# "import torch" imports and registers little where the package is installed.
NAME_ALONE = '''
import sys, torch, torch.distributed as dist
print('imported', sorted(name for name in sys.modules if name.startswith('ddprun')), 'DDP' in dist.Backend._plugins, flush=True)
dist.init_process_group('ddp')
total = torch.ones(1)
dist.all_reduce(total)
print('sum', total.item(), flush=True)
dist.destroy_process_group()
'''

# Two versions of PyTorch that are too old: for all, and for the form in Python.
OLDER = '''
import torch
def attempt(version, use):
    torch.__version__ = version
    try:
        import ddprun.torch
        use(ddprun.torch)
    except (ImportError, RuntimeError) as error:
        print(f'{type(error).__name__}: {error}')
attempt('2.6.0', lambda package: None)
attempt('2.13.0', lambda package: package.FORMS['python'](None))
'''

# Both ranks raise.
RECORDED = '''
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
import ddprun.torch
@record
def main():
    dist.init_process_group('ddp')
    dist.all_reduce(torch.ones(3 + dist.get_rank()))
main()
'''

# Fails until PyTorch was there before the script imported it.
RESTARTED = '''
import os
import sys
forked = 'torch' in sys.modules
import torch
import torch.distributed as dist
import ddprun.torch
dist.init_process_group('ddp')
total = torch.ones(1)
dist.all_reduce(total)
if forked:
    loader = iter(torch.utils.data.DataLoader([0]))
    print('forked', total.item(), torch.rand(1).item(), torch.initial_seed(), loader._base_seed, flush=True)
dist.barrier()
dist.destroy_process_group()
mark = f'{sys.argv[1]}/forked.{os.environ["RANK"]}'
again = os.path.exists(mark)
if forked:
    open(mark, 'w').close()
sys.exit(not again)
'''


def version():
    done = subprocess.run([PYTHON, '-c', 'from importlib.metadata import version; print(version("torch"))'],
                          capture_output=True, text=True, check=True)
    return tuple(map(int, re.match(r'(\d+)\.(\d+)', done.stdout).groups()))


def environment():
    return {'PYTHONPATH': str(PACKAGE), 'DDPRUN_TORCH_LIBRARIES': str(LIBRARIES), 'PYTHONDONTWRITEBYTECODE': '1',
            'PKG_CONFIG_PATH': os.environ['UNINSTALLED'], 'DDPRUN_LIBRARY_PATH': os.environ['DDPCOMM_FOLDER']}


def python(backend):
    """The words before a script; gloo's threads can abort a process while Python finalizes."""
    return [PYTHON, HERE / 'programs/ended_at_once.py'] if backend == 'gloo' else [PYTHON]


def compile_back_end():
    sources = list((PACKAGE / 'ddprun/torch').rglob('*'))
    newest = max(path.stat().st_mtime for path in sources)
    if any(path.stat().st_mtime > newest for path in LIBRARIES.glob('libddptorch-*.so')):
        return
    subprocess.run([PYTHON, '-m', 'ddprun.torch.build'], env=os.environ | environment(), check=True)


class Backend(DdprunCase):
    job_of_three = None

    def setUp(self):
        super().setUp()
        self.env.update(environment(), TORCHINDUCTOR_CACHE_DIR=str(self.folder / 'inductor'),
                        TORCH_EXTENSIONS_DIR=str(self.folder / 'extensions'))
        if self.version < NEWEST:  # leaves a folder where a process ends at once
            self.addCleanup(lambda: [shutil.rmtree(folder) for folder in self.tmp.glob('tmp????????')])

    @classmethod
    def setUpClass(cls):
        cls.version = version()

    def need(self, form):
        if form == 'python' and self.version < OLDEST_FOR_PYTHON:
            self.skipTest('this PyTorch has no back ends in Python')

    def succeed(self, *words, **options):
        job = self.run_job(*words, **options)
        self.assert_succeeded(job)
        return job

    def forms(self):
        return [form for form in FORMS if form == 'native' or self.version >= OLDEST_FOR_PYTHON]

    def bound(self):
        """What torch_collectives.py tries in groups of a default group that is bound to a device."""
        return [f'{form}@cpu:0' for form in sample(self.forms())] if self.version >= NEWEST else []

    def cases(self):
        return [f'{form}:{case}' for form in self.forms() for case in MISTAKES_OF[form]]

    def three_ranks(self):
        """The job of three tests, as importing PyTorch takes most of the time. The last program leaves unfinished work."""
        if not Backend.job_of_three:
            programs = (('torch_collectives.py', *self.forms(), *self.bound()), ('torch_mistakes.py', *self.cases()),
                        ('torch_memory.py',))
            Backend.job_of_three = self.run_job('--nproc-per-node=3', PYTHON, HERE / 'in_a_row.py', *map(' '.join, programs))
        self.assert_succeeded(Backend.job_of_three)
        return Backend.job_of_three

    def check_calls(self, job, ranks):
        for variant in self.forms() + self.bound():
            counts = [int(count) for count in re.findall(rf':{variant}: (\d+) results are right', job.out)]
            self.assertEqual(len(counts), ranks, job.out)
            self.assertGreater(min(counts), 0 if '@' in variant else 1500)

    def test_calls(self):
        self.check_calls(self.three_ranks(), 3)

    @whole_only
    def test_calls_of_two_ranks(self):
        """test_torchrun has two, too."""
        self.check_calls(self.succeed('--nproc-per-node=2', PYTHON, HERE / 'torch_collectives.py', *self.forms(), *self.bound()), 2)

    def test_what_is_built_on_them_gives_the_results_of_gloo(self):
        forms = sample(self.forms())
        job = self.succeed('--nproc-per-node=2', *python('gloo'), HERE / 'torch_features.py', *forms)
        for form in forms:
            self.assertRegex(job.out, rf'{form}: \d\d cases are equal')

    def test_the_example_learns_as_with_gloo(self):
        for name, count in (('train', 600), ('t10k', 200)):
            pixels = random.Random(name).randbytes(count * 784)
            labels = bytes(pixels[i * 784] % 10 for i in range(count))
            (self.folder / f'{name}-images-idx3-ubyte.gz').write_bytes(gzip.compress(bytes(16) + pixels))
            (self.folder / f'{name}-labels-idx1-ubyte.gz').write_bytes(gzip.compress(bytes(8) + labels))
        runs = [f'{ROOT}/examples/pytorch/train.py --backend={backend} --data={self.folder} --epochs=2' for backend in ('ddp', 'gloo')]
        job = self.succeed('--nproc-per-node=2', '--no-prefix', *python('gloo'), HERE / 'in_a_row.py', *runs)
        told = re.sub(r'^\[Gloo\] .*\n', '', job.out, flags=re.MULTILINE)  # of PyTorch 2.9 and older
        ours, theirs = re.findall(r'epoch 1/2 .*\nepoch 2/2 .*\ntest accuracy \d+\.\d\d %\n', told)
        self.assertEqual(ours, theirs)

    def test_a_restart_forks_from_a_process_that_has_imported_it(self):
        script = self.write('train.py', RESTARTED)
        job = self.succeed('--nproc-per-node=2', '--max-restarts=100', '--crash-loop=0', '--no-prefix',
                           '--preload=torch,ddprun.torch', script, self.folder, env={'PYTHON_EXEC': PYTHON})
        drawn = [line.split()[2:] for line in job.out.splitlines() if line.startswith('forked 2.0 ')]
        self.assertEqual(len(drawn), 4, job.out)
        for stream in zip(*drawn):  # they differ between ranks and between restarts
            self.assertEqual(len(set(stream)), 4, job.out)
        self.assertIn('2 of 2 workers were forked from a process that has imported torch', job.err)

    def test_some_of_pytorchs_own_tests(self):
        """Each starts processes that import much."""
        if self.version < NEWEST:
            self.skipTest('this PyTorch has other tests than those listed')
        listed = [line.split()[1:] for line in (HERE / 'torch_c10d.txt').read_text().splitlines()
                  if line.startswith('run ')]
        self.assertGreater(len(listed), 50)
        for words in sample(listed, stride=80, first=20):
            with self.subTest(words[-1]):
                done = subprocess.run([PYTHON, HERE / 'torch_c10d.py', *words], env={**self.env, **environment()},
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr[-4000:])
                self.assertIn('\nOK', done.stderr)

    def test_an_older_version_of_pytorch_is_refused(self):
        done = subprocess.run([PYTHON, '-c', OLDER], env={**self.env, **environment()}, capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout.splitlines(), [
            'ImportError: the back end "ddp" needs PyTorch 2.7 or newer, and this is 2.6.0: install a newer one, or use another '
            'back end',
            'RuntimeError: the back end "ddp" needs its compiled part for PyTorch 2.13.0: run "python -m ddprun.torch.build"'],
            done.stderr)

    @whole_only
    def test_frameworks_train_as_with_gloo(self):
        for name in ('lightning', 'accelerate', 'transformers', 'deepspeed'):
            with self.subTest(name):
                if subprocess.run([PYTHON, '-c', f'import {name}'], capture_output=True, check=False).returncode != 0:
                    self.skipTest(f'{name} is not installed for {PYTHON}')
                jobs = [self.succeed('--nproc-per-node=2', '--no-prefix', *python(backend),
                                     HERE / 'torch_frameworks.py', name, backend, env={'DS_ACCELERATOR': 'cpu'}) for backend in ('ddp', 'gloo')]
                ours, theirs = (re.search('^trained .*$', job.out, re.MULTILINE)[0] for job in jobs)
                self.assertEqual(ours, theirs)

    def test_ranks_share_the_memory_of_buckets(self):
        job = self.three_ranks()
        for part in ('memory', 'unfinished'):
            self.assertEqual(job.out.count(f'{part} is right'), 3, job.out + job.err)

    def test_calls_are_those_of_gloo(self):
        if self.version < NEWEST:
            self.skipTest('the gloo of this PyTorch may take other arguments')
        job = self.succeed('--nproc-per-node=3', *python('gloo'), HERE / 'torch_same.py', *self.forms())
        self.assertEqual(job.out.count('calls are the same'), 3, job.out + job.err)

    def test_mistakes(self):
        job = self.three_ranks()
        self.assertEqual({case: job.out.count(f' {case} is right') for case in self.cases()}, dict.fromkeys(self.cases(), 3), job.err)
        # Of what torch_mistakes.py has not caught: a failure for which rank 2, which comes too late, made no call.
        self.assertLessEqual(set(re.findall(r'\[rank(\d)\]:.*Warning: ddp: (?!ranks will copy)', job.err)), {'2'}, job.err)
        self.succeed('--nproc-per-node=1', PYTHON, HERE / 'torch_mistakes.py', *(f'{form}:alone' for form in self.forms()))

    def test_a_compiled_part_that_cannot_be_used(self):
        compiled = max(LIBRARIES.glob('libddptorch-*.so'), key=lambda path: path.stat().st_mtime)
        (self.folder / compiled.name).touch()
        other = self.folder / 'other.so'
        subprocess.run(['cc', '-shared', '-fPIC', '-x', 'c', '-', '-o', other], text=True, check=True,
                       input='const char *ddp_version(void) { return "9.8.7"; }')
        cases = {'missing': '/nonexistent', 'broken': self.folder, 'other_version': LIBRARIES}
        done = subprocess.run([PYTHON, HERE / 'torch_mistakes.py', *(f'{case}={place}' for case, place in cases.items())],
                              capture_output=True, text=True, check=False,
                              env={**self.env, 'DDPRUN_TORCH_FORM': 'native', 'RANK': '0', 'WORLD_SIZE': '1',
                                   'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '0', 'LD_PRELOAD': str(other)})
        self.assertEqual((done.returncode, done.stdout), (0, ''.join(f'{case} is refused\n' for case in cases)), done.stderr)

    def test_a_death_is_an_exception_that_names_the_rank(self):
        for form, ranks in (('native', 3), ('python', 2)):
            with self.subTest(form):
                self.need(form)
                job = self.run_job(f'--nproc-per-node={ranks}', PYTHON, HERE / 'torch_mistakes.py', 'death',
                                   env={'DDPRUN_TORCH_FORM': form})
                self.assertRegex(job.err, f'rank {ranks - 1} failed first: killed by SIGKILL')
                told = re.findall(rf'rank (\d) knows: .*rank {ranks - 1} \(pid \d+ on .*\) has died', job.out)
                self.assertEqual(sorted(told), [str(rank) for rank in range(ranks - 1)], job.out + job.err)

    def test_what_record_saves_is_in_the_report(self):
        for form in sample(FORMS, first=1):
            with self.subTest(form):
                self.need(form)
                job = self.run_job('--nproc-per-node=2', self.write('train.py', RECORDED),
                                   env={'DDPRUN_TORCH_FORM': form, 'PYTHON_EXEC': PYTHON})
                self.assertEqual(job.code, 1, job.err)
                report = job.err[job.err.index('failed first'):]
                self.assertRegex(report, r'in main\n(.*\n)+.*DistBackendError: .*rank [01].*mismatch')

    def installed(self):
        """The environment in which the package is installed: what pip leaves of pyproject.toml."""
        points = re.findall(r"^\[project\.entry-points\.'(.*)'\]\nddp = '(.*)'$", (ROOT / 'pyproject.toml').read_text(),
                            re.MULTILINE)
        self.assertEqual(len(points), 2)
        info = self.folder / 'site/ddprun-0.1.0.dist-info'
        info.mkdir(parents=True)
        (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: ddprun\nVersion: 0.1.0\n')
        (info / 'entry_points.txt').write_text(''.join(f'[{group}]\nddp = {point}\n' for group, point in points))
        return {'PYTHONPATH': f'{PACKAGE}:{info.parent}'}

    def test_the_name_alone_is_enough(self):
        job = self.succeed('--nproc-per-node=2', '--no-prefix', PYTHON, '-c', NAME_ALONE, env=self.installed())
        self.assertEqual(job.out.count("imported ['ddprun', 'ddprun.autoload', 'ddprun.version'] False\n"), 2, job.out)
        self.assertEqual(job.out.count('sum 2.0'), 2, job.out)
        self.assertEqual(job.err, '')

    def test_torchrun(self):
        """With PyTorch's detailed checks, under which a group wraps the back end: every call of the first form, and groups."""
        variants = sample(self.forms()) + [f'{form}@cpu:0' for form in self.forms()[1:] if self.version >= NEWEST]
        done = subprocess.run([PYTHON, '-m', 'torch.distributed.run', '--nproc-per-node=2', '--standalone',
                               HERE / 'torch_collectives.py', *variants],
                              env={**self.env, 'TORCH_DISTRIBUTED_DEBUG': 'DETAIL'}, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for variant in variants:
            self.assertEqual(done.stdout.count(f':{variant}: '), 2, done.stdout)

    def test_spawned_processes_meet_in_a_file(self):
        script = self.folder / 'spawn.py'
        script.write_text(SPAWN)
        done = subprocess.run([PYTHON, script, self.folder / 'meeting'], env=self.env, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count('sum 2.0'), 2)


if __name__ == '__main__':
    need_torch(PYTHON)
    compile_back_end()
    unittest.main(verbosity=2)
