#!/usr/bin/env python3
"""test_programs.py - programs that others wrote, under the launcher that they were written for and under
ddprun: both have to end well, and to print the same lines.

Programs of PyTorch's world run below torchrun, those of MPI below MPICH's mpiexec. $INTEROP_PYTHON is
the Python that has them; skipped (77) where there is none, unless DDPRUN_INTEROP=1 demands it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import namedtuple
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from sample import sample
from skip import need_torch, skip_program

DDPRUN = os.environ.get('DDPRUN', '')
PYTHON = os.environ.get('INTEROP_PYTHON', '')
HERE = Path(__file__).resolve().parent
MPIEXEC = shutil.which('mpiexec.mpich')
NETPIPE = shutil.which('NPmpich2')
PACKAGES = ('torch', 'accelerate', 'lightning', 'mpi4py', 'rich')
ENDED_AT_ONCE = str(HERE / 'programs' / 'ended_at_once.py')

# What is compared of the output: the lines that match @keep, sorted, without what @drop matches.
Program = namedtuple('Program', 'name ranks words keep drop', defaults=('.', '$^'))
ACCELERATE = ['accelerate/test_utils/scripts/' + name for name in (
    'test_cli.py', 'test_script.py', 'test_ops.py', 'test_sync.py')]

MPI = [
    Program('mpi4py hello world', 4, [PYTHON, '-m', 'mpi4py.bench', 'helloworld'], r'^Hello', r' on \S+\.$'),
    Program('mpi4py ring', 3, [PYTHON, '-m', 'mpi4py.bench', 'ringtest', '-n', '16', '-l', '2'], r'^time', r'time.*'),
    Program('mpi4py ping-pong', 2, [PYTHON, '-m', 'mpi4py.bench', 'pingpong', '-n', '4096', '-l', '50'],
            r'^ *\d+ ', r'(?<=\d) .*'),
    Program('mpi4py futures', 3, [PYTHON, '-m', 'mpi4py.futures', '-m', 'this'], r'^Namespaces'),
    Program('mpi4py ping-pong of pickles', 2, [PYTHON, '-m', 'mpi4py.bench', 'pingpong', '-p', '-n', '512', '-l', '50'],
            r'^ *\d+ ', r'(?<=\d) .*'),
    Program('NetPIPE', 2, [NETPIPE, '-u', '64', '-n', '50', '-o', os.devnull], r'bytes', r'.*?:|--.*| times.*'),
]


def site_packages():
    done = subprocess.run([PYTHON, '-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'],
                          check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())


def of_torch(packages):
    return [Program(name, 2, [ENDED_AT_ONCE, str(packages / name)], r'^(\*\*|[Tt]est|Success|All|rank|.*(passed|success))')
            for name in ACCELERATE] + [
        Program(name, 2, [ENDED_AT_ONCE, str(HERE / 'programs' / f'{name}.py')], r'^rank')
        for name in ('lightning_trainer', 'lightning_fabric')]


def kept(program, text):
    lines = [line for line in text.splitlines() if re.search(program.keep, line)]
    return sorted(re.sub(program.drop, '', line) for line in lines)


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.env = dict(os.environ, PYTHON_EXEC=PYTHON, CUDA_VISIBLE_DEVICES='', ACCELERATE_USE_CPU='1',
                       OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1')

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def below_torchrun(self, program, launcher):
        """What each rank printed. Both launchers know these options; ranks that share a pipe may cut each
        other's lines."""
        logs = Path(tempfile.mkdtemp(dir=self.folder.name))
        done = self.run_below([*launcher, '--redirects=3', f'--log-dir={logs}'], program)
        errors = [file.read_text(errors='replace') for file in logs.glob('*_*/attempt_0/*/stderr.log')]
        self.assertEqual(done.returncode, 0, '\n'.join([*launcher, done.stdout, *errors]))
        files = sorted(logs.glob('*_*/attempt_0/*/stdout.log'))
        self.assertEqual(len(files), program.ranks)
        return [kept(program, file.read_text(errors='replace')) for file in files]

    def expected_of(self, program, torchrun, tries=3):
        """The same below torchrun itself, whose Gloo cannot connect its ranks now and then."""
        try:
            return self.below_torchrun(program, torchrun)
        except AssertionError as fault:
            if tries == 1 or 'connectFullMesh failed' not in str(fault):
                raise
        return self.expected_of(program, torchrun, tries - 1)

    def below_mpiexec(self, program, launcher):
        done = self.run_below(launcher, program)
        self.assertEqual(done.returncode, 0, f'{launcher[0]}:\n{done.stdout}')
        return kept(program, done.stdout)

    def run_below(self, launcher, program):
        return subprocess.run([*launcher, *program.words], env=self.env, cwd=self.folder.name,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace')

    def test_of_pytorch(self):
        for program in sample(of_torch(site_packages()), stride=6, first=2):
            with self.subTest(program.name):
                ranks = f'--nproc-per-node={program.ranks}'
                expected = self.expected_of(program, [PYTHON, '-m', 'torch.distributed.run', ranks])
                self.assertTrue(expected[0])
                self.assertEqual(self.below_torchrun(program, [DDPRUN, ranks]), expected)

    def test_live_bars_of_rich(self):
        bar = Program('rich', 2, [str(HERE / 'programs' / 'rich_bar.py')])
        ranks = [DDPRUN, f'--nproc-per-node={bar.ranks}']
        for launcher, redrawn in (ranks, False), ([*ranks, '--pty'], True):
            with self.subTest(launcher):
                done = self.run_below(launcher, bar)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertGreaterEqual(done.stdout.count('100%'), bar.ranks, done.stdout)
                self.assertEqual('\x1b[2Kepoch' in done.stdout, redrawn, done.stdout)
                self.assertEqual(' 50%' in done.stdout, redrawn, done.stdout)

    @unittest.skipUnless(MPIEXEC and NETPIPE, 'MPICH or NetPIPE is missing (Debian packages mpich and netpipe-mpich2)')
    def test_of_mpi(self):
        library = subprocess.run(['/sbin/ldconfig', '-p'], check=True, capture_output=True, text=True).stdout
        library = re.search(r'libmpich\.so\.12 .*=> (\S+)', library)
        self.assertIsNotNone(library)
        # Debian's name of the library is not the one of MPICH's ABI.
        os.symlink(library[1], os.path.join(self.folder.name, 'libmpi.so.12'))
        self.env['LD_LIBRARY_PATH'] = self.folder.name
        self.env['MPI4PY_MPIABI'] = 'mpich'
        for program in MPI:
            with self.subTest(program.name):
                expected = self.below_mpiexec(program, [MPIEXEC, '-n', str(program.ranks)])
                self.assertTrue(expected)
                ours = [DDPRUN, f'--nproc-per-node={program.ranks}', '--no-prefix']
                self.assertEqual(self.below_mpiexec(program, ours), expected)


def is_complete():
    probe = f'import importlib.util as u; raise SystemExit(not all(u.find_spec(n) for n in {PACKAGES!r}))'
    return subprocess.run([PYTHON, '-c', probe]).returncode == 0


if __name__ == '__main__':
    need_torch(PYTHON)
    if not is_complete():
        skip_program(f"{PYTHON} lacks one of {', '.join(PACKAGES)}; 'scripts/setup interop' installs them")
    unittest.main()
