"""ddpctl doctor: what it finds on this machine, and on one that a test has made worse."""

import contextlib
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DDPCTL = os.environ.get('DDPCTL', str(ROOT / 'build/bin/ddpctl'))
CHECKS = ['kernel', 'open files', 'processes', 'processors', 'shared memory', 'control groups', 'host name', 'addresses',
          'port', 'token', 'TLS', 'GPUs', 'Python', 'remote shell']


class Doctor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.env = dict(os.environ, XDG_CONFIG_HOME=self.folder.name)
        self.env.pop('DDPRUN_TOKEN_FILE', None)

    def doctor(self, *words, **options):
        return subprocess.run([DDPCTL, 'doctor', *words], env=self.env, capture_output=True, text=True, check=False,
                              **options)

    def findings(self, **options):
        done = self.doctor('--json', **options)
        self.assertEqual(done.stderr, '')
        found = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([each['check'] for each in found], CHECKS)
        for each in found:
            self.assertIn(each['verdict'], ('OK', 'WARN', 'FAIL'))
            self.assertNotEqual(each['found'], '')
            self.assertEqual(each['fix'] == '', each['verdict'] == 'OK', each)
        self.assertEqual(done.returncode, int(any(each['verdict'] == 'FAIL' for each in found)))
        return {each['check']: each for each in found}

    def test_this_machine(self):
        found = self.findings()
        self.assertEqual(found['kernel']['verdict'], 'OK')
        self.assertIn(os.uname().release[:60], found['kernel']['found'])
        self.assertIn('none yet', found['token']['found'])
        text = self.doctor()
        self.assertEqual([line[6:20].strip() for line in text.stdout.splitlines() if line[0] != ' '], CHECKS)

    def test_a_token_that_others_can_read(self):
        token = Path(self.folder.name) / 'token'
        token.write_text('ab' * 32 + '\n')
        token.chmod(0o644)
        self.env['DDPRUN_TOKEN_FILE'] = str(token)
        found = self.findings()['token']
        self.assertEqual(found['verdict'], 'FAIL')
        self.assertIn('chmod 600', found['fix'])
        token.chmod(0o600)
        self.assertEqual(self.findings()['token'], {'check': 'token', 'verdict': 'OK', 'found': str(token), 'fix': ''})

    def test_limits(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        found = self.findings(preexec_fn=few)['open files']
        self.assertEqual((found['verdict'], found['found']), ('WARN', '64 (hard limit 64)'))
        self.assertIn('ulimit -Hn', found['fix'])

    def test_a_port_in_use_and_no_ssh(self):
        self.env['PATH'] = '/nowhere'
        found, ours = {'port': {'verdict': 'OK'}}, False
        while not ours and found['port']['verdict'] == 'OK':
            with socket.socket(socket.AF_INET6) as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError): # another process has it: as good, if it keeps it
                    other.bind(('::', 29400))
                    other.listen()
                    ours = True
                found = self.findings()
        self.assertEqual((found['port']['verdict'], found['port']['found']), ('WARN', '29400 is in use'))
        self.assertEqual(found['remote shell']['verdict'], 'WARN')

    def python(self, text, **options):
        program = Path(self.folder.name) / 'python'
        program.write_text(text)
        program.chmod(0o700)
        self.env['PYTHON_EXEC'] = str(program)
        return self.findings(**options)['Python']

    def test_the_python_of_scripts(self):
        """It finds a PyTorch without importing it, as this one cannot be; modules of the current folder do not count."""
        around, torch = Path(self.folder.name) / 'around', Path(self.folder.name) / 'torch'
        for folder in (around, torch):
            folder.mkdir()
        (around / 'json.py').write_text('raise SystemExit')
        (torch / '__init__.py').write_text('raise ImportError("nobody imports it")\n')
        self.env['PYTHONPATH'] = self.folder.name
        for version, found in ((None, 'PyTorch of unknown version, '), ("__version__ = '9.8.7'\ncuda = '12.4'\n", 'PyTorch 9.8.7, its CUDA 12.4, ')):
            if version:
                (torch / 'version.py').write_text(version)
            answer = self.python(f'#!/bin/sh\necho from a site\nexec {sys.executable} "$@"\n', cwd=around)['found']
            self.assertIn(f'/python: {platform.python_version()}, package ddprun ', answer)
            self.assertIn(found, answer)

    def test_no_python(self):
        for text in ('#!/bin/sh\nexit 1\n', '#!/bin/sh\necho other words\n', '#!/bin/sh\nprintf "\\n[1]\\n"\n', ''):
            found = self.python(text)
            self.assertEqual(found['verdict'], 'WARN')
            self.assertIn('does not answer', found['found'])
            self.assertIn('PYTHON_EXEC', found['fix'])

    def test_words(self):
        self.assertEqual(self.doctor('--help').returncode, 0)
        done = self.doctor('now')
        self.assertEqual((done.returncode, done.stdout), (2, ''))
        self.assertIn("'now'", done.stderr)


if __name__ == '__main__':
    unittest.main()
