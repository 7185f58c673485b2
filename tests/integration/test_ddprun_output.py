#!/usr/bin/env python3
"""test_ddprun_output.py - the output of workers arrives whole, complete and in order."""

import collections
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, SANITIZED, probe, wait_until

LINES = 2000 if SANITIZED else 10000
LINE = re.compile(rb'\[default(\d)\]:<(\d) (\d+) (\d+) ([a-z]*)>')


class Lines(DdprunCase):
    def assert_whole(self, text, workers, lines, fds):
        """Every line is one that probe_lines wrote, and each stream has all of its own in order."""
        self.assertEqual(text[-1:], b'\n')
        seen = collections.Counter()
        for line in text[:-1].split(b'\n'):
            match = LINE.fullmatch(line)
            self.assertTrue(match, line[:300])
            prefix, fd, rank, number, fill = match.groups()
            self.assertEqual(prefix, rank)
            self.assertEqual(int(number), seen[rank, fd])
            self.assertEqual(len(set(fill)), 1 if fill else 0)
            seen[rank, fd] += 1
        self.assertEqual(seen, {(str(rank).encode(), str(fd).encode()): lines
                                for rank in range(workers) for fd in fds})

    def test_of_many_workers_are_never_torn(self):
        job = self.run_job('--nproc-per-node=8', probe('lines'), LINES, 1)
        self.assert_succeeded(job)
        self.assert_whole(job.out_bytes, 8, LINES, [1])

    def test_of_both_streams(self):
        job = self.run_job('--nproc-per-node=4', probe('lines'), LINES // 4, 1, 2)
        self.assert_whole(job.out_bytes, 4, LINES // 4, [1])
        self.assert_whole(job.err_bytes, 4, LINES // 4, [2])

    def test_of_both_streams_into_one_pipe(self):
        job = self.start('--nproc-per-node=4', probe('lines'), LINES // 2, 1, 2, stderr=-2)
        while job.open: # slowly, in small pieces: there is always something in the queue
            data = os.read(job.out_fd, 5000)
            job.pipes[job.out_fd][1].extend(data)
            if not data:
                job.open.clear()
        job.wait()
        self.assert_whole(job.out_bytes, 4, LINES // 2, [1, 2])

    def test_of_both_streams_into_one_file(self):
        with open(self.folder / 'output', 'wb') as file:
            self.run_job('--nproc-per-node=4', probe('lines'), LINES // 4, 1, 2, stdout=file,
                         stderr=file)
        self.assert_whole((self.folder / 'output').read_bytes(), 4, LINES // 4, [1, 2])

    def test_the_last_one_needs_no_end(self):
        job = self.run_job('--nproc-per-node=2', 'sh', '-c', 'printf "a\nb$RANK"; printf "e$RANK" >&2')
        self.assertEqual(sorted(job.out.splitlines()), ['[default0]:a', '[default0]:b0',
                                                        '[default1]:a', '[default1]:b1'])
        self.assertEqual(sorted(job.err.splitlines()), ['[default0]:e0', '[default1]:e1'])

    def test_the_last_one_of_a_killed_worker(self):
        job = self.run_job('sh', '-c', 'printf partial; kill -9 $$$$')
        self.assertEqual(job.out, '[default0]:partial\n')

    def test_a_very_long_one(self):
        size = 10 << 20
        job = self.run_job('sh', '-c', f'head -c {size} /dev/zero | tr "\\0" x; echo')
        self.assertEqual(job.out_bytes, b'[default0]:' + b'x' * size + b'\n')

    def test_any_bytes(self):
        (self.folder / 'bytes').write_bytes(bytes(range(256)) * 4000)
        job = self.run_job('--tee=1', '--rdzv-id=j', f'--log-dir={self.folder}/logs', 'cat', 'bytes')
        expected = bytes(range(256)) * 4000
        shown = b'[default0]:' + expected.replace(b'\n', b'\n[default0]:') + b'\n'
        self.assertEqual(job.out_bytes, shown)
        path, = (self.folder / 'logs').glob('*_*/attempt_0/0/stdout.log')
        self.assertEqual(path.read_bytes(), expected)

    def test_empty_ones(self):
        self.assertEqual(self.run_job('printf', '\\n\\n').out, '[default0]:\n[default0]:\n')
        self.assertEqual(self.run_job('true').out, '')

    def test_appear_while_the_worker_runs(self):
        job = self.start('sh', '-c', 'echo early; read -r wait', stdin=-1)
        job.read_until('[default0]:early\n')
        job.process.stdin.close()
        job.wait()


class Unfinished(DdprunCase):
    """Lines whose end does not come, such as prompts."""

    def answer(self, job, text):
        job.process.stdin.write(text)
        job.process.stdin.flush()

    def test_a_prompt_appears_and_is_answered(self):
        script = self.write('ask.py', 'print("hello", input("name? "))\n')
        job = self.start(script, stdin=-1)
        job.read_until('[default0]:name? ')
        self.answer(job, b'Jo\n')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(job.out, '[default0]:name? hello Jo\n')

    def test_a_debugger_can_be_talked_to(self):
        script = self.write('stop.py', 'x = 40\nbreakpoint()\nprint("went on")\n')
        job = self.start(script, stdin=-1)
        job.read_until('(Pdb) ')
        self.answer(job, b'p x + 2\n')
        job.read_until('(Pdb) 42\n[default0]:(Pdb) ')
        self.answer(job, b'c\n')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertTrue(job.out.endswith('[default0]:(Pdb) went on\n'), job.out)

    def test_others_begin_a_line_and_the_first_begins_again(self):
        job = self.start('--nproc-per-node=2', 'sh', '-c',
                         'if [ $RANK = 0 ]; then printf "a "; read -r x; echo b; '
                         'else until [ -e go ]; do :; done; echo other; fi', stdin=-1)
        job.read_until('[default0]:a ')
        self.write('go', '')
        job.read_until('other\n')
        self.answer(job, b'\n')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(job.out, '[default0]:a \n[default1]:other\n[default0]:b\n')

    def test_what_ddprun_says_begins_a_line(self):
        job = self.start('sh', '-c', 'printf "a "; read -r x; exit 3', stdin=-1, stderr=-2)
        job.read_until('[default0]:a ')
        self.answer(job, b'\n')
        self.assertEqual(job.wait(), 3)
        self.assertTrue(job.out.startswith('[default0]:a \nddprun: rank 0 failed first'), job.out)

    def test_a_file_of_both_streams_has_whole_lines(self):
        with open(self.folder / 'output', 'wb') as file:
            job = self.start('sh', '-c', 'printf "a "; read -r x; echo error >&2; echo b',
                             stdin=-1, stdout=file, stderr=file)
            wait_until(lambda: (self.folder / 'output').read_text(), 'the prompt')
            self.answer(job, b'\n')
            self.assertEqual(job.wait(), 0)
        text = (self.folder / 'output').read_text()
        self.assertIn(text, ('[default0]:a \n[default0]:error\n[default0]:b\n',
                             '[default0]:a b\n[default0]:error\n'))

    def test_a_progress_bar_moves_on_a_terminal(self):
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        job = self.start('sh', '-c', 'for i in 1 2 3; do printf "\r$$i%%"; read -r x; done; echo',
                         stdin=-1, stdout=theirs)
        seen = b''
        for step in (b'1%', b'2%', b'3%'):
            while step not in seen:
                seen += os.read(ours, 1000)
            self.answer(job, b'\n')
        self.assertEqual(job.wait(), 0, job.err)
        self.assertEqual(seen, b'[default0]:\r[default0]:1%\r[default0]:2%\r[default0]:3%')


class Closed(DdprunCase):
    def test_a_worker_that_closes_its_output_goes_on(self):
        job = self.run_job('sh', '-c', 'echo a; exec >&- 2>&-; : > reached; exit 5')
        self.assertEqual((job.code, job.out), (5, '[default0]:a\n'))
        self.assertTrue((self.folder / 'reached').exists())

    def test_standard_descriptors_of_ddprun(self):
        self.write('closed', '#!/bin/sh\nexec "$@"\n')
        for fds, out, err in (((0,), '[default0]:fds 0 1 2', ''), ((1,), '', ''), ((2,), 'fds', ''),
                              ((0, 1, 2), '', '')):
            with self.subTest(fds):
                job = self.run_job('sh', '-c', f'{probe("state")} | tee seen',
                                   preexec_fn=lambda: [os.close(fd) for fd in fds])
                self.assert_succeeded(job)
                self.assertIn(out, job.out)
                seen = (self.folder / 'seen').read_text()
                self.assertTrue(seen.startswith('fds 0 1 2'), seen)

    def test_and_the_exit_code_still_comes(self):
        job = self.run_job('sh', '-c', 'echo x; echo y >&2; exit 9',
                           preexec_fn=lambda: os.closerange(0, 3))
        self.assertEqual(job.code, 9)

    def test_a_full_device(self):
        with open('/dev/full', 'w') as full:
            job = self.run_job('sh', '-c', 'echo x; exit 9', stdout=full)
        self.assertEqual(job.code, 9)
        self.assertIn('ddprun: what went to stdout is incomplete: No space left on device\n', job.err)


class Readers(DdprunCase):
    def test_a_slow_one_loses_nothing(self):
        job = self.start('--nproc-per-node=4', probe('lines'), LINES // 2, 1)
        deadline = time.monotonic() + 3 # longer than what ddprun waits for leftover pipes
        while time.monotonic() < deadline:
            job.pipes[job.out_fd][1].extend(os.read(job.out_fd, 100))
            select.select([], [], [], 0.02)
        self.assertEqual(job.wait(), 0)
        text = job.out_bytes
        self.assertEqual(text.count(b'\n'), 4 * (LINES // 2))
        for rank in range(4):
            self.assertIn(f'<1 {rank} {LINES // 2 - 1} '.encode(), text)

    def test_a_slow_one_makes_the_workers_wait(self):
        job = self.start('--no-prefix', 'sh', '-c', 'exec head -c 50000000 /dev/zero')
        agent = job.agent()
        peak = 0
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            status = Path(f'/proc/{agent}/status').read_text()
            peak = max(peak, int(re.search(r'VmRSS:\s+(\d+)', status)[1]))
        self.assertEqual(job.wait(), 0)
        self.assertEqual(len(job.out_bytes.rstrip(b'\n')), 50000000)
        if not SANITIZED:
            self.assertLess(peak, 64 << 10, 'KiB')

    def test_one_that_stands_still_is_given_up_after_a_signal(self):
        job = self.start('--no-prefix', '--shutdown-timeout=2s', 'sh', '-c',
                         'echo ready >&2; exec head -c 50000000 /dev/zero')
        text = b''
        while b'ready' not in text:
            text += os.read(job.err_fd, 1000)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.process.wait(), 143)  # nobody has read what it wrote

    def test_one_that_goes_away_does_not_end_the_job(self):
        job = self.start('--nproc-per-node=2', 'sh', '-c',
                         'echo ready; read -r go; i=0; while [ $i -lt 5000 ]; do echo line; '
                         'i=$((i+1)); done; : > done$RANK; exit 0', stdin=-1)
        job.read_until('ready', 2)
        job.process.stdout.close()
        job.open.discard(job.out_fd)
        job.process.stdin.close()
        self.assertEqual(job.wait(), 0, job.err)
        self.assertTrue((self.folder / 'done0').exists() and (self.folder / 'done1').exists())

    def test_one_that_is_stuck_can_be_given_up(self):
        job = self.start('--no-prefix', 'sh', '-c', 'yes; exit 0')
        job.read_until('y\n')
        job.open.clear() # nobody reads any more
        job.insist(signal.SIGTERM)
        self.assertEqual(job.process.wait(), 143)


class Destinations(DdprunCase):
    WRITE = 'echo "o$RANK"; echo "e$RANK" >&2'

    def files(self):
        return {str(path.relative_to(path.parents[1])): path.read_text()
                for path in (self.folder / 'logs').glob('*_*/attempt_0/*/*.log')}

    def run_to_logs(self, *words, workers=3):
        return self.run_job(f'--nproc-per-node={workers}', f'--log-dir={self.folder}/logs',
                            *words, 'sh', '-c', self.WRITE)

    def test_a_full_disk_is_named(self):
        if os.geteuid() != 0:
            self.skipTest('only root can mount a small disk')
        logs = self.folder / 'small'
        logs.mkdir()
        mounted = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=64k', 'none', logs], capture_output=True, text=True,
                                 check=False)
        if mounted.returncode != 0:
            self.skipTest('a small disk cannot be mounted here: ' + mounted.stderr.strip())
        self.addCleanup(subprocess.run, ['umount', '--lazy', logs], check=True)
        job = self.run_job(f'--log-dir={logs}', '--redirects=3', 'sh', '-c',
                           f'cat /dev/zero > {logs}/rest; echo why >&2; exit 3')
        self.assertEqual(job.code, 3, job.err)
        self.assertIn('what it wrote to stderr may be lost: the file system of its log has no space left', job.err)
        self.assertNotIn('it wrote nothing', job.err)

    def test_redirects_per_rank(self):
        job = self.run_to_logs('--redirects=0:3,1:2')
        self.assertEqual(self.files(), {'0/stdout.log': 'o0\n', '0/stderr.log': 'e0\n',
                                        '1/stderr.log': 'e1\n'})
        self.assertEqual(sorted(job.out.split()), ['[default1]:o1', '[default2]:o2'])
        self.assertEqual(job.err, '[default2]:e2\n')

    def test_tee_of_two_digit_ranks(self):
        job = self.run_to_logs('--tee=10:1,11:2', workers=12)
        self.assertEqual(self.files(), {'10/stdout.log': 'o10\n', '11/stderr.log': 'e11\n'})
        self.assertEqual(sorted(job.out.split()), sorted(f'[default{n}]:o{n}' for n in range(12)))

    def test_tee_is_stronger_than_redirects(self):
        job = self.run_to_logs('--redirects=3', '-t', '1:1')
        self.assertEqual(job.out, '[default1]:o1\n')
        self.assertEqual(len(self.files()), 6)

    def test_local_ranks_filter(self):
        job = self.run_job('--nproc-per-node=4', '--local-ranks-filter=1,3', 'sh', '-c', self.WRITE)
        self.assertEqual(sorted(job.out.split()), ['[default1]:o1', '[default3]:o3'])
        self.assertEqual(sorted(job.err.split()), ['[default1]:e1', '[default3]:e3'])

    def test_local_ranks_filter_leaves_files_and_reports_alone(self):
        job = self.run_job('--nproc-per-node=2', '--local-ranks-filter=1', '--tee=1',
                           f'--log-dir={self.folder}/logs', 'sh', '-c',
                           self.WRITE + '; [ $RANK = 1 ] || exit 4')
        self.assertEqual(self.files()['0/stdout.log'], 'o0\n')
        self.assertNotIn('o0', job.out)
        self.assertIn('  | e0\n', job.err)

    def filtered(self):
        return {str(path.relative_to(path.parents[1])): sorted(path.read_text().splitlines())
                for path in (self.folder / 'logs').glob('*_*/attempt_*/filtered_*.log')}

    def test_duplicate_filters(self):
        words = ('--nproc-per-node=3', f'--log-dir={self.folder}/logs', '--tee=0:3,1:1,2:3', '--local-ranks-filter=0,1',
                 '--max-restarts=1', '--duplicate-stdout-filters=apple,o,,1', '--duplicate-stderr-filters=apple')
        job = self.run_job(*words, 'sh', '-c', 'printf "app"; echo "le $RANK"; echo pear; echo apple >&2; '
                           'printf "o,$RANK"; exit $$((1 - TORCHELASTIC_RESTART_COUNT))')
        self.assertEqual(job.code, 0, job.err)
        once = ['[default0]:apple 0', '[default1]:apple 1', '[default1]:o,1']
        for attempt in (0, 1):
            found = self.filtered()
            self.assertEqual(set(found[f'attempt_{attempt}/filtered_stdout.log']) - set(once), set())
            self.assertEqual(set(found[f'attempt_{attempt}/filtered_stderr.log']) - {'[default0]:apple'}, set())
        self.assertEqual(found['attempt_1/filtered_stdout.log'], once)
        self.assertEqual(found['attempt_1/filtered_stderr.log'], ['[default0]:apple'])

    def test_duplicate_filters_need_files(self):
        job = self.run_job('--log-dir=/dev/null', '--duplicate-stdout-filters=x', 'true')
        self.assert_sentence(job, 78, '--duplicate-stdout-filters', '--log-dir=/dev/null')

    def test_prefix(self):
        job = self.run_job('--nproc-per-node=2', '--role=r', 'echo', '--log-line-prefix-template', 'x')
        self.assertEqual(sorted(job.out.splitlines()), ['[r0]:--log-line-prefix-template x',
                                                        '[r1]:--log-line-prefix-template x'])
        template = '${hostname}|${rank}|${local_rank}|${role_name}|${x}|$$ '
        job = self.run_job(f'--log-line-prefix-template={template}', 'echo', 'y')
        self.assertEqual(job.out, f'{os.uname().nodename.split(".")[0]}|0|0|default|${{x}}|$ y\n')

    def test_no_prefix(self):
        self.assertEqual(self.run_job('--no-prefix', 'echo', 'y').out, 'y\n')

    def test_logs_without_a_place_are_kept_and_the_place_is_said(self):
        job = self.run_job('--redirects=1', 'sh', '-c', self.WRITE)
        place = re.match(rf"ddprun: logs are kept in '({self.tmp}/ddprun_[^'/]+)'; --log-dir", job.err)
        self.assertTrue(place, job.err)
        kept = Path(place[1])
        self.assertEqual((kept / 'attempt_0/0/stdout.log').read_text(), 'o0\n')
        shutil.rmtree(kept)

    def test_a_log_that_cannot_grow_is_said(self):
        job = self.run_job('--tee=1', f'--log-dir={self.folder}/logs', 'sh', '-c',
                           'i=0; while [ $i -lt 1000 ]; do echo 0123456789; i=$((i+1)); done',
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(len(job.out.splitlines()), 1000)
        self.assertRegex(job.err, r"the log file '\S+/stdout\.log' is incomplete: File too large")

    def test_no_file_may_be_written(self):
        """Workers run, under the same limit, and die of it as they would without ddprun."""
        limit = {'preexec_fn': lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))}
        job = self.run_job('sh', '-c', 'ulimit -f', **limit)
        self.assertEqual((job.code, job.out.split(':')[-1]), (0, '0\n'), job.err)
        self.assertIn('no key for the workers, as no file may have', job.err)
        self.assertIn('(ulimit -f)', job.err)
        job = self.run_job('sh', '-c', f'echo > {self.folder}/file', **limit)
        self.assertEqual(job.code, 128 + signal.SIGXFSZ, job.err)
        self.assertIn('SIGXFSZ', job.err)


if __name__ == '__main__':
    unittest.main()
