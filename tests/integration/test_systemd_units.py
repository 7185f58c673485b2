#!/usr/bin/env python3
"""test_systemd_units.py - what systemd makes of the units, and how much it leaves them.

Skipped (77) where there is no systemd-analyze. That ddprund takes sockets over, and says when it is
ready, is tested without systemd, in test_ddprund.py.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

UNITS = Path(os.environ.get('DDPRUN_UNITS', Path(__file__).resolve().parents[2] / 'build' / 'docs'))
DDPRUND = os.environ.get('DDPRUND', '/bin/true')
EXPOSURE = 1.2


def analyze(*words):
    return subprocess.run(['systemd-analyze', *map(str, words)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(os.environ, SYSTEMD_LOG_LEVEL='warning', LC_ALL='C'))


class Units(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for unit in ('ddprund.service', 'ddprund.socket'):
            text = (UNITS / unit).read_text()
            text = re.sub(r'^ExecStart=\S+', f'ExecStart={DDPRUND}', text, flags=re.M)
            (self.folder / unit).write_text(text)

    def test_they_are_understood(self):
        done = analyze('verify', '--man=no', '--recursive-errors=no', self.folder / 'ddprund.service',
                       self.folder / 'ddprund.socket')
        ours = [line for line in done.stdout.splitlines() if 'ddprund' in line]
        self.assertEqual((done.returncode, ours), (0, []), done.stdout)

    def test_little_is_left_to_the_service(self):
        done = analyze('security', '--offline=true', f'--threshold={round(EXPOSURE * 10)}', '--no-pager',
                       self.folder / 'ddprund.service')
        self.assertEqual(done.returncode, 0, done.stdout)
        exposure = re.search(r'exposure level for ddprund\.service: ([\d.]+)', done.stdout)
        self.assertLessEqual(float(exposure[1]), EXPOSURE, done.stdout)

    def test_no_core_dump_is_written(self):
        self.assertRegex((self.folder / 'ddprund.service').read_text(), r'(?m)^LimitCORE=0$')


if __name__ == '__main__':
    if shutil.which('systemd-analyze') is None:
        print('systemd-analyze is missing (Debian package systemd)')
        sys.exit(77)
    unittest.main()
