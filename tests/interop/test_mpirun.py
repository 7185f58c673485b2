#!/usr/bin/env python3
"""test_mpirun.py - ddprun below the mpirun of Open MPI, one on each of two hosts, takes nodes, rank and place from
mpirun's variables. The remote shell is a script that runs the command on this machine. Skipped (77) where Open MPI is
not installed, unless DDPRUN_INTEROP=1 demands it.
"""

import shutil
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DDPRUN, DdprunCase
from skip import skip_program

MPIRUN = shutil.which('mpirun.openmpi')
# Each host has its own folder for Open MPI's daemon: two of them begin at once, and mkdir of one may be in the other's
# way.
SHELL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done # options of ssh
TMPDIR=$(dirname "$0")/$1
mkdir -p "$TMPDIR"
export TMPDIR
shift
exec sh -c "$*"
"""


class OpenMpi(DdprunCase):
    def mpirun(self, processes_of_a_node, *words):
        shell = self.write('shell', SHELL)
        command = ['--allow-run-as-root', '--oversubscribe', '--mca', 'plm_rsh_agent', shell, '--host', 'a:2,b:2',
                   '--map-by', f'ppr:{processes_of_a_node}:node', DDPRUN, '--no-prefix', *words]
        return self.start(*command, program=MPIRUN, env={'XDG_CONFIG_HOME': self.folder / 'config', 'TMPDIR': '/tmp'})

    def test_two_nodes(self):
        job = self.mpirun(1, '--nproc-per-node=2', 'sh', '-c', 'echo $RANK/$WORLD_SIZE $GROUP_RANK $TORCHELASTIC_RUN_ID')
        self.assertEqual(job.wait(), 0, job.err)
        lines = sorted(line.split() for line in job.out.splitlines())
        self.assertEqual([line[:2] for line in lines], [['0/4', '0'], ['1/4', '0'], ['2/4', '1'], ['3/4', '1']])
        self.assertEqual({line[2][:7] for line in lines}, {'mpirun-'})

    def test_a_launcher_for_each_worker_is_too_many(self):
        job = self.mpirun(2, 'true')
        self.assertEqual(job.wait(), 78, job.err)
        self.assertIn('mpirun starts 2 processes on this node', job.err)


if __name__ == '__main__':
    if MPIRUN is None:
        skip_program("Open MPI's mpirun.openmpi is missing (Debian package openmpi-bin)")
    unittest.main()
