#!/usr/bin/env python3
"""try_debs.py FOLDER - unpack the Debian packages in FOLDER, and try each program and verb of them. Run by scripts/deb."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from installed import Installed

FOLDER = Path(sys.argv.pop())


class Debs(unittest.TestCase):
    def test_programs(self):
        packages = sorted(FOLDER.glob('*.deb'))
        self.assertGreaterEqual(len(packages), 4, packages)
        with tempfile.TemporaryDirectory() as root:
            for package in packages:
                subprocess.run(['dpkg', '-x', str(package), root], check=True)
            libraries = [str(path.parent) for path in Path(root).glob('usr/lib/*/libddpcomm.so.0')]
            self.assertEqual(len(libraries), 1, libraries)
            Installed(self, Path(root) / 'usr/bin', dict(os.environ, LD_LIBRARY_PATH=libraries[0])).try_all()


if __name__ == '__main__':
    unittest.main()
