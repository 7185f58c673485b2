#!/usr/bin/env python3
"""test_ddpctl.py - ddpctl store against a ddprund: what it prints, and its exit codes."""

import base64
import json
import os
import socket
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DEADLINE
from ddprund_run import DDPCTL, TIMEOUT, UNREACHABLE, USAGE, DdprundCase

FAILED = 1


class WithStore(DdprundCase):
    def setUp(self):
        super().setUp()
        self.job = self.serve()
        self.addCleanup(self.stop, self.job)
        self.store = self.job.endpoints[0]

    def run_ok(self, *words, **options):
        return self.done(self.store, *words, **options)

    def run_json(self, *words, **options):
        out = self.run_ok(*words, '--json', **options) if len(words) == 1 else \
            self.run_ok('--json', *words, **options)
        self.assertEqual(out.count(b'\n'), 1)
        return json.loads(out)

    def fails(self, code, text, *words, **options):
        got, out, err = self.ctl(self.store, *words, **options)
        self.assertEqual((got, out), (code, b''), err)
        self.assertRegex(err, r'\Addpctl: [^\n]+\n\Z')
        self.assertIn(text, err)


class Actions(WithStore):
    def test_set_and_get(self):
        self.assertEqual(self.run_ok('set', 'key', 'a value\n'), b'')
        self.assertEqual(self.run_ok('get', 'key'), b'a value\n')
        self.assertEqual(self.run_ok('set', 'key', ''), b'')
        self.assertEqual(self.run_ok('get', 'key'), b'')
        self.fails(FAILED, "there is no key 'other'", 'get', 'other')

    def test_values_from_standard_input(self):
        for value in (b'', b'text', bytes(range(256)), os.urandom(16 << 20)):
            self.run_ok('set', 'key', '-', given=value)
            self.assertEqual(self.run_ok('get', 'key'), value)
        self.fails(FAILED, 'more than 16777216 bytes', 'set', 'key', '-', given=bytes((16 << 20) + 1))

    def test_json(self):
        written = self.run_json('set', 'key', '\u20ac "quoted"')
        self.assertEqual(written, {'key': 'key', 'version': written['version']})
        self.assertEqual(self.run_json('get', 'key'), {'value': '\u20ac "quoted"', **written})
        value = bytes(range(256))
        self.run_ok('set', 'key', '-', given=value)
        answer = self.run_json('get', 'key')['value']
        self.assertEqual(base64.b64decode(answer['base64']), value)
        self.assertEqual(self.run_json('add', 'n', '-7'), {'key': 'n', 'value': -7})
        self.assertEqual(self.run_json('wait', 'n', 'key'), {'keys': ['n', 'key']})
        self.assertEqual(self.run_json('list'), {'keys': ['key', 'n']})
        self.assertEqual(self.run_json('delete', 'n'), {'keys': ['n']})
        self.assertEqual(self.run_json('list', 'x'), {'keys': []})

    def test_add(self):
        self.assertEqual(self.run_ok('add', 'n'), b'1\n')
        self.assertEqual(self.run_ok('add', 'n', '-3'), b'-2\n')
        self.assertEqual(self.run_ok('get', 'n'), b'-2')
        self.run_ok('set', 'n', 'text')
        self.fails(FAILED, "'n' is not a decimal", 'add', 'n')
        self.fails(USAGE, "'1.5'", 'add', 'n', '1.5')

    def test_versions(self):
        first = self.run_json('set', '--if-version=0', 'key', 'a')['version']
        self.fails(FAILED, f"has version {first}, not 0", 'set', '--if-version=0', 'key', 'b')
        self.run_ok('set', f'--if-version={first}', 'key', 'b')
        self.fails(FAILED, 'version', 'set', f'--if-version={first}', 'key', 'c')
        self.assertEqual(self.run_ok('get', 'key'), b'b')
        self.fails(USAGE, '--if-version', 'get', '--if-version=1', 'key')

    def test_wait(self):
        client = self.ctl_start(self.store, 'wait', '--timeout=1m', 'a', 'b')
        self.await_stat(self.store, 'waits', 1)
        self.run_ok('set', 'a', '')
        self.await_stat(self.store, 'waits', 1)
        self.run_ok('set', 'b', '')
        self.assertEqual(client.wait(DEADLINE), 0)
        self.fails(TIMEOUT, 'after 50 ms', 'wait', '--timeout=50ms', 'never')
        self.fails(TIMEOUT, "'never'", 'wait', '--timeout=0', 'a', 'never')

    def test_list_and_delete(self):
        for key in ('b', 'a/1', 'a/2', 'a\nb', 'back\\slash', '\u20ac', '\x1b[31m'):
            self.run_ok('set', key, '')
        self.assertEqual(self.run_ok('list').decode(),
                         '\\x1b[31m\na\\x0ab\na/1\na/2\nb\nback\\\\slash\n\u20ac\n')
        self.assertEqual(self.run_ok('list', 'a/'), b'a/1\na/2\n')
        self.assertIn('a\nb', self.run_json('list')['keys'])
        self.run_ok('delete', 'a/1', 'a\nb')
        self.fails(FAILED, "there is no key 'a/1'", 'delete', 'a/2', 'a/1', 'b')
        self.assertEqual(self.run_ok('list', 'b'), b'b\nback\\\\slash\n')

    def test_keys_that_are_not_text(self):
        key = b'\xff\xfe'
        self.run_ok('set', os.fsdecode(key), 'x')
        self.assertEqual(self.run_json('list')['keys'],
                         [{'base64': base64.b64encode(key).decode()}])

    def test_stats(self):
        self.run_ok('set', 'key', 'value')
        stats = self.stats(self.store)
        self.assertEqual((stats['keys'], stats['connections'], stats['accepted']), (1, 1, 2))
        lines = dict(line.split() for line in self.run_ok('stats').decode().splitlines())
        self.assertEqual(lines.keys(), stats.keys())

    def test_prefixes(self):
        self.run_ok('set', '--prefix=job/', 'key', 'value')
        self.assertEqual(self.run_ok('get', 'job/key'), b'value')
        env = {'DDPRUN_STORE_PREFIX': 'job/'}
        self.assertEqual(self.run_ok('get', 'key', env=env), b'value')
        self.assertEqual(self.run_ok('list', env=env), b'key\n')
        self.assertEqual(self.run_ok('--prefix=', 'list', env=env), b'job/key\n')

    def test_in_a_worker(self):
        script = '"$0" store set from-worker yes && "$0" store list'
        job = self.run_job('--no-prefix', 'sh', '-c', script, DDPCTL)
        self.assertEqual((job.code, job.out), (0, 'from-worker\n'), job.err)


