#!/usr/bin/env python3
"""test_install.py - installs as README.md says, then builds and runs the worker of docs/collectives.md, word for word.

That is done in a copy of the sources and of the build that this test is part of, as a prefix is kept there; the worker is
compiled in a bare folder.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from fnmatch import fnmatch
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import ROOT, clean_environment
from documents import block
from installed import Installed
from strangers import STRANGER, needs_strangers, reachable

BUILD = ROOT / 'build'
OF_MESON = r'\.ninja_.*|build\.ninja|given-options|meson-.*'  # beside the folders that are named as those of the sources


def not_needed(folder, names):
    """What other tests write meanwhile, too."""
    if Path(folder) == BUILD:
        return [name for name in names if not (ROOT / name).exists() and not re.fullmatch(OF_MESON, name)]
    unneeded = {ROOT: r'\.git|build-.*', BUILD / 'tests/gpu': 'run'}
    return [name for name in names if re.fullmatch(unneeded.get(Path(folder), '__pycache__'), name)]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix='install_', dir=BUILD))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.sources = cls.folder / 'sources'
        shutil.copytree(ROOT, cls.sources, symlinks=True, ignore=not_needed)
        cls.env = clean_environment()
        for name in ('DESTDIR', 'MAKEFLAGS', 'MAKELEVEL', 'PKG_CONFIG_PATH', 'LD_LIBRARY_PATH'):
            cls.env.pop(name, None)
        cls.install_it = block('README.md', 'make install PREFIX=$HOME/.local')
        cls.program = block('docs/collectives.md', '#include <ddprun/comm.h>')
        cls.compile_and_run = block('docs/collectives.md', 'cc worker.c')

    @classmethod
    def run_in(cls, folder, command, **env):
        done = subprocess.run(['sh', '-c', command], cwd=folder, env=cls.env | env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise AssertionError(f'{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}')
        return done.stdout

    def bare_folder(self):
        folder = Path(tempfile.mkdtemp(prefix='bare_', dir=self.folder))
        (folder / 'worker.c').write_text(self.program)
        return folder

    def test_the_lines_of_the_guide(self):
        bare = self.bare_folder()
        out = self.run_in(self.sources, f'set -e\n{self.install_it}cd {bare}\n{self.compile_and_run}',
                          HOME=str(self.folder / 'home'))
        self.assertEqual([line for line in sorted(out.splitlines()) if line.startswith('[default')],
                         [f'[default{rank}]:rank {rank} of 4: 4' for rank in range(4)])
        self.assertEqual(sorted(os.listdir(bare)), ['worker', 'worker.c'])

    def test_uninstall_leaves_nothing(self):
        stage = self.folder / 'twice'
        for _ in range(2):  # the second finds the folders of the first
            self.run_in(self.sources, f'make install PREFIX=/usr DESTDIR={stage}')
        other = stage / 'usr/include/other.h'
        other.touch()
        self.assertRegex(self.run_in(self.sources, 'make uninstall'), r'uninstalled \d+ files')
        self.assertEqual(sorted(stage.rglob('*')), [stage / 'usr', stage / 'usr/include', other])
        with self.assertRaisesRegex(AssertionError, 'exit code 2\n.*make uninstall: build/ has installed nothing'):
            self.run_in(self.sources, 'make uninstall')

    @needs_strangers
    def test_without_the_right_to_write(self):
        """Nothing is compiled. The script would not find the sources anyway."""
        done = subprocess.run([reachable(self, ROOT / 'scripts/install'), '/usr'], user=STRANGER, group=STRANGER,
                              extra_groups=[], env=self.env, cwd='/', capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (2, '', "make install needs the right to write to /usr: use 'sudo make install', or 'make install "
                                 "PREFIX=$HOME/.local'\n"))

    @needs_strangers
    def test_uninstall_without_the_right_to_write(self):
        folder = Path(tempfile.mkdtemp(prefix='ddprun_uninstall_', dir='/tmp'))
        self.addCleanup(shutil.rmtree, folder)
        (folder / 'scripts').mkdir()
        script = shutil.copy(ROOT / 'scripts/install', folder / 'scripts')
        (folder / 'build/meson-logs').mkdir(parents=True)
        paths = folder / 'build/meson-logs/install-log.txt'
        for path in (folder, *folder.rglob('*')):
            path.chmod(0o755)
        for line, place in ('/usr/bin/ddprun', '/usr/bin'), ('/tmp/ddprun', 'build/meson-logs'):
            paths.write_text(f'# List of files installed by Meson\n{line}\n')
            done = subprocess.run([script, '--undo'], user=STRANGER, group=STRANGER, extra_groups=[], env=self.env, cwd='/',
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (2, '', f"make uninstall needs the right to write to {place}: use 'sudo make uninstall'\n"))

    def test_a_staged_package(self):
        stage = self.folder / 'stage'
        self.run_in(self.sources, f'make install PREFIX=/usr DESTDIR={stage}')
        self.assertEqual(os.listdir(stage), ['usr'])
        for path in ('bin/ddprun', 'bin/ddprund', 'bin/ddpctl', 'lib/libddpcomm.so', 'lib/pkgconfig/ddpcomm.pc',
                     'lib/libddpstore.so', 'include/ddprun/comm.h', 'share/man/man1/ddprun.1',
                     'share/man/man3/libddpcomm.3'):
            self.assertTrue((stage / 'usr' / path).exists(), path)
        bare = self.bare_folder()
        env = {'PATH': f'{stage}/usr/bin:{self.env["PATH"]}', 'LD_LIBRARY_PATH': f'{stage}/usr/lib',
               'PKG_CONFIG_SYSROOT_DIR': str(stage), 'PKG_CONFIG_PATH': f'{stage}/usr/lib/pkgconfig',
               'PKG_CONFIG_ALLOW_SYSTEM_CFLAGS': '1', 'PKG_CONFIG_ALLOW_SYSTEM_LIBS': '1'}
        self.assertIn('rank 3 of 4: 4', self.run_in(bare, f'set -e\n{self.compile_and_run}', **env))
        Installed(self, stage / 'usr/bin', env).try_all()
        self.in_packages(stage)

    def in_packages(self, stage):
        """Each file that is installed is in a Debian package, or in the list of those that are in none."""
        lists = ''.join(path.read_text() for path in (ROOT / 'debian').glob('*install*'))
        patterns = [line.split()[0] for line in lists.splitlines() if line and not line.startswith('#')]
        for path in stage.rglob('*'):
            # Debian's libraries are in a folder of their architecture.
            name = re.sub(r'^usr/lib/(lib|pkgconfig|ddprun)', r'usr/lib/x/\1', str(path.relative_to(stage)))
            found = any(fnmatch(name, pattern) or fnmatch(name, pattern + '/*') for pattern in patterns)
            self.assertTrue(path.is_dir() or found, f'{name} is in no debian/*.install')


if __name__ == '__main__':
    unittest.main()
