#!/usr/bin/env python3
"""test_ddprun_node_check.py - the node check of one node: when it runs, how it may end, and that nothing is
left of it, whatever it does and whichever process is killed. Several nodes: test_ddpctl_job.py."""

import json
import os
import signal
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, in_order, wait_until

CONFIG, KILLED, TERMINATED = 78, 137, 143
HANGS = 'echo $$ > pid; sleep 1000'


class NodeCheckCase(DdprunCase):
    def check(self, command, *words, worker='echo works', **options):
        return self.run_job(f'--node-check={command}', '--no-prefix', *words, 'sh', '-c', worker, **options)

    def start_hanging(self, command=HANGS, *words, worker='echo works'):
        """A job whose check hangs, and has said so in the file pid."""
        job = self.start(f'--node-check={command}', '--no-prefix', *words, 'sh', '-c', worker)
        def hangs():
            job.collect(0)
            return (self.folder / 'pid').exists() and (self.folder / 'pid').read_text().endswith('\n')
        wait_until(hangs, 'the check to begin')
        return job

    def assert_left_out(self, job, *texts):
        """No worker has run, and each of @texts was said."""
        self.assertEqual((job.code, job.out), (CONFIG, ''), job.err)
        for text in ('is left out, and the job has no other: ', *texts):
            self.assertIn(text, job.err)


class Results(NodeCheckCase):
    def test_it_passes_and_says_nothing(self):
        job = self.check('echo out; echo err >&2; cat; echo $DDPRUN_NODE_NAME $DDPRUN_GENERATION '
                         '$TORCHELASTIC_RUN_ID >said', '--rdzv-id=train')
        self.assertEqual((job.code, job.out, job.err), (0, 'works\n', ''))
        self.assertEqual((self.folder / 'said').read_text().split()[1:], ['0', 'train'])

    def test_it_runs_before_each_generation(self):
        job = self.check('echo $DDPRUN_GENERATION >>runs', '--max-restarts=2', worker='exit 7')
        self.assertEqual(job.code, 7, job.err)
        # Also after the last failure, whose cause it could have been.
        self.assertEqual((self.folder / 'runs').read_text().split(), ['0', '1', '2', '3'])

    def test_no_worker_runs_if_it_fails(self):
        job = self.check('for i in $(seq 50); do echo line $i; done; echo no GPU >&2; exit 3')
        self.assert_left_out(job, 'node check failed (exit code 3) after ', '\n  | line 50\n  | no GPU\n',
                             'node check failed (exit code 3): no GPU\n')
        self.assertNotIn('line 1\n', job.err)

    def test_other_ends(self):
        for command, *texts in (('kill -SEGV $$', 'killed by SIGSEGV', 'it wrote nothing'),
                                ('/nonexistent', 'exit code 127', 'not found'),
                                ('./plain', 'exit code 126'), ('if', 'exit code 2'),
                                ('exec sh -c "exit 9"', 'exit code 9')):
            with self.subTest(command):
                self.write('plain', 'not executable', mode=0o644)
                self.assert_left_out(self.check(command), *texts)

    def test_an_empty_command_is_none(self):
        self.assertEqual(self.check('').code, 0)

    def test_a_failure_that_it_explains_costs_nothing(self):
        job = self.check('test $DDPRUN_GENERATION -lt 2', '--max-restarts=5', worker='exit 7')
        self.assertEqual(job.code, CONFIG, job.err)
        in_order(self, job.err, '(restart 1 of 5)', 'failed first', 'node check failed (exit code 1) after',
                 'is left out, and the job has no other: node check failed (exit code 1)')
        self.assertNotIn('restart 2 of', job.err)

    def test_what_it_writes_cannot_do_harm(self):
        job = self.check(r'printf "\033[31ma\000b\033]0;x\007\n\302\233 end\000\n"; exit 1')
        self.assert_left_out(job, r'a\x00b', 'end')
        self.assertNotRegex(job.err_bytes, rb'[\x00-\x08\x0e-\x1f]')

    def test_a_flood_is_cut(self):
        job = self.check('yes flood | head -c 30000000; head -c 300000 /dev/zero; exit 1')
        self.assert_left_out(job, 'node check failed (exit code 1)')
        self.assertLess(len(job.err), 20000)

    def test_a_very_long_command(self):
        self.assertEqual(self.check(': ' + 100_000 * 'x' + '; exit 0').code, 0)

    def test_the_log_of_events(self):
        for command, ends in (('exit 1', ['job_ended']),
                              ('exit 0', ['rendezvous_completed', 'worker_start_started', 'worker_start_completed',
                                          'worker_terminated', 'job_ended'])):
            self.check(command, '--event-log=' + command[-1])
            events = [json.loads(line) for line in (self.folder / command[-1]).read_text().splitlines()]
            self.assertEqual([event['event'] for event in events],
                             ['rendezvous_started', 'health_check_completed', *ends])
            self.assertEqual(events[1].get('reason'), 'node check failed (exit code 1)' if ends[1:] == [] else None)

    def test_a_dry_run_shows_it(self):
        job = self.check('touch ran', '--quarantine=2', '--dry-run')
        self.assertIn('--node-check=touch ran  (command line)\n', job.out)
        self.assertIn('--quarantine=2  (command line)\n', job.out)
        self.assertFalse((self.folder / 'ran').exists())


