#!/usr/bin/env python3
"""test_ddprun_pmi.py - ranks that leave the process manager of MPI programs wrongly, without MPI: each
speaks PMI-1 by itself. tests/interop/test_mpich.py has MPICH's programs.
"""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import DdprunCase, children, describe

RANK = '''
import os, signal, socket, sys
manager = socket.socket(fileno=int(os.environ['PMI_FD']))
rank = int(os.environ['RANK'])

def say(line):
    manager.sendall(line.encode() + b'\\n')

def hear():
    return manager.recv(4096).decode()

say('cmd=init pmi_version=1 pmi_subversion=1')
hear()
if rank == 1:
    say('cmd=barrier_in')
    print(f'rank 1 hears {hear()!r}', flush=True)
    sys.exit(3)
'''


class Ranks(DdprunCase):
    def start_ranks(self, rank_0):
        return self.start('--nproc-per-node=2', self.write('rank.py', RANK + rank_0), stdin=-1)

    def test_one_that_breaks_the_protocol(self):
        job = self.start_ranks("say('cmd=spawn nprocs=1'); hear()")
        self.assertEqual(job.wait(), 3)
        self.assertIn("rank 1 hears ''", job.out)
        self.assertIn('rank 0 (node 0) has left MPI while others wait for it', job.err)

    def test_one_that_closes_its_socket_and_goes_on(self):
        job = self.start_ranks('manager.close(); sys.stdin.read()')
        job.read_until("rank 1 hears ''")
        self.assertEqual(job.wait(), 3)

    def test_one_that_dies_is_named_and_not_who_waits_for_it(self):
        job = self.start_ranks('os.kill(os.getpid(), signal.SIGKILL)')
        self.assertEqual(job.wait(), 137)
        self.assertIn('rank 0 failed first: killed by SIGKILL', job.err)
        self.assertNotIn('has left MPI', job.err)

    def test_nobody_else_pays_for_pmix(self):
        """Its server and its library come with the first rank that connects."""
        job = self.start('--no-prefix', 'sh', '-c', 'echo $PPID; read line; :', stdin=-1)
        job.read_until('\n')
        agent = int(job.out)
        names = {describe(pid).split('(')[1] for pid in children(agent)}
        self.assertEqual(names, {'sh)'})
        self.assertNotIn('libpmix', Path(f'/proc/{agent}/maps').read_text())
        job.process.stdin.close()
        self.assertEqual(job.wait(), 0)


if __name__ == '__main__':
    unittest.main()
