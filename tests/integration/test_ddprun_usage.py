#!/usr/bin/env python3
"""test_ddprun_usage.py - the command line as torchrun's users write it."""

import os
import shutil
import sys
import unittest
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase

SHOW_SIZE = ['sh', '-c', 'echo $WORLD_SIZE']
SHOW_ARGS = 'for word; do printf "<%s>\\n" "$word"; done'


class Spellings(DdprunCase):
    def size(self, *words, **options):
        job = self.run_job('--no-prefix', *words, *SHOW_SIZE, **options)
        self.assertEqual(job.code, 0, job.err)
        sizes = job.out.split()
        self.assertEqual(sizes, [str(len(sizes))] * len(sizes))
        return len(sizes)

    def test_of_one_option(self):
        for words in (['--nproc-per-node=2'], ['--nproc-per-node', '2'], ['--nproc_per_node=2'],
                      ['--nproc_per_node', '2'], ['--nproc-per_node=2'], ['--nproc-p=2'],
                      ['--np', '2']):
            with self.subTest(words):
                self.assertEqual(self.size(*words), 2)

    def test_the_last_wins(self):
        self.assertEqual(self.size('--nproc-per-node=3', '--nproc_per_node=1', '--np=2'), 2)
        self.assertEqual(self.size('--standalone', '--standalone'), 1)

    def test_letters(self):
        for words in (['-r3'], ['-r', '3'], ['-r=3'], ['-t0', '-r', '3']):
            with self.subTest(words):
                job = self.run_job(*words, f'--log-dir={self.folder}/logs', 'echo', 'hidden')
                self.assertEqual((job.code, job.out), (0, ''), job.err)

    def test_what_torchrun_users_write_is_accepted(self):
        words = ['--nnodes=1:1', '--node_rank=0', '--standalone', '--rdzv_backend=c10d',
                 '--rdzv_id=7', '--rdzv_endpoint=localhost:0', '--max_restarts=0',
                 '--monitor_interval=0.1', '--start_method=spawn', '--role=x', '--tee=0',
                 '--event_log_handler=null', '--local-ranks-filter=0', '--rdzv-endpoint=']
        self.assertEqual(self.size(*words), 1)

    def test_settings_of_torchrun(self):
        conf = ('--rdzv-conf= join_timeout = 9 , last_call_timeout=1,read_timeout=60,close_timeout=30,'
                'keep_alive_interval=5,keep_alive_max_attempt=3,store_type=tcp,is_host=1')
        job = self.run_job(conf, 'true')
        self.assertEqual((job.code, job.err), (0, ''))
        for words, env in (([f'{conf},foo=1, bar = 2'], {}), ([], {'PET_RDZV_CONF': 'foo=1,bar=2'})):
            job = self.run_job(*words, 'true', env=env)
            self.assert_succeeded(job)
            self.assertEqual(job.err, 'ddprun: --rdzv-conf: ignored unknown settings: foo, bar\n')

    def test_what_it_quotes_cannot_drive_the_terminal(self):
        job = self.run_job('true', env={'PET_RDZV_CONF': '\033[31mfoo=1'})
        self.assertEqual((job.code, job.err), (0, 'ddprun: --rdzv-conf: ignored unknown settings: ?[31mfoo\n'))

    def test_use_env_does_nothing_and_says_so(self):
        job = self.run_job('--use-env', '--nproc-per-node=2', 'sh', '-c', 'echo $LOCAL_RANK')
        self.assertEqual(sorted(job.out.split()), ['[default0]:0', '[default1]:1'])
        self.assertRegex(job.err, r'\Addprun: --use-env does nothing[^\n]+\n\Z')

    def test_local_rank_as_the_first_argument(self):
        words = ['--nproc-per-node=2', 'sh', '-c', 'echo "$0" "$@"', 'first']
        for option, argument in (('--legacy-local-rank', '--local_rank'),
                                 ('--legacy-local-rank=local_rank', '--local_rank'),
                                 ('--legacy-local-rank=local-rank', '--local-rank')):
            script = self.write('show.py', 'import sys; print(*sys.argv[1:])')
            job = self.run_job(option, '--nproc-per-node=2', script, '--lr', '0.1')
            self.assert_succeeded(job)
            self.assertEqual(sorted(job.out.splitlines()),
                             [f'[default{rank}]:{argument}={rank} --lr 0.1' for rank in (0, 1)])
        job = self.run_job(*words)
        self.assertEqual(sorted(job.out.splitlines()), ['[default0]:first', '[default1]:first'])
        self.assert_sentence(self.run_job('--legacy-local-rank=rank', 'true'), 2, '--legacy-local-rank',
                             "'rank' is neither local_rank nor local-rank")

    def test_variables_of_a_scheduler(self):
        step = {'SLURM_JOB_ID': 7, 'SLURM_STEP_NUM_NODES': 2, 'SLURM_STEP_NUM_TASKS': 2, 'SLURM_NODEID': 1,
                'SLURM_STEP_NODELIST': 'n[1-3]'}
        self.assert_sentence(self.run_job('true', env=step), 78, 'SLURM_STEP_NODELIST lists 3 nodes', '--standalone')
        # An endpoint of the user's, one node, and what only prints, do not ask the scheduler.
        for words in (['--standalone'], ['--nnodes=1'], ['--rdzv-backend=c10d', '--rdzv-endpoint=localhost:0']):
            self.assert_succeeded(self.run_job(*words, 'true', env=step))
        self.assert_succeeded(self.run_job('--version', env=step))
        # In an allocation ddprun becomes srun.
        allocation = {'SLURM_JOB_ID': 7, 'SLURM_JOB_NUM_NODES': 2, 'PATH': '/nowhere'}
        self.assert_sentence(self.run_job('--nproc-per-node=2', 'true', env=allocation), 78, 'srun', '--standalone')
        srun = self.write('srun', '#!/bin/sh\necho "$@"\n')
        job = self.run_job('--nproc-per-node=2', 'true', '-x', env=dict(allocation, PATH=f'{srun.parent}:/bin'))
        self.assertRegex(job.out, r'\A--nodes=2 --ntasks=2 --ntasks-per-node=1 [^\n]*/ddprun --nproc-per-node=2 true -x\n\Z')

    def test_a_dry_run_starts_nothing(self):
        words = ['--dry-run', '--nproc-per-node=2', '--log-dir=logs', '--tee=3']
        job = self.run_job(*words, 'touch', 'it ran', env={'PET_MAX_RESTARTS': 3, 'PLAIN': 'x'})
        self.assertEqual((job.code, job.err), (0, 'ddprun: nothing is started (--dry-run)\n'))
        for text in ("touch 'it ran'\n", '--nproc-per-node=2  (command line)\n', '--max-restarts=3  (PET_MAX_RESTARTS)\n',
                     'WORLD_SIZE=2\n', 'TORCHELASTIC_MAX_RESTARTS=3\n', 'MASTER_PORT=(chosen at the start)\n',
                     'PMI_FD=(chosen at the start)\n'):
            self.assertIn(text, job.out)
        self.assertNotIn('PLAIN', job.out) # it is inherited
        self.assertEqual([path.name for path in self.folder.iterdir()], ['tmp'])
        job = self.run_job('--dry-run', '--nnodes=2:4', '--rdzv-endpoint=h:1', '--node-rank=1', 'true')
        self.assertIn('2 to 4; this one would be 1\n', job.out)
        self.assertIn('TORCHELASTIC_RUN_ID=none\n', job.out)
        job = self.run_job('--dry-run', '--nnodes=1', '--rdzv-backend=c10d', '--rdzv-endpoint=h:1', 'true')
        self.assertRegex(job.out, r'TORCHELASTIC_RUN_ID=[0-9a-f-]{36}\n')
        job = self.run_job('--dry-run', '-H', 'a:2,b:2', '--local-addr=127.0.0.1', '--launcher=/bin/echo', 'true')
        self.assertEqual((job.code, job.out.count(' --leash ')), (0, 2), job.err)
        self.assert_sentence(self.run_job('--dry-run', './nowhere'), 78, './nowhere')
        allocation = {'SLURM_JOB_ID': 7, 'SLURM_JOB_NUM_NODES': 2}
        self.assertIn('srun would start this command on each of 2 nodes',
                      self.run_job('--dry-run', 'true', env=allocation).err)

    def test_counts_by_name(self):
        self.assertEqual(self.size('--nproc-per-node=cpu'), len(os.sched_getaffinity(0)))

    def test_environment_defaults(self):
        self.assertEqual(self.size(env={'PET_NPROC_PER_NODE': 2}), 2)
        self.assertEqual(self.size('--nproc-per-node=3', env={'PET_NPROC_PER_NODE': 2}), 3)
        self.assertEqual(self.size(env={'PET_R': 3, 'PET_NPROC': 9}), 1)
        job = self.run_job('sh', '-c', 'echo $ROLE_NAME', env={'PET_ROLE': 'actor'})
        self.assertEqual(job.out, '[actor0]:actor\n')
        job = self.run_job('json.tool', '--help', env={'PET_MODULE': 1, 'PET_STANDALONE': 0})
        self.assertEqual(job.code, 0, job.err)
        self.assertIn('json.tool', job.out)

    def test_variables_that_stand_in(self):
        env = {'TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE': '<${rank}>'}
        self.assertEqual(self.run_job('echo', 'x', env=env).out, '<0>x\n')
        job = self.run_job('--log-line-prefix-template=${role_name}-', 'echo', 'x', env=env)
        self.assertEqual(job.out, 'default-x\n')

    def test_help_and_version(self):
        for words, text in ((['--help'], '--nproc-per-node'), (['-h'], '--help'),
                            (['--version'], 'ddprun 0.')):
            job = self.run_job(*words)
            self.assertEqual((job.code, job.err), (0, ''))
            self.assertIn(text, job.out)

    def test_the_help_can_be_read(self):
        lines = self.run_job('--help').out.splitlines()
        self.assertLess(len(lines), 210)
        self.assertLess(max(map(len, lines)), 100)

    def test_help_and_version_look_at_nothing_else(self):
        """There is no GPU to count, nor a need to."""
        for words in (['--help'], ['--version'], ['-h'], ['--nproc-per-node=gpu', '--help'],
                      ['--version', '--nproc-per-node=gpu'], ['--help', '--no-such-option']):
            for env in ({}, {'PET_NPROC_PER_NODE': 'gpu'}, {'PET_NPROC_PER_NODE': 'four'}):
                job = self.run_job(*words, env=env | {'CUDA_VISIBLE_DEVICES': ''})
                with self.subTest(words, **env):
                    self.assertEqual((job.code, job.err), (0, ''))
                    self.assertIn('ddprun', job.out)

    def test_workers_are_counted_when_they_are_needed(self):
        for words, env in ((['--nproc-per-node=gpu'], {}), ([], {'PET_NPROC_PER_NODE': 'gpu'})):
            job = self.run_job(*words, 'true', env=env | {'CUDA_VISIBLE_DEVICES': ''})
            self.assert_sentence(job, 78, '--nproc-per-node', 'PET_NPROC_PER_NODE', "'gpu'", "'cpu'")

    def test_a_lost_help_text_is_a_failure(self):
        with open('/dev/full', 'w') as full:
            self.assertEqual(self.run_job('--help', stdout=full).code, 1)


