#!/usr/bin/env python3
"""test_ddprun_signals.py - signals reach ddprun's own pid, as users, shells and schedulers send them."""

import fcntl
import os
import pty
import signal
import sys
import termios
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, children, describe, probe, wait_until


def ignoring(*signals):
    def before_exec():
        for sig in signals:
            signal.signal(sig, signal.SIG_IGN)
    return before_exec


class SignalCase(DdprunCase):
    def ready(self, *words, workers=2, **options):
        job = self.start(f'--nproc-per-node={workers}', *words, **options)
        job.read_until('ready', workers)
        return job


class Ending(SignalCase):
    def test_each_ends_the_job_with_its_own_code(self):
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            job = self.ready('--shutdown-timeout=1h', probe('signals'))
            job.signal(sig)
            self.assertEqual(job.wait(), 128 + sig, job.err)
            self.assertEqual(job.out.count(f'got {sig.name}\n'), 2, job.out)
            self.assertIn(f'{sig.name}: stopping 2 workers', job.err)
            self.assertIn(f'the job was ended by {sig.name}', job.err)
            self.assertNotIn('failed first', job.err)

    def test_a_stopped_worker_hears_it(self):
        for script in ('exec sleep 1000', 'sleep 1000; true'):
            with self.subTest(script):
                job = self.ready('--shutdown-timeout=1h', '--no-prefix', 'sh', '-c',
                                 f'echo $$$$ > pid; echo ready; {script}', workers=1)
                leader = int((self.folder / 'pid').read_text())
                wait_until(lambda: 'sleep' in ''.join(map(describe, [leader, *children(leader)])), 'sleep to be executed')
                os.killpg(leader, signal.SIGSTOP)
                wait_until(lambda: Path(f'/proc/{leader}/stat').read_text().rpartition(')')[2].split()[0] == 'T',
                           'the worker to stop')
                job.signal(signal.SIGTERM)
                self.assertEqual(job.wait(), 143, job.err)

    def test_workers_that_die_of_it_are_no_failure(self):
        job = self.ready('--max-restarts=3', 'sh', '-c', 'echo ready; exec sleep 1000')
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertNotIn('failed first', job.err)
        self.assertNotIn('restart ', job.err)

    def test_a_second_one_kills_at_once(self):
        for second in (signal.SIGTERM, signal.SIGINT):
            job = self.ready('--shutdown-timeout=1h', probe('signals'), 'stay')
            job.signal(signal.SIGTERM)
            job.read_until('got SIGTERM', 2)
            job.insist(second)
            self.assertEqual(job.wait(), 128 + second, job.err)
            self.assertIn(f'{second.name}: killing 2 workers', job.err)

    def test_one_that_comes_by_two_ways_is_one(self):
        job = self.ready(probe('signals'), 'stay')
        agent = job.agent()
        job.signal(signal.SIGTERM)
        os.kill(agent, signal.SIGTERM)
        job.read_until('got SIGTERM', 2)
        job.insist(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(job.err.count('stopping'), 1)

    def test_who_ignores_it_is_killed_after_the_grace(self):
        job = self.ready('--shutdown-timeout=300ms', probe('tree'), 'wait')
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)

    def test_while_a_failure_is_handled_it_ends_the_waiting(self):
        job = self.start('--nproc-per-node=2', '--max-restarts=5', '--failure-timeout=1h', 'sh', '-c',
                         f'if [ $RANK = 1 ]; then exec {probe("signals")} stay; fi; read -r go; exit 6',
                         stdin=-1)
        job.read_until('ready')
        job.process.stdin.close()
        job.read_until('got SIGTERM')
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 130, job.err)
        self.assertIn('rank 0 failed first: exit code 6', job.err)

    def test_a_list_of_ones_own(self):
        job = self.ready('--signals-to-handle=SIGUSR1,usr2', probe('signals'), 'stay')
        job.signal(signal.SIGUSR1)
        job.read_until('got SIGUSR1', 2)
        job.insist(signal.SIGUSR2)
        self.assertEqual(job.wait(), 128 + signal.SIGUSR2, job.err)

    def test_one_that_is_in_no_list_ends_all_the_same(self):
        job = self.ready('--signals-to-handle=SIGTERM', '--forward-signals=', probe('tree'), 'wait')
        job.signal(signal.SIGUSR1)
        self.assertEqual(job.wait(), 128 + signal.SIGUSR1)
        job.wait_gone()

    def test_as_early_as_possible(self):
        for _ in range(30):
            job = self.start('sleep', '1000')
            job.signal(signal.SIGTERM)
            self.assertIn(job.wait(), (143, -15))
            job.wait_gone()


