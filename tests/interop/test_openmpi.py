#!/usr/bin/env python3
"""test_openmpi.py - a program of Open MPI's under ddprun --mpi=openmpi, as under its own mpirun: on one node and on
several, through the library that Open MPI 4 loads. Skipped (77) where Open MPI is not installed, unless
DDPRUN_INTEROP=1 demands it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase
from nodes import free_port
from skip import skip_program

MPICC = shutil.which('mpicc.openmpi')
MPIRUN = shutil.which('mpirun.openmpi')
SOURCE = Path(__file__).resolve().parent / 'mpi_program.c'
built = tempfile.TemporaryDirectory()
PROGRAM = os.path.join(built.name, 'mpi_program')
AS_ROOT = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}


def lines(size):
    total = size * (size - 1) // 2
    return [f'rank {rank} of {size}: sum {total}, all the way round' for rank in range(size)]


def is_version_4():
    version = subprocess.run([MPIRUN, '--version'], env=dict(os.environ, **AS_ROOT), capture_output=True, text=True,
                             check=False).stdout
    return re.search(r'\) 4\.', version) is not None


class OpenMpi(DdprunCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([MPICC, '-O1', '-o', PROGRAM, str(SOURCE)], check=True, capture_output=True)

    def setUp(self):
        super().setUp()
        (self.folder / 'session').mkdir()
        self.env['OMPI_MCA_orte_tmpdir_base'] = str(self.folder / 'session')

    def mpi(self, *words, **options):
        return self.run_job('--mpi=openmpi', '--no-prefix', *words, **options)

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
        nodes = [self.start('--mpi=openmpi', '--nnodes=3', f'--node-rank={node}', f'--nproc-per-node={node + 1}',
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
        self.assertIn('rank 1 (node 0) has left MPI while others wait for it', job.err)

    def test_mpirun_as_a_worker(self):
        job = self.run_job('--no-prefix', '--nproc-per-node=1', MPIRUN, '--oversubscribe', '-n', '2', PROGRAM, env=AS_ROOT)
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(job.out.splitlines()), lines(2))


if __name__ == '__main__':
    if MPICC is None or MPIRUN is None or not is_version_4():
        skip_program('mpicc.openmpi or mpirun.openmpi of Open MPI 4 is missing (Debian packages libopenmpi-dev '
                     'and openmpi-bin)')
    unittest.main()