class Arguments(DdprunCase):
    def shown(self, *words, options=()):
        self.write('show', f'#!/bin/sh\n{SHOW_ARGS}\n')
        job = self.run_job('--no-prefix', *options, './show', *words)
        self.assertEqual(job.code, 0, job.err)
        return [line[1:-1] for line in job.out.splitlines()]

    def test_after_the_program_are_its_own(self):
        words = ['--nproc-per-node=4', '-r3', '--', '-m', '', 'a b', '--help', '$HOME', '%s\\n',
                 '--no-prefix', '-', '\xe4\u20ac']
        self.assertEqual(self.shown(*words), words)
        self.assertEqual(self.shown(*words, options=['--']), words)

    def test_local_rank_is_replaced(self):
        self.assertEqual(self.shown('--rank=${local_rank}', '$local_rank', 'a$$b', '$other',
                                    '${rank}', '$', '${local_rank', '$local_ranks'),
                         ['--rank=0', '0', 'a$b', '$other', '${rank}', '$', '${local_rank',
                          '$local_ranks'])
        job = self.run_job('--nproc-per-node=3', '--no-prefix', 'echo', 'r${local_rank}')
        self.assertEqual(sorted(job.out.split()), ['r0', 'r1', 'r2'])

    def test_many_and_long(self):
        words = [f'word{n}' for n in range(5000)] + ['x' * 100000]
        self.assertEqual(self.shown(*words), words)


