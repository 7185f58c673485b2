#!/usr/bin/env python3
"""test_runner.py - the runner ends what hangs and nothing else, counts what a test used, and reads what it said."""

import argparse
import importlib.machinery
import importlib.util
import os
import select
import signal
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import counts
import machine
import plan
import run_all
import watched

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
import proc_tree

CHECK_OUTPUT = """Running suite(s): parse
66%: Checks: 3, Failures: 1, Errors: 0
../tests/unit/test_parse.c:12:F:numbers:too_long:0: Assertion 'a == b' failed
"""
UNITTEST_OUTPUT = """test_a (__main__.T.test_a) ... ok
test_b (__main__.T.test_b) ... skipped 'no network namespaces: this is not root'
test_c (__main__.T.test_c) ... FAIL

======================================================================
FAIL: test_c (__main__.T.test_c)
----------------------------------------------------------------------
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 3 tests in 0.100s

FAILED (failures=1, skipped=1)
"""


class ProgressTest(unittest.TestCase):
    """Looks at a command, five seconds apart; nothing here takes any time."""

    def setUp(self):
        self.progress = watched.Progress(limit_s=50)

    def look(self, cpu_s, written=0, times=1):
        return [self.progress.judge(cpu_s, written) for _ in range(times)][-1]

    def test_a_program_that_waits_for_less_than_two_minutes_works(self):
        self.assertEqual(watched.IDLE_LOOKS * watched.LOOK_EVERY_S, 120)
        self.assertEqual(self.look(0.5, times=watched.IDLE_LOOKS - 1), watched.WORKING)

    def test_a_program_that_neither_computes_nor_writes_hangs(self):
        self.assertEqual(self.look(0.99, times=watched.IDLE_LOOKS), watched.HANGS)

    def test_a_second_of_processor_time_counts_as_work(self):
        self.look(0.5, times=watched.IDLE_LOOKS - 1)
        self.assertEqual(self.look(1), watched.WORKING)
        self.assertEqual(self.look(1.5, times=watched.IDLE_LOOKS - 1), watched.WORKING)
        self.assertEqual(self.look(1.5), watched.HANGS)

    def test_a_byte_of_output_counts_as_work(self):
        self.look(0, times=watched.IDLE_LOOKS - 1)
        self.assertEqual(self.look(0, written=1, times=watched.IDLE_LOOKS), watched.WORKING)
        self.assertEqual(self.look(0, written=1), watched.HANGS)

    def test_little_by_little_is_work_if_it_comes_to_a_second(self):
        for look in range(1, 1000):
            self.assertEqual(self.look(look / 20), watched.WORKING)

    def test_time_that_a_parent_loses_does_not_hide_work(self):
        self.look(40)
        for look in range(1, 1000):
            self.assertEqual(self.look(look % 10 + 1), watched.WORKING)

    def test_what_used_its_limit_runs_in_circles_however_much_it_writes(self):
        self.assertEqual(self.look(50, 10), watched.WORKING)
        self.assertEqual(self.look(50.1, 20), watched.WORKING)
        self.assertEqual(self.look(50.2, 30), watched.CIRCLES)

    def test_one_look_that_counts_a_child_twice_is_forgiven(self):
        self.assertEqual([self.progress.judge(cpu_s, 0) for cpu_s in (30, 60, 32, 60, 34)], [watched.WORKING] * 5)


class WatchedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = Path(folder.name, 'log')
        self.addCleanup(self.set_looks, watched.IDLE_LOOKS, watched.LOOK_EVERY_S)

    @staticmethod
    def set_looks(idle_looks, look_every_s):
        watched.IDLE_LOOKS, watched.LOOK_EVERY_S = idle_looks, look_every_s

    def run_python(self, program, limit_s=1000):
        pid, reader = watched.start([sys.executable, '-X', 'faulthandler', '-c', program], dict(os.environ), '/', self.log,
                                    limit_s)
        return watched.result(pid, reader)

    def test_the_exit_status_and_the_output_are_kept(self):
        result = self.run_python('import sys; print("out"); sys.exit("and err")')
        self.assertEqual((result['code'], result['ended']), (1, None))
        self.assertEqual(sorted(self.log.read_text().split('\n')), ['', 'and err', 'out'])

    def test_a_signal_is_a_negative_status(self):
        self.assertEqual(self.run_python('import os; os.kill(os.getpid(), 9)')['code'], -9)

    def test_processor_time_of_children_counts_too(self):
        result = self.run_python('import os, time\n'
                                 'if os.fork() == 0:\n'
                                 '    while time.process_time() < 0.5: pass\n'
                                 '    os._exit(0)\n'
                                 'os.wait()')
        self.assertGreaterEqual(result['cpu_s'], 0.5)

    def assert_gone(self, pid):
        self.assertFalse(Path('/proc', pid).exists(), pid)

    def test_what_is_left_behind_is_ended(self):
        result = self.run_python('import os, subprocess\n'
                                 'print(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)')
        self.assertEqual(result['code'], 0)
        self.assert_gone(self.log.read_text().split()[0])

    def test_threads_that_outlive_the_main_thread_are_ended(self):
        result = self.run_python('import os, ctypes, subprocess, sys\n'
                                 'program = "import ctypes, os, threading; print(os.getpid(), flush=True); " \\\n'
                                 '          "threading.Thread(target=threading.Event().wait).start(); ctypes.CDLL(None).pthread_exit(None)"\n'
                                 'subprocess.Popen([sys.executable, "-c", program], start_new_session=True)\n'
                                 'while not os.path.getsize("/proc/self/fd/1"): pass')
        self.assertEqual(result['code'], 0)
        self.assert_gone(self.log.read_text().split()[0])

    def test_all_is_ended_when_the_one_that_watches_is_asked_to_stop(self):
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            self.log.write_text('')
            pid, reader = watched.start(['sh', '-c', 'sleep 1000 & echo $!; wait'], dict(os.environ), '/', self.log, 1000)
            while '\n' not in self.log.read_text():
                select.select([], [], [], 0.01)
            os.kill(pid, number)
            self.assertIsNone(watched.result(pid, reader))
            self.assert_gone(self.log.read_text().split()[0])

    def test_a_command_that_cannot_be_run_says_so(self):
        pid, reader = watched.start(['/no/such/program'], dict(os.environ), '/', self.log, 1000)
        self.assertIsNone(watched.result(pid, reader))
        self.assertIn('/no/such/program', self.log.read_text())
        self.assertEqual(counts.count_test(None, self.log.read_text()), counts.count(failed=1))

    def test_one_that_hangs_is_ended_and_its_stacks_are_in_the_log(self):
        self.set_looks(10, 0.1)
        result = self.run_python('import threading\ndef waits_for_ever(): threading.Event().wait()\nwaits_for_ever()')
        self.assertIn('used less than 1 s of processor time in 1 s, and wrote nothing', result['ended'])
        self.assertIn('waits_for_ever', self.log.read_text())
        self.assertRegex(self.log.read_text(), r'process \d+ \(python')

    def test_one_that_runs_in_circles_is_ended(self):
        self.set_looks(10000, 0.1)
        result = self.run_python('while True: pass', limit_s=0.3)
        self.assertRegex(result['ended'], '^used more than 0.3 s of processor time: ten times what')


