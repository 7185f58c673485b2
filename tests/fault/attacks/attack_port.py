"""attack_port.py - another user takes the port that is kept for rank 0, which Linux lets him.

He is there before the workers start, or comes while they run; with a socket that listens, or that is
only bound, which Linux tells of from 6.8 on.
"""

import os
import re
import socket
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'lib'))
from ddprund_run import CONFIG, DdprundCase
from nodes import free_port
from strangers import STRANGER, needs_strangers

KERNEL = tuple(int(number) for number in re.findall(r'\d+', os.uname().release)[:2])
WAYS = (True, False) if KERNEL >= (6, 8) else (True,)  # he listens
# A place of its own for rank 0, whatever else there is.
OWN = {'TORCH_DISABLE_SHARE_RDZV_TCP_STORE': '1'}


def sentence(port):
    return f'another user of this machine (number {STRANGER}) has a socket on port {port}, which is kept for rank 0'


@needs_strangers
class MasterPort(DdprundCase):
    def take(self, port, listens=True):
        """A socket is of the user who has opened it."""
        os.seteuid(STRANGER)
        try:
            taken = socket.socket()
        finally:
            os.seteuid(0)
        self.addCleanup(taken.close)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(('127.0.0.1', port))
        if listens:
            taken.listen()
        return taken

    # Its first generation ends when that file is there.
    SCRIPT = ('echo "generation $TORCHELASTIC_RESTART_COUNT at $MASTER_PORT rank $RANK"; '
              '[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; until [ -e "$0" ]; do sleep 0.02; done; exit 3')

    def take_while_it_runs(self, job, listens):
        """The port of @job, which a stranger has taken when its first generation fails."""
        job.read_until('generation 0 at ')
        port = int(re.search(r'generation 0 at (\d+)', job.out)[1])
        self.take(port, listens)
        (self.folder / 'gate').touch()
        return port

    def assert_elsewhere(self, jobs, port):
        """It is said once, and the second generation is at another port."""
        for each in jobs:
            self.assertEqual(each.wait(), 0, each.err)
        said = ''.join(each.err for each in jobs)
        self.assertEqual(said.count(sentence(port)), 1, said)
        ports = set(re.findall(r'generation 1 at (\d+)', ''.join(each.out for each in jobs)))
        self.assertEqual(len(ports), 1, ports)
        self.assertNotIn(str(port), ports)

    def start_one(self, *words):
        (self.folder / 'gate').unlink(missing_ok=True)
        return self.start('--max-restarts=1', *words, '--no-prefix', 'sh', '-c', self.SCRIPT,
                          self.folder / 'gate', env=OWN)

    def test_a_port_that_ddprun_has_chosen(self):
        for listens in WAYS:
            with self.subTest(listens=listens):
                job = self.start_one()
                self.assert_elsewhere([job], self.take_while_it_runs(job, listens))

    def test_a_port_that_was_asked_for(self):
        for listens in WAYS:
            with self.subTest(listens=listens):
                job = self.start_one(f'--master-port={free_port()}')
                port = self.take_while_it_runs(job, listens)
                self.assertEqual(job.wait(), CONFIG, job.err)
                self.assertIn(sentence(port), job.err)
                self.assertNotIn('generation 1', job.out)

    def test_users_who_are_trusted(self):
        job = self.start_one('--trust-local-users')
        port = self.take_while_it_runs(job, listens=True)
        self.assertEqual(job.wait(), 0, job.err)
        self.assertNotIn('another user', job.err)
        self.assertIn(f'generation 1 at {port} ', job.out)

    def start_two(self, *words, command):
        endpoint = f'--rdzv-endpoint=127.0.0.1:{free_port()}'
        return [self.start('--nnodes=2', endpoint, '--lease=10m', '--max-restarts=1', *words, '--no-prefix', *command,
                           env=OWN) for _ in range(2)]

    def test_a_port_of_a_job_of_two_nodes(self):
        jobs = self.start_two(command=('sh', '-c', self.SCRIPT, self.folder / 'gate'))
        jobs[1].read_until('generation 0 at ') # else rank 0 may not have started, and its node would end the job
        self.assert_elsewhere(jobs, self.take_while_it_runs(jobs[0], listens=True))

    def test_a_port_that_was_asked_for_of_a_job_of_two_nodes(self):
        """The node that has rank 0 starts none."""
        port = free_port()
        self.take(port)
        jobs = self.start_two(f'--master-port={port}', '--join-timeout=60s', command=('sh', '-c', 'echo runs; exec sleep 60'))
        codes = {job.wait() for job in jobs}
        said = ''.join(job.err for job in jobs)
        self.assertIn(CONFIG, codes, said)
        self.assertIn(sentence(port), said)


if __name__ == '__main__':
    unittest.main()