class Programs(DdprunCase):
    SCRIPT = 'import sys, os\nprint(sys.argv[1:], __name__)\nprint(os.path.basename(sys.executable))\n'

    def test_a_python_script(self):
        self.write('script.py', self.SCRIPT, 0o644)
        job = self.run_job('--no-prefix', 'script.py', '--nproc-per-node=7', '-m')
        self.assertEqual(job.out.splitlines()[0], "['--nproc-per-node=7', '-m'] __main__", job.err)

    def test_python_is_unbuffered(self):
        self.write('wait.py', 'import sys\nprint("first")\nsys.stdin.read()\n')
        job = self.start('wait.py', stdin=-1)
        job.read_until('[default0]:first\n')
        job.process.stdin.close()
        self.assertEqual(job.wait(), 0)

    def test_a_python_module(self):
        self.write('some_module.py', self.SCRIPT)
        for words in (['-m'], ['--module']):
            job = self.run_job('--no-prefix', *words, 'some_module', '-x',
                               env={'PYTHONPATH': self.folder})
            self.assertEqual(job.out.splitlines()[0], "['-x'] __main__", job.err)

    def test_no_python(self):
        self.write('direct.py', '#!/bin/sh\necho run directly\n')
        for words in (['--no-python'], ['--no_python']):
            self.assertEqual(self.run_job('--no-prefix', *words, './direct.py').out, 'run directly\n')

    def test_python_exec(self):
        self.write('my_python', '#!/bin/sh\necho "instead: $*"\n')
        self.write('script.py', '')
        for name in (self.folder / 'my_python', 'my_python'):
            job = self.run_job('--no-prefix', 'script.py', 'a',
                               env={'PYTHON_EXEC': name, 'PATH': f'{self.folder}:/usr/bin:/bin'})
            self.assertEqual(job.out, 'instead: -u script.py a\n', job.err)

    def test_python_of_the_environment(self):
        """The active one; else the one that ddprun lies in; else the one in PATH."""
        self.write('script.py', '')
        names = ('active', 'around', 'path')
        for name in names:
            (self.folder / name / 'bin').mkdir(parents=True)
            self.write(f'{name}/bin/python3', f'#!/bin/sh\necho {name}\n')
        beside = shutil.copy(DDPRUN, self.folder / 'around' / 'bin' / 'ddprun')
        env = {'PATH': f'{self.folder}/path/bin:/usr/bin:/bin'}

        def python(**more):
            job = self.run_job('--no-prefix', 'script.py', program=beside, env=env | more)
            self.assertEqual(job.code, 0, job.err)
            return job.out.strip()
        active = self.folder / 'active'
        self.assertEqual(python(), 'path')  # bin/ alone makes no environment
        self.assertEqual(python(VIRTUAL_ENV=active), 'active')
        (self.folder / 'around' / 'pyvenv.cfg').touch()
        self.assertEqual(python(), 'around')
        self.assertEqual(python(VIRTUAL_ENV=active), 'active')
        self.assertEqual(python(VIRTUAL_ENV=active, PYTHON_EXEC=f'{self.folder}/path/bin/python3'), 'path')

    def test_an_option_behind_the_program_is_remarked(self):
        for words in (['--nproc-per-node=2'], ['-q', '--max-restarts', '3', '--nnodes=2']):
            job = self.run_job('true', *words)
            word = next(word for word in words if word.startswith('--'))
            self.assertEqual((job.code, job.err), (0, f"ddprun: '{word}' comes after the program 'true' and is passed to it; "
                                                      'an option of ddprun comes before the program\n'))
        for words in (['true', '--log-dir=x', '--help', '--nproc', '--', 'nnodes'], ['true', '--leash'],
                      [DDPRUN, '--nproc-per-node=2', 'true'], ['env', DDPRUN, '--nproc-per-node=2', 'true']):
            self.assertEqual(self.run_job(*words).err, '')

    def test_what_python_runs_without_its_suffix(self):
        text = 'import sys\nprint(*sys.argv)\n'
        self.write('train_it', text, 0o644)
        (self.folder / 'folder').mkdir()
        self.write('folder/__main__.py', text)
        with zipfile.ZipFile(self.folder / 'app.zip', 'w') as archive:
            archive.writestr('__main__.py', text)
        for name in ('train_it', './train_it', 'folder', 'app.zip'):
            self.assertEqual(self.run_job('--no-prefix', name, '--lr', '1').out, f'{name} --lr 1\n')

    def test_a_module_that_is_not_there(self):
        for words in (['-m', 'no_such_module'], ['script.py']):
            self.write('script.py', 'import no_such_module\n')
            job = self.run_job(*words)
            self.assertEqual(job.code, 1)
            self.assertRegex(job.err, r'\n  hint: [^\n]*PYTHON_EXEC[^\n]*\n')

    def test_program_by_path_and_by_name(self):
        self.write('tool', '#!/bin/sh\necho tool $0\n')
        self.assertEqual(self.run_job('--no-prefix', './tool').out, 'tool ./tool\n')
        job = self.run_job('--no-prefix', 'tool', env={'PATH': f'/nowhere:{self.folder}:/bin'})
        self.assertEqual(job.out, f'tool {self.folder}/tool\n')

    def test_by_name_the_directory_of_the_caller_is_not_searched(self):
        self.write('tool_xyz', '#!/bin/sh\n')
        self.assert_sentence(self.run_job('tool_xyz'), 78, "'tool_xyz'", './tool_xyz')

    def test_a_name_with_a_dash_after_the_separator(self):
        self.write('-tool', '#!/bin/sh\necho dashed\n')
        job = self.run_job('--no-prefix', '--', '-tool', env={'PATH': f'{self.folder}:/bin'})
        self.assertEqual(job.out, 'dashed\n', job.err)

    def test_itself_without_a_program(self):
        self.assertTrue(Path(DDPRUN).exists())
        self.assert_sentence(self.run_job(), 2, 'no program', 'ddprun -h')
        self.assert_sentence(self.run_job('--'), 2, 'no program')