class CommandLine(WithStore):
    def test_options_stand_before_or_behind_the_action(self):
        self.run_ok('--timeout=5s', 'set', '--prefix', 'p/', 'key', '-x')
        self.assertEqual(self.run_ok('get', 'p/key'), b'-x')
        self.assertEqual(self.ctl(None, '--endpoint', self.store, 'get', 'p/key')[1], b'-x')
        self.run_ok('set', '--', '--json', 'value')
        self.assertEqual(self.run_ok('get', '--', '--json'), b'value')

    def test_usage(self):
        for words, text in ((['get'], 'store get KEY'), (['get', 'a', 'b'], '2 words'),
                            (['set', 'a'], 'set KEY VALUE'), (['delete'], 'KEY...'),
                            (['stats', 'x'], "'ddpctl store stats'"), (['put', 'a'], "'put'"),
                            ([], "''"), (['--jsn', 'list'], "'--json'"),
                            (['--timeout=soon', 'list'], "'soon'"),
                            (['--timeout=50d', 'list'], "'50d'"),
                            (['--endpoint=host', 'list'], 'has no port'),
                            (['--endpoint=::1:5', 'list'], "'::1:5'"),
                            (['set', '--if-version=-1', 'a', 'b'], "'-1'")):
            with self.subTest(words):
                self.fails(USAGE, text, *words)
        code, _, err = self.ctl(None, 'list')
        self.assertEqual(code, USAGE)
        self.assertIn('DDPRUN_STORE', err)

    def test_verbs(self):
        for words, code, text in ((['--help'], 0, 'store'), (['-h'], 0, 'store'),
                                  (['--version'], 0, 'ddpctl 0.'), (['store', '--help'], 0, 'delete'),
                                  (['store', 'get', '-h'], 0, 'delete'),
                                  (['shop'], USAGE, "'shop'"), ([], USAGE, "''")):
            with self.subTest(words):
                done = subprocess.run([DDPCTL, *words], capture_output=True, text=True, env=self.env)
                self.assertEqual(done.returncode, code)
                self.assertIn(text, done.stdout + done.stderr)

    def test_an_answer_that_cannot_be_written(self):
        self.run_ok('set', 'key', 'value')
        with open('/dev/full', 'w') as full:
            for words in (['get', 'key'], ['--json', 'get', 'key'], ['list'], ['stats'], ['--help']):
                code, _, err = self.ctl(self.store, *words, stdout=full)
                self.assertEqual(code, FAILED, words)
                self.assertIn('ddpctl: cannot write', err)


class Unreachable(DdprundCase):
    def refused(self, endpoint, text):
        code, out, err = self.ctl(endpoint, 'list', '--timeout=50ms')
        self.assertEqual((code, out), (UNREACHABLE, b''), err)
        self.assertIn(text, err)

    def test_nobody_there(self):
        with socket.socket() as bound:
            bound.bind(('127.0.0.1', 0))
            endpoint = '127.0.0.1:%d' % bound.getsockname()[1]
            self.refused(endpoint, f'no store answers at {endpoint}')

    def test_something_else_there(self):
        with socket.create_server(('127.0.0.1', 0)) as mute:
            self.refused('127.0.0.1:%d' % mute.getsockname()[1], 'says nothing')

    def test_a_store_that_goes_away(self):
        job = self.serve('--drain-timeout=0')
        client = self.ctl_start(job.endpoints[0], 'wait', '--timeout=1m', 'never')
        self.await_stat(job.endpoints[0], 'waits', 1)
        self.stop(job)
        self.assertEqual(client.wait(DEADLINE), UNREACHABLE)


if __name__ == '__main__':
    unittest.main()