class CountsTest(unittest.TestCase):
    def test_a_check_program_counts_by_its_cases(self):
        self.assertEqual(counts.count_test(1, CHECK_OUTPUT), counts.count(passed=2, failed=1))
        self.assertEqual(counts.failure_lines(CHECK_OUTPUT),
                         ["../tests/unit/test_parse.c:12:F:numbers:too_long:0: Assertion 'a == b' failed"])

    def test_a_program_that_fails_after_its_cases_passed_has_failed(self):
        self.assertEqual(counts.count_test(1, '100%: Checks: 3, Failures: 0, Errors: 0\n'), counts.count(passed=3, failed=1))
        self.assertEqual(counts.count_test(None, 'nothing'), counts.count(failed=1))

    def test_unittest_counts_by_its_cases_and_gives_its_reasons(self):
        self.assertEqual(counts.count_test(1, UNITTEST_OUTPUT), counts.count(passed=1, failed=1, skipped=1))
        self.assertEqual(counts.skip_reasons(1, UNITTEST_OUTPUT), ['no network namespaces: this is not root'])
        self.assertEqual(counts.failure_lines(UNITTEST_OUTPUT), ['FAIL: test_c (__main__.T.test_c)', 'AssertionError: 1 != 2'])

    def test_a_case_of_c_and_a_whole_program_say_why_they_are_skipped(self):
        output = 'skipped: listens_on_both: no IPv6\n100%: Checks: 3, Failures: 0, Errors: 0\n'
        self.assertEqual(counts.count_test(0, output), counts.count(passed=2, skipped=1))
        self.assertEqual(counts.skip_reasons(0, output), ['no IPv6'])
        self.assertEqual(counts.skip_reasons(77, 'looking\nthere is no PyTorch\n'), ['there is no PyTorch'])

    def test_a_program_that_says_nothing_has_failed(self):
        self.assertEqual(counts.count_test(0, 'ok\n'), counts.count(passed=1))
        self.assertEqual(counts.count_test(0, ''), counts.count(failed=1))

    def test_lint_without_a_sum_has_failed(self):
        self.assertEqual(counts.count_lint(0, 'lint: 12 passed, 0 failed, 1 skipped\n'), counts.count(passed=12, skipped=1))
        self.assertEqual(counts.count_lint(0, 'killed'), counts.count(failed=1))
        self.assertEqual(counts.count_lint(1, 'lint: 12 passed, 0 failed, 0 skipped\n')['failed'], 1)

    def test_the_last_summary_counts(self):
        nested = 'Ran 1 test in 0.1s\n\nFAILED (failures=1)\n' + 'Ran 2 tests in 0.1s\n\nOK (expected failures=1)\n'
        self.assertEqual(counts.count_test(0, nested), counts.count(passed=2))

    def test_what_was_ended_shows_what_it_was_at(self):
        output = 'test_a ... ok\ntest_b ... waiting for a leader\n\nended: it used more. Its processes:\n1 etcd\n'
        self.assertEqual(counts.failure_lines(output), ['test_a ... ok', 'test_b ... waiting for a leader',
                                                        'ended: it used more. Its processes:'])

    def test_what_names_no_failure_shows_its_end(self):
        self.assertEqual(counts.failure_lines('\n'.join(map(str, range(20)))), ['14', '15', '16', '17', '18', '19'])


class PlanTest(unittest.TestCase):
    def setUp(self):
        build = plan.Build('build', [], [], ['check'], 1)
        self.tests = [plan.Test(build, name, suites, [], {}, 1, 1, 1)
                      for name, suites in (('test_buf', ['unit']), ('test_buffers', ['unit']), ('test_nodes', ['fault']))]

    def names(self, *words):
        return [test.name for test in plan.choose(self.tests, words, for_check=False)]

    def test_names_groups_and_patterns_choose(self):
        self.assertEqual(self.names('test_buf'), ['test_buf'])
        self.assertEqual(self.names('unit'), ['test_buf', 'test_buffers'])
        self.assertEqual(self.names('*_n*', 'test_buf'), ['test_buf', 'test_nodes'])
        self.assertEqual(self.names('build:test_nodes'), ['test_nodes'])

    def test_an_unknown_name_is_an_error_that_says_what_there_is(self):
        with unittest.mock.patch.object(plan, 'introspect', lambda *_: []), \
                self.assertRaisesRegex(plan.Unknown, '"test_bu".*groups are fault, unit'):
            self.names('test_bu')

    def test_a_test_of_make_check_is_an_error_that_says_so(self):
        rows = [{'name': 'test_wheel', 'suite': ['ddprun:interop']}]
        with unittest.mock.patch.object(plan, 'introspect', lambda *_: rows), \
                self.assertRaisesRegex(plan.Unknown, 'make check TESTS=interop'):
            self.names('interop')
        with unittest.mock.patch.object(plan, 'introspect', lambda *_: [{'name': 'test_lint', 'suite': ['lint']}]), \
                self.assertRaisesRegex(plan.Unknown, 'make test TESTS=test_lint'):
            plan.choose(self.tests, ['test_lint'], for_check=True)

    def test_seconds_are_read(self):
        self.assertEqual(plan.parse_seconds('# a comment\ntest_a 12 7\n\ntest_b 3 90 # another\n'),
                         {'test_a': (12, 7), 'test_b': (3, 90)})
        self.assertGreater(len(plan.parse_seconds(plan.SECONDS_FILE.read_text())), 10)