class Voice(DdprunCase):
    NOTE = 'ddprun: --use-env does nothing'

    def said(self, *words, **options):
        return self.run_job(*words, '--use-env', 'true', **options).err

    def test_quiet_has_nothing_but_the_failure(self):
        self.assertIn(self.NOTE, self.said())
        self.assertEqual(self.said('-q'), '')
        self.assertEqual(self.said(env={'PET_QUIET': '1'}), '')
        job = self.run_job('--quiet', '--max-restarts=1', 'sh', '-c', 'echo out; exit 3')
        self.assertEqual((job.code, job.out), (3, '[default0]:out\n' * 2))
        heads = [line for line in job.err.splitlines() if not line.startswith('  ')]
        self.assertRegex('\n'.join(heads), r'\A(ddprun: rank 0 failed first: [^\n]*\n){2}ddprun: giving up [^\n]*\Z')

    def test_verbose_has_each_step(self):
        for words, env in ((['-v'], {}), (['-q', '--verbose'], {}), ([], {'PET_VERBOSE': '1'})):
            with self.subTest(words):
                said = self.said(*words, env=env)
                self.assertIn(self.NOTE, said)
                for step in ("starting 1 worker of '", 'have been started', 'rank 0 has ended: exit code 0, after ',
                             'the job is over: exit code 0'):
                    self.assertIn(step, said)


if __name__ == '__main__':
    unittest.main()
