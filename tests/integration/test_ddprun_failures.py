#!/usr/bin/env python3
"""test_ddprun_failures.py - the first failure ends the job; its cause is the exit code and the report."""

import json
import os
import re
import signal
import sys
import unittest
import uuid
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, in_order, probe, wait_until

WAIT = 'exec sleep 1000'


def only_rank(rank, action, others=WAIT):
    return ['sh', '-c', f'if [ $RANK = {rank} ]; then {action}; fi; {others}']


class ExitCode(DdprunCase):
    def test_is_the_workers_own(self):
        for code in (1, 2, 7, 78, 93, 124, 137, 255):
            job = self.run_job('sh', '-c', f'exit {code}')
            self.assertEqual(job.code, code, job.err)
            self.assertIn(f'rank 0 failed first: exit code {code}, after', job.err)

    def test_is_128_and_the_signal(self):
        for sig in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGUSR1,
                    signal.SIGPIPE, signal.SIGHUP, signal.SIGINT):
            job = self.run_job('sh', '-c', f'ulimit -c 0; kill -{int(sig)} $$$$')
            self.assertEqual(job.code, 128 + sig, job.err)
            self.assertIn(f'rank 0 failed first: killed by {sig.name} (', job.err)

    def test_success_says_nothing(self):
        job = self.run_job('--nproc-per-node=4', 'true')
        self.assertEqual((job.code, job.out, job.err), (0, '', ''))

    def test_a_worker_that_is_done_early_is_left_alone(self):
        job = self.start('--nproc-per-node=2', '--no-prefix', 'sh', '-c',
                         'echo up; if [ $RANK = 1 ]; then read -r wait; echo late; fi', stdin=-1)
        job.read_until('up\n', 2)
        job.process.stdin.close()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertIn('late\n', job.out)