class Ends(NodeCheckCase):
    def test_its_time_is_limited(self):
        """A child of it ignores SIGTERM, another has fled from its session."""
        job = self.check('trap "" TERM; setsid sleep 1000 & sleep 1000 & sleep 1000; sleep 1000',
                         '--node-check-timeout=200ms', '--failure-timeout=200ms')
        self.assert_left_out(job, 'node check did not end within 0.2 s (--node-check-timeout)')

    def test_it_is_asked_first(self):
        job = self.check('trap "echo asked; exit 0" TERM; echo begun; while :; do sleep 0.01; done',
                         '--node-check-timeout=5s', '--failure-timeout=1h')  # a slow start is no refusal
        self.assert_left_out(job, 'did not end within 5 s (--node-check-timeout): asked')

    def test_what_it_leaves_behind_is_gone_before_a_worker_runs(self):
        job = self.check('(setsid sh -c "echo \\$\\$ >pid; exec sleep 1000" &) ; until test -s pid; do sleep 0.01; done',
                         worker='kill -0 $(cat pid) 2>/dev/null && echo alive; echo works')
        self.assertEqual((job.code, job.out), (0, 'works\n'), job.err)

    def test_the_agent_is_killed(self):
        job = self.start_hanging('sleep 1000 & setsid sleep 1000 & ' + HANGS)
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.wait(), KILLED, job.err)
        job.wait_gone()

    def test_the_guard_is_killed(self):
        job = self.start_hanging()
        job.signal(signal.SIGKILL)
        self.assertEqual(job.wait(), -signal.SIGKILL)
        job.wait_gone()

    def test_the_job_is_ended(self):
        job = self.start_hanging('trap "" TERM; setsid sleep 1000 & ' + HANGS)
        job.signal(signal.SIGTERM)
        self.assertEqual((job.wait(), job.out), (TERMINATED, ''), job.err)
        job.wait_gone()
        self.assertNotIn('node check', job.err)

    def test_the_job_is_ended_between_two_generations(self):
        job = self.start_hanging('test $DDPRUN_GENERATION = 0 || { ' + HANGS + '; }', '--max-restarts=3',
                                 worker='exit 7')
        job.signal(signal.SIGINT)
        job.wait()
        job.wait_gone()
        self.assertIn(job.code, (7, 130), job.err)

    def test_the_preloaded_process_is_spared(self):
        script = self.write('script.py', 'import os, time, json\n'
                            'if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":\n'
                            '    time.sleep(1)\n    os._exit(1)\n')
        job = self.run_job('--preload=json', '--max-restarts=1', '--node-check=setsid sleep 1000 & exit 0', script)
        self.assertEqual(job.code, 0, job.err)
        self.assertNotIn('was killed by', job.err)


class Quarantine(NodeCheckCase):
    def test_of_the_only_node(self):
        job = self.run_job('--max-restarts=9', '--quarantine=2', 'sh', '-c', 'exit 7')
        self.assertEqual(job.code, 7, job.err)
        in_order(self, job.err, '(restart 1 of 9)',
                 'is left out, and the job has no other: first cause of 2 failures in a row: rank 0 on ')
        self.assertNotIn('restart 2', job.err)

    def test_refusals(self):
        for word, text in (('--quarantine=-1', "'-1'"), ('--quarantine=x', "'x'"),
                           ('--node-check-timeout=soon', "'soon'")):
            self.assert_sentence(self.run_job(word, 'true'), 2, word.split('=')[0], text)


if __name__ == '__main__':
    unittest.main()
