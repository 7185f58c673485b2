#!/usr/bin/env python3
"""test_frameworks.py - programs of JAX and TensorFlow under ddprun: on one node, on two with addresses of their own, after
a restart. $FRAMEWORKS_PYTHON is a Python that has both, which scripts/setup interop installs; what it cannot import is
skipped, unless DDPRUN_INTEROP=1 demands it.
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase
from nodes import DebianNames, Loopback, NotPermitted, free_port
from skip import skip_program

PYTHON = os.environ.get('FRAMEWORKS_PYTHON', '')
HERE = Path(__file__).resolve().parent
PROGRAMS = {'jax': ['jax_worker.py'], 'tensorflow': ['tensorflow_worker.py', '--tf-config']}


class Frameworks(DdprunCase):
    @classmethod
    def setUpClass(cls):
        hosts = tempfile.TemporaryDirectory()
        cls.addClassCleanup(hosts.cleanup)
        try: # JAX's ranks meet at the addresses of the nodes' names
            cls.wires = DebianNames(('node0', 'node1'), Path(hosts.name), own=None)
        except NotPermitted:
            cls.wires = Loopback()
        cls.addClassCleanup(cls.wires.close)

    def setUp(self):
        super().setUp()
        self.env.update(PYTHON_EXEC=PYTHON, JAX_PLATFORMS='cpu', PYTHONDONTWRITEBYTECODE='1')

    def words(self, name, *more):
        script, *options = PROGRAMS[name]
        return ['--no-prefix', *options, *more, str(HERE / script)]

    def assert_sums(self, name, size, jobs):
        total = size * (size + 1) // 2
        out = [line for job in jobs for line in job.out.splitlines() if line.startswith(name)]
        self.assertEqual(sorted(out), [f'{name} {rank} of {size}: {total}' for rank in range(size)])

    def test_one_node(self):
        for name in PROGRAMS:
            job = self.run_job(*self.words(name, '--nproc-per-node=2'))
            self.assert_succeeded(job)
            self.assert_sums(name, 2, [job])

    def test_two_nodes(self):
        for name in PROGRAMS:
            endpoint = f'{self.wires.address_of("node0")}:{free_port()}'
            jobs = []
            for node in range(2):
                command = self.wires.enter(f'node{node}', [DDPRUN, '--nnodes=2', f'--node-rank={node}', '--no-auth',
                                                           f'--nproc-per-node={node + 1}', f'--rdzv-endpoint={endpoint}',
                                                           '--rdzv-id=frameworks', '--lease=10m', *self.words(name)])
                jobs.append(self.start(*command[1:], program=command[0]))
            for job in jobs:
                self.assertEqual(job.wait(), 0, job.err)
            self.assert_sums(name, 3, jobs)

    def test_after_a_restart(self):
        """Its coordinator, that of JAX, was at a port of its own."""
        job = self.run_job(*self.words('jax', '--nproc-per-node=2', '--max-restarts=1'), 'fail')
        self.assert_succeeded(job)
        self.assert_sums('jax', 2, [job])


if __name__ == '__main__':
    if not os.access(PYTHON, os.X_OK) or subprocess.run([PYTHON, '-c', 'import jax, tensorflow'], capture_output=True,
                                                        check=False).returncode != 0:
        skip_program(f"JAX and TensorFlow are missing: {PYTHON or 'FRAMEWORKS_PYTHON'} cannot import both; 'scripts/setup "
                     "interop' installs them")
    unittest.main()
