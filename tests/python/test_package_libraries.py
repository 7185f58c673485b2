#!/usr/bin/env python3
"""test_package_libraries.py - how the package finds its libraries, what it says where it does not, and what importing it costs."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import ddprun
from ddprun import sentences

LIBRARIES = os.environ['DDPRUN_LIBRARY_PATH']
PACKAGE = Path(ddprun.__file__).parent
# python -m ddprun, where no program is installed beside this Python.
MODULE = '''
import runpy, sysconfig
sysconfig.get_path = lambda name: '/nowhere'
runpy.run_module('ddprun', run_name='__main__')
'''
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != 'PYTHON_EXEC'}


def python(code, **env):
    return subprocess.run([sys.executable, '-c', code], env={**os.environ, **env}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


class Finding(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='ddprun_test_'))
        self.addCleanup(shutil.rmtree, self.folder)

    def test_importing_loads_no_library_and_nothing_else(self):
        done = python('import sys; old = set(sys.modules); import ddprun; print(sorted(set(sys.modules) - old));'
                      'print([line for line in open("/proc/self/maps") if "libddp" in line])')
        self.assertEqual(done.stdout, "['ddprun', 'ddprun.version']\n[]\n")

    def test_each_name_is_there_when_it_is_used(self):
        done = python('import ddprun; print([name for name in ddprun.__all__ if not hasattr(ddprun, name)]);'
                      'print(set(ddprun.__all__) - set(dir(ddprun)), callable(ddprun.spawn), ddprun.errors.Timeout)\n'
                      'from ddprun import *; print(Store, spawn is ddprun.spawn); ddprun.nothing')
        for text in ("[]\nset() True <class 'ddprun.errors.Timeout'>\n", "<class 'ddprun.store.Store'> True\n",
                     "module 'ddprun' has no attribute 'nothing'"):
            self.assertIn(text, done.stdout)

    def test_the_launcher_as_a_module(self):
        """That of the environment is not there, as this one has none; then PATH decides."""
        program = self.folder / 'ddprun'
        program.write_text('#!/bin/sh\necho $PYTHON_EXEC started with "$@"\n')
        program.chmod(0o755)
        for path, text in ((self.folder, f'{sys.executable} started with -h x\n'), ('/nowhere', 'and none in PATH: install ddprun')):
            words = [sys.executable, '-c', MODULE, '-h', 'x']
            done = subprocess.run(words, env={**ENVIRONMENT, 'PATH': f'{path}'}, capture_output=True, text=True, check=False)
            self.assertIn(text, done.stdout + done.stderr)

    def test_no_library(self):
        done = python('import ddprun; ddprun.Communicator()', DDPRUN_LIBRARY_PATH='', LD_LIBRARY_PATH='')
        if done.returncode == 0:
            self.skipTest('the libraries are installed on this machine')
        self.assertIn('LibraryError: libddpcomm', done.stdout)
        self.assertIn('DDPRUN_LIBRARY_PATH', done.stdout)

    def test_a_library_that_another_one_needs_is_missing(self):
        compiler = shutil.which('cc') or self.skipTest('a C compiler is missing (Debian package gcc)')
        needed, library = self.folder / 'libneeded.so.7', self.folder / 'libddpcomm.so.0'
        for source, words in (('int needed(void) { return 1; }', ['-Wl,-soname,libneeded.so.7', '-o', needed]),
                              ('int needed(void); const char *ddp_version(void) { return needed() ? "1" : "2"; }',
                               [needed, '-o', library])):
            subprocess.run([compiler, '-shared', '-fPIC', '-x', 'c', '-', '-x', 'none', *words], input=source, text=True,
                           check=True)
        needed.unlink()
        done = python('import ddprun; ddprun.Communicator()', DDPRUN_LIBRARY_PATH=str(self.folder))
        self.assertIn(f'is there ({library}), but a library that it needs is not: libneeded.so.7;', done.stdout)

    def test_a_library_of_another_version(self):
        compiler = shutil.which('cc') or self.skipTest('a C compiler is missing (Debian package gcc)')
        for name, source, said in (('ddpcomm', 'const char *ddp_version(void) { return "9.8.7"; }', 'is version 9.8.7'),
                                   ('ddpstore', 'int nothing;', 'is of an older version')):
            subprocess.run([compiler, '-shared', '-fPIC', '-x', 'c', '-', '-o', self.folder / f'lib{name}.so'],
                           input=source, text=True, check=True)
            done = python('import ddprun; ' + ('ddprun.Communicator()' if name == 'ddpcomm' else 'ddprun.Store("[::1]:1")'),
                          DDPRUN_LIBRARY_PATH=f'/nowhere:{self.folder}:{LIBRARIES}')
            self.assertIn(f'{self.folder}/lib{name}.so {said}', done.stdout)
            self.assertIn(f'needs {ddprun.__version__}', done.stdout)

    def test_beside_the_package(self):
        shutil.copytree(PACKAGE, self.folder / 'ddprun')
        beside = self.folder / '.ddprun.mesonpy.libs'
        beside.mkdir()
        comm_folder = LIBRARIES.split(':')[0]
        shutil.copy(f'{comm_folder}/libddpcomm.so', beside / f'libddpcomm.so.{ddprun.__version__}')
        done = python('import ddprun; print(ddprun.Communicator.local(1)[0]._library._name)',
                      PYTHONPATH=str(self.folder), DDPRUN_LIBRARY_PATH='/nowhere')
        self.assertIn(str(beside), done.stdout)


class Errors(unittest.TestCase):
    def test_classes(self):
        self.assertTrue(issubclass(ddprun.Timeout, TimeoutError))
        self.assertTrue(issubclass(ddprun.Invalid, ValueError))
        self.assertTrue(issubclass(ddprun.Closed, ConnectionError))
        self.assertEqual(ddprun.PeerDead('x').status, 'peer-dead')
        for kind in (ddprun.PeerDead, ddprun.Timeout, ddprun.Closed, ddprun.Error):
            error = pickle.loads(pickle.dumps(kind('rank 3 (pid 7 on b) has died', 'peer-dead', 5)))
            self.assertIs(type(error), kind)
            self.assertEqual((str(error), error.status, error.sys_errno, error.rank, error.host),
                             ('rank 3 (pid 7 on b) has died', 'peer-dead', 5, 3, 'b'))

    def test_what_sentences_name(self):
        for sentence, rank, call in (
                ('rank 2 (pid 77 on node-1.a) has died; rank 0 noticed it in all_reduce #5', (2, 'node-1.a'), ('all_reduce', 5)),
                ('barrier #9: rank 0 has waited 1.5 s for rank 3 (pid 8 on b), which is stopped; 0 of 8 bytes had arrived',
                 (3, 'b'), ('barrier', 9)),
                ('barrier #9: rank 0 has waited 1.5 s for rank 3 (pid 8 on b), which waits as well, as rank 2 (pid 5 on c) does '
                 'not answer: it is stopped, or has not called the operation; 0 of 8 bytes had arrived', (2, 'c'), ('barrier', 9)),
                ('barrier #9: rank 0 has waited 1.5 s for ranks 1 and 3, which may wait as well, as rank 2 (pid 5 on c) does not '
                 'accept connections: it is stopped', (2, 'c'), ('barrier', 9)),
                ('barrier #9: rank 0 has waited 1.5 s for ranks 1 and 3, which are stopped; rank 3 (pid 5 on c) does not '
                 'answer: it is stopped, or has not called the operation', (3, 'c'), ('barrier', 9)),
                ('barrier #9: rank 0 has waited 1.5 s for ranks 1 and 3, which have not come', (None, None), ('barrier', 9)),
                ('rank 0 called all_reduce #1 (sum of 4 float32, ring), but rank 1 (pid 8 on b) called barrier #1', (1, 'b'),
                 ('all_reduce', 1)),
                ('rank 1 called ddp_comm_abort()', (1, None), (None, None)),
                ('DDPRUN_STORE is not set', (None, None), (None, None))):
            self.assertEqual(sentences.find_rank(sentence), rank, sentence)
            self.assertEqual(sentences.find_call(sentence), call, sentence)


if __name__ == '__main__':
    unittest.main()