class Forwarded(SignalCase):
    def test_a_notice_reaches_every_worker_and_ends_nothing(self):
        job = self.ready(probe('signals'), workers=3)
        for sig in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            before = job.out.count(f'got {sig.name}')
            job.signal(sig)
            job.read_until(f'got {sig.name}', before + 3)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(job.out.count('got SIGUSR1'), 6)

    def test_a_list_of_ones_own(self):
        job = self.ready('--forward-signals=SIGWINCH,SIGALRM', probe('signals'), 'stay')
        job.signal(signal.SIGALRM)
        job.read_until('got SIGALRM', 2)
        job.signal(signal.SIGTERM)
        job.read_until('got SIGTERM', 2)
        job.insist(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)


# Saves when it is told to, for which it needs its helper, as a training with a DataLoader does.
SAVER = '''
import os, signal, subprocess, sys, time
HELPER = """
import os, signal
def told(sig, frame):
    os.write(1, f"helper got {signal.Signals(sig).name}\\\\n".encode())
    if sig == signal.SIGTERM: os._exit(0)
for sig in (signal.SIGTERM, signal.SIGUSR1): signal.signal(sig, told)
os.write(1, b"helper is there\\\\n")
while True: signal.pause()
"""
helper = subprocess.Popen([sys.executable, '-c', HELPER], stdout=subprocess.PIPE)
os.write(1, helper.stdout.readline())
def save(sig, frame):
    found = 'a helper' if helper.poll() is None else 'none'
    os.write(1, f'saved with {found} at {signal.Signals(sig).name}\\n'.encode())
    if sig == signal.SIGTERM: sys.exit()
for sig in (signal.SIGTERM, signal.SIGUSR1): signal.signal(sig, save)
os.write(1, b'ready\\n')
while True: time.sleep(1)  # unlike pause() it misses no signal that comes just before it
'''


class MainProgram(SignalCase):
    """A signal is for the process that does the work of a worker, not for its helpers."""

    def setUp(self):
        super().setUp()
        self.write('saver.py', SAVER)
        python = f'{sys.executable} saver.py'
        self.write('wrapper.sh', f'#!/bin/sh\nexport SOME=thing\n{python}\nread -r never\n')
        self.write('outer.sh', '#!/bin/sh\n./wrapper.sh\necho "ended with $?"\n')
        self.env['PYTHONPATH'] = str(self.folder)

    def test_it_saves_with_its_helpers(self):
        for words in (['saver.py'], ['-m', 'saver'], ['./wrapper.sh'], ['./outer.sh'],
                      ['sh', '-c', 'trap "" HUP; ./wrapper.sh; true']):
            with self.subTest(words[-1]):
                job = self.ready('--shutdown-timeout=1h', *words, stdin=-1)
                job.signal(signal.SIGUSR1)
                job.read_until('saved with a helper at SIGUSR1', 2)
                job.signal(signal.SIGTERM)
                self.assertEqual(job.wait(), 143, job.err)
                self.assertEqual(job.out.count('saved with a helper at SIGTERM'), 2, job.out)
                self.assertNotIn('helper got SIGUSR1', job.out)
                job.process.stdin.close()

    def test_a_restart_tells_it_too(self):
        job = self.start('--nproc-per-node=2', '--max-restarts=1', '--failure-timeout=1h', '--no-prefix', 'sh', '-c',
                         'if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exit 0; fi\n'
                         'if [ $RANK = 1 ]; then read -r go; exit 6; fi; ./wrapper.sh', stdin=-1)
        job.read_until('ready')
        job.process.stdin.write(b'go\n')
        job.process.stdin.flush()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('saved with a helper at SIGTERM', job.out)
        job.process.stdin.close()

    def test_the_group_is_told_if_that_is_asked_for(self):
        job = self.ready('--signal-scope=group', 'saver.py')
        helpers = [pid for pid in job.running() if 'HELPER' not in (words := Path(f'/proc/{pid}/cmdline').read_text())
                   and 'helper got' in words]
        self.assertEqual(len(helpers), 2)
        job.signal(signal.SIGUSR1)
        job.read_until('saved with a helper at SIGUSR1', 2)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.err)

    def test_a_shell_that_handles_the_signal_gets_it(self):
        job = self.ready('--shutdown-timeout=1h', 'sh', '-c',
                         'trap "echo the shell saves; kill $!; exit 0" TERM; sleep 1000 & echo ready; wait')
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.err)
        self.assertEqual(job.out.count('the shell saves'), 2, job.out)

    def test_a_shell_that_ignores_the_signal_goes_on(self):
        job = self.ready('--shutdown-timeout=1h', 'sh', '-c', 'trap "" TERM; echo ready; read -r go; sleep 0.01; echo done',
                         stdin=-1)
        job.signal(signal.SIGTERM)
        job.read_until('stopping 2 workers')
        job.process.stdin.write(b'go\ngo\n')
        job.process.stdin.close()
        self.assertEqual(job.wait(), 143, job.err)
        self.assertIn('done', job.out)