class FirstFailure(DdprunCase):
    def test_names_who_ended_well_before(self):
        script = self.write('uneven.sh', """
            case $RANK in
            1) echo $$ > pid.new; mv pid.new pid;;
            0) until [ -e pid ]; do sleep 0.02; done
               while kill -0 $(cat pid) 2> /dev/null; do sleep 0.02; done; exit 7;;
            2) exec sleep 600;;
            esac
            """)
        job = self.run_job('--nproc-per-node=3', 'sh', script)
        self.assertEqual(job.code, 7, job.err)
        in_order(self, job.err, 'rank 0 failed first: exit code 7', 'before that rank 1 ended with exit code 0, ',
                 'then rank 2: stopped by ddprun')

    def test_stops_the_others(self):
        job = self.run_job('--nproc-per-node=4', '--failure-timeout=1h',
                           *only_rank(2, 'echo reason >&2; exit 7'))
        self.assertEqual(job.code, 7)
        in_order(self, job.err, '[default2]:reason\n', 'rank 2 failed first: exit code 7, after',
                 '(local rank 2, pid', '  | reason\n')
        for rank in (0, 1, 3):
            self.assertRegex(job.err, rf'then rank {rank}: stopped by ddprun, killed by SIGTERM ')

    def test_shows_the_last_lines_of_stderr(self):
        script = 'i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo "line $i" >&2; done; exit 1'
        job = self.run_job('sh', '-c', script)
        quoted = re.findall(r'^  \| (.*)$', job.err, re.MULTILINE)
        self.assertEqual(quoted[-1], 'line 300')
        self.assertEqual(quoted, [f'line {n}' for n in range(301 - len(quoted), 301)])
        self.assertGreaterEqual(len(quoted), 10)

    def test_makes_control_characters_harmless(self):
        job = self.run_job('--local-ranks-filter=', 'sh', '-c',
                           r'printf "\033[31m\033[2Jred\001\n" >&2; exit 1')
        self.assertIn('  | \\x1b[2Jred\\x01\n', job.err)

    def test_kills_who_ignores_the_request(self):
        job = self.start('--nproc-per-node=2', '--failure-timeout=200ms', '--shutdown-timeout=1h',
                         *only_rank(0, 'read -r go; exit 3', f'exec {probe("tree")} wait'), stdin=-1)
        job.read_until('ready')
        job.process.stdin.close()
        self.assertEqual(job.wait(), 3)
        self.assertRegex(job.err, r'then rank 1: did not stop in time, killed by SIGKILL')

    def test_kills_at_once_without_grace(self):
        job = self.run_job('--nproc-per-node=2', '--failure-timeout=0', '--shutdown-timeout=1h',
                           *only_rank(0, 'exit 3', f'exec {probe("tree")} wait'))
        self.assertEqual(job.code, 3)

    def test_those_who_stop_by_themselves_are_not_blamed(self):
        job = self.start('--nproc-per-node=2', '--failure-timeout=1h',
                         *only_rank(0, 'read -r go; exit 5', f'exec {probe("signals")}'), stdin=-1)
        job.read_until('ready')
        job.process.stdin.close()
        self.assertEqual(job.wait(), 5)
        self.assertIn('got SIGTERM', job.out)
        self.assertNotIn('then rank 1', job.err)

    def test_is_the_one_that_died_first_however_late_it_is_seen(self):
        for first, second in ((3, 1), (1, 3), (2, 0)):
            log = self.folder / f'events_{first}'
            job = self.start('--nproc-per-node=4', '--no-prefix', f'--event-log={log}', 'sh', '-c',
                             f'echo "$RANK=$$$$."; {WAIT}')
            job.read_until('.\n', 4)
            wait_until(lambda: 'worker_start_completed' in log.read_text(), 'the agent to know them all')
            pids = {int(r): int(p) for r, p in re.findall(r'(\d)=(\d+)\.', job.out)}
            agent = job.agent()
            os.kill(agent, signal.SIGSTOP)
            wait_until(lambda: self.state(agent) == 'T', 'the agent to stop')
            for rank in (first, second):
                os.kill(pids[rank], signal.SIGKILL)
                wait_until(lambda: self.state(pids[rank]) == 'Z', 'the death of a worker')
            os.kill(agent, signal.SIGCONT)
            self.assertEqual(job.wait(), 137)
            in_order(self, job.err, f'rank {first} failed first: killed by SIGKILL', f'then rank {second}: ')

    def test_is_the_one_that_was_killed_however_long_it_takes_to_end(self):
        """The kernel frees the memory of rank 1 before it is dead; rank 0 has exited by then, as ranks without a peer do."""
        large = 'import signal; memory = bytearray(b"x") * (1 << 29); print("ready", flush=True); signal.pause()'
        watch = ('import os, sys\n'
                 'pid = int(open(sys.argv[1]).read())\n'
                 'while open(f"/proc/{pid}/stat").read().split()[-1] == "0": pass\n'
                 'os._exit(1)')
        pid = self.folder / 'pid'
        job = self.start('--nproc-per-node=2', '--no-prefix', 'sh', '-c',
                         f'[ $RANK = 1 ] && {{ echo $$$$ > {pid}.new; mv {pid}.new {pid}; '
                         f'exec {sys.executable} -c \'{large}\'; }}; while [ ! -e {pid} ]; do :; done; exec {sys.executable} -c \'{watch}\' {pid}')
        job.read_until('ready')
        os.kill(int(pid.read_text()), signal.SIGKILL)
        self.assertEqual(job.wait(), 137, job.err)
        in_order(self, job.err, 'rank 1 failed first: killed by SIGKILL', 'then rank 0: ')

    @staticmethod
    def state(pid):
        return Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0]


class Logs(DdprunCase):
    def test_the_report_says_where_they_are(self):
        for option in ('--tee=3', '--redirects=3', '--tee=2', '--redirects=2'):
            with self.subTest(option):
                job = self.run_job('--nproc-per-node=2', f'--log-dir={self.folder}/logs', option,
                                   '--rdzv-id=j', *only_rank(1, 'echo why >&2; exit 1'))
                path = re.search(r'its log: (\S+/attempt_0/1/stderr\.log)\n', job.err)
                self.assertTrue(path, job.err)
                self.assertEqual(Path(path[1]).read_text(), 'why\n')
                self.assertIn('  | why\n', job.err)

    def test_the_report_says_how_to_keep_them(self):
        self.assertIn('--log-dir', self.run_job('false').err)

    def test_they_are_private_and_complete(self):
        self.run_job('--nproc-per-node=12', '--tee=1', f'--log-dir={self.folder}/a/b', '--rdzv-id=j',
                     'sh', '-c', 'printf "out $RANK"; echo "err" >&2')
        top, = (self.folder / 'a' / 'b').glob('*_*')
        self.assertTrue(top.name.startswith('j_'))
        self.assertEqual(top.stat().st_mode & 0o77, 0)
        for rank in range(12):
            where = top / 'attempt_0' / str(rank)
            self.assertEqual([path.name for path in where.iterdir()], ['stdout.log'])
            self.assertEqual((where / 'stdout.log').read_text(), f'out {rank}')


