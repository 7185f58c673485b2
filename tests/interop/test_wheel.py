#!/usr/bin/env python3
"""test_wheel.py - builds the wheel by "make wheel", installs it into a fresh environment, and lets the ddprun of that
run ranks that reduce: buffers of Python, NumPy arrays, and tensors of PyTorch where $INTEROP_PYTHON has it.

It is built without optimisation and kernels for GPUs, which take most of the time and change no name or place.

Skipped (77) where pip cannot get what the build needs, unless DDPRUN_INTEROP=1 makes that a failure.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, DdprunCase, clean_environment
from installed import Installed
from skip import skip_program

TORCH_PYTHON = os.environ.get('INTEROP_PYTHON', '')

WORKER = '''
import array, os, sys
import ddprun
assert ddprun.__file__.startswith(sys.prefix), ddprun.__file__
with ddprun.Communicator() as comm, ddprun.Store() as store:
    numbers = array.array('d', [comm.rank])
    comm.all_reduce(numbers)
    print('sum', numbers[0], store.add('arrived', 1) <= comm.size, flush=True)
'''
ARRAYS = '''
import os, sys
from datetime import timedelta
import numpy, torch
import torch.distributed as dist
import ddprun
with ddprun.Communicator() as comm:
    matrix = numpy.full((3, 4), comm.rank, dtype='float32')
    comm.all_reduce(matrix)
    halves, flags = numpy.full(3, comm.rank, dtype='float16'), numpy.array([comm.rank == 0])
    comm.all_reduce(halves, op='max')
    comm.all_reduce(flags)
    tensor, narrow = torch.full((2, 2), comm.rank), torch.full((5,), comm.rank, dtype=torch.bfloat16)
    comm.all_reduce(tensor)
    comm.all_reduce(narrow)
    refused = []
    constant = numpy.ones(3)
    constant.flags.writeable = False
    for one in (matrix.T, matrix[:, 1], constant, numpy.array(['text']), torch.ones(3, 4).t(), torch.ones(2, requires_grad=True),
                torch.ones(2).to_sparse()):
        try:
            comm.all_reduce(one)
        except ddprun.Invalid as error:
            refused.append(str(error))
    print('arrays', matrix.sum(), halves[0], flags[0], tensor.sum().item(), narrow[4].item(), len(refused), refused, flush=True)
store = dist.FileStore(os.environ['MEETING'], int(os.environ['WORLD_SIZE']))
store.set_timeout(timedelta(seconds=60))
with ddprun.Communicator(store=store) as comm:
    number = bytearray([comm.rank])
    comm.all_reduce(number)
    print('met', number[0], flush=True)
'''
BACK_END = '''
import torch, torch.distributed as dist
dist.init_process_group('ddp')
tensor = torch.ones(3)
dist.all_reduce(tensor)
loaded = {line.split()[-1] for line in open('/proc/self/maps') if 'libddpcomm' in line}
form = type(dist.group.WORLD._get_backend(torch.device('cpu'))).__name__
print('form', form, tensor[0].item(), len(loaded), 'library', flush=True)
dist.destroy_process_group()
'''


def run(*words, **options):
    return subprocess.run(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)


class Wheel(DdprunCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Path(tempfile.mkdtemp(prefix='venv_', dir=ROOT / 'build'))
        cls.addClassCleanup(shutil.rmtree, cls.place)
        env = clean_environment()
        quick = cls.place / 'quick.ini'
        quick.write_text("[built-in options]\noptimization = '0'\ndebug = false\nc_args = '-w'\n[project options]\ncuda = 'disabled'\n")
        cls.must(run('make', 'wheel', f'WHEELS={cls.place}', cwd=ROOT, env=env | {
            'PIP_OPTIONS': f'--config-settings=setup-args=--native-file={quick}'}))
        cls.wheel, = cls.place.glob('*.whl')
        cls.must(run(sys.executable, '-m', 'venv', '--without-pip', cls.place / 'venv', env=env))
        cls.bin = cls.place / 'venv/bin'
        cls.lend_packages_of(TORCH_PYTHON)
        cls.install()

    @classmethod
    def install(cls):
        cls.must(cls.pip('install', '--no-deps', cls.wheel))

    @classmethod
    def pip(cls, *words):
        """That of this Python, for the fresh environment."""
        return run(sys.executable, '-m', 'pip', '--python', cls.bin / 'python', *words, env=clean_environment())

    @classmethod
    def lend_packages_of(cls, python):
        """PyTorch is too large to install once more."""
        where = 'import sysconfig; print(sysconfig.get_path("purelib"))'
        if python and os.access(python, os.X_OK):
            own = Path(run(cls.bin / 'python', '-c', where).stdout.strip())
            (own / 'lent.pth').write_text(run(python, '-c', where).stdout)

    @classmethod
    def must(cls, done):
        if done.returncode != 0:
            raise AssertionError(done.stdout)

    def run_ranks(self, ranks, code, **env):
        worker = self.write('worker.py', code)
        job = self.run_job(f'--nproc-per-node={ranks}', self.bin / 'python', worker, program=str(self.bin / 'ddprun'), env=env)
        self.assert_succeeded(job)
        return job.out

    def need(self, *packages):
        """Without importing them, which takes seconds."""
        find = f'from importlib.util import find_spec; raise SystemExit(not all(map(find_spec, {packages})))'
        if run(self.bin / 'python', '-c', find).returncode != 0:
            self.skipTest("PyTorch is missing; 'scripts/setup interop' installs it")

    def test_name_and_contents(self):
        self.assertRegex(self.wheel.name, r'^ddprun-[\d.]+-py3-none-linux_\w+\.whl$')
        for path in ('man/man1/ddprun.1', 'man/man8/ddprund.8', 'bash-completion/completions/ddpctl'):
            self.assertTrue((self.bin.parent / 'share' / path).exists(), path)
        self.assertRegex(run(self.bin / 'python', '-m', 'ddprun', '--version', env=self.env).stdout, r'\Addprun \d')
        Installed(self, self.bin, self.env).try_all()

    def test_it_needs_no_libraries_of_others(self):
        """But libpmix, which programs of Open MPI have."""
        files = [*self.bin.glob('ddp*'), *self.bin.parent.glob('lib/python*/site-packages/.ddprun*/*')]
        needed = {}
        for file in files:
            for library in re.findall(r'NEEDED.*\[(.*)\]', run('readelf', '-d', file).stdout):
                needed.setdefault(library, set()).add(file.name)
        self.assertGreaterEqual(len(files), 8)
        self.assertEqual(needed.pop('libpmix.so.2', {'ddprun-pmix'}), {'ddprun-pmix'})
        self.assertLessEqual(set(needed), {'libc.so.6', 'libm.so.6', 'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'}, needed)

    def test_what_compiling_lacks_is_named(self):
        """Where neither a compiler nor headers are found."""
        env = self.env | {'PATH': self.path_of('sh', 'cat', 'dirname'), 'PKG_CONFIG_LIBDIR': '/nowhere'}
        script = 'import wheel_of_root; wheel_of_root.get_requires_for_build_wheel()'
        (self.folder / 'mesonpy.py').write_text('build_sdist = build_wheel = get_requires_for_build_sdist = None')
        done = run(sys.executable, '-c', script, env=env | {'PYTHONPATH': f'{ROOT}/python:{self.folder}'})
        self.assertEqual(done.returncode, 1, done.stdout)
        for name in ('gcc', 'libuv1-dev', 'libjansson-dev', 'libsodium-dev', 'libhwloc-dev', 'libsqlite3-dev'):
            self.assertRegex(done.stdout, f'apt-get install .* {name}')

    def path_of(self, *programs):
        """A folder that has these alone."""
        folder = self.folder / 'few'
        folder.mkdir()
        for program in programs:
            (folder / program).symlink_to(shutil.which(program))
        return str(folder)

    def test_arrays_of_others_and_the_compiled_back_end(self):
        """Compiled by what is in the wheel alone. It goes with the package, and one of another version is not used."""
        self.need('torch', 'numpy')
        build = [self.bin / 'python', '-m', 'ddprun.torch.build']
        env = self.env | {'PKG_CONFIG': '/nowhere', 'PKG_CONFIG_PATH': '/nowhere'}
        self.assertIn('usage: ', run(*build, '--help', env=env).stdout)
        refused = run(*build, env=env | {'DDPRUN_TORCH_LIBRARIES': '/proc/nowhere'}).stdout
        self.assertRegex(refused, r'\Addprun.torch.build: cannot write to /proc/nowhere \(.*name a folder of your own in')
        quick = self.folder / 'quick'
        quick.write_text('#!/bin/sh\nexec c++ "$@" -O0\n')
        quick.chmod(0o755)
        self.must(run(*build, env=env | {'CXX': str(quick)}))
        out = self.run_ranks(2, ARRAYS + BACK_END, MEETING=self.folder / 'meeting')
        self.assertEqual(out.count('arrays 12.0 1.0 True 4 1.0 7 '), 2, out)
        self.assertEqual(out.count('met 1'), 2, out)
        self.assertEqual(out.count('form Backend 2.0 1 library'), 2, out)
        compiled, = self.bin.parent.glob('lib/python*/site-packages/ddprun/torch/libddptorch-*.so')
        older = compiled.with_name(re.sub(r'-[^-]*$', '-0.0.9.so', compiled.name))
        compiled.rename(older)
        worker = self.write('worker.py', BACK_END)
        job = self.run_job('--nproc-per-node=2', self.bin / 'python', worker, program=str(self.bin / 'ddprun'))
        self.assertEqual(job.out.count('form PythonBackend 2.0 1 library'), 2, job.out + job.err)
        self.assertEqual(job.err.count('was compiled for another version than'), 1, job.err)
        older.rename(compiled)
        self.must(self.pip('uninstall', '--yes', 'ddprun'))
        self.addCleanup(self.install)
        left = [path for path in self.bin.parent.rglob('*ddp*') if 'pycache' not in str(path)]
        self.assertEqual(left, [])

    def test_ranks_reduce(self):
        self.assertEqual(self.run_ranks(4, WORKER).count('sum 6.0 True'), 4)


if __name__ == '__main__':
    if run(sys.executable, '-m', 'pip', 'download', '--no-deps', '-d', tempfile.gettempdir(), 'meson-python').returncode != 0:
        skip_program('pip cannot get the package meson-python: that takes a network')
    unittest.main(verbosity=2)
