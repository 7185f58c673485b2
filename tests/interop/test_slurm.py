#!/usr/bin/env python3
"""test_slurm.py - 'ddprun ./worker' with no other option in jobs of a real Slurm of three nodes: in the script of
sbatch, and below srun; signals before the time limit, requeueing, scancel, and a slurmd that is killed. Skipped
(77) where Slurm is not installed or this is not root, unless DDPRUN_INTEROP=1 demands it.
"""

import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
import slurm_cluster
from ddprun_run import DDPRUN, DdprunCase, marked_processes, wait_until
from documents import block
from skip import skip_program

ENDED = ('COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL')


class Slurm(DdprunCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix='ddprun_slurm_')
        cls.cluster = slurm_cluster.SlurmCluster(Path(cls.place.name))
        cls.cluster.start()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()
        cls.place.cleanup()

    def setUp(self):
        super().setUp()
        self.mark = f'slurm-{os.getpid()}-{self.id()}'
        self.exports = (f'export DDPRUN_TEST_MARK={self.mark} TMPDIR={self.tmp} XDG_CONFIG_HOME={self.folder}/config '
                        f'OMP_NUM_THREADS=1 DDPRUN="{DDPRUN} --lease=60s"\n')

    def submit(self, script, *words):
        return self.cluster.submit(self.exports + script, *words)

    def state(self, job):
        return self.cluster.field(job, 'JobState')

    def wait(self, job):
        wait_until(lambda: self.state(job) in ENDED, f'the end of job {job}: {self.cluster.output(job)}')
        wait_until(lambda: not marked_processes(self.mark), 'the end of its processes')
        return self.cluster.field(job, 'ExitCode')

    def wait_for(self, job, text, count=1):
        wait_until(lambda: self.cluster.output(job).count(text) >= count, f'{text!r}')

    def shown(self, job):
        return sorted(line for line in self.cluster.output(job).splitlines() if not line.startswith(('ddprun:', 'srun:')))

    def test_in_the_script(self):
        """ddprun starts itself on all nodes by srun."""
        job = self.submit('$DDPRUN --nproc-per-node=2 --no-prefix sh -c \'echo "$RANK/$WORLD_SIZE $GROUP_RANK '
                          '$TORCHELASTIC_RUN_ID"\'', '-N3')
        self.assertEqual(self.wait(job), '0:0', self.cluster.output(job))
        self.assertEqual(self.shown(job), [f'{rank}/6 {rank // 2} slurm-{job}.0' for rank in range(6)])

    def test_the_script_of_the_guide(self):
        self.write('train.py', 'import os; print(os.environ["RANK"])\n')
        directives, command = block('docs/from-torchrun.md', '#!/bin/sh').split('exec ')
        job = self.cluster.submit(f'{directives}{self.exports}cd {self.folder}\nPATH={os.path.dirname(DDPRUN)}:$PATH\n'
                                  f'exec {command}')
        self.assertEqual(self.wait(job), '0:0', self.cluster.output(job))
        self.assertEqual(self.shown(job), sorted(f'[default{rank % 4}]:{rank}' for rank in range(8)))

    def test_below_srun(self):
        job = self.submit('srun -N2 --ntasks-per-node=1 $DDPRUN --no-prefix $ALLREDUCE &&\n'
                          'srun -N3 --ntasks-per-node=1 $DDPRUN --no-prefix sh -c "echo \\$RANK of \\$WORLD_SIZE"', '-N3')
        self.assertEqual(self.wait(job), '0:0', self.cluster.output(job))
        self.assertEqual([line for line in self.shown(job) if ' of ' in line and 'of 3' in line],
                         ['0 of 3', '1 of 3', '2 of 3'])

    def test_one_node_needs_no_srun(self):
        job = self.submit('PATH=/bin $DDPRUN --nproc-per-node=2 --no-prefix sh -c "echo \\$RANK of \\$WORLD_SIZE"', '-N1')
        self.assertEqual(self.wait(job), '0:0', self.cluster.output(job))
        self.assertEqual(self.shown(job), ['0 of 2', '1 of 2'])

    def test_the_code_of_the_worker_that_failed(self):
        job = self.submit('$DDPRUN sh -c "[ \\$RANK = 1 ] && exit 7; sleep 1000"', '-N3')
        self.assertEqual(self.wait(job), '7:0', self.cluster.output(job))
        self.assertEqual(self.cluster.output(job).count('rank 1 failed first: exit code 7'), 1)

    def test_tasks_that_are_workers_already(self):
        job = self.submit('srun -N2 --ntasks-per-node=2 $DDPRUN true', '-N2', '--ntasks-per-node=2')
        self.assertEqual(self.wait(job), '78:0', self.cluster.output(job))
        self.assertIn('srun starts 4 tasks on 2 nodes', self.cluster.output(job))

    def test_a_signal_before_the_limit(self):
        """Slurm signals each process of a step, and ddprun passes the signal on: a worker may see it twice."""
        job = self.submit('$DDPRUN --no-prefix sh -c "trap \'echo saved \\$RANK; exit 0\' USR1; echo up; '
                          'while :; do sleep 1000 & wait \\$!; done"', '-N3', '--signal=USR1@120', '--time=60')
        self.wait_for(job, 'up', 3)
        self.cluster.run('scontrol', 'update', f'JobId={job}', 'TimeLimit=2')  # Slurm looks twice a minute
        self.assertEqual(self.wait(job), '0:0', self.cluster.output(job))
        saved = [line for line in self.cluster.output(job).splitlines() if line.startswith('saved ')]
        self.assertEqual(sorted(set(saved)), ['saved 0', 'saved 1', 'saved 2'])

    def test_requeued_where_nodes_do_not_meet(self):
        """Exit code 75 is one with which slurm.conf tells Slurm to try again (RequeueExit), after two minutes."""
        job = self.submit('srun -N1 --ntasks=1 $DDPRUN --nnodes=2 --rdzv-endpoint=127.0.0.1:$((20000 + RANDOM % 9000)) '
                          '--join-timeout=10s true', '-N3', '--requeue')
        wait_until(lambda: self.cluster.field(job, 'Restarts') == '1', 'its requeueing')
        wait_until(lambda: self.state(job) == 'PENDING', 'its place in the queue')
        self.assertIn('waiting for 1 more node', self.cluster.output(job))
        self.cluster.run('scancel', job)
        self.wait(job)

    def test_scancel_leaves_nothing(self):
        job = self.submit('$DDPRUN --nproc-per-node=2 sh -c "setsid sleep 1000 & echo up; sleep 1000"', '-N3')
        self.wait_for(job, 'up', 6)
        self.cluster.run('scancel', job)
        self.wait(job)
        self.assertEqual(self.state(job), 'CANCELLED')

    def test_a_slurmd_that_is_killed(self):
        """The job goes on, as its launcher does not depend on it."""
        go = self.folder / 'go'
        job = self.submit(f'$DDPRUN --no-prefix sh -c "echo up; until [ -e {go} ]; do sleep 0.05; done; echo done"', '-N3')
        self.wait_for(job, 'up', 3)
        self.cluster.kill_slurmd('n2')
        go.write_text('')
        self.wait_for(job, 'done', 3)
        self.cluster.start_slurmd('n2')
        self.assertEqual(self.wait(job), '0:0', self.cluster.output(job))


if __name__ == '__main__':
    why = slurm_cluster.missing()
    if why is not None:
        skip_program(why)
    slurm_cluster.enter_namespace()
    unittest.main()