class ErrorFile(DdprunCase):
    def failing(self, text, before=''):
        (self.folder / 'text').write_text(text)
        job = self.run_job('sh', '-c', f'{before}cat text > $TORCHELASTIC_ERROR_FILE; exit 4')
        self.assertEqual(job.code, 4, job.err)
        return job.err

    def test_as_record_writes_it(self):
        err = self.failing(json.dumps({'message': {'message': 'ValueError: bad shape', 'extraInfo': {
            'py_callstack': 'Traceback (most recent call last):\n  line 3\nValueError: bad shape\n',
            'timestamp': '1700000000'}}}))
        in_order(self, err, 'failed first: exit code 4', '  | Traceback (most recent call last):',
                 '  |   line 3', '  | ValueError: bad shape\n')

    def test_with_a_plain_message(self):
        err = self.failing(json.dumps({'message': 'it broke', 'timestamp': 3}))
        self.assertIn('  | it broke\n', err)

    def test_any_other_text_is_shown(self):
        for text in ('not json', 'two\nlines', '[1', '{"message": 7}', '[]', '"x"', '{"a":1,"a":2}'):
            lines = ''.join(f'  | {line}\n' for line in text.splitlines())
            self.assertIn(f'  the error that it recorded:\n{lines}  it wrote', self.failing(text), text)
        self.assertIn('  | \\xff\n', self.failing('\0\xff').replace(' \xff', '\\xff'))
        self.assertNotIn('recorded', self.failing(''))
        self.assertIn('  | [[[[', self.failing('[' * 100000))

    def test_what_is_no_file_is_a_note(self):
        job = self.run_job('sh', '-c', 'mkfifo $TORCHELASTIC_ERROR_FILE; exit 4')
        self.assertIn('  note: ', job.err)
        job = self.run_job('sh', '-c', 'ln -s /etc/hostname $TORCHELASTIC_ERROR_FILE; exit 4')
        self.assertIn('  note: ', job.err)

    def own(self, *words, fail='exit 4', record='{"message": {"message": "m"}}', **env):
        """What stands in ddprun's own error file in the end; None: there is none."""
        path = self.folder / 'own.json'
        (self.folder / 'text').write_text(record)
        self.job = self.run_job(*words, 'sh', '-c',
                                f'[ $TORCHELASTIC_ERROR_FILE != {path} ] && '
                                f'cat text > $TORCHELASTIC_ERROR_FILE; {fail}',
                                env={'TORCHELASTIC_ERROR_FILE': path, **env})
        return json.loads(path.read_text()) if path.exists() else None

    def test_is_passed_on_to_who_started_ddprun(self):
        self.assertEqual(self.own(), {'message': {'message': 'm', 'errorCode': 4}})
        self.assertEqual(self.own(fail='kill -SEGV $$$$'), {'message': {'message': 'm', 'errorCode': -11}})
        self.assertEqual(self.own(record='{"message": "m", "timestamp": 5}'), {'message': 'm', 'timestamp': 5})
        self.assertEqual(self.own(record='no json')['message']['message'], 'no json')

    def test_of_the_first_that_failed_is_passed_on(self):
        found = self.own('--nproc-per-node=2', fail='[ $RANK = 1 ] && exit 5; sleep 60',
                         record='{"message": {"message": "m"}}')
        self.assertEqual(found['message']['errorCode'], 5)

    def test_is_not_passed_on_of_a_job_that_ends_well(self):
        self.assertIsNone(self.own('--max-restarts=1', fail='exit $$((1 - TORCHELASTIC_RESTART_COUNT))'))
        self.assert_succeeded(self.job)
        self.assertIsNone(self.own('--max-restarts=1', fail='[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; '
                                   'kill -TERM $(cut -d" " -f4 /proc/$$PPID/stat); sleep 60'))
        self.assertEqual(self.job.code, 143)

    def test_that_cannot_be_passed_on_is_said(self):
        job = self.run_job('sh', '-c', 'echo x > $TORCHELASTIC_ERROR_FILE; exit 4',
                           env={'TORCHELASTIC_ERROR_FILE': '/nowhere/error.json'})
        self.assertEqual(job.code, 4)
        self.assertIn("TORCHELASTIC_ERROR_FILE: cannot open the error file '/nowhere/error.json'", job.err)

    def test_of_a_success_is_ignored(self):
        job = self.run_job('sh', '-c', 'echo x > $TORCHELASTIC_ERROR_FILE')
        self.assertEqual((job.code, job.err), (0, ''))

    def test_is_kept_with_the_logs(self):
        job = self.run_job(f'--log-dir={self.folder}/logs', '--rdzv-id=j', 'sh', '-c',
                           'echo "{\\"message\\": \\"kept\\"}" > $TORCHELASTIC_ERROR_FILE; exit 1')
        self.assertIn('  | kept\n', job.err)
        path, = (self.folder / 'logs').glob('j_*/attempt_0/0/error.json')
        self.assertIn('kept', path.read_text())

    def test_is_off_without_a_log_directory(self):
        job = self.run_job('--log-dir=/dev/null', '--tee=3', 'sh', '-c',
                           'echo "<$TORCHELASTIC_ERROR_FILE>"; exit 1')
        self.assertEqual((job.code, job.out), (1, '[default0]:<>\n'))