class IgnoredByTheCaller(SignalCase):
    def test_hangup_under_nohup(self):
        job = self.ready(probe('signals'), preexec_fn=ignoring(signal.SIGHUP))
        job.signal(signal.SIGHUP)
        job.signal(signal.SIGUSR1)
        job.read_until('got SIGUSR1', 2)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertNotIn('SIGHUP', job.out + job.err)

    def test_interrupt_in_the_background_of_a_script(self):
        job = self.ready(probe('signals'), preexec_fn=ignoring(signal.SIGINT, signal.SIGQUIT))
        job.signal(signal.SIGINT)
        job.signal(signal.SIGUSR1)
        job.read_until('got SIGUSR1', 2)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)


class Terminal(SignalCase):
    def on_terminal(self, *words):
        """ddprun in the foreground of a terminal; the job and our end of the terminal."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        job = self.start(*words, stdin=theirs, stdout=theirs, stderr=theirs,
                         preexec_fn=take_terminal)
        os.close(theirs)
        return job, ours

    @staticmethod
    def read_terminal(fd, text, got=b''):
        """All that came, until @text is in it; or, without @text, until the other side is closed."""
        while text is None or text.encode() not in got:
            try:
                got += os.read(fd, 65536)
            except OSError:
                if text is None:
                    break
                raise
        return got

    def test_an_interrupt_counts_once(self):
        job, terminal = self.on_terminal('--nproc-per-node=2', probe('signals'), 'stay')
        got = self.read_terminal(terminal, 'default0]:ready')
        got = self.read_terminal(terminal, 'default1]:ready', got)
        os.write(terminal, b'\x03')
        got = self.read_terminal(terminal, '0]:got SIGINT', got)
        got = self.read_terminal(terminal, '1]:got SIGINT', got)
        self.assertIsNone(job.process.poll())
        self.assertNotIn(b'killing', got)

        def ended():
            os.write(terminal, b'\x03')
            return job.process.poll() is not None
        wait_until(ended, 'the end of ddprun')
        self.assertEqual(job.process.wait(), 130)
        got = self.read_terminal(terminal, None, got)
        self.assertEqual(got.count(b'SIGINT: stopping'), 1)
        self.assertEqual(got.count(b'SIGINT: killing'), 1)
        self.assertEqual(got.count(b'got SIGINT'), 2)

    def test_that_goes_away_ends_the_job(self):
        job, terminal = self.on_terminal('--nproc-per-node=2', probe('signals'))
        got = self.read_terminal(terminal, 'default0]:ready')
        self.read_terminal(terminal, 'default1]:ready', got)
        os.dup2(os.open('/dev/null', os.O_RDONLY), terminal) # closes the terminal
        self.assertEqual(job.process.wait(), 129)
        job.wait_gone()

    def test_output_is_not_stopped_by_a_background_rule(self):
        job, terminal = self.on_terminal('sh', '-c', 'stty tostop </dev/tty 2>/dev/null; echo shown')
        self.read_terminal(terminal, 'shown')
        self.assertEqual(job.process.wait(), 0)


if __name__ == '__main__':
    unittest.main()
