#!/usr/bin/env python3
"""test_example_headers.py - each example compiles by the command that its first comment has, in a folder with nothing but
the examples; and those that need no peer run by the next one.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, ROOT, clean_environment

BIN = Path(DDPRUN).resolve().parent
COMMAND = re.compile(r'^ \*     ((?:cc|ddprun|\./)(?:.*\\\n)*.*)$', re.MULTILINE)
PARTS = {'idx.c', 'mlp.c', 'mlp_layers.c', 'options.c', 'pipeline_stage.c', 'run.c', 'trainer.c'}  # of several programs


class Headers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='examples_')
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for path in ROOT.glob('examples/*.[ch]'):
            shutil.copy(path, self.folder)
        libraries = f'{BIN.parent}/worker:{BIN.parent}/rendezvous'
        self.env = clean_environment() | {'PATH': f'{BIN}:{clean_environment()["PATH"]}', 'LD_LIBRARY_PATH': libraries,
                                          'PKG_CONFIG_PATH': f'{BIN.parent}/meson-uninstalled'}

    def commands(self, path):
        """How it is compiled, and how it is run."""
        head = path.read_text().partition('*/')[0]
        return [re.sub(r'\\\n \* +', '', command).partition('   ')[0] for command in COMMAND.findall(head)]

    def succeed(self, command):
        done = subprocess.run(['sh', '-c', command], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, f'{command}\n{done.stdout}{done.stderr}')

    def test_as_the_first_comment_says(self):
        for path in sorted(self.folder.glob('*.c')):
            if path.name not in PARTS:
                with self.subTest(example=path.name):
                    build, *_ = self.commands(path)
                    self.succeed(build)
                    self.assertTrue(path.with_suffix('').exists())
        for name in ('allreduce', 'shrink', 'spawn', 'train'):
            self.succeed(self.commands(self.folder / f'{name}.c')[1])


if __name__ == '__main__':
    unittest.main()