class MemoryGroup:
    """A control group with a limit on memory, version 2 or 1; SkipTest where none can be made."""

    LIMIT = 64 << 20

    def __init__(self, case):
        name = f'ddprun_test_{uuid.uuid4().hex[:8]}'
        for line in Path('/proc/self/mountinfo').read_text().splitlines():
            fields, kind = line.split()[4], line.split(' - ')[1].split()
            if kind[0] == 'cgroup2':
                settings = {'memory.max': self.LIMIT, 'memory.swap.max': 0}
            elif kind[0] == 'cgroup' and 'memory' in kind[2].split(','):
                settings = {'memory.limit_in_bytes': self.LIMIT,
                            'memory.memsw.limit_in_bytes': self.LIMIT}
            else:
                continue
            if self.make(Path(fields) / name, settings):
                case.addCleanup(self.path.rmdir)
                return
        raise unittest.SkipTest('a control group with a limit on memory cannot be made here: that takes root')

    def make(self, path, settings):
        try:
            path.mkdir()
        except OSError:
            return False
        for n, (name, value) in enumerate(settings.items()):
            try:
                (path / name).write_text(str(value))
            except OSError:
                if n == 0: # without swap accounting the rest is not there
                    path.rmdir()
                    return False
        self.path = path
        return True

    def enter(self):
        """In a child, before it executes."""
        (self.path / 'cgroup.procs').write_text(str(os.getpid()))


class OutOfMemory(DdprunCase):
    def test_is_called_by_its_name(self):
        group = MemoryGroup(self)
        job = self.start('--nproc-per-node=2', *only_rank(1, 'exec tail /dev/zero'),
                         preexec_fn=group.enter)
        self.assertEqual(job.wait(), 137, job.err)
        job.wait_gone()
        self.assertIn("rank 1 failed first: killed by the kernel's out-of-memory killer (SIGKILL)", job.err)

    def test_of_a_child(self):
        """The worker itself ends with a code that says nothing."""
        group = MemoryGroup(self)
        job = self.start('--nproc-per-node=2', *only_rank(1, '(exec tail /dev/zero) || exit 7'), preexec_fn=group.enter)
        self.assertEqual(job.wait(), 7, job.err)
        job.wait_gone()
        self.assertIn('rank 1 failed first: exit code 7', job.err)
        self.assertIn("the kernel's out-of-memory killer", job.err)

    def test_another_kill_is_not(self):
        self.assertNotIn('memory', self.run_job('sh', '-c', 'kill -9 $$$$').err)


if __name__ == '__main__':
    unittest.main()
