#!/usr/bin/env python3
"""test_build.py - what scripts/build shows while it compiles, with a ninja that only says how many steps there are."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NINJA = """#!/bin/sh
case " $* " in
*" build.ninja "*) ;;
*" -n "*) echo "[1/$STEPS] first"; echo "$LAST" ;;
*) echo "ninja $*" ;;
esac
"""


class Build(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='build_'))
        self.addCleanup(shutil.rmtree, self.folder)
        for path, text in (('scripts/build', (ROOT / 'scripts/build').read_text()), ('bin/ninja', NINJA),
                           ('bin/nproc', '#!/bin/sh\necho 4\n'), ('out/build.ninja', '')):
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text(text)
            (self.folder / path).chmod(0o755)

    def shown(self, steps, terminal=None):
        """What a quiet build of so many steps prints."""
        last = f'[{steps}/{steps}] last' if steps > 0 else 'ninja: no work to do.'
        reader, writer = os.openpty() if terminal else os.pipe()
        env = dict(os.environ, PATH=f'{self.folder}/bin:{os.environ["PATH"]}', STEPS=str(steps), LAST=last,
                   MAKEFLAGS='', TERM=terminal or 'xterm')
        subprocess.run([self.folder / 'scripts/build', '--quiet', 'out'], env=env, stdin=subprocess.DEVNULL, stdout=writer,
                       check=True)
        os.write(writer, b'end\n')
        text = b''
        while not text.endswith(b'end\n') and not text.endswith(b'end\r\n'):
            text += os.read(reader, 4096)
        os.close(reader)
        os.close(writer)
        return text.decode().splitlines()[:-1]

    def test_a_terminal_sees_how_far_it_is(self):
        self.assertEqual(self.shown(500, terminal='xterm'), ['ninja -C out'])
        self.assertEqual(self.shown(0, terminal='xterm'), ['ninja --quiet -C out'])

    def test_others_see_how_long_it_takes(self):
        long = 'build: compiling takes about 2 min here (900 steps, 4 processors)'
        self.assertEqual(self.shown(900), [long, 'ninja --quiet -C out'])
        self.assertEqual(self.shown(900, terminal='dumb'), [long, 'ninja --quiet -C out'])
        for steps in (0, 100):
            self.assertEqual(self.shown(steps), ['ninja --quiet -C out'])


if __name__ == '__main__':
    unittest.main()
