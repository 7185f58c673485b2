"""ddpctl explain: every exit code has an answer, and those of ddprun(1) have the one of its table."""

import json
import os
import re
import signal
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DDPCTL = os.environ.get('DDPCTL', str(ROOT / 'build/bin/ddpctl'))


def explain(*words):
    return subprocess.run([DDPCTL, 'explain', *map(str, words)], capture_output=True, text=True, check=False)


class Explain(unittest.TestCase):
    def test_every_code_has_an_answer(self):
        for code in [*range(128), *range(129, 256)]:
            done = explain('--json', code)
            self.assertEqual((done.returncode, done.stderr), (0, ''), code)
            answer = json.loads(done.stdout)
            self.assertEqual(answer['code'], code)
            self.assertEqual(answer['origin'], 'ddprun' if code in (2, 69, 75, 77, 78, 93) else 'worker')
            self.assertTrue(answer['meaning'] and answer['confirm'] and answer['remedy'])
            self.assertEqual(answer['requeue'] == 'yes', code in (69, 75, 128 + signal.SIGTERM))

    def test_the_codes_of_the_manual_page_are_those(self):
        page = (ROOT / 'docs/man/ddprun.1.in').read_text()
        text = page[page.index('.SH EXIT STATUS'):page.index('.SH EXAMPLES')]
        own = {int(code) for code in re.findall(r'^\.B (\d+)$', text, re.MULTILINE)} - {0}
        self.assertEqual(own, {2, 69, 75, 77, 78, 93})

    def test_text(self):
        done = explain(137)
        self.assertTrue(done.stdout.startswith('137 = 128 + SIGKILL: the kernel killed a worker for lack of memory'))
        self.assertEqual(done.stdout, explain('SIGKILL').stdout)
        self.assertEqual(done.stdout, explain('KILL').stdout)
        self.assertEqual(done.stdout, explain('-9').stdout)
        self.assertIn('A worker may exit with 75 too', explain(75).stdout)
        self.assertIn('sys.exit(-1)', explain(255).stdout)
        self.assertIn('would have given 255', explain('-1').stdout)
        self.assertIn('200: the worker that failed first exited with this code', explain(200).stdout)

    def test_what_is_no_code(self):
        for word in ('256', '-99', 'x', '128', '1.5', 'SIGNOPE'):
            done = explain('--', word)
            self.assertEqual((done.returncode, done.stdout), (2, ''))
            self.assertIn(f"'{word}'", done.stderr)
        self.assertEqual(explain().returncode, 2)
        self.assertEqual(explain('--help').returncode, 0)


if __name__ == '__main__':
    unittest.main()