class CommandTest(unittest.TestCase):
    """The functions of scripts/test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        loader = importlib.machinery.SourceFileLoader('command', str(plan.ROOT / 'scripts/test'))
        self.command = importlib.util.module_from_spec(importlib.util.spec_from_loader('command', loader))
        loader.exec_module(self.command)
        self.command.LAST_FAILED = self.folder / 'failed-tests'

    def outcome(self, name, failed):
        test = plan.Test(plan.TEST[0], name, [], [], {}, 1, 1, 1)
        return run_all.Outcome(test, 0, None, 1, 1, counts.count(failed=failed), [], [], self.folder / 'log')

    def test_a_failure_is_remembered_until_it_passes_or_is_gone(self):
        for outcomes, gone, remembered in (([('test_a', 1), ('test_b', 1), ('test_c', 0)], [], ['build:test_a', 'build:test_b']),
                                           ([], [], ['build:test_a', 'build:test_b']),
                                           ([('test_a', 0)], [], ['build:test_b']),
                                           ([('test_d', 1)], ['build:test_b'], ['build:test_d'])):
            self.command.remember([self.outcome(*one) for one in outcomes], gone)
            self.assertEqual(self.command.last_failed(), remembered)

    def test_a_build_that_is_not_there_is_an_error(self):
        args = argparse.Namespace(check=False, failed=False, names=['build-tsan:test_requests'])
        with self.assertRaisesRegex(plan.Unknown, 'make test has no such build; those of make check are build, '):
            self.command.builds_for(args)
        args.check = True
        self.assertEqual([build.dir for build in self.command.builds_for(args)], ['build-tsan'])

    def test_sums_of_calls_add_up(self):
        path = self.folder / 'sum.json'
        with unittest.mock.patch.dict(os.environ, TEST_SUM=str(path)), unittest.mock.patch('builtins.print'):
            for passed, passed_in_all in ((2, 2), (3, 5)):
                total, failures = counts.count(passed=passed, failed=1), ['failed: test_a']
                self.command.add_up(total, failures)
                self.assertEqual(total['passed'], passed_in_all)
            self.assertEqual((total['failed'], failures), (2, ['failed: test_a'] * 2))
            path.write_text('{')
            self.command.add_up(total, failures)
        self.assertEqual(total['failed'], 3)
        self.assertIn('cannot add to TEST_SUM=', failures[-1])

    def test_any_signal_has_a_name(self):
        self.assertEqual(run_all.cause(-9, None), 'killed by SIGKILL')
        self.assertEqual(run_all.cause(-40, None), 'killed by signal 40')


class MachineTest(unittest.TestCase):
    def test_the_kernels_tables_are_read(self):
        self.assertEqual(machine.parse_meminfo('MemTotal: 9 kB\nMemAvailable:   7 kB\n'), 7 << 10)
        tick = os.sysconf('SC_CLK_TCK')
        self.assertEqual(machine.parse_cpu(f'cpu  {tick} 0 {tick} {5 * tick} 0 0 0 {2 * tick} 0 0\ncpu0 1'),
                         {'busy': 2, 'idle': 5, 'stolen': 2})
        process = proc_tree.parse_stat('7 (a) b) S 3 7 7 0 -1 0 0 0 0 0 100 50 25 25 20 0 1 0 5')
        self.assertEqual(process, proc_tree.Process(7, 3, 'a) b', 'S', 200 / proc_tree.TICKS_PER_SECOND))

    def test_descendants_are_those_below(self):
        rows = [proc_tree.Process(pid, parent, '', 'S', 0) for pid, parent in ((2, 1), (3, 2), (4, 3), (5, 1), (6, 4))]
        self.assertEqual(sorted(process.pid for process in proc_tree.below(2, rows)), [3, 4, 6])


if __name__ == '__main__':
    unittest.main()
