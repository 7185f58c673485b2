#!/usr/bin/env python3
"""test_ddprun_torch.py - an unmodified PyTorch script under ddprun, whose ranks meet in its store.

$INTEROP_PYTHON is the Python that has PyTorch; skipped (77) where there is none, unless
DDPRUN_INTEROP=1 makes that a failure.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from sample import WHOLE, whole_only
from skip import need_torch

DDPRUN = os.environ.get('DDPRUN', '')
PYTHON = os.environ.get('INTEROP_PYTHON', '')
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'torch_worker.py')
WORKERS = 2


def run(*words, options=(), **env):
    return subprocess.run([DDPRUN, f'--nproc-per-node={WORKERS}', '--no-prefix', *options, WORKER,
                           *words],
                          env=dict(os.environ, PYTHON_EXEC=PYTHON, **env),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)


def lines(attempt):
    return [f'rank {rank} of {WORKERS}, attempt {attempt}: 3.0' for rank in range(WORKERS)]


class Torch(unittest.TestCase):
    def test_a_restart_finds_no_key_of_the_attempt_before(self):
        done = run('fail', options=['--max-restarts=1'])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(lines(0) + lines(1)))
        self.assertIn('rank 1 failed first: exit code 1', done.stderr)
        self.assertIn('RuntimeError: once', done.stderr)

    @whole_only
    def test_rank_0_can_host_its_own(self):
        done = run('fail', options=['--max-restarts=1'], TORCH_DISABLE_SHARE_RDZV_TCP_STORE='1')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(lines(0) + lines(1)))

    def test_a_breakpoint_of_one_rank_can_be_answered(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, 'stop.py')
            with open(script, 'w', encoding='ascii') as file:
                file.write('import torch.distributed as dist\n'
                           'dist.init_process_group("gloo")\n'
                           'dist.breakpoint(0)\n'
                           'dist.destroy_process_group()\n')
            done = self.talk(script, b'(Pdb) ', b'p 40 + 2\n', b'42', b'c\n')
        self.assertIn(b'[default0]:(Pdb) ', done)

    def talk(self, script, *turns):
        """Wait for each even turn of @turns on stdout, say each odd one; what came until the end."""
        seen = b''
        with subprocess.Popen([DDPRUN, f'--nproc-per-node={WORKERS}', script],
                              env=dict(os.environ, PYTHON_EXEC=PYTHON), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as job:
            for awaited, said in zip(turns[::2], turns[1::2]):
                while awaited not in seen:
                    came = os.read(job.stdout.fileno(), 4096)
                    self.assertTrue(came, seen)
                    seen += came
                job.stdin.write(said)
                job.stdin.flush()
            seen += job.stdout.read()
            self.assertEqual(job.wait(), 0, seen)
        return seen


class Timers(unittest.TestCase):
    def test_a_worker_that_hangs_is_ended_by_its_timer(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, 'hang.py')
            with open(script, 'w', encoding='ascii') as file:
                file.write('import os, time\n'
                           'first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"\n'
                           'if os.environ["RANK"] == "1":\n'
                           '    from torch.distributed.elastic import timer\n'
                           '    timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))\n'
                           '    with timer.expires(after=60): pass\n'
                           '    if first:\n'
                           '        with timer.expires(after=0.2): time.sleep(60)\n'
                           'if first: time.sleep(60)\n')
            done = subprocess.run([DDPRUN, '--nproc-per-node=2', '--max-restarts=1', script],
                                  env=dict(os.environ, PYTHON_EXEC=PYTHON, TORCHELASTIC_ENABLE_FILE_TIMER='1'),
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"rank 1: its timer '.*\.py#\d+' has expired: process \d+ is ended by SIGKILL")


LAUNCHERS = ([DDPRUN], [PYTHON, '-m', 'torch.distributed.run'])


class ErrorFiles(unittest.TestCase):
    """What whoever has started the launcher finds in the error file that it was given."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = os.path.join(folder.name, 'worker.py')
        self.path = os.path.join(folder.name, 'error.json')

    def launch(self, launcher, body, rank_0='time.sleep(60)'):
        """Run @body below @record in rank 1; the file, or None, and the launcher's stderr. Rank 0 imports nothing."""
        with open(self.script, 'w', encoding='ascii') as file:
            file.write('import os, signal, sys, time\n'
                       f'if os.environ["RANK"] == "0": sys.exit({rank_0})\n'
                       'from torch.distributed.elastic.multiprocessing.errors import record\n'
                       '@record\n'
                       'def main():\n'
                       f'    {body}\n'
                       'main()\n')
        if os.path.exists(self.path):
            os.unlink(self.path)
        done = subprocess.run([*launcher, '--nproc-per-node=2', self.script],
                              env=dict(os.environ, PYTHON_EXEC=PYTHON, TORCHELASTIC_ERROR_FILE=self.path),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if not os.path.exists(self.path):
            return None, done.stderr
        with open(self.path, encoding='utf-8') as file:
            return json.load(file), done.stderr

    def same(self, body, **options):
        """The files of both launchers, but for the time; the report of ddprun."""
        (ours, report), (theirs, _) = (self.launch(launcher, body, **options) for launcher in LAUNCHERS)
        for found in (ours, theirs):
            if found and 'extraInfo' in found['message']:
                self.assertTrue(found['message']['extraInfo'].pop('timestamp').isdigit())
        self.assertEqual(ours, theirs)
        return ours, report

    def test_of_an_exception(self):
        found, report = self.same('raise ValueError("bad shape")')
        self.assertEqual(found['message']['message'], 'ValueError: bad shape')
        self.assertEqual(found['message']['errorCode'], 1)
        _, _, report = report.partition('failed first')
        self.assertEqual(report.count('ValueError: bad shape'), 1, report)
        self.assertEqual(report.count('Traceback'), 1, report)

    @whole_only
    def test_of_a_signal_behind_it(self):
        found, _ = self.same('try: raise ValueError("first")\n'
                             '    except ValueError as error:\n'
                             '        from torch.distributed.elastic.multiprocessing.errors import get_error_handler\n'
                             '        get_error_handler().record_exception(error)\n'
                             '        os.kill(os.getpid(), signal.SIGKILL)')
        self.assertEqual(found['message']['errorCode'], -9)

    def test_of_a_worker_that_recorded_nothing(self):
        body = 'os._exit(3)'
        self.assertIsNone(self.same(body)[0] if WHOLE else self.launch(LAUNCHERS[0], body)[0])

    @whole_only
    def test_of_a_success(self):
        self.assertIsNone(self.same('pass', rank_0='0')[0])


class Filters(unittest.TestCase):
    """The lines with one of the words, of all workers whose output goes to the console, in one more file."""

    def filtered(self, launcher, *words):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([*launcher, '--nproc-per-node=3', f'--log-dir={folder}', *words, '--no-python', 'sh', '-c',
                            'echo "loss $RANK"; echo "step $RANK"; echo "loss of $RANK" >&2'],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           check=True)
            return {path.name: sorted(path.read_text().splitlines())
                    for path in Path(folder).glob('*_*/attempt_0/filtered_*.log')}

    def test_are_torchruns(self):
        words = ['--tee=0:3,1:1,2:2', '--duplicate-stdout-filters=loss 0,loss 1,none', '--duplicate-stderr-filters=of']
        ours, theirs = (self.filtered(launcher, *words) for launcher in LAUNCHERS)
        self.assertEqual(len(theirs['filtered_stdout.log']), 2, theirs)
        self.assertEqual(len(theirs['filtered_stderr.log']), 2, theirs)
        self.assertEqual(ours, theirs)


if __name__ == '__main__':
    need_torch(PYTHON)
    unittest.main()
