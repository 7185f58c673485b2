#!/usr/bin/env python3
"""test_mpich.py - a program of MPICH's under ddprun, as under its own mpiexec: on one node and on
several, through PMI-1. Skipped (77) where MPICH is not installed, unless DDPRUN_INTEROP=1 demands it.
"""

import os
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

MPICC = shutil.which('mpicc.mpich')
MPIEXEC = shutil.which('mpiexec.mpich')
SOURCE = Path(__file__).resolve().parent / 'mpi_program.c'
built = tempfile.TemporaryDirectory()
PROGRAM = os.path.join(built.name, 'mpi_program')


def lines(size):
    total = size * (size - 1) // 2
    return [f'rank {rank} of {size}: sum {total}, all the way round' for rank in range(size)]


class Mpich(DdprunCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([MPICC, '-O1', '-o', PROGRAM, str(SOURCE)], check=True, capture_output=True)

    def test_as_under_mpiexec(self):
        for size in (1, 2, 5):
            mpiexec = subprocess.run([MPIEXEC, '-n', str(size), PROGRAM], check=True,
                                     capture_output=True, text=True)
            self.assertEqual(sorted(mpiexec.stdout.splitlines()), lines(size))
            job = self.run_job(f'--nproc-per-node={size}', '--no-prefix', PROGRAM)
            self.assertEqual((job.code, job.err), (0, ''))
            self.assertEqual(sorted(job.out.splitlines()), lines(size))

    def test_over_nodes_of_different_sizes(self):
        nodes = [self.start('--nnodes=3', f'--node-rank={node}', f'--nproc-per-node={node + 1}',
                            f'--rdzv-endpoint={self.endpoint()}', '--rdzv-id=mpi', '--lease=10m',
                            '--no-prefix', PROGRAM)
                 for node in range(3)]
        for node in nodes:
            self.assertEqual(node.wait(), 0, node.err)
        self.assertEqual(sorted(line for node in nodes for line in node.out.splitlines()), lines(6))

    def test_after_a_restart(self):
        job = self.run_job('--nproc-per-node=3', '--no-prefix', '--max-restarts=1', PROGRAM, 'restart')
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(sorted(job.out.splitlines()), lines(3))

    def test_abort(self):
        for code, expected in ((7, 7), (0, 1)):
            job = self.run_job('--nproc-per-node=3', '--no-prefix', PROGRAM, 'abort', str(code))
            self.assertEqual(job.code, expected, job.err)
            self.assertIn(f'rank 1 has called MPI_Abort with exit code {code}', job.err)

    def test_a_rank_that_does_not_come(self):
        """The others would wait for it in MPI_Init for ever."""
        job = self.run_job('--nproc-per-node=3', '--no-prefix', PROGRAM, 'leave')
        self.assertNotEqual(job.code, 0)
        self.assertIn('rank 1 (node 0) has left MPI while others wait for it', job.err)

    def endpoint(self):
        if not hasattr(self, 'port'):
            self.port = free_port()
        return f'127.0.0.1:{self.port}'


if __name__ == '__main__':
    if MPICC is None or MPIEXEC is None:
        skip_program("MPICH's mpicc.mpich or mpiexec.mpich is missing (Debian packages mpich and libmpich-dev)")
    unittest.main()
