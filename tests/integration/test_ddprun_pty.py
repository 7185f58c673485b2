#!/usr/bin/env python3
"""test_ddprun_pty.py - workers on terminals of their own, with ddprun on a terminal of the test."""

import fcntl
import os
import struct
import sys
import termios
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase

ASK = """
import os, shutil, sys
def size():
    return tuple(os.get_terminal_size(1))
print(*(os.isatty(fd) for fd in (0, 1, 2)), *size(), os.environ.get("COLUMNS"), flush=True)
try:
    os.close(os.open("/dev/tty", os.O_RDWR))
    print("controls")
except OSError:
    print("controls nothing", flush=True)
"""


class Terminal(DdprunCase):
    """ddprun in a session of its own, on a terminal of 100 columns and 40 rows."""

    def setUp(self):
        super().setUp()
        self.ours, theirs = os.openpty()
        self.addCleanup(os.close, self.ours)
        self.addCleanup(os.close, theirs)
        self.theirs = theirs
        self.seen = b''
        self.resize(100, 40)

    def resize(self, columns, rows):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def on_terminal(self, *words, **options):
        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        streams = {'stdin': self.theirs, 'stdout': self.theirs, 'stderr': self.theirs, **options}
        return self.start(*words, preexec_fn=take_terminal, **streams)

    def read_until(self, text, count=1):
        while self.seen.count(text) < count:
            self.seen += os.read(self.ours, 4096)

    def test_a_worker_alone_has_one(self):
        script = self.write('ask.py', ASK)
        job = self.on_terminal(script)
        self.assertEqual(job.wait(), 0)
        self.read_until(b'controls nothing')
        self.assertIn(b'[default0]:True True True 89 40 89\r\n', self.seen)

    def test_several_have_none_unless_asked(self):
        script = self.write('ask.py', ASK.replace('*size(), ', '').replace('flush=True)', 'flush=True)', 1))
        job = self.on_terminal('--nproc-per-node=2', script)
        self.assertEqual(job.wait(), 0)
        self.read_until(b'[default1]:controls nothing')
        self.assertIn(b'[default1]:True False False None', self.seen)

    def test_several_have_them_with_pty(self):
        script = self.write('ask.py', ASK)
        job = self.on_terminal('--nproc-per-node=2', '--pty', '--no-prefix', script)
        self.assertEqual(job.wait(), 0)
        self.read_until(b'True True True 100 40 None\r\n', 2)

    def test_no_pty_is_stronger(self):
        job = self.on_terminal('--no-pty', 'sh', '-c', '[ -t 1 ] || echo pipe')
        self.assertEqual(job.wait(), 0)
        self.read_until(b'[default0]:pipe')

    def test_a_new_size_is_passed_on(self):
        script = self.write('watch.py', 'import os, signal\n'
                            'signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"%d %d\\n" % os.get_terminal_size(1)))\n'
                            'print("up", flush=True)\n'
                            'while True: signal.pause()\n')
        job = self.on_terminal(script)
        self.read_until(b'up')
        self.resize(60, 20)
        self.read_until(b'[default0]:49 20')
        os.write(self.ours, b'\x03')  # and Ctrl-C is ddprun's
        self.assertEqual(job.wait(), 130)

    def test_a_failure_is_red_where_that_is_wanted(self):
        red = b'\x1b[1;31mddprun: rank 0 failed first: exit code 3\x1b[0m, after '
        plain = b'ddprun: rank 0 failed first: exit code 3, after '
        for env, line in (({'TERM': 'xterm', 'NO_COLOR': ''}, red), ({'TERM': 'xterm', 'NO_COLOR': '1'}, plain),
                          ({'TERM': 'dumb'}, plain)):
            with self.subTest(env):
                self.seen = b''
                job = self.on_terminal('sh', '-c', 'exit 3', env=env)
                self.assertEqual(job.wait(), 3)
                self.read_until(b'failed first')
                self.read_until(b'its log')
                self.assertIn(line, self.seen)
                self.assertEqual(b'\x1b' in self.seen, line == red)

    def test_an_answer_comes_from_the_terminal(self):
        script = self.write('ask.py', 'print("hello", input("name? "))\n')
        job = self.on_terminal(script)
        self.read_until(b'[default0]:name? ')
        os.write(self.ours, b'Jo\n')
        self.assertEqual(job.wait(), 0)
        self.read_until(b'hello Jo\r\n')


class Pipes(DdprunCase):
    def test_with_pty_even_there(self):
        job = self.run_job('--pty', 'sh', '-c', '[ -t 1 ] && [ -t 2 ] && stty size <&1; printf "a\\r\\n"; echo e >&2')
        self.assertEqual(job.out, '[default0]:24 80\n[default0]:a\r\n')
        self.assertEqual(job.err, '[default0]:e\n')

    def test_without_it_there_are_none(self):
        self.assertEqual(self.run_job('sh', '-c', '[ -t 1 ] || echo pipe').out, '[default0]:pipe\n')

    def test_a_report_is_without_colours(self):
        job = self.run_job('--pty', 'sh', '-c', 'printf "\\033[31mred\\033[0m\\n" >&2; exit 3')
        self.assertIn('  | red\n', job.err)

    def test_all_of_much_output_arrives(self):
        job = self.run_job('--pty', '--no-prefix', 'seq', '200000')
        self.assertEqual(job.out, ''.join(f'{i}\n' for i in range(1, 200001)))

    def test_log_files_get_the_bytes(self):
        job = self.run_job('--pty', '--tee=3', '--rdzv-id=j', f'--log-dir={self.folder}/logs', 'printf', 'a\\r\\nb\\n')
        self.assert_succeeded(job)
        path, = (self.folder / 'logs').glob('j_*/attempt_0/0/stdout.log')
        self.assertEqual(path.read_bytes(), b'a\r\nb\n')


if __name__ == '__main__':
    unittest.main()
